"""Ignore the end-of-generation tokens."""

from typing import ClassVar

import numpy as np

from ..base import About, Sampler, Surroundings, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError


class IgnoreEos(Sampler):
    """Drop every token that would end the generation.

    Formula: p_i = 0 for i in the vocabulary's end-of-generation tokens. No parameters. Raises
    ``SamplingError`` when built without a vocabulary, or when nothing else is left. Source: llama.cpp's
    ``--ignore-eos``, which adds -inf to these logits instead of dropping them.
    """

    about: ClassVar[About] = About(
        name="ignore_eos",
        summary="never end by an end-of-generation token",
        formula="drop i if i ends a generation",
        reference="llama.cpp `--ignore-eos`",
        llama_cpp="equal; the tokens are dropped, not set to -inf",
    )

    __slots__ = ("_banned",)

    def bind(self, surroundings: Surroundings) -> None:
        """Look up the end-of-generation tokens."""
        vocabulary = need_vocabulary(surroundings, "ignore_eos")
        self._banned = np.zeros(vocabulary.size, dtype=np.bool_)
        self._banned[sorted(vocabulary.eog)] = True

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows of these tokens."""
        if candidates.vocabulary != self._banned.size:
            raise SamplingError(
                f"ignore_eos: the row has {candidates.vocabulary} logits, the vocabulary {self._banned.size}"
            )
        banned = self._banned if candidates.whole else self._banned[candidates.ids]
        if banned.all():
            raise SamplingError("ignore_eos: only end-of-generation tokens are left")
        candidates.keep(~banned)
