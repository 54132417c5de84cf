"""The reasoning part of an answer, by the tags of the chat template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...engine.templates import ReasoningTags


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
        return (self._tags.end,) if self.is_reasoning else (self._tags.start, *self._tags.answer_marks)

    def _first_tag(self) -> tuple[int, str] | None:
        """Where the first of them is in what is held back, and which it is; None if there is none."""
        found = [(start, tag) for tag in self._next_tags if (start := self._held_back.find(tag)) >= 0]
        return min(found, default=None)


def text_for_template(content: str, tags: ReasoningTags | None) -> str:
    """The text of an answer as the chat template takes it.

    Most templates leave out the reasoning of former answers by themselves. Where one would refuse it
    (``answer_marks``), it is left out here.
    """
    if tags is None or not tags.answer_marks:
        return content
    splitter = ReasoningSplitter(tags)
    parts = [*splitter.push(content), *splitter.finish()]
    return "".join(part.text for part in parts if not part.is_reasoning)


def _length_of_beginning(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-n:])), 0)
