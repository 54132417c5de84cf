"""The chat template of a model, of a file or of llama.cpp, and the prompt that it makes.

A template is the one in the model's GGUF file, another one in Jinja, or the name of one that is built into
llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ..common.errors import Word
from ..models.errors import ModelError
from .chat_template import BegunReasoning, ChatTemplate, Message
from .guidance import with_system_message
from .jinja_template import JinjaChatTemplate
from .native_template import NativeChatTemplate, builtin_chat_templates
from .request import ChatMessages, GenerationRequest

if TYPE_CHECKING:
    from .model import Model
    from .vocabulary import Vocabulary


def open_chat_template(
    model: Model, source: str | None = None, variables: Mapping[str, Any] | None = None
) -> ChatTemplate:
    """Return a chat template, ready to use.

    Args:
        model: The model. Templates write its BOS and EOS tokens.
        source: A template in Jinja, or the name of one of llama.cpp's (`builtin_chat_templates`); None: the
            model's template.
        variables: Variables of the template, such as ``{"enable_thinking": False}``. The built-in ones have none.

    Raises ``ModelError`` when the model has no template, when there is no such template, or when it is not valid.
    """
    if source is None and model.chat_template is None:
        raise ModelError(
            "this model has no chat template",
            advice=(
                *("give one (", Word.CHAT_TEMPLATE, "), send a prompt without a system message,"),
                " or use a chat model",
            ),
        )
    bos = model.special_text("bos")
    eos = model.special_text("eos")
    if source is None:
        variables_json = json.dumps(dict(variables or {}))
        return _open_jinja(str(model.chat_template), "the model's chat template", bos, eos, variables_json)
    return _open_by_source(source, bos, eos, variables)


def check_chat_template(source: str, variables: Mapping[str, Any] | None = None) -> None:
    """Raise the ``ModelError`` that `open_chat_template` would raise for a template, before there is a model."""
    _open_by_source(source, "", "", variables)


def open_template_without_model(source: str) -> ChatTemplate:
    """Return a chat template without the texts of a model's tokens, to ask what it reads."""
    # Raises ``ModelError``.
    return _open_by_source(source, "", "", None)


def _open_by_source(source: str, bos: str, eos: str, variables: Mapping[str, Any] | None) -> ChatTemplate:
    if source in builtin_chat_templates():
        if variables:
            raise ModelError(f"the chat template {source} is built into llama.cpp and has no variables")
        return NativeChatTemplate(source)
    source = _template_in_json(source) or source
    if not is_chat_template(source):
        raise ModelError(
            "this is not a chat template: it is neither Jinja nor the name of a template of llama.cpp"
        )
    return _open_jinja(source, "the chat template", bos, eos, json.dumps(dict(variables or {})))


# The name that transformers gives the template for a chat without tools, where a file has several templates
_MAIN_TEMPLATE = "default"


def _template_in_json(text: str) -> str | None:
    """Return the template in transformers' ``tokenizer_config.json``; None if it is no JSON."""
    # Raises ``ModelError``.
    if not text.lstrip().startswith("{"):
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None  # Jinja begins with a brace, too
    template = values.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
    if isinstance(template, dict):
        template = _main_template(template)
    if not isinstance(template, str):
        raise ModelError("this JSON has no chat_template")
    return template


def _main_template(templates: Mapping[str, Any]) -> Any:
    """Return the template for a chat without tools. Raises ``ModelError``."""
    if len(templates) == 1:
        (template,) = templates.values()
    else:
        template = templates.get(_MAIN_TEMPLATE)
    if template is None:
        names = ", ".join(str(name) for name in templates)
        raise ModelError(f"this JSON has the chat templates {names}, and none is named {_MAIN_TEMPLATE}")
    return template


@lru_cache(maxsize=16)
def _open_jinja(source: str, name: str, bos: str, eos: str, variables: str) -> JinjaChatTemplate:
    return JinjaChatTemplate(source, name=name, bos=bos, eos=eos, variables=json.loads(variables))


