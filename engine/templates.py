"""Chat templates: the template that a model has, and the prompt that a template makes of the messages of a chat.

A template is the one in the model's GGUF file, another one in Jinja, or the name of one that is built into
llama.cpp. llama.cpp writes the prompts of its built-in templates, in C++.
"""

from __future__ import annotations

import ctypes
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ..models.errors import ModelError
from .native.binding import lib

if TYPE_CHECKING:
    from jinja2 import Template

    from .model import Model
    from .vocabulary import Vocabulary

Message = dict[str, Any]
"""``{"role": "system" | "user" | "assistant" | "tool", "content": text}``, and what some templates read besides:
``reasoning_content``, ``tool_calls``, ``tool_call_id`` and ``name``.

The content may also be a list of parts, ``{"type": "text", "text": text}``. Most templates get them as one text.
"""


@dataclass(frozen=True)
class ReasoningTags:
    """The strings that a model writes before and after its reasoning, such as ``<think>`` and ``</think>``.

    Attributes:
        start: the string before the reasoning.
        end: the string after the reasoning.
        answer_prefixes: strings that the model writes before its answer; a template of such a model expects
            answers without reasoning. Empty if there are none.
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
    """A prompt that a chat template has made."""

    text: str
    note: str | None = None  # a sentence, if the messages had to be changed for the template; otherwise None


class ChatTemplate(ABC):
    """A chat template, ready to use: see `open_chat_template`.

    Attributes:
        name: name of the template in messages, such as ``the model's chat template``.
    """

    name: str

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The tags around the model's reasoning; None if the template has none of the well-known tags."""
        return None

    @abstractmethod
    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for the messages of a chat.

        Args:
            messages: The chat, the oldest message first.
            add_generation_prompt: Whether the prompt ends with the beginning of the assistant's next message.

        Raises ``ModelError`` when the template rejects the messages, or computes too much.
        """

    def render_beginning(self, messages: Sequence[Message], beginning: str) -> ChatPrompt:
        """Return the prompt that ends with the beginning of the assistant's answer.

        The beginning stands where the template writes the text of answers: after a header that only complete
        messages have, and after a reasoning that the prompt opens, which is closed.

        Args:
            messages: The chat before the answer.
            beginning: The beginning of the answer's text, which may contain the model's reasoning.

        Raises ``ModelError`` as `render` does.
        """
        prompt = self.render(messages)
        if self.render(messages, add_generation_prompt=False).text == prompt.text:
            return ChatPrompt(prompt.text + beginning, prompt.note)  # the model writes the whole message itself
        try:
            answer = {"role": "assistant", "content": _ANSWER_MARK}
            complete = self.render([*messages, answer], add_generation_prompt=False).text
        except ModelError:  # some templates want a user's message last
            complete = ""
        before = complete.partition(_ANSWER_MARK)[0] if _ANSWER_MARK in complete else None
        text = _text_before_answer(prompt.text, before, beginning, self.reasoning_tags)
        return ChatPrompt(text + beginning, prompt.note)


_ANSWER_MARK = "AnswerMark"  # an answer that shows where a template writes the text of answers


def _text_before_answer(prompt: str, before: str | None, beginning: str, tags: ReasoningTags | None) -> str:
    """Return the prompt before the beginning of an answer; ``before``: see `_ANSWER_MARK`."""
    end = prompt.rstrip()
    if tags is not None:
        is_open = end.endswith(tags.start)
        if beginning.lstrip().startswith(tags.start):  # the beginning brings its reasoning along
            return end.removesuffix(tags.start) if is_open else prompt
        if tags.end in beginning or end.endswith(tags.end):
            return prompt
        if is_open:
            if before is not None and before.startswith(end) and tags.end in before[len(end) :]:
                return before
            return end + tags.end
    return prompt if before is None or before.rstrip() == end else before


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
            advice="give one (chat_template=…), send a prompt without a system message, or use a chat model",
        )
    bos, eos = model.special_text("bos"), model.special_text("eos")
    if source is None:
        return _open_jinja(
            str(model.chat_template), "the model's chat template", bos, eos, json.dumps(dict(variables or {}))
        )
    return _open_by_source(source, bos, eos, variables)


def check_chat_template(source: str, variables: Mapping[str, Any] | None = None) -> None:
    """Raise the ``ModelError`` that `open_chat_template` would raise for a template, before there is a model."""
    _open_by_source(source, "", "", variables)


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
    found = values.get("chat_template")
    if isinstance(found, list):
        found = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
    if isinstance(found, dict):
        names = ", ".join(str(name) for name in found)
        found = found.get(_MAIN_TEMPLATE) if len(found) != 1 else next(iter(found.values()))
        if found is None:
            raise ModelError(f"this JSON has the chat templates {names}, and none is named {_MAIN_TEMPLATE}")
    if not isinstance(found, str):
        raise ModelError("this JSON has no chat_template")
    return found


@lru_cache(maxsize=16)
def _open_jinja(source: str, name: str, bos: str, eos: str, variables: str) -> JinjaChatTemplate:
    return JinjaChatTemplate(source, name=name, bos=bos, eos=eos, variables=json.loads(variables))


def is_chat_template(text: str) -> bool:
    """Return whether a string has tags of Jinja, or is the name of one of llama.cpp's built-in templates."""
    return text in builtin_chat_templates() or "{{" in text or "{%" in text


