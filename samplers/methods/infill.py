"""Infill: fill in the middle, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..base import BuildContext, Sampler, SamplerInfo, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..kernels import Floats, sequential_sum
from ..stages import comparison, short_number, token_count
from .ignore_eos import end_tokens

if TYPE_CHECKING:
    from ..stages import StageCandidates

_FIRST_THRESHOLD = np.float32(0.2)
"""The least probability of a text token, as in llama.cpp."""


class Infill(Sampler):
    """Fill a gap in a text: end early rather than late, and merge tokens of which one begins the other.

    Formula, over n rows (those that `top_n_sigma` dropped count) sorted from high to low, float32: if 3 n sum(p of
    end tokens) > sum(p of text tokens), keep the end tokens only. Otherwise merge each token whose bytes begin
    another's with it, into the likelier of both; drop text tokens with p < 0.2; then, of m that remain, those with
    p < 1 / (m + 1) of the remaining mass. If no text token remains, keep the end-of-turn token alone, with logit
    1. The merged mass only decides which rows stay; the logits do not change. It usually follows top_k and top_p.

    No parameters, so no neutral value. Raises ``SamplingError`` when built without a vocabulary. Source:
    llama.cpp's ``infill``, PR 9896. Equals it, except that the likeliest row replaces the end-of-turn token if a
    grammar forbids that.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="infill",
        summary="fill-in-the-middle: end early, merge tokens that begin alike",
        formula="3 n p_end > p_text: end tokens only; else merge prefixes, drop p < 0.2, drop p < 1 / (m + 1)",
        reference="llama.cpp `infill`, PR 9896",
        llama_cpp="equal; a grammar that forbids the end token is obeyed",
    )

    __slots__ = ("_end", "_is_end", "_pieces")

    def bind(self, context: BuildContext) -> None:
        """Read the tokens' bytes, and which of them end a generation."""
        vocabulary = need_vocabulary(context, "infill")
        self._is_end = end_tokens(vocabulary).table
        self._pieces = [b"" if vocabulary.is_control(i) else piece for i, piece in enumerate(vocabulary.pieces)]
        self._end = vocabulary.end
        if self._end is None:
            self._end = min(vocabulary.eog, default=None)
        if self._end is None:
            raise SamplingError("infill: the vocabulary has no end-of-generation token")

    def apply(self, candidates: Candidates) -> None:
        """Keep the rows that are worth drawing from."""
        if candidates.vocab_size != self._is_end.size:
            raise SamplingError(
                f"infill: the row has {candidates.vocab_size} logits, the vocabulary {self._is_end.size}"
            )
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        is_end = self._is_end[candidates.ids]
        is_text = ~is_end
        ending, writing = sequential_sum(probs[is_end]), sequential_sum(probs[is_text])
        if np.float32(3) * ending * np.float32(candidates.llama_cpp_count) > writing:
            candidates.filter_rows(is_end)
            self._keep_masked_ends(candidates)
            return
        probs = self._merged(candidates, probs)
        kept = (probs >= _FIRST_THRESHOLD) | is_end
        count = int(np.count_nonzero(kept & is_text))
        if not count:
            self._stop(candidates)
            return
        share = probs / sequential_sum(probs[kept])
        candidates.filter_rows(kept & (is_end | (share >= np.float32(1 / (count + 1)))))
        self._keep_masked_ends(candidates)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Say how likely the text ends here, and what follows from it."""
        is_end = self._is_end[before.ids]
        ending = float(np.add.reduce(before.probs_of(before.logits[is_end])))
        count = before.candidates.llama_cpp_count
        weight, writing = 3 * ending * count, 1 - ending
        parts = f"3 x {short_number(ending)} x {count:,} rows ="
        if self._is_end[after.ids].all():
            if weight > writing:
                return f"{parts} {comparison(weight, '>', writing)}: end tokens only"
            return f"no text token has p >= {short_number(float(_FIRST_THRESHOLD))}: the end token alone"
        return f"{parts} {comparison(weight, '<=', writing)}: {token_count(len(after))} to write on with"

    def _keep_masked_ends(self, candidates: Candidates) -> None:
        """Keep of the masked rows those of end tokens, of which llama.cpp erases none."""
        if candidates.masked_count:
            masked = candidates.masked_ids()
            candidates.set_masked(masked[self._is_end[masked] != 0].astype(np.int32))

    def _merged(self, candidates: Candidates, probs: Floats) -> Floats:
        """Return the probabilities, float32 (n,), after tokens were merged with those that begin with them."""
        merged = probs.copy()
        alive = (candidates.logits > -np.inf).tolist()
        pieces = [self._pieces[token] for token in candidates.ids.tolist()]
        for one, others in _extensions(pieces):
            for other in others:
                if not alive[one]:
                    break
                if other == one or not alive[other]:
                    continue
                into, gone = (other, one) if merged[other] > merged[one] else (one, other)
                merged[into] += merged[gone]
                merged[gone] = 0
                alive[gone] = False
        return merged

    def _stop(self, candidates: Candidates) -> None:
        """Keep the end-of-turn token alone, or the likeliest row if the grammar forbids the end."""
        end = self._end
        if end is not None and (candidates.grammar_mask is None or candidates.grammar_mask[end]):
            candidates.replace_with_single_row(end, 1.0)
        else:
            candidates.keep_top_rows(1)


def _extensions(pieces: Sequence[bytes]) -> list[tuple[int, list[int]]]:
    """Return the rows whose piece begins another row's, in order, each with all rows that begin with it."""
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    words = [pieces[row] for row in order]
    extensions = []
    # In sorted order the pieces that begin with a piece are neighbours, from the first equal piece on.
    for first in compress(range(len(words)), map(bytes.startswith, words[1:], words)):
        piece = words[first]
        if not piece or (first and words[first - 1] == piece):
            continue
        end = first + 2
        while end < len(words) and words[end].startswith(piece):
            end += 1
        family = sorted(order[first:end])
        extensions += [(order[at], family) for at in range(first, end) if words[at] == piece]
    return sorted(extensions)
