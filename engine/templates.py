"""Chat templates: which one a model has, and the prompt that a template makes of the messages of a chat.

A template is the one in the model's GGUF file, another one in Jinja, or one that llama.cpp has built in, by
name. The prompts of the built-in ones are written by llama.cpp, in C++.
"""

from __future__ import annotations

import ctypes
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ..common.renamed import supports_old_names
from ..models.errors import ModelError
from .native.binding import lib

if TYPE_CHECKING:
    from jinja2 import Template

    from .model import Model
    from .vocabulary import Vocabulary

Message = dict[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


@supports_old_names
@dataclass(frozen=True)
class ReasoningTags:
    """What a model writes before and after its reasoning, as ``<think>`` and ``</think>``.

    ``answer_prefixes``: what it writes before its answer. A template of such a model takes answers without
    reasoning.
    """

    start: str
    end: str
    answer_prefixes: tuple[str, ...] = field(default=(), repr=False)


_REASONING_TAGS = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<thinking>", "</thinking>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<|channel>thought", "<channel|>"),
    ReasoningTags(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
    ),
)


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt that a chat template has made.

    ``note``: a sentence, if the messages had to be changed for the template; else None.
    """

    text: str
    note: str | None = None


class ChatTemplate(ABC):
    """A chat template, ready to use: see `open_chat_template`.

    ``name``: what messages call it, such as ``the model's chat template``.
    """

    name: str

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The tags around the reasoning of the model, if it has some of the well-known ones; None: it has none."""
        return None

    @abstractmethod
    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt of some messages.

        Args:
            messages: The chat, the oldest message first.
            add_generation_prompt: Let the prompt end with the beginning of the assistant's next message.

        Raises ``ModelError`` when the template refuses the messages, or computes too much.
        """


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


def tokenize_with_affixes(vocabulary: Vocabulary, text: str, prefix: str, suffix: str) -> list[int]:
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


_RESERVED_VARIABLES = ("messages", "add_generation_prompt")
_FORGETTING_VARIABLES = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
"""Variables by which templates leave out the reasoning of former answers; each family of models has another."""
_TRIMMED_SOURCE = "You have access to the following functions in JSONSchema format"
"""Words of StepFun's template. Its models can reason without end when spaces surround a message, so that llama.cpp
trims the messages of each template with these words."""
_ASCII_SPACES = " \t\n\v\f\r"
_EXTRA_CHARACTERS_PER_MESSAGE = 200
"""Characters by which each message counts as longer than it is, for what a template does with it."""
_SYSTEM_MARK, _USER_MARK, _REASONING_MARK = "SystemMark", "UserMark", "ReasoningMark"
"""Texts by which a template is tried: what it does with a message shows in its output."""


class JinjaChatTemplate(ChatTemplate):
    """A template in Jinja, in a sandbox: it reaches its variables only, and its work is limited (`WorkBudget`)."""

    def __init__(
        self,
        source: str,
        *,
        name: str = "the chat template",
        bos: str = "",
        eos: str = "",
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Compile a template.

        Args:
            source: The template.
            name: What messages call it.
            bos: Its variable ``bos_token``.
            eos: Its variable ``eos_token``.
            variables: More variables, such as ``{"enable_thinking": False}``. Without a value, ``enable_thinking``
                is True if the template can reason, and ``preserve_reasoning`` is True, both as in llama.cpp's
                server. ``preserve_reasoning`` and ``reasoning_effort`` set the variables by which other templates
                name the same thing.

        Raises ``ModelError`` for a template that is not valid, and for variables that are set here.
        """
        self.name, self._source = name, source
        given = dict(variables or {})
        for variable in _RESERVED_VARIABLES:
            if variable in given:
                raise ModelError(f"the variable {variable} of chat templates is set by the messages themselves")
        self._variables = {"bos_token": bos, "eos_token": eos, **_with_other_names(given)}
        self._template = _compile(source, name)

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The first of the well-known pairs that stands in the template.

        Some templates only remove the reasoning of former answers, and name nothing but its end.
        """

        def stands(tags: ReasoningTags) -> bool:
            return tags.end in self._source and (tags.start in self._source or not tags.answer_prefixes)

        return next(filter(stands, _REASONING_TAGS), None)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt of some messages.

        Where the template has no place for a system message, its text goes before that of the first message of the
        user, as in llama.cpp.
        """
        note = None
        if messages and messages[0]["role"] == "system" and not self._has_system_role:
            messages = _merge_system_message(messages)
            note = f"{self.name} has no system role: the system message goes before the user's first message"
        if _TRIMMED_SOURCE in self._source:
            messages = [{**message, "content": message["content"].strip(_ASCII_SPACES)} for message in messages]
        return ChatPrompt(
            self._render(messages, self._expects_content_parts, add_generation_prompt, self._can_think), note
        )

    @cached_property
    def _has_system_role(self) -> bool:
        """False if the template refuses system messages, or leaves them out."""
        user = [{"role": "user", "content": _USER_MARK}]
        rendered = self._try([{"role": "system", "content": _SYSTEM_MARK}, *user], self._expects_content_parts)
        if rendered is not None:
            return _SYSTEM_MARK in rendered
        return (
            self._try(user, self._expects_content_parts) is None
        )  # one that fails for any messages says why by itself

    @cached_property
    def _expects_content_parts(self) -> bool:
        """True if the content of a message has to be a list of parts, as for models that also see pictures."""
        user = [{"role": "user", "content": _USER_MARK}]
        if _USER_MARK in (self._try(user, False) or ""):
            return False
        return _USER_MARK in (self._try(user, True) or "")

    @cached_property
    def _can_think(self) -> bool:
        """True if the text of reasoning can be distinguished from the text of the answer.

        llama.cpp's server makes similar comparisons, and enables reasoning for no other template.
        """
        if (
            "enable_thinking" in self._variables
            or "enable_thinking" not in self._source
            or self.reasoning_tags is not None
        ):
            return True
        user = {"role": "user", "content": _USER_MARK}
        answer = {"role": "assistant", "content": "", "reasoning_content": _REASONING_MARK}
        if _REASONING_MARK in (self._try([user, answer], self._expects_content_parts) or ""):
            return True
        prompts = [
            (self._try([user], self._expects_content_parts, value) or "").rstrip() for value in (False, True)
        ]
        shorter, longer = sorted(prompts, key=len)
        return shorter != longer and longer.startswith(shorter)  # what follows begins or ends the reasoning

    def _try(
        self, messages: Sequence[Message], expects_content_parts: bool, enable_thinking: bool = True
    ) -> str | None:
        try:
            return self._render(messages, expects_content_parts, True, enable_thinking)
        except _StoppedError:
            raise
        except ModelError:
            return None

    def _render(
        self,
        messages: Sequence[Message],
        expects_content_parts: bool,
        add_generation_prompt: bool,
        enable_thinking: bool,
    ) -> str:
        from .template_sandbox import TemplateLimitError, WorkBudget, current_budget  # noqa: PLC0415 - Jinja's

        chat = (
            [_with_parts(message) for message in messages]
            if expects_content_parts
            else [dict(m) for m in messages]
        )
        size = sum(len(text) for message in messages for text in message.values()) + len(str(self._variables))
        size += _EXTRA_CHARACTERS_PER_MESSAGE * len(messages)
        variables = {**_dates(), "enable_thinking": enable_thinking, **self._variables}
        token = current_budget.set(WorkBudget(size))
        try:
            text = self._template.render(variables, messages=chat, add_generation_prompt=add_generation_prompt)
            text.encode()
        except _RefusalError as error:
            raise ModelError(f"{self.name} refuses these messages: {error}") from error
        except TemplateLimitError as error:
            raise _StoppedError(f"{self.name} was stopped: {error}") from error
        except UnicodeEncodeError as error:
            raise ModelError(f"{self.name} writes half of a surrogate pair, which is no text") from error
        except RecursionError as error:
            raise _StoppedError(f"{self.name} was stopped: it calls itself too often") from error
        except Exception as error:  # it is a program of somebody else: it may raise anything
            raise ModelError(f"{self.name} failed: {error}") from error
        finally:
            current_budget.reset(token)
        return text


