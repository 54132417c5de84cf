"""XTC: exclude top choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import BuildContext, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..mersenne_twister import MersenneTwister
from ..stages import comparison, token_count

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Xtc(Sampler):
    """With some probability, drop every likely token except the least likely of them.

    Formula: u is the next float32 of the chain's MT19937, one per generated token; if u <= probability, the rows
    (candidate tokens) with p_i >= threshold, float32 (n,), are sorted from high to low, and all but the last are
    dropped, unless fewer than ``min_keep`` rows would stay. No number is drawn for a single candidate. Rows that
    `top_n_sigma` dropped count as candidates, and for ``min_keep``. ``keep_special: false`` keeps no special token
    (llama.cpp, KoboldCpp, Aphrodite); ``true`` keeps newline and end-of-generation tokens (mlx-lm); ``cancel``
    drops nothing if one of these tokens would be dropped (text-generation-webui).

    Range: probability and threshold 0..1, min_keep >= 1. Neutral at probability 0, or a threshold above 0.5,
    which only one token can reach. Raises ``SamplingError`` when built without a vocabulary, unless keep_special
    is false. Source: p-e-w 2024. Equals llama.cpp's ``xtc`` with keep_special: false, except that a row of -inf
    does not count as likely at threshold 0.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="xtc",
        summary="at random, drop all likely tokens except the least likely of them",
        formula="if u <= probability: of those with p_i >= threshold keep only the last",
        reference="p-e-w 2024, Exclude Top Choices, text-generation-webui PR 6335",
        llama_cpp="equal with keep_special: false, the random numbers too",
        main_parameter="probability",
        example=0.5,
        off_values={"probability": 0.0},
        aliases=("exclude_top_choices", "xtc_probability"),
        stage=Stage.XTC,
    )

    probability: float = Field(
        default=0.0, ge=0, le=1, description="probability of dropping the top choices; 0 = off"
    )
    threshold: float = Field(
        default=0.1, ge=0, le=1, description="lowest probability of a likely token; above 0.5 = off"
    )
    min_keep: int = Field(default=1, ge=1, description="drop tokens only if at least this many stay")
    keep_special: Literal[False, True, "cancel"] = Field(
        default=False, description="newline and end tokens: true keeps them, cancel then drops no token"
    )

    state_slots: ClassVar[tuple[str, ...]] = ("_drawn_number",)
    __slots__ = ("_drawn_number", "_kept_special_tokens", "_random")

    @property
    def is_neutral(self) -> bool:
        """True also for a threshold above 0.5, which only one token can reach."""
        return self.probability <= 0 or self.threshold > 0.5

    def bind(self, context: BuildContext) -> None:
        self._random = MersenneTwister(context.seed)
        self._drawn_number: np.float32 | None = None
        self._kept_special_tokens: list[int] = []
        if self.keep_special is not False:
            vocabulary = need_vocabulary(context, "keep_special", value=str(self.keep_special).lower())
            newline = [] if vocabulary.newline is None else [vocabulary.newline]
            self._kept_special_tokens = [*newline, *sorted(vocabulary.eog)]

    def reset(self, prompt: object) -> None:
        self._random.restart()
        self._drawn_number = None

    def accept(self, token: int) -> None:
        """Discard the random number, so that the next token draws a new one."""
        self._drawn_number = None

    def apply(self, candidates: Candidates) -> None:
        if self.is_neutral or candidates.llama_cpp_count < 2:
            return
        if self._drawn_number is None:  # kept until a token is accepted, so that applying twice draws once
            self._drawn_number = self._random.uniform_float()
        if self._drawn_number > np.float32(self.probability):
            return
        candidates.sort_descending()
        drop_count = self._likely_count(candidates) - 1
        if drop_count < 1 or candidates.llama_cpp_count - drop_count < self.min_keep:
            return
        if not self._kept_special_tokens:
            candidates.drop_first(drop_count)
            return
        is_special = np.isin(candidates.ids[:drop_count], self._kept_special_tokens)
        if self.keep_special == "cancel" and is_special.any():
            return
        is_kept = np.ones(len(candidates), dtype=np.bool_)
        is_kept[:drop_count] = is_special
        candidates.filter_rows(is_kept)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if self._drawn_number is None:
            return "one token: not rolled"
        if self._drawn_number > np.float32(self.probability):
            return f"not rolled ({comparison(float(self._drawn_number), '>', self.probability)})"
        rolled = f"rolled ({comparison(float(self._drawn_number), '<=', self.probability)})"
        dropped_count = len(before) - len(after)
        if dropped_count:
            return f"{rolled}: {token_count(dropped_count)} dropped, the last with p >= {self.threshold:g} stays"
        return f"{rolled}: nothing dropped, {self._obstacle(before.candidates)}"

    def _likely_count(self, candidates: Candidates) -> int:
        threshold = np.float32(self.threshold)
        if threshold <= 0:
            return int(np.count_nonzero(candidates.logits > -np.inf))
        probs = candidates.llama_cpp_probs_down_to(float(threshold))
        return int(np.count_nonzero(probs >= threshold))

    def _obstacle(self, candidates: Candidates) -> str:
        """Return the reason why the step dropped no candidate although the random number was low enough."""
        likely_count = self._likely_count(candidates)
        if likely_count < 2:
            return f"fewer than two tokens have p >= {self.threshold:g}"
        if candidates.llama_cpp_count - (likely_count - 1) < self.min_keep:
            return f"at least {token_count(self.min_keep)} stay"
        return "newline and end tokens stay"

    @property
    def roll(self) -> float | None:
        """The random number of the current token; None if none was drawn."""
        return None if self._drawn_number is None else float(self._drawn_number)
