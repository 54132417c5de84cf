"""Infill: fill-in-the-middle, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..array_types import Floats
from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..sequential_sums import sequential_sum
from .ignore_eos import ends

_FIRST_THRESHOLD = np.float32(0.2)


class Infill(Sampler):
    """Fill a gap in a text: stop early rather than late, and merge tokens that begin alike.

    Formula, over n rows sorted from high to low, float32: if 3 n sum(p of end tokens) > sum(p of text tokens),
    only the end tokens stay. Otherwise each token whose piece begins another's is merged with it into the
    likelier one; text tokens with p < 0.2 go, then, of the m that stay, those with p < 1 / (m + 1) of the mass
    left. If no text token stays, the end-of-turn token alone remains, with logit 1. Merged mass decides which
    rows stay; the logits are unchanged. Usually after top_k and top_p. No parameters. Raises ``SamplingError``
    when built without a vocabulary. Source and equal: llama.cpp's ``infill``, save that the end-of-turn token
    gives way to the best row where a grammar forbids it.
    """

    about: ClassVar[About] = About(
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
        self._is_end = ends(vocabulary)
        self._pieces = [b"" if vocabulary.is_control(i) else piece for i, piece in enumerate(vocabulary.pieces)]
        self._end = vocabulary.end
        if self._end is None:
            self._end = min(vocabulary.eog, default=None)
        if self._end is None:
            raise SamplingError("infill: the vocabulary has no end-of-generation token")

    def apply(self, candidates: Candidates) -> None:
        """Keep the rows that are worth drawing from."""
        if candidates.vocabulary != self._is_end.size:
            raise SamplingError(
                f"infill: the row has {candidates.vocabulary} logits, the vocabulary {self._is_end.size}"
            )
        candidates.order()
        probs = candidates.llama_cpp_probs()
        is_end = self._is_end[candidates.ids]
        is_text = ~is_end
        ending, writing = sequential_sum(probs[is_end]), sequential_sum(probs[is_text])
        if np.float32(3) * ending * np.float32(len(candidates)) > writing:
            candidates.keep(is_end)
            return
        probs = self._merged(candidates, probs)
        kept = (probs >= _FIRST_THRESHOLD) | is_end
        count = int(np.count_nonzero(kept & is_text))
        if not count:
            self._stop(candidates)
            return
        share = probs / sequential_sum(probs[kept])
        candidates.keep(kept & (is_end | (share >= np.float32(1 / (count + 1)))))

    def _merged(self, candidates: Candidates, probs: Floats) -> Floats:
        """The probabilities after each token whose piece begins another's is merged with it."""
        merged = probs.copy()
        alive = candidates.logits > -np.inf
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
        end = self._end
        if end is not None and (candidates.allowed is None or candidates.allowed[end]):
            candidates.only(end, 1.0)
        else:
            candidates.top(1)


def _extensions(pieces: Sequence[bytes]) -> list[tuple[int, list[int]]]:
    """Each row, in order, with the rows whose piece begins with its own, where there are any beside it."""
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    words = [pieces[row] for row in order]
    found = []
    # In sorted order what begins with a piece stands together, from the first equal piece on.
    for place in [i for i, (piece, following) in enumerate(pairwise(words)) if following.startswith(piece)]:
        piece = words[place]
        if not piece or (place and words[place - 1] == piece):
            continue
        end = place + 2
        while end < len(words) and words[end].startswith(piece):
            end += 1
        family = sorted(order[place:end])
        found += [(order[at], family) for at in range(place, end) if words[at] == piece]
    return sorted(found)
