"""Prompts made of a conversation's messages, and the messages that fit into the context.

The reasoning in an answer is recognized by the tags of the chat template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..common.strict_json import json_line
from ..common.text import count_noun
from ..logprobs.events import Reasoning
from ..logprobs.parts import TextPart, join_parts, split_text
from .conversation import ReportMessage
from .records import ContextFullError, StoredMessage

if TYPE_CHECKING:
    from ..engine.chat_template import ChatTemplate
    from ..engine.model import Model
    from ..presets.story import Story


# what to do if a conversation does not fit: ``stop`` raises an error, ``drop`` leaves out the oldest turns
OnFull = Literal["stop", "drop"]


class PromptMaker:
    """A maker of prompts from messages. It also decides what happens if the messages do not fit."""

    # A message about the chat template is reported only once.

    def __init__(self, model: Model, template: ChatTemplate, on_full: OnFull, report: ReportMessage) -> None:
        self._model = model
        self._template = template
        self._on_full = on_full
        self._report = report
        self._reported_messages: set[str] = set()
        self.story: Story | None = None  # what the model reads besides the messages
        # The negative prompt of guidance; None without guidance. In a second prompt, which must fit, too, it
        # replaces the system message.
        self.negative_system: str | None = None

    def prompt_ids(
        self, messages: Sequence[StoredMessage], beginning: str = "", system: str | None = None
    ) -> tuple[int, ...]:
        """Return the token ids of a prompt, see `prompt_text`."""
        text = self.prompt_text(messages, beginning, system)
        return tuple(self._model.vocabulary.tokenize_prompt(text.encode()))

    def prompt_text(
        self, messages: Sequence[StoredMessage], beginning: str = "", system: str | None = None
    ) -> str:
        """Return the text of a prompt that ends with ``beginning``."""
        # ``system`` replaces the system message. ``beginning`` may have the reasoning with its tags.
        from ..engine.guidance import with_system_message
        from ..engine.templates import format_chat
        from ..requests.story_reader import StoryReader

        chat = template_messages(messages, self._template)
        if self.story is not None:
            chat = StoryReader(self._model, self._report_once).chat_with_story(self.story, chat)
        if system is not None:
            chat = with_system_message(chat, system)
        return format_chat(self._model, chat, self._template, self._report_once, beginning=beginning)

    def fit(
        self,
        messages: list[StoredMessage],
        previously_dropped_count: int,
        max_tokens: int | None,
        beginning: str = "",
        is_resumable: bool = True,
    ) -> FittedMessages:
        """Return the messages that go into the prompt. Raises ``ContextFullError``."""
        # ``is_resumable``: whether the chat is stored, so that the error can suggest to resume it.
        context_length = self._model.context.length
        self._check_negative(messages, beginning)
        if self._on_full == "drop":
            reserved_tokens = reserved_answer_tokens(context_length, max_tokens)
            return fit_messages(
                messages,
                lambda kept: self._count_tokens(kept, beginning),
                context_length,
                reserved_tokens,
                previously_dropped_count,
            )
        token_count = self._count_tokens(messages, beginning)
        if token_count < context_length:
            return FittedMessages(messages)
        usage = ContextUsage(token_count, context_length)
        user_message_count = sum(message.role == "user" for message in messages)
        if user_message_count == 1:
            raise ContextFullError(_message_too_long_error(usage))
        raise ContextFullError(_context_full_message(usage, _full_context_advice(is_resumable)))

    def usage(self, messages: list[StoredMessage], dropped_count: int) -> ContextUsage:
        """Return how many tokens of the context the messages take, without those that are left out."""
        kept = messages
        if self._on_full == "drop":
            system_messages, other_messages = _split_system_message(messages)
            kept = [*system_messages, *other_messages[dropped_count:]]
        token_count = self._count_tokens(kept) if kept else 0
        return ContextUsage(token_count, self._model.context.length)

    def _check_negative(self, messages: Sequence[StoredMessage], beginning: str) -> None:
        """Raise ``ContextFullError`` if the last message does not fit after the negative prompt of guidance."""
        if self.negative_system is None:
            return
        user_positions = [index for index, message in enumerate(messages) if message.role == "user"]
        last_turn = messages[user_positions[-1] :] if user_positions else messages
        token_ids = self.prompt_ids(last_turn, beginning, system=self.negative_system)
        if len(token_ids) >= self._model.context.length:
            raise ContextFullError(
                "the negative prompt of guidance and the last message do not fit: they have "
                f"{count_noun(len(token_ids), 'token')}, and the context holds {self._model.context.length:,}; "
                "shorten one of them, or give a larger -c"
            )

    def _count_tokens(self, messages: Sequence[StoredMessage], beginning: str = "") -> int:
        """Return the number of tokens of a prompt; with guidance, of the longer one of both prompts."""
        count = len(self.prompt_ids(messages, beginning))
        if self.negative_system is None:
            return count
        negative_count = len(self.prompt_ids(messages, beginning, system=self.negative_system))
        return max(count, negative_count)

    def _report_once(self, message: str) -> None:
        if message not in self._reported_messages:
            self._reported_messages.add(message)
            self._report(message)


def template_messages(messages: Sequence[StoredMessage], template: ChatTemplate) -> list[dict[str, str]]:
    """Return the messages in the form that chat templates expect."""
    reasoning = reasoning_of_answers(template)

    def fields_of(message: StoredMessage) -> dict[str, str]:
        if message.role != "assistant":
            return {"content": message.content}
        parts = join_parts(parts_of_answer(message.content, reasoning))
        return {"content": parts.answer} | ({"reasoning_content": parts.reasoning} if parts.reasoning else {})

    return [{"role": message.role, **fields_of(message)} for message in messages]


def reasoning_of_answers(template: ChatTemplate) -> Reasoning | None:
    """Return the reasoning that answers begin with; None if the template has no reasoning."""
    return None if template.reasoning_tags is None else template.reasoning_after(_first_prompt(template))


def reasoning_opening(template: ChatTemplate) -> str:
    """Return the beginning of the reasoning that prompts end with; empty if the model begins it."""
    reasoning = reasoning_of_answers(template)
    if reasoning is None or reasoning.place != "inside":
        return ""
    return reasoning.tags.start + _first_prompt(template).rpartition(reasoning.tags.start)[2]


def _first_prompt(template: ChatTemplate) -> str:
    return template.render([{"role": "user", "content": "Hello"}]).text


def parts_of_answer(text: str, reasoning: Reasoning | None, *, may_be_thought: bool = False) -> list[TextPart]:
    """Return the reasoning and the answer in the text of an answer."""
    # ``may_be_thought``: whether a text without an end tag is reasoning that was cut off, if the prompt opens it.
    if reasoning is None:
        return [TextPart("answer", text)]
    if text.lstrip().startswith(reasoning.tags.start):
        reasoning = replace(reasoning, place="before")
    elif reasoning.place == "inside" and reasoning.tags.end not in text and not may_be_thought:
        reasoning = replace(reasoning, place="after")
    return split_text(text, reasoning)


class ContextUsage(NamedTuple):
    """The part of the context that a conversation takes."""

    token_count: int
    context_length: int


@dataclass(frozen=True)
class FittedMessages:
    """The messages that fit into the context."""

    messages: list[StoredMessage]
    dropped_message_count: int = 0  # number of messages after the system message that are left out


# At most the context divided by this number is reserved for an answer
_ANSWER_CONTEXT_DIVISOR = 4


def reserved_answer_tokens(context_length: int, max_tokens: int | None) -> int:
    """Return how many tokens of the context are reserved for an answer when turns are left out."""
    reserved = context_length // _ANSWER_CONTEXT_DIVISOR
    if max_tokens is not None:
        reserved = min(reserved, max_tokens)
    return max(1, reserved)


def fit_messages(
    messages: list[StoredMessage],
    count_prompt_tokens: Callable[[Sequence[StoredMessage]], int],
    context_length: int,
    reserved_tokens: int,
    previously_dropped_count: int,
) -> FittedMessages:
    """Leave out the oldest turns after the system message, until the other turns and an answer fit."""
    # A turn is a message of the user and all messages up to the next message of the user. Turns that an earlier
    # prompt left out stay left out. If more turns are left out now, ``reserved_tokens`` must remain free. The last
    # turn is never left out: if it does not fit even alone, ``ContextFullError`` is raised.
    system_messages, other_messages = _split_system_message(messages)
    turn_starts = [index for index, message in enumerate(other_messages) if message.role == "user"] or [0]
    last_turn_start = turn_starts[-1]
    possible_starts = [start for start in turn_starts if start >= previously_dropped_count] or [last_turn_start]
    for start in possible_starts:
        kept = [*system_messages, *other_messages[start:]]
        drops_more_than_before = start != previously_dropped_count
        needs_reserve = drops_more_than_before and start != last_turn_start
        required_free_tokens = reserved_tokens if needs_reserve else 1
        token_count = count_prompt_tokens(kept)
        if token_count + required_free_tokens <= context_length:
            return FittedMessages(kept, start)
    raise ContextFullError(_message_too_long_error(ContextUsage(token_count, context_length)))


def _split_system_message(
    messages: list[StoredMessage],
) -> tuple[list[StoredMessage], list[StoredMessage]]:
    """Return a list of the system message, which is empty if there is none, and the messages after it."""
    has_system_message = bool(messages) and messages[0].role == "system"
    count = 1 if has_system_message else 0
    return messages[:count], messages[count:]


def _message_too_long_error(usage: ContextUsage) -> str:
    """Return the error for a last message that does not fit even without the turns before it."""
    return (
        f"the last message does not fit: the prompt has {count_noun(usage.token_count, 'token')}, and the context"
        f" holds {usage.context_length:,}; shorten it, or give a larger -c"
    )


def _context_full_message(usage: ContextUsage, next_step: str) -> str:
    """Return the message for a full context; ``next_step``: what happens next, or what the user can do."""
    counts = f"the chat has {usage.token_count:,} tokens, and the context holds {usage.context_length:,}"
    return f"the context is full: {counts}; {next_step}"


def _full_context_advice(is_resumable: bool) -> str:
    """Return advice for a user whose context is full. ``is_resumable``: whether the chat is stored."""
    start = "gen chat --resume" if is_resumable else "another chat"
    return f"go back with /undo or /goto, or start {start} with a larger -c or with --on-full drop"


_WARNING_CONTEXT_SHARE = 0.75  # a warning is shown once this share of the context is in use


def context_warning(usage: ContextUsage, drops_oldest_turns: bool, is_resumable: bool = True) -> str | None:
    """Return a warning that the context is nearly full, or full; None while enough of the context is free."""
    if usage.token_count < usage.context_length * _WARNING_CONTEXT_SHARE:
        return None
    if usage.token_count >= usage.context_length:
        if drops_oldest_turns:
            return _context_full_message(usage, "the oldest turns are left out of the next prompt")
        return _context_full_message(usage, _full_context_advice(is_resumable))
    if drops_oldest_turns:
        consequence = "the oldest turns are left out"
    else:
        consequence = "the chat ends; --on-full drop leaves out the oldest turns instead"
    return (
        f"the chat has {usage.token_count:,} of the {usage.context_length:,} tokens of the context;"
        f" when it is full, {consequence}; a larger -c makes room for more"
    )


_ROLE_TITLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def markdown_of(messages: Sequence[StoredMessage], template: ChatTemplate) -> str:
    """Return the messages as Markdown, each with its role as a heading, and the reasoning as a quotation."""
    return "\n".join(map(_markdown_section, template_messages(messages, template)))


def _markdown_section(message: Mapping[str, str]) -> str:
    thought = message.get("reasoning_content", "").strip()
    quotation = "\n".join(f"> {line}".rstrip() for line in thought.splitlines())
    parts = (f"## {_ROLE_TITLES[message['role']]}", quotation, message["content"].strip())
    return "\n\n".join(filter(None, parts)) + "\n"


def jsonl_of(messages: Sequence[StoredMessage], template: ChatTemplate) -> str:
    """Return the messages as one line of JSON, a request for `gen batch`."""
    return json_line({"messages": template_messages(messages, template)})
