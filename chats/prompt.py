"""From the messages of a conversation to the tokens that a model reads, and what of them fits into the context.

The reasoning part of an answer is recognized by the tags of the chat template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..common.text import count_noun
from .conversation import Report
from .records import ContextFullError, StoredMessage

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..engine.templates import ChatTemplate, ReasoningTags


OnFull = Literal["stop", "drop"]
"""What to do with a conversation that does not fit: refuse it, or leave out its oldest turns."""


class PromptMaker:
    """Makes prompts of messages, by the chat template; what does not fit is refused or left out.

    What the template says of the messages is reported once.
    """

    def __init__(self, model: Model, template: ChatTemplate, on_full: OnFull, report: Report) -> None:
        """Open it for a model.

        Args:
            model: the model.
            template: its chat template.
            on_full: what to do when the messages do not fit.
            report: called with a sentence that the user should see.
        """
        self._model, self._template, self._on_full, self._report = model, template, on_full, report
        self._reported: set[str] = set()

    def tokens(self, messages: Sequence[StoredMessage], beginning: str = "") -> tuple[int, ...]:
        """The tokens of a prompt, after which the assistant's message goes on from ``beginning``.

        Raises ``ModelError``.
        """
        from ..engine.templates import format_chat

        chat = template_messages(messages, self._template)
        text = format_chat(self._model, chat, self._template, self._report_once)
        return tuple(self._model.vocabulary.tokenize_prompt((text + beginning).encode()))

    def fit(
        self,
        messages: list[StoredMessage],
        dropped_before: int,
        max_tokens: int | None,
        beginning: str = "",
        is_resumable: bool = True,
    ) -> FittedMessages:
        """Return the messages that go into the prompt.

        Args:
            messages: the conversation, from the first message to the one that is to be answered.
            dropped_before: how many messages after the system message were left out before.
            max_tokens: how long the answer may be; None: any length.
            beginning: the text that the answer goes on from.
            is_resumable: True if the chat is stored: the error then says how to resume it.

        Raises ``ContextFullError``.
        """
        length = self._model.context.length
        if self._on_full == "drop":
            room = reserved_answer_tokens(length, max_tokens)
            return fit_messages(
                messages, lambda kept: len(self.tokens(kept, beginning)), length, room, dropped_before
            )
        tokens = len(self.tokens(messages, beginning))
        if tokens >= length:
            usage = ContextUsage(tokens, length)
            is_first = sum(message.role == "user" for message in messages) == 1
            raise ContextFullError(
                _message_too_long_error(usage)
                if is_first
                else _context_full_message(usage, _ways_out(is_resumable))
            )
        return FittedMessages(messages)

    def usage(self, messages: list[StoredMessage], dropped_before: int) -> ContextUsage:
        """How much of the context the messages take that are not left out."""
        system = 1 if messages and messages[0].role == "system" else 0
        kept = [*messages[:system], *messages[system + dropped_before :]] if self._on_full == "drop" else messages
        return ContextUsage(len(self.tokens(kept)) if kept else 0, self._model.context.length)

    def _report_once(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            self._report(sentence)


def template_messages(messages: Sequence[StoredMessage], template: ChatTemplate) -> list[dict[str, str]]:
    """The messages in the form that a chat template takes."""
    tags = template.reasoning_tags

    def content(message: StoredMessage) -> str:
        return _text_for_template(message.content, tags) if message.role == "assistant" else message.content

    return [{"role": message.role, "content": content(message)} for message in messages]


_MARK = "LastMessage"
"""A text that stands for the last message."""


def answer_opening(chat: Sequence[dict[str, str]], template: ChatTemplate) -> str:
    """What a chat template puts behind the last message to begin the answer; some begin the reasoning, too."""
    marked = [*chat[:-1], {**chat[-1], "content": _MARK}]  # a message may have the template's own words in it
    return template.render(marked).text.rpartition(_MARK)[2]


class ContextUsage(NamedTuple):
    """How many tokens the conversation has, and how many the context holds."""

    token_count: int
    context_length: int


@dataclass(frozen=True)
class FittedMessages:
    """The messages that fit. ``dropped``: how many after the system message are left out."""

    messages: list[StoredMessage]
    dropped_message_count: int = 0


_ANSWER_SHARE = 4
"""For an answer of any length, one part in so many of the context is kept free."""


def reserved_answer_tokens(length: int, max_tokens: int | None) -> int:
    """How many tokens are kept free for an answer when turns are left out."""
    most = length // _ANSWER_SHARE
    return max(1, most if max_tokens is None else min(max_tokens, most))


def fit_messages(
    messages: list[StoredMessage],
    prompt_length: Callable[[Sequence[StoredMessage]], int],
    length: int,
    room: int,
    dropped_before: int,
) -> FittedMessages:
    """Leave out the oldest turns after the system message, until the rest and an answer fit.

    A turn begins with a message of the user, and is left out as a whole; the last one stays.

    Args:
        messages: the conversation, from the first message to the one that is to be answered.
        prompt_length: returns how many tokens the prompt of these messages has.
        length: how many tokens the context holds.
        room: how many of these are for the answer, if anything has to be left out.
        dropped_before: how many messages after the system message were left out before; these stay left out.

    Raises ``ContextFullError`` if the last turn alone does not fit.
    """
    system = messages[:1] if messages[:1] and messages[0].role == "system" else []
    turns = messages[len(system) :]
    starts = [number for number, message in enumerate(turns) if message.role == "user"]
    kept_from = [start for start in (starts or [0]) if start >= dropped_before] or starts[-1:] or [0]
    for number, start in enumerate(kept_from):
        kept = [*system, *turns[start:]]
        needed = 1 if number == len(kept_from) - 1 or (number == 0 and start == dropped_before) else room
        tokens = prompt_length(kept)
        if tokens + needed <= length:
            return FittedMessages(kept, start)
    raise ContextFullError(_message_too_long_error(ContextUsage(tokens, length)))


def _message_too_long_error(usage: ContextUsage) -> str:
    """A sentence on a message that does not fit even without the turns before it."""
    return (
        f"the last message does not fit: the prompt has {count_noun(usage.token_count, 'token')}, and the context"
        f" holds {usage.context_length:,}; shorten it, or give a larger -c"
    )


def _context_full_message(usage: ContextUsage, next_step: str) -> str:
    """A sentence on a context that is full. ``next_step``: what happens then, or what the user can do."""
    held = f"the chat has {usage.token_count:,} tokens, and the context holds {usage.context_length:,}"
    return f"the context is full: {held}; {next_step}"


def _ways_out(is_resumable: bool) -> str:
    """Return what the user can do about a full context. ``is_resumable``: True if the chat is stored."""
    start = "gen chat --resume" if is_resumable else "another chat"
    return f"go back with /undo or /goto, or start {start} with a larger -c or with --on-full drop"


_WARNING_SHARE = 0.75
"""From this share of the context on, there is a warning."""


def context_warning(usage: ContextUsage, drops_oldest_turns: bool, is_resumable: bool = True) -> str | None:
    """A sentence on a context that is nearly full, or full; None while there is room.

    Args:
        use: the tokens of the conversation, and those that the context holds.
        drops_oldest_turns: True if the oldest turns are left out then.
        is_resumable: True if the chat is stored.
    """
    if usage.token_count < usage.context_length * _WARNING_SHARE:
        return None
    if usage.token_count >= usage.context_length:
        dropped = "the oldest turns are left out of the next prompt"
        return _context_full_message(usage, dropped if drops_oldest_turns else _ways_out(is_resumable))
    what = (
        "the oldest turns are left out"
        if drops_oldest_turns
        else "it ends; --on-full drop leaves out the oldest turns then"
    )
    return (
        f"the chat has {usage.token_count:,} of the {usage.context_length:,} tokens of the context;"
        f" when it is full, {what}, and -c makes it larger"
    )


def _text_for_template(content: str, tags: ReasoningTags | None) -> str:
    """The text of an answer as the chat template takes it.

    Most templates leave out the reasoning of former answers by themselves. Where one would refuse it
    (``answer_prefixes``), it is left out here.
    """
    if tags is None or not tags.answer_prefixes:
        return content
    splitter = ReasoningSplitter(tags)
    parts = [*splitter.push(content), *splitter.finish()]
    return "".join(part.text for part in parts if not part.is_reasoning)


class AnswerPart(NamedTuple):
    """A piece of an answer's text; the tags themselves are in no part."""

    text: str
    is_reasoning: bool


