"""Prompts made of a conversation's messages, and the messages that fit into the context.

The reasoning in an answer is recognized by the tags of the chat template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..common.strict_json import json_line
from ..common.text import count_noun
from .conversation import ReportMessage
from .records import ContextFullError, StoredMessage

if TYPE_CHECKING:
    from ..engine.chat_template import ChatTemplate, ReasoningTags
    from ..engine.model import Model


# Handling of a conversation that does not fit: raise an error, or leave out its oldest turns
OnFull = Literal["stop", "drop"]


class PromptMaker:
    """A maker of prompts from messages, with a chat template, which handles messages that do not fit."""

    # A message about the chat template is reported only once.

    def __init__(self, model: Model, template: ChatTemplate, on_full: OnFull, report: ReportMessage) -> None:
        self._model = model
        self._template = template
        self._on_full = on_full
        self._report = report
        self._reported_messages: set[str] = set()
        # the negative prompt of guidance, which takes the place of the system message in a second prompt that must
        # fit, too; None without guidance
        self.negative_system: str | None = None

    def prompt_ids(
        self, messages: Sequence[StoredMessage], beginning: str = "", system: str | None = None
    ) -> tuple[int, ...]:
        """Return the token ids of a prompt that ends with ``beginning``."""
        # ``system`` replaces the system message.
        from ..engine.guidance import with_system_message
        from ..engine.templates import format_chat

        chat = template_messages(messages, self._template)
        if system is not None:
            chat = with_system_message(chat, system)
        text = format_chat(self._model, chat, self._template, self._report_once)
        return tuple(self._model.vocabulary.tokenize_prompt((text + beginning).encode()))

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
        if token_count >= context_length:
            usage = ContextUsage(token_count, context_length)
            is_first_message = sum(message.role == "user" for message in messages) == 1
            raise ContextFullError(
                _message_too_long_error(usage)
                if is_first_message
                else _context_full_message(usage, _full_context_advice(is_resumable))
            )
        return FittedMessages(messages)

    def usage(self, messages: list[StoredMessage], dropped_count: int) -> ContextUsage:
        """Return how many tokens of the context the messages take, without those that are left out."""
        kept = messages
        if self._on_full == "drop":
            system_count = 1 if messages and messages[0].role == "system" else 0
            kept = [*messages[:system_count], *messages[system_count + dropped_count :]]
        return ContextUsage(self._count_tokens(kept) if kept else 0, self._model.context.length)

    def _check_negative(self, messages: Sequence[StoredMessage], beginning: str) -> None:
        """Raise ``ContextFullError`` if the last message does not fit after the negative prompt of guidance."""
        if self.negative_system is None:
            return
        last_start = max((index for index, each in enumerate(messages) if each.role == "user"), default=0)
        token_ids = self.prompt_ids(messages[last_start:], beginning, system=self.negative_system)
        if len(token_ids) >= self._model.context.length:
            raise ContextFullError(
                "the negative prompt of guidance and the last message do not fit: they have "
                f"{count_noun(len(token_ids), 'token')}, and the context holds {self._model.context.length:,}; "
                "shorten one of them, or give a larger -c"
            )

    def _count_tokens(self, messages: Sequence[StoredMessage], beginning: str = "") -> int:
        """Return the number of tokens of a prompt; under guidance, of the longer one of both prompts."""
        count = len(self.prompt_ids(messages, beginning))
        if self.negative_system is None:
            return count
        return max(count, len(self.prompt_ids(messages, beginning, system=self.negative_system)))

    def _report_once(self, message: str) -> None:
        if message not in self._reported_messages:
            self._reported_messages.add(message)
            self._report(message)


def template_messages(messages: Sequence[StoredMessage], template: ChatTemplate) -> list[dict[str, str]]:
    """Return the messages in the form that chat templates expect."""
    tags = template.reasoning_tags

    def content(message: StoredMessage) -> str:
        return _answer_for_template(message.content, tags) if message.role == "assistant" else message.content

    return [{"role": message.role, "content": content(message)} for message in messages]


# Text that replaces the last message, so that its end can be found in the rendered template
_PLACEHOLDER = "LastMessage"


def answer_opening(chat: Sequence[dict[str, str]], template: ChatTemplate) -> str:
    """Return the text that a chat template puts between the last message and the answer."""
    # Some templates also open the reasoning there.
    # The message itself cannot be searched for: it may contain words of the template.
    chat_with_placeholder = [*chat[:-1], {**chat[-1], "content": _PLACEHOLDER}]
    return template.render(chat_with_placeholder).text.rpartition(_PLACEHOLDER)[2]


class ContextUsage(NamedTuple):
    """The part of the context that a conversation takes."""

    token_count: int
    context_length: int


@dataclass(frozen=True)
class FittedMessages:
    """The messages that fit into the context."""

    messages: list[StoredMessage]
    dropped_message_count: int = 0  # number of messages after the system message that are left out


# If the answer has no maximum length, the context divided by this number is reserved for it
_ANSWER_CONTEXT_DIVISOR = 4


def reserved_answer_tokens(context_length: int, max_tokens: int | None) -> int:
    """Return how many tokens of the context are reserved for an answer when turns are left out."""
    max_reserved = context_length // _ANSWER_CONTEXT_DIVISOR
    return max(1, max_reserved if max_tokens is None else min(max_tokens, max_reserved))


def fit_messages(
    messages: list[StoredMessage],
    count_prompt_tokens: Callable[[Sequence[StoredMessage]], int],
    context_length: int,
    reserved_tokens: int,
    previously_dropped_count: int,
) -> FittedMessages:
    """Leave out the oldest turns after the system message, until the other turns and an answer fit."""
    # A turn begins with a message of the user, and includes all messages up to the next one. The last turn is
    # never left out: ``ContextFullError`` is raised if it alone does not fit. ``reserved_tokens`` must be free if
    # more turns are left out than before; those that earlier prompts left out stay left out.
    system_messages = messages[:1] if messages[:1] and messages[0].role == "system" else []
    messages_after_system = messages[len(system_messages) :]
    turn_starts = [index for index, message in enumerate(messages_after_system) if message.role == "user"]
    last_start = turn_starts[-1:] or [0]
    possible_starts = [start for start in (turn_starts or [0]) if start >= previously_dropped_count] or last_start
    for start_index, start in enumerate(possible_starts):
        kept = [*system_messages, *messages_after_system[start:]]
        is_unchanged = start_index == 0 and start == previously_dropped_count
        required_free_tokens = 1 if start_index == len(possible_starts) - 1 or is_unchanged else reserved_tokens
        token_count = count_prompt_tokens(kept)
        if token_count + required_free_tokens <= context_length:
            return FittedMessages(kept, start)
    raise ContextFullError(_message_too_long_error(ContextUsage(token_count, context_length)))


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
        next_step = "the oldest turns are left out of the next prompt"
        return _context_full_message(
            usage, next_step if drops_oldest_turns else _full_context_advice(is_resumable)
        )
    consequence = (
        "the oldest turns are left out"
        if drops_oldest_turns
        else "the chat ends; --on-full drop leaves out the oldest turns instead"
    )
    return (
        f"the chat has {usage.token_count:,} of the {usage.context_length:,} tokens of the context;"
        f" when it is full, {consequence}; a larger -c makes room for more"
    )


def _answer_for_template(content: str, tags: ReasoningTags | None) -> str:
    """Return the text of an earlier answer as the chat template expects it."""
    # Most templates remove the reasoning from earlier answers. Templates with ``answer_prefixes`` would reject it,
    # so it is removed here.
    if tags is None or not tags.answer_prefixes:
        return content
    splitter = ReasoningSplitter(tags)
    parts = [*splitter.append(content), *splitter.finish()]
    return "".join(part.text for part in parts if not part.is_reasoning)


class AnswerPart(NamedTuple):
    """A part of an answer's text, without the tags of the reasoning."""

    text: str
    is_reasoning: bool


