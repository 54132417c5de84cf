"""ignore_eos: the model never ends the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base import BuildContext, Sampler, SamplerInfo, Stage, Vocabulary, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..kernels import Positions
from ..stages import dropped_tokens
from .top_k import TopK

if TYPE_CHECKING:
    from ..stages import StageCandidates


class IgnoreEos(Sampler):
    """Drop every token that would end the generation.

    Formula: drop i if i is an end-of-generation token of the vocabulary. The other rows, float32 (n,), and their
    order stay.

    No parameters, so no neutral value. Raises ``SamplingError`` when built without a vocabulary, and if no other
    token remains. Source: llama.cpp's ``--ignore-eos``. Equals it, except that llama.cpp sets these logits to
    -inf.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="ignore_eos",
        summary="never write an end-of-generation token",
        formula="drop i if i ends a generation",
        reference="llama.cpp `--ignore-eos`",
        llama_cpp="equal; the tokens are dropped, not set to -inf",
        stage=Stage.IGNORE_EOS,
        is_bias=True,
    )

    __slots__ = ("_end_tokens",)

    def bind(self, context: BuildContext) -> None:
        self._end_tokens = end_tokens(need_vocabulary(context))

    @property
    def end_count(self) -> int:
        """The number of end-of-generation tokens in the vocabulary."""
        return self._end_tokens.ids.size

    def apply(self, candidates: Candidates) -> None:
        drop_ends("ignore_eos", candidates, self._end_tokens)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return dropped_tokens(before, after, "end token")


class TopKWithoutEnds:
    """ignore_eos and the top_k after it, as one step of a chain that does not copy the vocabulary."""

    about = IgnoreEos.about  # named in an error, because top_k alone raises none

    def __init__(self, ignore_eos: IgnoreEos, top_k: TopK) -> None:
        self._ignore_eos = ignore_eos
        self._top_k = top_k

    def apply(self, candidates: Candidates) -> None:
        """Drop the end-of-generation tokens, and keep the k most likely other tokens."""
        count_with_ends = self._top_k.k + self._ignore_eos.end_count
        if candidates.is_full_vocabulary and count_with_ends < candidates.vocab_size:
            # At most the end tokens are dropped from these rows, so that k rows remain.
            candidates.keep_top_rows(count_with_ends)
        self._ignore_eos.apply(candidates)
        self._top_k.apply(candidates)


class EndTokens(NamedTuple):
    """The end-of-generation tokens of a vocabulary, and maybe other tokens that end the text."""

    ids: Positions  # the token ids, ascending
    table: NDArray[np.bool_]  # for each token of the vocabulary, whether it is one of them, (V,)


def end_tokens(vocabulary: Vocabulary, stop_tokens: frozenset[int] = frozenset()) -> EndTokens:
    """Return the end-of-generation tokens of a vocabulary, and other tokens that end the text."""
    ids = np.array(sorted(vocabulary.eog | stop_tokens), dtype=np.intp)
    table = np.zeros(vocabulary.size, dtype=np.bool_)
    table[ids] = True
    return EndTokens(ids, table)


def drop_ends(name: str, candidates: Candidates, ends: EndTokens) -> None:
    """Drop the rows of end-of-generation tokens. Raises ``SamplingError`` if no other row remains."""
    check_vocabulary_size(name, candidates, ends)
    if candidates.is_full_vocabulary and ends.ids.size < candidates.vocab_size:
        candidates.drop(ends.ids)
        return
    is_end_row = ends.table[candidates.ids]
    end_count = np.count_nonzero(is_end_row)
    if end_count == len(candidates):
        raise SamplingError(f"{name}: only end-of-generation tokens are left")
    if end_count:
        candidates.filter_rows(~is_end_row)


def check_vocabulary_size(name: str, candidates: Candidates, ends: EndTokens) -> None:
    """Raise ``SamplingError``, with the ``name`` of the sampler, for a row of another vocabulary's size."""
    size = ends.table.size
    if candidates.vocab_size != size:
        raise SamplingError(f"{name}: the row has {candidates.vocab_size} logits, the vocabulary {size}")