def template_reads(source: str, name: str) -> bool:
    """Return whether a template may read a variable, or a field of a message."""
    names = {name, *_OTHER_NAMES.get(name, ())}
    return any(re.search(rf"\b{re.escape(other)}\b", source) for other in names)


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
    if not ((system is not None or template is not None) if chat is None else chat):
        return text
    messages = [] if system is None else [{"role": "system", "content": system}]
    return format_chat(model, [*messages, {"role": "user", "content": text}], template, report)


def format_chat(
    model: Model,
    messages: Sequence[Message],
    template: ChatTemplate | None = None,
    report: Callable[[str], object] | None = None,
    beginning: str = "",
) -> str:
    """Return the prompt after which the model writes the next message of the assistant.

    Args:
        model: The model.
        messages: The chat, the oldest message first.
        template: See `open_chat_template`; None: the model's template.
        report: Called with a sentence if the messages had to be changed for the template: if it has no system
            role, the text of the system message is placed before the first message of the user.
        beginning: The beginning of the assistant's message, with which the prompt ends.

    Raises ``ModelError`` when the model has no chat template, or when the template rejects the messages.
    """
    template = template or open_chat_template(model)
    prompt = template.render_beginning(messages, beginning) if beginning else template.render(messages)
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
        parts = [(prefix.encode(), True), (text.encode(), False), (suffix.encode(), True)]
    except UnicodeEncodeError:
        raise ModelError("the prompt is not UTF-8") from None
    ids = [] if vocabulary.bos is None or not vocabulary.adds_bos else [vocabulary.bos]
    for data, has_special in parts:
        ids += vocabulary.tokenize(data, special=has_special)
    return ids


_RESERVED_VARIABLES = ("messages", "add_generation_prompt")
# Variables that make a template leave out the reasoning of earlier answers; each family of models has one
_DROPPED_REASONING_VARIABLES = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
# Variables that other templates have under other names, which `_with_other_names` sets, too
_OTHER_NAMES = {
    "preserve_reasoning": ("preserve_thinking", *_DROPPED_REASONING_VARIABLES),
    "reasoning_effort": ("reasoning_strength",),
}
# Words of StepFun's template. Its models may reason endlessly when spaces surround a message. So llama.cpp trims
# the messages of each template with these words.
_TRIMMING_TEMPLATE_WORDS = "You have access to the following functions in JSONSchema format"
_ASCII_SPACES = " \t\n\v\f\r"
# Characters that are added to the length of each message, for the work of the template on a short message
_EXTRA_CHARACTERS_PER_MESSAGE = 200
# Messages with which a template is tested. Its output shows which of them it uses.
_SYSTEM_MARK, _USER_MARK, _REASONING_MARK = "SystemMark", "UserMark", "ReasoningMark"
_LIST_OF_PARTS = re.compile(r"""['"]type['"]\s*:""")  # A list of parts that was written like any other value


