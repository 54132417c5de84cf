"""From the messages of a conversation to the tokens that a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from .context_room import (
    ContextUse,
    FittedMessages,
    answer_room,
    fit_messages,
    full_sentence,
    long_message_sentence,
    ways_out,
)
from .errors import ContextFullError
from .failover_store import Report
from .reasoning import text_for_template
from .store.records import StoredMessage

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.templates import ChatTemplate

OnFull = Literal["stop", "drop"]
"""What to do with a conversation that does not fit: refuse it, or leave out its oldest turns."""

_MARK = "LastMessage"
"""A text that stands for the last message."""


def template_messages(messages: Sequence[StoredMessage], template: ChatTemplate) -> list[dict[str, str]]:
    """The messages in the form that a chat template takes."""
    tags = template.reasoning_tags

    def content(message: StoredMessage) -> str:
        return text_for_template(message.content, tags) if message.role == "assistant" else message.content

    return [{"role": message.role, "content": content(message)} for message in messages]


def text_behind(chat: Sequence[dict[str, str]], template: ChatTemplate) -> str:
    """What a chat template puts behind the last message to begin the answer; some begin the reasoning, too."""
    marked = [*chat[:-1], {**chat[-1], "content": _MARK}]  # a message may have the template's own words in it
    return template.render(marked).text.rpartition(_MARK)[2]


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
        from ...engine.templates import format_chat

        chat = template_messages(messages, self._template)
        text = format_chat(self._model, chat, self._template, self._report_once)
        return tuple(self._model.vocabulary.tokenize_prompt((text + beginning).encode()))

    def fit(
        self,
        messages: list[StoredMessage],
        dropped: int,
        max_tokens: int | None,
        beginning: str = "",
        is_resumable: bool = True,
    ) -> FittedMessages:
        """Return the messages that go into the prompt.

        Args:
            messages: the conversation, from the first message to the one that is to be answered.
            dropped: how many messages after the system message were left out before.
            max_tokens: how long the answer may be; None: any length.
            beginning: the text that the answer goes on from.
            is_resumable: True if the chat is stored: the error then says how to resume it.

        Raises ``ContextFullError``.
        """
        length = self._model.context.length
        if self._on_full == "drop":
            room = answer_room(length, max_tokens)
            return fit_messages(messages, lambda kept: len(self.tokens(kept, beginning)), length, room, dropped)
        tokens = len(self.tokens(messages, beginning))
        if tokens >= length:
            use = ContextUse(tokens, length)
            is_first = sum(message.role == "user" for message in messages) == 1
            raise ContextFullError(
                long_message_sentence(use) if is_first else full_sentence(use, ways_out(is_resumable))
            )
        return FittedMessages(messages)

    def use(self, messages: list[StoredMessage], dropped: int) -> ContextUse:
        """How much of the context the messages take that are not left out."""
        system = 1 if messages and messages[0].role == "system" else 0
        kept = [*messages[:system], *messages[system + dropped :]] if self._on_full == "drop" else messages
        return ContextUse(len(self.tokens(kept)) if kept else 0, self._model.context.length)

    def _report_once(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            self._report(sentence)
