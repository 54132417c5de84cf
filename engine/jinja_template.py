"""Chat templates in Jinja, as models' files have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..logprobs.events import ReasoningTags
from ..models.errors import ModelError
from .chat_template import (
    ANSWER_MARK,
    CONTINUED_REASONING,
    REASONING_TAGS,
    ChatPrompt,
    ChatTemplate,
    Message,
    ReasoningFormat,
    content_text,
)
from .reasoning_format import REASONING_MARK, USER_MARK, find_reasoning_format, opened_tags, shown_tags
from .template_variables import check_variables, variables_of

if TYPE_CHECKING:
    from jinja2 import Template

_RESERVED_VARIABLES = ("messages", "add_generation_prompt")
# Variables that make a template leave out the reasoning of earlier answers; each family of models has one
_DROPPED_REASONING_VARIABLES = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
# Variables that other templates have under other names, which `_with_other_names` sets, too
_OTHER_NAMES = {
    "preserve_reasoning": ("preserve_thinking", *_DROPPED_REASONING_VARIABLES),
    "reasoning_effort": ("reasoning_strength",),
}
# The variables of templates that switch the reasoning. llama.cpp sets the first of each, and `_OTHER_NAMES`.
_SWITCH_VARIABLES = {
    "enable_thinking": ("enable_thinking", "thinking", "thinking_mode"),
    "reasoning_effort": ("reasoning_effort", "reasoning_strength", "thinking_effort"),
}
_THINKING_MODES = ("disabled", "enabled")  # of MiniMax-M3
_EFFORT_OF_NO_THINKING = "no_think"  # of Hy3, whose only switch is the effort
# Words of StepFun's template. Its models may reason endlessly when spaces surround a message. So llama.cpp trims
# the messages of each template with these words.
_TRIMMING_TEMPLATE_WORDS = "You have access to the following functions in JSONSchema format"
_ASCII_SPACES = " \t\n\v\f\r"
# Characters that are added to the length of each message, for the work of the template on a short message
_EXTRA_CHARACTERS_PER_MESSAGE = 200
# Messages with which a template is tested. Its output shows which of them it uses.
_SYSTEM_MARK = "SystemMark"
# The fields of an answer in which templates read its reasoning; ``parts``: a part of its content, before the text
ReasoningPlace = Literal["reasoning_content", "thinking", "reasoning", "parts"]
# The output of a template that writes a list of parts as a value, such as [{'type': 'text', 'text': 'Hi'}]
_LIST_OF_PARTS = re.compile(r"""['"]type['"]\s*:""")


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
        template = _compile(source, name)
        variables = dict(variables or {})
        for variable in _RESERVED_VARIABLES:
            if variable in variables:
                raise ModelError(f"the variable {variable} of chat templates is set by the messages themselves")
        if variables:
            check_variables(variables, variables_of(source).defaults)
        self._variables = {"bos_token": bos, "eos_token": eos, **_with_other_names(variables)}
        self._template = template

    @property
    def identity(self) -> str:
        """A digest of the source and the variables."""
        return sha256(
            repr((self._source, sorted(self._variables.items()))).encode(errors="surrogatepass")
        ).hexdigest()

    @cached_property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The first of the well-known pairs of tags that appears in the template, or those that it shows."""
        template = self._without_variables
        return self._known_tags or shown_tags(template) or opened_tags(template)

    @property
    def _known_tags(self) -> ReasoningTags | None:
        # Some templates only remove the reasoning of earlier answers, and contain only the end tag.
        def is_used_by_template(tags: ReasoningTags) -> bool:
            can_lack_start_tag = not tags.answer_prefixes  # as in templates that only remove earlier reasoning
            return tags.end in self._source and (can_lack_start_tag or tags.start in self._source)

        return next(filter(is_used_by_template, REASONING_TAGS), None)

    def reads(self, name: str) -> bool:
        """Return whether the template may read a variable, or a field of a message."""
        if name == "reasoning_content":
            return self._reasoning_place is not None
        if name == CONTINUED_REASONING:
            return self.reasoning_format is not None
        names = {name, *_OTHER_NAMES.get(name, ())}
        return any(re.search(rf"\b{re.escape(other)}\b", self._source) for other in names)

    def switch(self, name: str, value: object) -> Mapping[str, Any]:
        """Return the first variable with a switch's meaning that the template reads; empty if it reads none."""
        read_variables = variables_of(self._source).names
        for variable in _SWITCH_VARIABLES[name]:
            if variable in read_variables:
                return {variable: _THINKING_MODES[bool(value)] if variable == "thinking_mode" else value}
        if name == "enable_thinking" and _EFFORT_OF_NO_THINKING in self._source:
            return self.switch("reasoning_effort", "high" if value else _EFFORT_OF_NO_THINKING)
        return {}

    @cached_property
    def reasoning_format(self) -> ReasoningFormat | None:
        """What stands around the reasoning, whatever the variables are."""
        return find_reasoning_format(self._without_variables, self._source)

    @property
    def _without_variables(self) -> JinjaChatTemplate:
        bos, eos = self._variables["bos_token"], self._variables["eos_token"]
        return JinjaChatTemplate(self._source, name=self.name, bos=bos, eos=eos)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for messages."""
        # If the template has no system role, the system message becomes a part of the user's first message, as in
        # llama.cpp.
        note = None
        if _TRIMMING_TEMPLATE_WORDS in self._source:
            messages = list(map(_with_trimmed_text, messages))
        if not self._takes_content_parts:
            messages = list(map(_with_text, messages))
        if messages and messages[0]["role"] == "system" and not self._has_system_role:
            messages = _merge_system_message(messages)
            note = f"{self.name} has no system role: the system message is placed before the user's first message"
        if any("reasoning_content" in message for message in messages):
            messages = [_with_reasoning_as(self._reasoning_place, message) for message in messages]
        text = self._render(
            messages,
            expects_content_parts=self._expects_content_parts,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=self._can_think,
        )
        return ChatPrompt(text, note)

    @cached_property
    def _has_system_role(self) -> bool:
        """False if the template rejects system messages, or leaves them out."""
        user_messages = [{"role": "user", "content": USER_MARK}]
        system_message = {"role": "system", "content": _SYSTEM_MARK}
        prompt = self._try_render([system_message, *user_messages], self._expects_content_parts)
        if prompt is not None:
            return _SYSTEM_MARK in prompt
        # If the template fails for all messages, the answer is True, so that the template's own error is reported.
        return self._try_render(user_messages, self._expects_content_parts) is None

    @cached_property
    def _expects_content_parts(self) -> bool:
        """True if the content of a message must be a list of parts, as for models that also read images."""
        user_messages = [{"role": "user", "content": USER_MARK}]
        prompt_of_text = self._try_render(user_messages, expects_content_parts=False) or ""
        if USER_MARK in prompt_of_text:
            return False
        prompt_of_parts = self._try_render(user_messages, expects_content_parts=True) or ""
        return USER_MARK in prompt_of_parts

    @cached_property
    def _takes_content_parts(self) -> bool:
        """True if the template writes the texts of a list of parts, and not the list itself."""
        # llama.cpp asks with an empty list, which some templates reject or skip. They get the parts as one text.
        empty_list = _WatchedList()
        messages = [{"role": "user", "content": empty_list}]
        if self._try_render(messages, expects_content_parts=False) is None or not empty_list.was_read:
            return False
        parts = [{"type": "text", "text": text} for text in (USER_MARK, _SYSTEM_MARK)]
        messages = [{"role": "user", "content": parts}]
        prompt = self._try_render(messages, expects_content_parts=False) or ""
        return USER_MARK in prompt and _SYSTEM_MARK in prompt and _LIST_OF_PARTS.search(prompt) is None

    @cached_property
    def _reasoning_place(self) -> ReasoningPlace | None:
        """The place in an answer where the template reads its reasoning; None if it reads none."""
        user_message = {"role": "user", "content": USER_MARK}
        answer = {"role": "assistant", "content": ANSWER_MARK, "reasoning_content": REASONING_MARK}
        for place in get_args(ReasoningPlace):
            messages = [user_message, _with_reasoning_as(place, answer)]
            chat = self._try_render(messages, self._expects_content_parts, add_generation_prompt=False) or ""
            if REASONING_MARK in chat and _LIST_OF_PARTS.search(chat) is None:
                return place
        return None

    @cached_property
    def _can_think(self) -> bool:
        """True if reasoning can be distinguished from the answer in the model's output."""
        # llama.cpp's server makes similar comparisons, and enables reasoning only for such templates.
        if (
            "enable_thinking" in self._variables
            or "enable_thinking" not in self._source
            or self._known_tags is not None
        ):
            return True
        user_message = {"role": "user", "content": USER_MARK}
        answer_message = {"role": "assistant", "content": "", "reasoning_content": REASONING_MARK}
        prompt_with_answer = self._try_render([user_message, answer_message], self._expects_content_parts) or ""
        if REASONING_MARK in prompt_with_answer:
            return True
        prompts = []
        for enable_thinking in (False, True):
            prompt = self._try_render([user_message], self._expects_content_parts, enable_thinking=enable_thinking)
            prompts.append((prompt or "").rstrip())
        shorter_prompt, longer_prompt = sorted(prompts, key=len)
        # If one prompt continues the other, the additional text begins or ends the reasoning.
        return shorter_prompt != longer_prompt and longer_prompt.startswith(shorter_prompt)

    def _try_render(
        self,
        messages: Sequence[Message],
        expects_content_parts: bool,
        *,
        enable_thinking: bool = True,
        add_generation_prompt: bool = True,
    ) -> str | None:
        """Return the prompt for messages; None if the template rejects them or fails."""
        try:
            return self._render(
                messages,
                expects_content_parts=expects_content_parts,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=enable_thinking,
            )
        except _StoppedError:
            raise
        except ModelError:
            return None

    def _render(
        self,
        messages: Sequence[Message],
        *,
        expects_content_parts: bool,
        add_generation_prompt: bool,
        enable_thinking: bool,
    ) -> str:
        convert = _with_content_parts if expects_content_parts else dict
        chat_messages = [convert(message) for message in messages]
        input_characters = len(str(self._variables))
        for message in messages:
            input_characters += _EXTRA_CHARACTERS_PER_MESSAGE
            input_characters += sum(len(str(value)) for value in message.values())
        variables = {
            **_date_variables(),
            "enable_thinking": enable_thinking,
            **self._variables,
            "messages": chat_messages,
            "add_generation_prompt": add_generation_prompt,
        }
        return _run(self._template, self.name, variables, input_characters)


