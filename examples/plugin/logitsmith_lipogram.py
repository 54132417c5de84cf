"""A sampler that never writes certain letters."""

from typing import ClassVar

import numpy as np
from logitsmith.samplers import BuildContext, Candidates, Sampler, SamplerInfo, SamplingError, Stage
from pydantic import Field


class Lipogram(Sampler):
    """Drop the tokens that contain one of the letters.

    Formula: p_i = 0 if piece(i) contains one of `letters`, in either case. If every candidate contains one, all
    stay. Neutral without letters. Needs a vocabulary. Source: Georges Perec 1969, La Disparition.
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
            candidates.filter_rows(allowed)