class _StoppedError(ModelError):
    """A template computes too much."""


class _RefusalError(Exception):
    """A template called ``raise_exception``."""


@lru_cache(maxsize=16)
def _compile(source: str, name: str) -> Template:
    """Compile a template. That takes some hundredths of a second, and a batch may use it ten thousand times."""
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - only chats pay for Jinja

    from .template_sandbox import MAX_SOURCE_CHARACTERS, TemplateEnvironment  # noqa: PLC0415

    if len(source) > MAX_SOURCE_CHARACTERS:
        raise ModelError(f"{name} is longer than {MAX_SOURCE_CHARACTERS:,} characters")
    try:
        return TemplateEnvironment().from_string(
            source, globals={"raise_exception": _refuse, "strftime_now": _now}
        )
    except TemplateSyntaxError as error:
        raise ModelError(f"{name} is not valid Jinja: line {error.lineno}: {error.message}") from error
    except Exception as error:  # Python compiles it, and has limits of its own
        raise ModelError(f"{name} cannot be compiled: {error}") from error


def _refuse(message: str) -> None:
    raise _RefusalError(message)


def _now(date_format: str) -> str:
    from datetime import datetime  # noqa: PLC0415

    return datetime.now().strftime(date_format)


def _dates() -> dict[str, str]:
    """The variables that llama.cpp sets besides those of transformers."""
    return {"date_string": _now("%d %b %Y"), "datetime": _now("%b %d %Y")}