class ReasoningSplitter:
    """Divides the text of an answer into its reasoning and the rest, while it comes.

    Text that may be the beginning of a tag is held back. ``is_reasoning``: True while the reasoning lasts.
    """

    def __init__(self, tags: ReasoningTags | None, prompt: str = "") -> None:
        """Begin an answer.

        Args:
            tags: the template's; None: there is no reasoning.
            prompt: what the model goes on from: reasoning may have begun there.
        """
        self._tags = tags
        self._held_back = ""
        self.is_reasoning = tags is not None and prompt.rfind(tags.start) > prompt.rfind(tags.end)

    def push(self, text: str) -> Iterator[AnswerPart]:
        """Take more text, and yield the parts that are certain by now."""
        self._held_back += text
        while found := self._first_tag():
            start, tag = found
            if start:
                yield AnswerPart(self._held_back[:start], self.is_reasoning)
            self._held_back = self._held_back[start + len(tag) :]
            self.is_reasoning = self._tags is not None and tag == self._tags.start
        kept = max((_length_of_beginning(self._held_back, tag) for tag in self._next_tags), default=0)
        released = self._held_back[: len(self._held_back) - kept]
        self._held_back = self._held_back[len(released) :]
        if released:
            yield AnswerPart(released, self.is_reasoning)

    def finish(self) -> Iterator[AnswerPart]:
        """Yield the text that was held back."""
        rest, self._held_back = self._held_back, ""
        if rest:
            yield AnswerPart(rest, self.is_reasoning)

    @property
    def _next_tags(self) -> tuple[str, ...]:
        """The tags that may come next."""
        if self._tags is None:
            return ()
        return (self._tags.end,) if self.is_reasoning else (self._tags.start, *self._tags.answer_prefixes)

    def _first_tag(self) -> tuple[int, str] | None:
        """Where the first of them is in what is held back, and which it is; None if there is none."""
        found = [(start, tag) for tag in self._next_tags if (start := self._held_back.find(tag)) >= 0]
        return min(found, default=None)


def _length_of_beginning(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-n:])), 0)


_TITLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def markdown_of(messages: Sequence[StoredMessage]) -> str:
    """The messages in Markdown, each under the name of its role."""
    return "\n".join(f"## {_TITLES[message.role]}\n\n{message.content.strip()}\n" for message in messages)


def jsonl_of(messages: Sequence[StoredMessage], template: ChatTemplate) -> str:
    """The messages as one line of JSON, with the key ``messages``: what `gen batch` answers.

    ``template``: the chat template, which may want answers without their reasoning.
    """
    return json.dumps({"messages": template_messages(messages, template)}, ensure_ascii=False) + "\n"
