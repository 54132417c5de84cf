"""Stores an answer while its events pass by."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Any

from .answer_writer import AnswerWriter
from .conversation import Conversation
from .store.records import AnswerRecipe, StoredMessage

if TYPE_CHECKING:
    from ...engine.templates import ChatTemplate
    from ...logprobs.events import Done, Event, Token

_SECONDS_BETWEEN_WRITES = 0.1


def visible_text(token: Token, template: ChatTemplate) -> str:
    """The text of a token, with the tags of reasoning, which some models write as control tokens."""
    tags = template.reasoning_tags
    if not token.special or tags is None:
        return token.text
    piece = token.data.decode("utf-8", "replace")
    return piece if any(piece in tag for tag in (tags.start, tags.end, *tags.answer_marks)) else token.text


class AnswerRecording:
    """Passes the events of an answer on, and stores it."""

    def __init__(
        self,
        conversation: Conversation,
        parent: StoredMessage,
        recipe: AnswerRecipe,
        prompt_ids: tuple[int, ...],
        beginning: str,
        template: ChatTemplate,
    ) -> None:
        """Begin the record of an answer.

        Args:
            conversation: where it belongs.
            parent: the message that it answers.
            recipe: what it is made with.
            prompt_ids: the tokens that the model reads.
            beginning: the text that the model goes on from.
            template: its tags of reasoning are part of the text.
        """
        self._conversation, self._parent, self._recipe = conversation, parent, recipe
        self._prompt_ids, self._beginning, self._template = prompt_ids, beginning, template
        self._writer: AnswerWriter | None = None
        self._content = beginning
        self._token_ids: list[int] = []
        self._next_write = 0.0
        self._is_finished = False

    def record(self, events: Iterator[Event]) -> Generator[Event, None, None]:
        """Yield the events. If whoever takes them stops early, what is there is stored."""
        from ...logprobs.events import Done, Start, Token

        cached_tokens = 0
        try:
            for event in events:
                if isinstance(event, Token):
                    self._add(event)
                elif isinstance(event, Done):
                    self._content += event.rest
                    self._finish(_result_of(event, cached_tokens))
                elif isinstance(event, Start):
                    cached_tokens = event.cached_tokens
                yield event
        finally:
            self._finish({"finish_reason": "interrupted"})

    def _add(self, token: Token) -> None:
        self._token_ids.append(token.id)
        self._content += visible_text(token, self._template)
        if self._writer is None:
            self._writer = self._conversation.begin_answer(
                self._parent, self._recipe, self._prompt_ids, self._beginning
            )
        if monotonic() >= self._next_write:
            self._writer.grow(self._content, self._token_ids)
            self._next_write = monotonic() + _SECONDS_BETWEEN_WRITES

    def _finish(self, result: dict[str, Any]) -> None:
        if self._writer is not None and not self._is_finished:
            self._writer.finish(self._content, self._token_ids, result)
        self._is_finished = True


def _result_of(done: Done, cached_tokens: int) -> dict[str, Any]:
    return {
        "finish_reason": done.finish_reason,
        "stop": done.stop,
        "complete": done.complete,
        "usage": {
            "prompt_tokens": done.prompt_tokens,
            "cached_tokens": cached_tokens,
            "completion_tokens": done.completion_tokens,
        },
        "timings": asdict(done.timings),
    }