def _with_other_names(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Add the names that other templates have for two of the variables; names that are given keep their values.

    llama.cpp adds the same ones (``caps_apply_preserve_reasoning`` and ``caps_apply_reasoning_effort``).
    """
    preserve, effort = variables.get("preserve_reasoning", True), variables.get("reasoning_effort")
    added: dict[str, Any] = {"preserve_reasoning": True}
    if isinstance(preserve, bool):
        added |= {"preserve_thinking": preserve, **dict.fromkeys(_FORGETTING_VARIABLES, not preserve)}
    if isinstance(effort, str):
        added["reasoning_strength"] = effort
    return added | dict(variables)


def _with_parts(message: Message) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _merge_system_message(messages: Sequence[Message]) -> list[Message]:
    """The messages without the system message at their beginning, whose text goes before the first of the user."""
    system, *others = messages
    for i, message in enumerate(others):
        if message["role"] == "user":
            others[i] = {**message, "content": f"{system['content']}\n{message['content']}"}
            return others
    return [{"role": "user", "content": system["content"]}, *others]


@lru_cache(maxsize=1)
def builtin_chat_templates() -> tuple[str, ...]:
    """The names of llama.cpp's built-in chat templates, such as ``chatml``, in alphabetical order."""
    count = lib.llama_chat_builtin_templates(None, 0)
    names = (ctypes.c_char_p * count)()
    lib.llama_chat_builtin_templates(names, count)
    return tuple(sorted(name.decode() for name in names if name))


class NativeChatTemplate(ChatTemplate):
    """A chat template that llama.cpp has built in. ``name``: one of `builtin_chat_templates`."""

    def __init__(self, name: str) -> None:
        self.name, self._key = f"the chat template {name}", name.encode()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt of some messages, as llama.cpp's ``llama_chat_apply_template`` writes it."""
        chat = (lib.llama_chat_message * len(messages))()
        texts = [(_c_text(message["role"]), _c_text(message["content"])) for message in messages]
        for native, (role, content) in zip(chat, texts, strict=True):
            native.role, native.content = role, content
        capacity = 1024 + 2 * sum(len(role) + len(content) for role, content in texts)
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = lib.llama_chat_apply_template(
                self._key, chat, len(messages), add_generation_prompt, buffer, capacity
            )
            if length < 0:
                raise ModelError(f"{self.name} refuses these messages")
            if length <= capacity:
                return ChatPrompt(buffer.raw[:length].decode("utf-8", "replace"))
            capacity = length


def _c_text(text: str) -> bytes:
    if "\0" in text:
        raise ModelError(
            "a message holds the character U+0000, which ends a text in llama.cpp's built-in chat templates"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ModelError("a message is not UTF-8") from None