class JinjaChatTemplate(ChatTemplate):
    """A template in Jinja, in a sandbox: it can use only its variables, and its work is limited (`WorkBudget`)."""

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
            name: Name of the template in messages.
            bos: The variable ``bos_token``.
            eos: The variable ``eos_token``.
            variables: More variables, such as ``{"enable_thinking": False}``. By default ``enable_thinking`` is
                True if the template can reason, and ``preserve_reasoning`` is True, both as in llama.cpp's server.
                ``preserve_reasoning`` and ``reasoning_effort`` also set the variables of the same meaning that
                other templates have.

        Raises ``ModelError`` for a template that is not valid, and for variables that the messages set.
        """
        self.name = name
        self._source = source
        variables = dict(variables or {})
        for variable in _RESERVED_VARIABLES:
            if variable in variables:
                raise ModelError(f"the variable {variable} of chat templates is set by the messages themselves")
        self._variables = {"bos_token": bos, "eos_token": eos, **_with_other_names(variables)}
        self._template = _compile(source, name)

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The first of the well-known pairs of tags that appears in the template."""

        # Some templates only remove the reasoning of earlier answers, and contain only the end tag.
        def is_used_by_template(tags: ReasoningTags) -> bool:
            can_lack_start_tag = not tags.answer_prefixes  # as in templates that only remove earlier reasoning
            return tags.end in self._source and (can_lack_start_tag or tags.start in self._source)

        return next(filter(is_used_by_template, _REASONING_TAGS), None)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for messages."""
        # A system message that is not supported goes before the first one, as in llama.cpp.
        note = None
        if _TRIMMING_TEMPLATE_WORDS in self._source:
            messages = list(map(_with_trimmed_text, messages))
        if not self._takes_content_parts:
            messages = list(map(_with_text, messages))
        if messages and messages[0]["role"] == "system" and not self._has_system_role:
            messages = _merge_system_message(messages)
            note = f"{self.name} has no system role: the system message is placed before the user's first message"
        return ChatPrompt(
            self._render(messages, self._expects_content_parts, add_generation_prompt, self._can_think), note
        )

    @cached_property
    def _has_system_role(self) -> bool:
        """False if the template rejects system messages, or leaves them out."""
        user_messages = [{"role": "user", "content": _USER_MARK}]
        prompt = self._render_or_none(
            [{"role": "system", "content": _SYSTEM_MARK}, *user_messages], self._expects_content_parts
        )
        if prompt is not None:
            return _SYSTEM_MARK in prompt
        # A template that fails for all messages is treated as complete, so that its own error is reported.
        return self._render_or_none(user_messages, self._expects_content_parts) is None

    @cached_property
    def _expects_content_parts(self) -> bool:
        """True if the content of a message must be a list of parts, as for models that also read images."""
        user_messages = [{"role": "user", "content": _USER_MARK}]
        if _USER_MARK in (self._render_or_none(user_messages, False) or ""):
            return False
        return _USER_MARK in (self._render_or_none(user_messages, True) or "")

    @cached_property
    def _takes_content_parts(self) -> bool:
        """True if the template writes the texts of a list of parts, and not the list itself."""
        parts = [{"type": "text", "text": text} for text in (_USER_MARK, _SYSTEM_MARK)]
        prompt = self._render_or_none([{"role": "user", "content": parts}], False) or ""
        return _USER_MARK in prompt and _SYSTEM_MARK in prompt and _LIST_OF_PARTS.search(prompt) is None

    @cached_property
    def _can_think(self) -> bool:
        """True if reasoning can be distinguished from the answer in the model's output."""
        # llama.cpp's server makes similar comparisons, and enables reasoning only for such templates.
        if (
            "enable_thinking" in self._variables
            or "enable_thinking" not in self._source
            or self.reasoning_tags is not None
        ):
            return True
        user_message = {"role": "user", "content": _USER_MARK}
        answer_message = {"role": "assistant", "content": "", "reasoning_content": _REASONING_MARK}
        if _REASONING_MARK in (
            self._render_or_none([user_message, answer_message], self._expects_content_parts) or ""
        ):
            return True
        prompts = [
            (self._render_or_none([user_message], self._expects_content_parts, value) or "").rstrip()
            for value in (False, True)
        ]
        shorter_prompt, longer_prompt = sorted(prompts, key=len)
        return shorter_prompt != longer_prompt and longer_prompt.startswith(
            shorter_prompt
        )  # the additional text begins or ends the reasoning

    def _render_or_none(
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

        chat_messages = (
            [_with_content_parts(message) for message in messages]
            if expects_content_parts
            else [dict(m) for m in messages]
        )
        input_characters = sum(len(str(value)) for message in messages for value in message.values()) + len(
            str(self._variables)
        )
        input_characters += _EXTRA_CHARACTERS_PER_MESSAGE * len(messages)
        variables = {**_date_variables(), "enable_thinking": enable_thinking, **self._variables}
        budget_token = current_budget.set(WorkBudget(input_characters))
        try:
            text = self._template.render(
                variables, messages=chat_messages, add_generation_prompt=add_generation_prompt
            )
            text.encode()
        except _RefusalError as error:
            raise ModelError(f"{self.name} rejects these messages: {error}") from error
        except TemplateLimitError as error:
            raise _StoppedError(f"{self.name} was stopped: {error}") from error
        except UnicodeEncodeError as error:
            raise ModelError(f"{self.name} writes half of a surrogate pair, which is not text") from error
        except RecursionError as error:
            raise _StoppedError(f"{self.name} was stopped: it calls itself too often") from error
        except Exception as error:  # a template is a program by an unknown author, which may raise any error
            raise ModelError(f"{self.name} failed: {error}") from error
        finally:
            current_budget.reset(budget_token)
        return text


class _StoppedError(ModelError):
    """The error of a template that was stopped, because it computes too much."""


class _RefusalError(Exception):
    """The error of a template that called ``raise_exception``, to reject the messages."""


@lru_cache(maxsize=16)
def _compile(source: str, name: str) -> Template:
    """Compile a template."""
    # Cached: compiling takes up to 0.1 seconds, and a batch may use a template 10,000 times.
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - only chats pay for Jinja

    from .template_sandbox import MAX_SOURCE_CHARACTERS, TemplateEnvironment  # noqa: PLC0415

    if len(source) > MAX_SOURCE_CHARACTERS:
        raise ModelError(f"{name} is longer than {MAX_SOURCE_CHARACTERS:,} characters")
    try:
        return TemplateEnvironment().from_string(
            source, globals={"raise_exception": _raise_exception, "strftime_now": _format_current_time}
        )
    except TemplateSyntaxError as error:
        raise ModelError(f"{name} is not valid Jinja: line {error.lineno}: {error.message}") from error
    except Exception as error:  # Jinja makes Python code, which Python's compiler may reject
        raise ModelError(f"{name} cannot be compiled: {error}") from error


def _raise_exception(message: str) -> None:
    raise _RefusalError(message)


def _format_current_time(date_format: str) -> str:
    from datetime import datetime  # noqa: PLC0415

    return datetime.now().strftime(date_format)


def _date_variables() -> dict[str, str]:
    """Return the variables that llama.cpp sets in addition to those of transformers."""
    return {"date_string": _format_current_time("%d %b %Y"), "datetime": _format_current_time("%b %d %Y")}


def _with_other_names(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables with the names that other templates use for two of them; existing names keep theirs."""
    # llama.cpp adds the same names (``caps_apply_preserve_reasoning`` and ``caps_apply_reasoning_effort``).
    preserve_reasoning, reasoning_effort = (
        variables.get("preserve_reasoning", True),
        variables.get("reasoning_effort"),
    )
    added_variables: dict[str, Any] = {"preserve_reasoning": True}
    if isinstance(preserve_reasoning, bool):
        added_variables |= {
            "preserve_thinking": preserve_reasoning,
            **dict.fromkeys(_DROPPED_REASONING_VARIABLES, not preserve_reasoning),
        }
    if isinstance(reasoning_effort, str):
        added_variables["reasoning_strength"] = reasoning_effort
    return added_variables | dict(variables)


def content_text(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return the text of a message's content. The texts of parts are lines, as in llama-server."""
    if isinstance(content, str):
        return content
    text = ""
    for part in content:  # a join would also put a newline after an empty first part
        text += ("\n" if text else "") + part["text"]
    return text


def _with_text(message: Message) -> Message:
    return {**message, "content": content_text(message["content"])}


def _with_trimmed_text(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content.strip(_ASCII_SPACES)}
    return {**message, "content": [{**part, "text": part["text"].strip(_ASCII_SPACES)} for part in content]}


def _with_content_parts(message: Message) -> Message:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}] if isinstance(content, str) else content}


