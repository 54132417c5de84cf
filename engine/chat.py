"""Chat messages to a prompt, by the template that the model's author put in the GGUF."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import ModelError

if TYPE_CHECKING:
    from .model import Model

Message = dict[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


def format_chat(model: Model, messages: Sequence[Message]) -> str:
    """Return the prompt that asks the model for the next assistant message.

    llama-cpp-python's sandboxed Jinja renders the template. Raises ``ModelError`` when the model has no chat
    template, or when the template refuses the messages.
    """
    template = model.chat_template
    if template is None:
        raise ModelError("this model has no chat template; leave out --chat and --system, or use a chat model")
    formatter = _formatter(template, model.special_text("bos"), model.special_text("eos"))
    try:
        return str(formatter(messages=list(messages)).prompt)
    except Exception as error:  # a template is the model author's program: it may raise anything
        raise ModelError(f"the model's chat template failed: {error}") from error


@lru_cache(maxsize=4)
def _formatter(template: str, bos: str, eos: str) -> Any:
    """A template takes some hundredths of a second to compile, and a batch uses it ten thousand times."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter  # noqa: PLC0415 - only chats pay for Jinja

    return Jinja2ChatFormatter(template=template, bos_token=bos, eos_token=eos)
