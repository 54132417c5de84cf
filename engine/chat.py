"""From chat messages to a prompt, by the chat template in the model's GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import ModelError

if TYPE_CHECKING:
    from .model import Model

Message = dict[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


def build_prompt(model: Model, text: str, *, system: str | None = None, chat: bool | None = None) -> str:
    """Return the prompt for one message of a user.

    Args:
        model: The model whose chat template is used.
        text: The user's message.
        system: The system message.
        chat: True: use the chat template; False: the text itself is the prompt; None: use the template if there is
            a system message.

    Raises ``ModelError`` as `format_chat` does.
    """
    if not (system is not None if chat is None else chat):
        return text
    messages = [] if system is None else [{"role": "system", "content": system}]
    return format_chat(model, [*messages, {"role": "user", "content": text}])


def format_chat(model: Model, messages: Sequence[Message]) -> str:
    """Return the prompt after which the model writes the next message of the assistant.

    llama-cpp-python's sandboxed Jinja renders the template. Raises ``ModelError`` when the model has no chat
    template, or when the template refuses the messages.
    """
    template = model.chat_template
    if template is None:
        raise ModelError("this model has no chat template; leave out --chat and --system, or use a chat model")
    formatter = _formatter(template, model.special_text("bos"), model.special_text("eos"))
    try:
        return str(formatter(messages=list(messages)).prompt)
    except Exception as error:  # a template is a program of the model's author: it may raise anything
        raise ModelError(f"the model's chat template failed: {error}") from error


@lru_cache(maxsize=4)
def _formatter(template: str, bos: str, eos: str) -> Any:
    """Compile a template. That takes some hundredths of a second, and a batch may use it ten thousand times."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter  # noqa: PLC0415 - only chats pay for Jinja

    return Jinja2ChatFormatter(template=template, bos_token=bos, eos_token=eos)
