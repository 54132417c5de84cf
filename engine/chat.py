"""From chat messages to a prompt, by a chat template: the one in the model's GGUF file, or another."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..models.errors import ModelError
from .chat_template import ChatTemplate, JinjaChatTemplate, Message
from .native_chat_template import NativeChatTemplate, builtin_chat_templates

if TYPE_CHECKING:
    from .model import Model
    from .vocabulary import Vocabulary


def open_chat_template(
    model: Model, source: str | None = None, variables: Mapping[str, Any] | None = None
) -> ChatTemplate:
    """Return a chat template, ready to use.

    Args:
        model: The model whose template it is, and whose BOS and EOS tokens a template writes.
        source: A template in Jinja, or the name of one of llama.cpp's (`builtin_chat_templates`); None: the
            model's own.
        variables: Variables of the template, such as ``{"enable_thinking": False}``. The built-in ones have none.

    Raises ``ModelError`` when the model has no template, when there is no such template, or when it is not valid.
    """
    if source is None and model.chat_template is None:
        raise ModelError(
            "this model has no chat template",
            advice="give one (chat_template=…), ask without a chat and a system message, or use a chat model",
        )
    bos, eos = model.special_text("bos"), model.special_text("eos")
    if source is None:
        return _open_jinja(
            str(model.chat_template), "the model's chat template", bos, eos, json.dumps(dict(variables or {}))
        )
    return _open(source, bos, eos, variables)


def check_chat_template(source: str, variables: Mapping[str, Any] | None = None) -> None:
    """Raise ``ModelError`` for what `open_chat_template` would refuse, before there is a model."""
    _open(source, "", "", variables)


def _open(source: str, bos: str, eos: str, variables: Mapping[str, Any] | None) -> ChatTemplate:
    if source in builtin_chat_templates():
        if variables:
            raise ModelError(f"the chat template {source} is built into llama.cpp, and takes no variables")
        return NativeChatTemplate(source)
    if not is_chat_template(source):
        raise ModelError("this is no chat template: it is neither Jinja, nor the name of one of llama.cpp's")
    return _open_jinja(source, "the chat template", bos, eos, json.dumps(dict(variables or {})))


@lru_cache(maxsize=16)
def _open_jinja(source: str, name: str, bos: str, eos: str, variables: str) -> JinjaChatTemplate:
    return JinjaChatTemplate(source, name=name, bos=bos, eos=eos, variables=json.loads(variables))


def is_chat_template(text: str) -> bool:
    """True for the name of one of llama.cpp's built-in templates, and for a text with tags of Jinja."""
    return text in builtin_chat_templates() or "{{" in text or "{%" in text


def build_prompt(  # noqa: PLR0913 - the arguments are public
    model: Model,
    text: str,
    *,
    system: str | None = None,
    chat: bool | None = None,
    template: ChatTemplate | None = None,
    report: Callable[[str], object] | None = None,
) -> str:
    """Return the prompt for one message of a user.

    Args:
        model: The model whose chat template is used.
        text: The user's message.
        system: The system message.
        chat: True: use the chat template; False: the text itself is the prompt; None: use the template if there is
            a system message, or a ``template``.
        template: See `format_chat`.
        report: See `format_chat`.

    Raises ``ModelError`` as `format_chat` does.
    """
    if not ((system is not None or template is not None) if chat is None else chat):
        return text
    messages = [] if system is None else [{"role": "system", "content": system}]
    return format_chat(model, [*messages, {"role": "user", "content": text}], template, report)


def frame_input(vocabulary: Vocabulary, text: str, prefix: str, suffix: str) -> list[int]:
    """Token ids of a user's message between a prefix and a suffix, which take the place of a chat template.

    As llama.cpp's ``--in-prefix`` and ``--in-suffix``: the three are tokenized one by one. BOS goes first if the
    model adds it. Raises ``ModelError`` for a text that is not UTF-8.

    Args:
        vocabulary: The model's.
        text: The user's message; names of control tokens are text here.
        prefix: What goes before it; names of control tokens, such as ``<|im_start|>``, are these tokens.
        suffix: What goes after it, likewise.
    """
    try:
        parts = [(prefix.encode(), True), (text.encode(), False), (suffix.encode(), True)]
    except UnicodeEncodeError:
        raise ModelError("the prompt is not UTF-8") from None
    framed = [] if vocabulary.bos is None or not vocabulary.adds_bos else [vocabulary.bos]
    for data, has_special in parts:
        framed += vocabulary.tokenize(data, special=has_special)
    return framed


def format_chat(
    model: Model,
    messages: Sequence[Message],
    template: ChatTemplate | None = None,
    report: Callable[[str], object] | None = None,
) -> str:
    """Return the prompt after which the model writes the next message of the assistant.

    Args:
        model: The model.
        messages: The chat, the oldest message first.
        template: See `open_chat_template`; None: the model's own.
        report: Called with a sentence if the messages had to be changed for the template: where it has no system
            role, the system message stands before the first message of the user.

    Raises ``ModelError`` when the model has no chat template, or when the template refuses the messages.
    """
    prompt = (template or open_chat_template(model)).render(messages)
    if prompt.note is not None and report is not None:
        report(prompt.note)
    return prompt.text
