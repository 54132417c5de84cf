"""No end-of-generation token at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..note_words import dropped_tokens
from ..stage import Stage
from ..vocabulary import Vocabulary

if TYPE_CHECKING:
    from ..stage_candidates import StageCandidates


class IgnoreEos(Sampler):
    """Drop every token that would end the generation.

    Formula: drop i if i is an end-of-generation token of the vocabulary. The other rows, float32 (n,), and their
    order stay.

    No parameters, so no neutral value. Raises ``SamplingError`` when built without a vocabulary, and if no other
    token remains. Source: llama.cpp's ``--ignore-eos``. Equals it, except that llama.cpp sets these logits to
    -inf.
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
        self._banned = end_table(need_vocabulary(context, "ignore_eos"))

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows of these tokens."""
        drop_ends("ignore_eos", candidates, self._banned)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Count the tokens that were dropped."""
        return dropped_tokens(before, after, "end token")


def end_table(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return which tokens end a generation, bool (V,)."""
    table = np.zeros(vocabulary.size, dtype=np.bool_)
    table[sorted(vocabulary.eog)] = True
    return table


def drop_ends(name: str, candidates: Candidates, banned: NDArray[np.bool_]) -> None:
    """Drop the rows of these tokens, bool (V,). Raises ``SamplingError`` if no other row remains.

    ``name``: the sampler's, for messages.
    """
    if candidates.vocabulary != banned.size:
        raise SamplingError(f"{name}: the row has {candidates.vocabulary} logits, the vocabulary {banned.size}")
    rows = banned if candidates.is_whole else banned[candidates.ids]
    if rows.all():
        raise SamplingError(f"{name}: only end-of-generation tokens are left")
    candidates.keep(~rows)