def is_chat_template(text: str) -> bool:
    """Return whether a string has tags of Jinja, or is the name of one of llama.cpp's built-in templates."""
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
        model: The model.
        text: The user's message.
        system: The system message.
        chat: True: use the chat template; False: the text itself is the prompt; None: use the template if there is
            a system message or a ``template``.
        template: See `format_chat`.
        report: See `format_chat`.

    Raises ``ModelError`` as `format_chat` does.
    """
    messages = messages_of_user(text, system=system, chat=chat, template=template)
    return text if messages is None else format_chat(model, messages, template, report)


def messages_of_user(
    text: str, *, system: str | None, chat: bool | None, template: ChatTemplate | None
) -> list[Message] | None:
    """Return the chat of one message of a user, see `build_prompt`; None if the text itself is the prompt."""
    if chat is None:
        chat = system is not None or template is not None
    if not chat:
        return None
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def format_chat(  # noqa: PLR0913 - the arguments are public
    model: Model,
    messages: Sequence[Message],
    template: ChatTemplate | None = None,
    report: Callable[[str], object] | None = None,
    *,
    beginning: str = "",
    reasoning: BegunReasoning | None = None,
) -> str:
    """Return the prompt after which the model writes the next message of the assistant.

    Args:
        model: The model.
        messages: The chat, the oldest message first.
        template: See `open_chat_template`; None: the model's template.
        report: Called with a sentence if the messages had to be changed for the template: if it has no system
            role, the text of the system message is placed before the first message of the user.
        beginning: The beginning of the assistant's message, with which the prompt ends.
        reasoning: The reasoning before the beginning; None: it has none.

    Raises ``ModelError`` when the model has no chat template, or when the template rejects the messages.
    """
    template = template or open_chat_template(model)
    if beginning or reasoning is not None:
        prompt = template.render_beginning(messages, beginning, reasoning)
    else:
        prompt = template.render(messages)
    if prompt.note is not None and report is not None:
        report(prompt.note)
    return prompt.text


def tokenize_with_affixes(vocabulary: Vocabulary, text: str, prefix: str, suffix: str) -> list[int]:
    """Return the token ids of a user's message between a prefix and a suffix, which replace a chat template.

    As with llama.cpp's ``--in-prefix`` and ``--in-suffix``, the three parts are tokenized separately. BOS is added
    at the beginning if the model adds it. Raises ``ModelError`` for text that is not UTF-8.

    Args:
        vocabulary: The vocabulary of the model.
        text: The user's message. Names of control tokens in it are plain text.
        prefix: The text before the message. Names of control tokens, such as ``<|im_start|>``, become these
            tokens.
        suffix: The text after the message. Names of control tokens become these tokens.
    """
    try:
        ids = [
            *vocabulary.tokenize(prefix.encode(), special=True),
            *vocabulary.tokenize(text.encode(), special=False),
            *vocabulary.tokenize(suffix.encode(), special=True),
        ]
    except UnicodeEncodeError:
        raise ModelError("the prompt is not UTF-8") from None
    if vocabulary.adds_bos and vocabulary.bos is not None:
        ids.insert(0, vocabulary.bos)
    return ids


def format_request(
    model: Model, request: GenerationRequest, report: Callable[[str], object] | None = None
) -> GenerationRequest:
    """Return a request with the prompts that the chat template makes of its messages; see `format_chat`."""
    chat = request.prompt
    if not isinstance(chat, ChatMessages):
        return request
    template = open_chat_template(model, chat.template, chat.variables)
    begin = partial(format_chat, model, template=template, beginning=request.beginning, reasoning=chat.reasoning)
    prompt = begin(chat.messages, report=report)
    thought = chat.reasoning.text if chat.reasoning is not None and not chat.reasoning.is_complete else ""
    formatted = request.with_chat_text(prompt, template.reasoning_after(prompt, thought or request.beginning))
    negative_text = request.rules.negative_text
    if negative_text is None:
        return formatted
    messages = with_system_message(chat.messages, negative_text)
    return formatted.with_negative_prompt(begin(messages))