def render_text(source: str, name: str, variables: Mapping[str, Any]) -> str:
    """Return the output of a template in Jinja, in the sandbox of chat templates.

    Raises ``ModelError`` for a template that is not valid, that fails, or that computes too much.
    """
    input_characters = _EXTRA_CHARACTERS_PER_MESSAGE + len(str(variables))
    return _run(_compile(source, name), name, variables, input_characters)


def _run(template: Template, name: str, variables: Mapping[str, Any], input_characters: int) -> str:
    """Return the output of a template, whose work is limited by the length of its input."""
    from .template_sandbox import TemplateLimitError, WorkBudget, current_budget  # noqa: PLC0415 - Jinja's

    budget_token = current_budget.set(WorkBudget(input_characters))
    try:
        text = template.render(variables)
        text.encode()
    except _RefusalError as error:
        raise ModelError(f"{name} rejects these messages: {error}") from error
    except TemplateLimitError as error:
        raise _StoppedError(f"{name} was stopped: {error}") from error
    except UnicodeEncodeError as error:
        raise ModelError(f"{name} writes half of a surrogate pair, which is not text") from error
    except RecursionError as error:
        raise _StoppedError(f"{name} was stopped: it calls itself too often") from error
    except Exception as error:  # a template is a program by an unknown author, which may raise any error
        raise ModelError(f"{name} failed: {error}") from error
    finally:
        current_budget.reset(budget_token)
    return text


