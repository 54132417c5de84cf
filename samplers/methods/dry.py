"""DRY: don't repeat yourself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..array_types import Floats
from ..base import About, BuildContext, ListParameter, Sampler, need_vocabulary
from ..candidates import Candidates
from ..dry_breakers import LastBreakerTracker, SequenceBreakers
from ..errors import SamplingError
from ..history import check_tokens
from ..note_words import logit_changes, token_count
from ..stage import Stage
from ..suffix_automaton import SuffixAutomaton
from ..suffix_matches import WindowSuffixMatcher

if TYPE_CHECKING:
    from ..stage_candidates import StageCandidates

_LOG_MAX = np.float32(88.7228391)
"""ln of the largest float32, FLOAT_MAX_LOG of llama.cpp: a power beyond it would overflow."""


class Dry(Sampler):
    """Lower the logits of tokens that would continue a sequence which the text contains already.

    Formula: logit_i - multiplier * base^(n - allowed_length), if the last n tokens occur earlier in the window
    too, followed by i, and n >= allowed_length; n is the largest such number, in tokens. Logits in float32, the
    power in float64, its exponent limited so that float32 does not overflow. A sequence does not reach back over
    a breaker, and a token that is a breaker by itself has no penalty. ``match: overlap`` finds a breaker wherever
    tokens overlap its text (llama.cpp, KoboldCpp); ``last_token`` takes the last token of "a" + text
    (text-generation-webui). The window is the last ``last_n`` tokens of prompt and output (-1: all, 0: off).

    Neutral at multiplier 0, base below 1 or last_n 0. Raises ``SamplingError`` for breakers without a vocabulary.
    A step costs as much as there are tokens to penalise, at any length of the text; with a window, one comparison
    with the window besides. Source: p-e-w 2024. Equals llama.cpp's ``dry``.
    """

    about: ClassVar[About] = About(
        name="dry",
        summary="make tokens less likely that would continue a repetition",
        formula="logit_i - multiplier * base^(n - allowed_length),  n >= allowed_length tokens repeated so far",
        reference="p-e-w 2024, DRY, text-generation-webui PR 5677; pi6am, KoboldCpp PR 982",
        llama_cpp="equal with match: overlap",
        main="multiplier",
        example=0.8,
        neutral={"multiplier": 0.0},
        aliases=("dry_multiplier",),
        stage=Stage.DRY,
    )

    multiplier: float = Field(default=0.0, ge=0, description="strength; 0 = off, 0.8 is usual")
    base: float = Field(default=1.75, ge=0, description="growth for each further token; below 1 = off")
    allowed_length: int = Field(
        default=2, ge=0, description="repetitions shorter than this have no penalty, in tokens"
    )
    last_n: int = Field(default=-1, ge=-1, description="tokens to look back; 0 = off, -1 = all")
    breakers: Annotated[list[str], ListParameter()] = Field(
        default_factory=lambda: ["\n", ":", '"', "*"], description="texts over which no repetition reaches"
    )
    match: Literal["overlap", "last_token"] = Field(
        default="overlap", description="how a breaker is found among the tokens"
    )

    __slots__ = (
        "_breakers",
        "_checked_count",
        "_checked_size",
        "_history",
        "_last_breaker",
        "_penalties",
        "_repeats",
    )

    @property
    def is_neutral(self) -> bool:
        """Also off with a base below 1 or an empty window, as in llama.cpp."""
        return self.multiplier == 0 or self.base < 1 or self.last_n == 0

    def bind(self, context: BuildContext) -> None:
        """Find the tokens of the breakers."""
        self._penalties: Floats = np.zeros(0, dtype=np.float32)
        texts = [text for text in self.breakers if text]
        if self.is_neutral or not texts:
            self._breakers = SequenceBreakers({}, 0)
            return
        vocabulary = need_vocabulary(context, "dry.breakers")
        find = (
            SequenceBreakers.all_spellings if self.match == "overlap" else SequenceBreakers.single_token_breakers
        )
        self._breakers = find(texts, vocabulary)

    def reset(self, prompt: Sequence[int]) -> None:
        """Start the history with the prompt."""
        self._history = list(prompt)
        self._checked_size = self._checked_count = 0
        self._last_breaker = LastBreakerTracker(self._breakers, self._history)
        self._repeats: SuffixAutomaton | WindowSuffixMatcher = (
            SuffixAutomaton(self._history) if self.last_n < 0 else WindowSuffixMatcher(self._history, self.last_n)
        )

    def accept(self, token: int) -> None:
        """Append one token to the history."""
        self._history.append(token)

    def apply(self, candidates: Candidates) -> None:
        """Lower the logits of the tokens that would continue a repetition."""
        if self.is_neutral:
            return
        size = len(self._history)
        window = size if self.last_n < 0 else min(size, self.last_n)
        if window <= self.allowed_length:
            return
        self._check(candidates.vocabulary)
        limit = self._last_breaker.distance(window)
        if limit >= self.allowed_length:
            self._penalise(candidates, self._repeats.followers(limit, self.allowed_length))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Count the tokens that would continue a repetition."""
        if not after.changes_since(before).size:
            return f"no token would continue a repetition of {token_count(self.allowed_length)} or more"
        return logit_changes(before, after)

    def _check(self, size: int) -> None:
        """Raise ``SamplingError`` if a new token or the breakers do not fit rows of this size."""
        checked_count = self._checked_count if self._checked_size == size else 0
        check_tokens("dry", self._history[checked_count:], size)
        self._checked_size, self._checked_count = size, len(self._history)
        if self._breakers.vocab_size not in (0, size):
            raise SamplingError(f"dry: the row has {size} logits, the vocabulary {self._breakers.vocab_size}")

    def _penalise(self, candidates: Candidates, lengths: dict[int, int]) -> None:
        """Subtract the penalties; ``lengths``: by token, the length of the repetition that it would continue."""
        if not self._breakers.single.isdisjoint(lengths):
            lengths = {token: n for token, n in lengths.items() if token not in self._breakers.single}
        if not lengths:
            return
        positions, order = candidates.positions_of(np.fromiter(lengths, np.intp, len(lengths)))
        if not positions.size:
            return
        longest = max(lengths.values())
        if longest >= self._penalties.size:
            self._penalties = self._compute_penalties(2 * longest)
        penalties = self._penalties[np.fromiter(lengths.values(), np.intp, len(lengths))[order]]
        candidates.change(positions, candidates.logits[positions] - penalties)

    def _compute_penalties(self, longest: int) -> Floats:
        """The penalties for repetitions of ``allowed_length`` to ``longest`` tokens, by their length: float32."""
        exponents = np.maximum(np.arange(longest + 1, dtype=np.int32) - self.allowed_length, 0)
        base = np.float32(self.base)
        if base > np.float32(1.000001):
            most = int(_LOG_MAX / np.float32(math.log(base)))
            exponents = np.minimum(exponents, most) if most > 0 else exponents
        with np.errstate(over="ignore"):
            powers = np.float64(base) ** exponents
            return (np.float64(np.float32(self.multiplier)) * powers).astype(np.float32)
