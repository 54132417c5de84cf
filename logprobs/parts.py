"""The parts of a text: the model's reasoning and its answer, which tags of the chat template separate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .events import Done, Place, Reasoning
from .records import Part, TokenRecord
from .text_tokens import TextToken, TextTokenStream

_BLANKS = " \t\n\v\f\r"


class TextPart(NamedTuple):
    """A piece of a text, without tags."""

    part: Part
    text: str


class PartSplitter:
    """A divider of a text, while it is generated, into the reasoning and the answer. Tags are left out.

    Blanks around the reasoning are left out, too, and those before an answer that follows it. The blocks of a
    reasoning that has several are lines. Text that may be the
    beginning of a tag is held back, so that the parts do not depend on the pieces in which the text arrives.
    """

    def __init__(self, reasoning: Reasoning) -> None:
        self._tags = reasoning.tags
        self._place: Place = reasoning.place
        self._held_back = ""
        self._skips_blanks = reasoning.place == "inside" and not reasoning.is_continued
        self._has_reasoning = False
        self._last_blanks = ""  # blanks at the end of the reasoning so far, which more reasoning may follow

    def push(self, text: str, part: Part | None = None) -> list[TextPart]:
        """Append text, and return the pieces that later text cannot change."""
        # ``part``: the part of the token with this text; None: only the tags decide.
        pieces: list[TextPart] = []
        if part == "answer" and self._place != "after":
            pieces += self._release_all()
            self._place = "after"
        self._held_back += text
        while self._pass_tag(pieces):
            pass
        return pieces + self._release_all() if self._place == "after" else pieces

    def finish(self) -> list[TextPart]:
        """Return the text that is still held back, at the end. A tag that is cut off belongs to the reasoning."""
        if self._place == "before" and self._held_back.strip(_BLANKS):
            self._begin_reasoning()
        return self._release_all()

    def _pass_tag(self, pieces: list[TextPart]) -> bool:
        """Release the text before the next tag, and drop the tag. Return False if there is no complete tag."""
        if self._place == "inside":
            text, end_tag, rest = self._held_back.partition(self._tags.end)
            undecided_length = 0 if end_tag else _partial_tag_length(text, self._tags.end)
            certain_length = len(text) - undecided_length
            self._held_back = rest if end_tag else text[certain_length:]
            pieces += self._reasoning(text[:certain_length])
            if end_tag:
                self._place = "before" if self._tags.answer_prefixes else "after"
                self._skips_blanks = True
            return bool(end_tag)
        if self._place == "before":
            text = self._held_back.lstrip(_BLANKS)
            tags = (*self._tags.starts, *self._tags.answer_prefixes)
            found_tag = next(filter(text.startswith, tags), None)
            if found_tag is not None:
                self._held_back = text.removeprefix(found_tag)
                if found_tag in self._tags.starts:
                    self._begin_reasoning()
                else:
                    self._place = "after"
                    self._skips_blanks = True
                return True
            if not any(tag.startswith(text) for tag in tags):
                self._place = "after"
        return False

    def _begin_reasoning(self) -> None:
        self._place = "inside"
        self._skips_blanks = True
        self._last_blanks = "\n" if self._has_reasoning else ""

    def _release_all(self) -> list[TextPart]:
        text, self._held_back = self._held_back, ""
        return self._reasoning(text) if self._place == "inside" else self._answer(text)

    def _reasoning(self, text: str) -> list[TextPart]:
        if self._skips_blanks:
            text = text.lstrip(_BLANKS)
        shown = (self._last_blanks + text).rstrip(_BLANKS)
        self._last_blanks = (self._last_blanks + text)[len(shown) :]
        self._skips_blanks = self._skips_blanks and not shown
        self._has_reasoning = self._has_reasoning or bool(shown)
        return [TextPart("reasoning", shown)] if shown else []

    def _answer(self, text: str) -> list[TextPart]:
        if self._skips_blanks:
            text = text.lstrip(_BLANKS)
        self._skips_blanks = self._skips_blanks and not text
        return [TextPart("answer", text)] if text else []


def _partial_tag_length(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    max_length = min(len(tag) - 1, len(text))
    return next((length for length in range(max_length, 0, -1) if tag.startswith(text[-length:])), 0)


class TokenParts:
    """The parts of a text, made from the tokens of its run."""

    # ``reasoning``: None for a text without parts, which is an answer.

    def __init__(self, reasoning: Reasoning | None) -> None:
        self._splitter = None if reasoning is None else PartSplitter(reasoning)
        self._tokens = TextTokenStream()

    def push(self, token: TokenRecord) -> list[TextPart]:
        """Add the next token, and return the pieces that are certain now."""
        if self._splitter is None:
            return [TextPart("answer", token.text)] if token.text else []
        return self._split(self._splitter, self._tokens.push(token))

    def finish(self, done: Done) -> list[TextPart]:
        """Return the remaining pieces."""
        if self._splitter is None:
            return [TextPart("answer", done.rest)] if done.rest else []
        text = done.complete_text
        pieces = self._split(self._splitter, self._tokens.finish(text, done.stop))
        rest = text[self._tokens.text_length :]  # U+FFFD for an incomplete character
        return pieces + self._splitter.push(rest) + self._splitter.finish()

    def _split(self, splitter: PartSplitter, tokens: Iterable[TextToken]) -> list[TextPart]:
        return [piece for token in tokens for piece in splitter.push(token.text, token.record.part)]


def join_parts(pieces: Iterable[TextPart]) -> PartTexts:
    """Return the reasoning and the answer that pieces of a text consist of."""
    texts = {"reasoning": "", "answer": ""}
    for piece in pieces:
        texts[piece.part] += piece.text
    return PartTexts(**texts)


def split_text(text: str, reasoning: Reasoning) -> list[TextPart]:
    """Return the pieces of a complete text, which only the tags divide."""
    splitter = PartSplitter(reasoning)
    return splitter.push(text) + splitter.finish()


class PartTexts(NamedTuple):
    """The parts of a complete text."""

    reasoning: str
    answer: str
