"""Ignore the end-of-generation tokens."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..stage import Stage
from ..vocabulary import Vocabulary


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
        stage=Stage.IGNORE_EOS,
        is_bias=True,
    )

    __slots__ = ("_banned",)

    def bind(self, context: BuildContext) -> None:
        """Look up the end-of-generation tokens."""
        self._banned = ends(need_vocabulary(context, "ignore_eos"))

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows of these tokens."""
        drop_ends("ignore_eos", candidates, self._banned)


def ends(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Which tokens end a generation, bool (V,)."""
    table = np.zeros(vocabulary.size, dtype=np.bool_)
    table[sorted(vocabulary.eog)] = True
    return table


def drop_ends(name: str, candidates: Candidates, banned: NDArray[np.bool_]) -> None:
    """Drop the rows of these tokens; raise ``SamplingError`` where nothing else is left."""
    if candidates.vocabulary != banned.size:
        raise SamplingError(f"{name}: the row has {candidates.vocabulary} logits, the vocabulary {banned.size}")
    rows = banned if candidates.is_whole else banned[candidates.ids]
    if rows.all():
        raise SamplingError(f"{name}: only end-of-generation tokens are left")
    candidates.keep(~rows)
