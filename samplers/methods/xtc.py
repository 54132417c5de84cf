"""Exclude top choices."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..mersenne_twister import MersenneTwister
from ..stage import Stage


class Xtc(Sampler):
    """Now and then, drop every likely token but the least likely of them.

    Formula: with u from the chain's MT19937, one float32 a token; if u <= probability: of the rows with
    p_i >= threshold, sorted from high to low, all but the last are dropped, unless fewer than ``min_keep`` rows
    would stay. No number is drawn while only one row is in play. ``keep_special``: false protects nothing
    (llama.cpp, KoboldCpp, Aphrodite); true leaves newline and end-of-generation tokens in play (mlx-lm);
    ``cancel`` drops nothing at all if one of them would go (text-generation-webui). Raises ``SamplingError``
    when built without a vocabulary, save for false. Neutral at probability 0, or a threshold above 0.5.
    Source: p-e-w 2024. Equals llama.cpp's ``xtc`` with keep_special false, save that a row of -inf is not likely
    at threshold 0.
    """

    about: ClassVar[About] = About(
        name="xtc",
        summary="now and then drop all likely tokens but the least likely of them",
        formula="if u <= probability: of those with p_i >= threshold keep only the last",
        reference="p-e-w 2024, Exclude Top Choices, text-generation-webui PR 6335",
        llama_cpp="equal with keep_special: false, the random numbers too",
        main="probability",
        example=0.5,
        neutral={"probability": 0.0},
        aliases=("exclude_top_choices", "xtc_probability"),
        stage=Stage.XTC,
    )

    probability: float = Field(default=0.0, ge=0, le=1, description="how often it acts; 0 = off")
    threshold: float = Field(default=0.1, ge=0, le=1, description="what counts as likely; above 0.5 = off")
    min_keep: int = Field(default=1, ge=1, description="act only if this many tokens stay")
    keep_special: Literal[False, True, "cancel"] = Field(
        default=False, description="newline and end tokens: true spares them, cancel skips the step"
    )

    __slots__ = ("_chance", "_random", "_special")

    @property
    def is_neutral(self) -> bool:
        """Also off above a threshold that only one token can reach."""
        return self.probability <= 0 or self.threshold > 0.5

    def bind(self, context: BuildContext) -> None:
        """Seed the generator, and look up the special tokens if they matter."""
        self._random = MersenneTwister(context.seed)
        self._chance: np.float32 | None = None
        self._special: list[int] = []
        if self.keep_special is not False:
            vocabulary = need_vocabulary(context, f"xtc.keep_special: {str(self.keep_special).lower()}")
            newline = [] if vocabulary.newline is None else [vocabulary.newline]
            self._special = [*newline, *sorted(vocabulary.eog)]

    def reset(self, prompt: object) -> None:
        """Go back to the first random number."""
        self._random.restart()
        self._chance = None

    def accept(self, token: int) -> None:
        """The next token gets a random number of its own."""
        self._chance = None

    def apply(self, candidates: Candidates) -> None:
        """Drop the likely rows but the last, if the dice say so."""
        if self.is_neutral or len(candidates) < 2:
            return
        if self._chance is None:  # kept until a token is accepted: to apply twice is to roll once
            self._chance = self._random.uniform_float()
        if self._chance > np.float32(self.probability):
            return
        candidates.order()
        threshold = np.float32(self.threshold)
        reached = candidates.llama_cpp_probs() >= threshold if threshold > 0 else candidates.logits > -np.inf
        drop = int(np.count_nonzero(reached)) - 1
        if drop < 1 or len(candidates) - drop < self.min_keep:
            return
        if not self._special:
            candidates.drop_first(drop)
            return
        mask = np.arange(len(candidates)) >= drop
        mask[:drop] = np.isin(candidates.ids[:drop], self._special)
        if self.keep_special != "cancel" or not mask[:drop].any():
            candidates.keep(mask)