def _merge_system_message(messages: Sequence[Message]) -> list[Message]:
    """Return messages without the system message, whose text is placed before the first message of the user."""
    system, *later_messages = messages
    for i, message in enumerate(later_messages):
        if message["role"] == "user":
            texts = (content_text(merged["content"]) for merged in (system, message))
            later_messages[i] = {**message, "content": "\n".join(texts)}
            return later_messages
    return [{"role": "user", "content": system["content"]}, *later_messages]


@lru_cache(maxsize=1)
def builtin_chat_templates() -> tuple[str, ...]:
    """Return the names of llama.cpp's built-in chat templates, such as ``chatml``, in alphabetical order."""
    count = lib.llama_chat_builtin_templates(None, 0)
    names = (ctypes.c_char_p * count)()
    lib.llama_chat_builtin_templates(names, count)
    return tuple(sorted(name.decode() for name in names if name))


class NativeChatTemplate(ChatTemplate):
    """A chat template that is built into llama.cpp."""

    def __init__(self, name: str) -> None:
        """Use a template. ``name``: one of `builtin_chat_templates`."""
        self.name = f"the chat template {name}"
        self._key = name.encode()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for the messages of a chat, as llama.cpp's ``llama_chat_apply_template`` writes it."""
        native_messages = (lib.llama_chat_message * len(messages))()
        texts = [
            (_encode_c_string(message["role"]), _encode_c_string(content_text(message["content"])))
            for message in messages
        ]
        for native_message, (role, content) in zip(native_messages, texts, strict=True):
            native_message.role, native_message.content = role, content
        capacity = 1024 + 2 * sum(len(role) + len(content) for role, content in texts)
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = lib.llama_chat_apply_template(
                self._key, native_messages, len(messages), add_generation_prompt, buffer, capacity
            )
            if length < 0:
                raise ModelError(f"{self.name} rejects these messages")
            if length <= capacity:
                return ChatPrompt(buffer.raw[:length].decode("utf-8", "replace"))
            capacity = length


def _encode_c_string(text: str) -> bytes:
    if "\0" in text:
        raise ModelError(
            "a message has the character U+0000, which ends a string in llama.cpp's built-in chat templates"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ModelError("a message is not UTF-8") from None
