"""Paths: several texts after one prompt, of which a caller reads the logits, as those of a tree.

A request of a batch generates one text. A `PathRequest` instead reads the tokens that its caller asks for: it goes
back to any place after the prompt, and on from there, so that texts share the logits of their common beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common.errors import Word
from ..common.text import count_noun
from ..logprobs.events import BatchExactness
from ..models.errors import PromptTooLongError
from .native.context import Logits

if TYPE_CHECKING:
    from .slots import SequenceSlot, SequenceSlots
    from .vocabulary import Vocabulary


class PathStep(NamedTuple):
    """The next tokens to read.

    Attributes:
        kept: number of tokens after the prompt that stay; the later ones are removed first.
        tokens: the tokens to read then, at least one.
        words: what they are the end of, in messages.
    """

    kept: int
    tokens: Sequence[int]
    words: str = "a text after it"


PathReading = Generator[PathStep, Sequence[Logits], Any]
"""A generator of steps, which gets the logits after each token of a step. They are valid until its next step."""


@dataclass(frozen=True)
class PathRequest:
    """A request to read the logits of several texts after a prompt.

    Attributes:
        prompt: the tokens of the prompt.
        read: called with the logits after the prompt, which stay valid. Its generator asks for the tokens.
        id: identifies the request among others.
    """

    prompt: Sequence[int]
    read: Callable[[Logits], PathReading]
    id: object = None


@dataclass(frozen=True)
class PathsRead:
    """The only event of a `PathRequest`.

    Attributes:
        result: what the generator of the request returned.
        prompt_tokens: number of tokens of the prompt.
        cached_tokens: number of prompt tokens that were not read again.
        path_tokens: number of tokens that were read after the prompt.
        exactness: the promise about the logits.
    """

    result: Any
    prompt_tokens: int
    cached_tokens: int
    path_tokens: int
    exactness: BatchExactness


class RunningPaths:
    """A `PathRequest` in its slot. Its tokens are read one by one, as those of a text that is generated."""

    slot: SequenceSlot

    is_exact = True
    reuses_answers = False
    has_begun = False  # whether the prompt was read

    def __init__(self, vocabulary: Vocabulary, request: PathRequest) -> None:
        vocabulary.check(request.prompt)
        self.request = request
        self.prompt_ids = list(request.prompt)
        self._path_tokens = 0
        self._longest = len(self.prompt_ids)  # number of tokens of the prompt with the longest text after it
        self._pending: list[int] = []  # tokens of the current step that are not read yet
        self._drop_count = 0  # number of tokens to remove before them
        self._rows: list[Logits] = []  # copies of the logits after the other tokens of the step

    def read_prompt(self, slots: SequenceSlots) -> Iterator[PathsRead]:
        """Read the prompt, and begin the first step."""
        self._cached_tokens, self._exactness = slots.read(self.slot, self.prompt_ids)
        (row,) = slots.prompt_rows()
        self._reading = self.request.read(row)
        yield from self._next_step(None)

    def next_tokens(self, slots: SequenceSlots, _has_enough_requests: bool) -> Sequence[int]:
        """Return the token to be read next, and remove the tokens that its step drops."""
        slots.discard_last(self.slot, self._drop_count)
        self._drop_count = 0
        return self._pending[:1]

    def receive_logits(self, rows: Sequence[Logits], _negative_rows: Sequence[Logits]) -> Iterator[PathsRead]:
        """Keep the logits after a token; hand those of a complete step to the generator."""
        del self._pending[0]
        self._path_tokens += 1
        if self._pending:
            self._rows.append(rows[0].copy())
            return
        all_rows = [*self._rows, *rows]
        self._rows = []
        yield from self._next_step(all_rows)

    def _next_step(self, rows: Sequence[Logits] | None) -> Iterator[PathsRead]:
        try:
            step = next(self._reading) if rows is None else self._reading.send(rows)
        except StopIteration as end:
            prompt_tokens = len(self.prompt_ids)
            exactness = self._exactness.for_answer(self._longest)
            yield PathsRead(end.value, prompt_tokens, self._cached_tokens, self._path_tokens, exactness)
            return
        path_length = step.kept + len(step.tokens)
        self._longest = max(self._longest, len(self.prompt_ids) + path_length)
        if len(self.prompt_ids) + path_length > self.slot.length:
            raise PromptTooLongError(
                f"the prompt has {count_noun(len(self.prompt_ids), 'token')}, {step.words} {path_length:,},"
                f" and the context holds {self.slot.length:,}",
                advice=("give a larger ", Word.N_CTX),
                prompt_tokens=len(self.prompt_ids),
                context_tokens=self.slot.length,
            )
        self._drop_count = len(self.slot.tokens) - len(self.prompt_ids) - step.kept
        self._pending = list(step.tokens)
