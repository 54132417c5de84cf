"""Plug-ins of release 0.1, unchanged except for their imports: they use the names that samplers had then.

`Lipogram` is the example plug-in, `TopM` the example of CONTRIBUTING.md. `EveryOldName` uses all old names.
"""

from typing import ClassVar

import numpy as np
from logitsmith.samplers import About, BuildContext, Candidates, Sampler, SamplingError, Selector, Stage
from logitsmith.samplers.stages import StageCandidates, short_number
from pydantic import Field


class Lipogram(Sampler):
    """Drop the tokens that contain one of the letters.

    Formula: p_i = 0 if piece(i) contains one of `letters`, in either case. If every candidate contains one, all
    stay. Neutral without letters. Needs a vocabulary. Source: Georges Perec 1969, La Disparition.
    """

    about: ClassVar[About] = About(
        name="lipogram",
        summary="never write certain letters",
        formula="drop i if piece(i) contains a letter",
        reference="Georges Perec 1969, La Disparition",
        llama_cpp="not in llama.cpp",
        main="letters",
        neutral={"letters": ""},
        example="e",
        stage=Stage.LOGIT_BIAS,  # where `--set lipogram.letters=e` puts it in
        is_bias=True,
    )

    letters: str = Field(default="", description="letters to leave out, such as e")

    __slots__ = ("_allowed",)

    def bind(self, context: BuildContext) -> None:
        """Look at the bytes of every token, once, when the chain is built."""
        if context.vocabulary is None:
            raise SamplingError("lipogram.letters needs a vocabulary")
        letters = set((self.letters.lower() + self.letters.upper()).encode())
        self._allowed = np.array([letters.isdisjoint(piece) for piece in context.vocabulary.pieces])

    def apply(self, candidates: Candidates) -> None:
        """Keep the candidates without these letters."""
        allowed = self._allowed[candidates.ids]
        if allowed.any():  # a step leaves at least one candidate
            candidates.keep(allowed)


class TopM(Sampler):
    """Keep the candidates whose probability is at least m times the mean.

    Formula: keep i if p_i >= m / n, n candidates. Neutral at m = 0. Source: … Not in llama.cpp.
    """

    about: ClassVar[About] = About(
        name="top_m",
        summary="keep tokens at least m times as likely as the average",
        formula="keep i if p_i >= m / n",
        reference="…",
        llama_cpp="not in llama.cpp",
        main="m",
        neutral={"m": 0.0},
        stage=Stage.MIN_P + 4,
        keeps_likeliest=True,
    )

    m: float = Field(default=0.0, ge=0, description="multiple of the mean probability; 0 = off")

    def apply(self, candidates: Candidates) -> None:
        """Drop the unlikely rows."""
        likely = candidates.probs() * len(candidates) >= self.m
        if likely.any():
            candidates.keep(likely)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Return the probability that was needed."""
        floor = self.m / len(before)
        return f"p >= {short_number(floor)} = {short_number(self.m)} / {len(before):,}"


class EveryOldName(Selector):
    """Select the second of the highest candidates, by every old name of `Candidates`."""

    about: ClassVar[About] = About(
        name="every_old_name",
        summary="s",
        formula="f",
        reference="r",
        llama_cpp="l",
        main="count",
        neutral={"count": 0},
        idle={"bonus": "count"},
        selects=True,
        keeps_likeliest=False,
        stands_for={"dist": {}},
        takes_likeliest=False,
        merged=("bonus",),
    )

    count: int = Field(default=3, ge=0, description="number of candidates")
    bonus: dict[str, float] = Field(default_factory=dict, description="a table")

    def select(self, candidates: Candidates) -> int:
        """Return the token of the second row."""
        assert candidates.is_whole
        assert candidates.allowed is None
        assert candidates.leading is None
        even = candidates.where((np.arange(candidates.vocabulary) % 2 == 0).astype(np.int8))
        candidates.change(even, candidates.logits[even] + np.float32(1))
        candidates.replace(candidates.logits * np.float32(2), monotone=True)
        candidates.keep(candidates.logits > -np.inf)
        candidates.top(self.count)
        candidates.order()
        best = candidates.best()
        candidates.take(np.array([best + 1]), is_ordered=True)
        token = int(candidates.ids[0])
        candidates.only(token, 1.0)
        return token