class ReasoningSplitter:
    """A divider of an answer's text, while it is generated, into the reasoning and the other text."""

    # Text that may be the beginning of a tag is held back until more text arrives.

    def __init__(self, tags: ReasoningTags | None, prompt: str = "") -> None:
        # the prompt may already have opened the reasoning
        self._tags = tags
        self._held_back_text = ""
        # whether the next text is part of the reasoning
        self.is_reasoning = tags is not None and prompt.rfind(tags.start) > prompt.rfind(tags.end)

    def append(self, text: str) -> Iterator[AnswerPart]:
        """Append text of the answer, and yield the parts that later text cannot change."""
        self._held_back_text += text
        while position_and_tag := self._first_tag():
            start, tag = position_and_tag
            if start:
                yield AnswerPart(self._held_back_text[:start], self.is_reasoning)
            self._held_back_text = self._held_back_text[start + len(tag) :]
            self.is_reasoning = self._tags is not None and tag == self._tags.start
        held_back_length = max(
            (_partial_tag_length(self._held_back_text, tag) for tag in self._possible_tags), default=0
        )
        released_text = self._held_back_text[: len(self._held_back_text) - held_back_length]
        self._held_back_text = self._held_back_text[len(released_text) :]
        if released_text:
            yield AnswerPart(released_text, self.is_reasoning)

    def finish(self) -> Iterator[AnswerPart]:
        """Yield the text that is still held back, at the end of the answer."""
        held_back_text, self._held_back_text = self._held_back_text, ""
        if held_back_text:
            yield AnswerPart(held_back_text, self.is_reasoning)

    @property
    def _possible_tags(self) -> tuple[str, ...]:
        """The tags that may follow at this point."""
        if self._tags is None:
            return ()
        return (self._tags.end,) if self.is_reasoning else (self._tags.start, *self._tags.answer_prefixes)

    def _first_tag(self) -> tuple[int, str] | None:
        """Return position and text of the first tag in the text that is held back; None if there is none."""
        positions_and_tags = [
            (start, tag) for tag in self._possible_tags if (start := self._held_back_text.find(tag)) >= 0
        ]
        return min(positions_and_tags, default=None)


def _partial_tag_length(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-n:])), 0)


_ROLE_TITLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def markdown_of(messages: Sequence[StoredMessage]) -> str:
    """Return the messages as Markdown, each with its role as a heading."""
    return "\n".join(f"## {_ROLE_TITLES[message.role]}\n\n{message.content.strip()}\n" for message in messages)


def jsonl_of(messages: Sequence[StoredMessage], template: ChatTemplate) -> str:
    """Return the messages as one line of JSON, a request for `gen batch`."""
    # Templates may reject reasoning in answers.
    return json_line({"messages": template_messages(messages, template)})