class _WatchedList(list[Any]):
    """A list that tells whether a template has read its items."""

    was_read = False

    def __iter__(self) -> Iterator[Any]:
        self.was_read = True
        return super().__iter__()


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
    """Return variables, and those of the same meaning that other templates have under other names."""
    # llama.cpp adds the same names (``caps_apply_preserve_reasoning`` and ``caps_apply_reasoning_effort``).
    preserve_reasoning = variables.get("preserve_reasoning", True)
    reasoning_effort = variables.get("reasoning_effort")
    added_variables: dict[str, Any] = {"preserve_reasoning": True}
    if isinstance(preserve_reasoning, bool):
        added_variables["preserve_thinking"] = preserve_reasoning
        for name in _DROPPED_REASONING_VARIABLES:
            added_variables[name] = not preserve_reasoning
    if isinstance(reasoning_effort, str):
        added_variables["reasoning_strength"] = reasoning_effort
    return added_variables | dict(variables)


def _with_text(message: Message) -> Message:
    return {**message, "content": content_text(message["content"])}


def _with_trimmed_text(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content.strip(_ASCII_SPACES)}
    return {**message, "content": [{**part, "text": part["text"].strip(_ASCII_SPACES)} for part in content]}


def _with_content_parts(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {**message, "content": content}


def _with_reasoning_as(place: ReasoningPlace | None, message: Message) -> Message:
    """Return a message whose reasoning stands where a template reads it."""
    if place in (None, "reasoning_content") or not message.get("reasoning_content"):
        return message
    reasoning = message["reasoning_content"]
    if place != "parts":
        return {**message, place: reasoning}
    parts = [{"type": "thinking", "thinking": reasoning}, *_with_content_parts(message)["content"]]
    return {**message, "content": parts}


def _merge_system_message(messages: Sequence[Message]) -> list[Message]:
    """Return messages without the system message, whose text is placed before the first message of the user."""
    system, *later_messages = messages
    for i, message in enumerate(later_messages):
        if message["role"] == "user":
            texts = (content_text(merged["content"]) for merged in (system, message))
            later_messages[i] = {**message, "content": "\n".join(texts)}
            return later_messages
    return [{"role": "user", "content": system["content"]}, *later_messages]
