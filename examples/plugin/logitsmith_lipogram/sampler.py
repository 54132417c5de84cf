"""A sampler that never writes certain letters."""

from typing import ClassVar

import numpy as np
from logitsmith.samplers import BuildContext, Candidates, Sampler, SamplerInfo, SamplingError, Stage
from pydantic import Field


class Lipogram(Sampler):
    """Drop the tokens that contain one of the letters.

    Formula: drop i if piece(i), the bytes of token i, contains one of `letters` in upper or lower case. If every
    candidate contains one, all stay. Neutral without letters. Needs a vocabulary. Source: Georges Perec 1969, La
    Disparition.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="lipogram",
        summary="never write certain letters",
        formula="drop i if piece(i) contains a letter",
        reference="Georges Perec 1969, La Disparition",
        llama_cpp="not in llama.cpp",
        main_parameter="letters",
        off_values={"letters": ""},
        example="e",
        stage=Stage.LOGIT_BIAS,  # the place where `--set lipogram.letters=e` inserts the step
        is_bias=True,
    )

    letters: str = Field(default="", description="letters to avoid, such as e")

    __slots__ = ("_allowed",)

    def bind(self, context: BuildContext) -> None:
        """Find the allowed tokens by their bytes, once, when the chain is built."""
        if context.vocabulary is None:
            raise SamplingError("lipogram.letters needs a vocabulary")
        letters = set((self.letters.lower() + self.letters.upper()).encode())
        self._allowed = np.array([letters.isdisjoint(piece) for piece in context.vocabulary.pieces])

    def apply(self, candidates: Candidates) -> None:
        """Keep the candidates without these letters."""
        allowed = self._allowed[candidates.ids]
        if allowed.any():  # a step must leave at least one candidate
            candidates.filter_rows(allowed)
