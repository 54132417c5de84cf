"""Infill: fill a gap in a text, token by token."""

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

_MIN_TEXT_PROBABILITY = np.float32(0.2)  # the lowest probability of a text token, as in llama.cpp


class Infill(Sampler):
    """Fill a gap in a text: end early rather than late, and merge tokens whose bytes begin alike.

    Formula, over n rows sorted from high to low, float32; n includes rows that `top_n_sigma` dropped. If
    3 n sum(p of end tokens) > sum(p of text tokens), only the end tokens stay. Otherwise each token is merged with
    the tokens whose bytes begin with its bytes: the more likely token gets the probability of both. Then text
    tokens with p < 0.2 are dropped. Of the m text tokens that remain, those with p < 1 / (m + 1) of the remaining
    probability are dropped, too. If no text token remains, only the end-of-turn token stays, with logit 1. Merging
    decides only which rows stay; their logits do not change. The sampler usually follows top_k and top_p.

    No parameters, so no neutral value. Raises ``SamplingError`` when built without a vocabulary. Source:
    llama.cpp's ``infill``, PR 9896. Equals it, except that the most likely row replaces the end-of-turn token if a
    grammar forbids that token.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="infill",
        summary="fill-in-the-middle: end early, merge tokens that begin alike",
        formula="3 n p_end > p_text: end tokens only. Else: merge prefixes, drop p < 0.2, drop p < 1 / (m + 1)",
        reference="llama.cpp `infill`, PR 9896",
        llama_cpp="equal, except that a grammar can forbid the end token",
    )

    __slots__ = ("_end_token", "_is_end", "_pieces")

    def bind(self, context: BuildContext) -> None:
        vocabulary = need_vocabulary(context)
        self._is_end = end_tokens(vocabulary).table
        self._pieces = [b"" if vocabulary.is_control(i) else piece for i, piece in enumerate(vocabulary.pieces)]
        self._end_token = vocabulary.end
        if self._end_token is None:
            self._end_token = min(vocabulary.eog, default=None)
        if self._end_token is None:
            raise SamplingError("the vocabulary has no end-of-generation token")

    def apply(self, candidates: Candidates) -> None:
        if candidates.vocab_size != self._is_end.size:
            raise SamplingError(
                f"infill: the row has {candidates.vocab_size} logits, the vocabulary {self._is_end.size}"
            )
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        is_end = self._is_end[candidates.ids]
        is_text = ~is_end
        end_prob = sequential_sum(probs[is_end])
        text_prob = sequential_sum(probs[is_text])
        if np.float32(3) * end_prob * np.float32(candidates.llama_cpp_count) > text_prob:
            candidates.filter_rows(is_end)
            self._keep_masked_ends(candidates)
            return
        merged_probs = self._merge_prefixes(candidates, probs)
        is_kept = is_end | (merged_probs >= _MIN_TEXT_PROBABILITY)
        text_count = int(np.count_nonzero(is_kept & is_text))
        if not text_count:
            self._keep_end_token(candidates)
            return
        shares = merged_probs / sequential_sum(merged_probs[is_kept])
        min_share = np.float32(1 / (text_count + 1))
        candidates.filter_rows(is_kept & (is_end | (shares >= min_share)))
        self._keep_masked_ends(candidates)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        is_end = self._is_end[before.ids]
        end_prob = float(np.add.reduce(before.probs_of(before.logits[is_end])))
        row_count = before.candidates.llama_cpp_count
        end_weight, text_prob = 3 * end_prob * row_count, 1 - end_prob
        parts = f"3 x {short_number(end_prob)} x {row_count:,} rows ="
        if self._is_end[after.ids].all():
            if end_weight > text_prob:
                return f"{parts} {comparison(end_weight, '>', text_prob)}: end tokens only"
            return f"no text token has p >= {short_number(float(_MIN_TEXT_PROBABILITY))}: only the end token"
        return f"{parts} {comparison(end_weight, '<=', text_prob)}: {token_count(len(after))} to continue with"

    def _keep_masked_ends(self, candidates: Candidates) -> None:
        """Keep only the masked rows of end tokens, since llama.cpp erases the other masked rows."""
        if candidates.masked_count:
            masked_ids = candidates.masked_ids()
            masked_end_ids = masked_ids[self._is_end[masked_ids]]
            candidates.set_masked(masked_end_ids.astype(np.int32))

    def _merge_prefixes(self, candidates: Candidates, probs: Floats) -> Floats:
        """Return the probabilities, float32 (n,), after merging tokens with the tokens that begin with them."""
        merged_probs = probs.copy()
        is_present = (candidates.logits > -np.inf).tolist()
        pieces = [self._pieces[token] for token in candidates.ids.tolist()]
        for row, extending_rows in _find_extensions(pieces):
            for extending_row in extending_rows:
                if not is_present[row]:
                    break
                if extending_row == row or not is_present[extending_row]:
                    continue
                if merged_probs[extending_row] > merged_probs[row]:
                    likelier, other = extending_row, row
                else:
                    likelier, other = row, extending_row
                merged_probs[likelier] += merged_probs[other]
                merged_probs[other] = 0
                is_present[other] = False
        return merged_probs

    def _keep_end_token(self, candidates: Candidates) -> None:
        """Keep only the end-of-turn token, or only the most likely row if the grammar forbids that token."""
        end_token = self._end_token
        if end_token is not None and (candidates.grammar_mask is None or candidates.grammar_mask[end_token]):
            candidates.replace_with_single_row(end_token, 1.0)
        else:
            candidates.keep_top_rows(1)


def _find_extensions(pieces: Sequence[bytes]) -> list[tuple[int, list[int]]]:
    """Return the rows whose bytes begin those of another row, each with all rows that begin with its bytes."""
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    sorted_pieces = [pieces[row] for row in order]
    extensions = []
    # In sorted order, the pieces that begin with a given piece directly follow the first equal piece.
    is_extended_by_next = map(bytes.startswith, sorted_pieces[1:], sorted_pieces)
    for start in compress(range(len(sorted_pieces)), is_extended_by_next):
        piece = sorted_pieces[start]
        is_repeated = start > 0 and sorted_pieces[start - 1] == piece
        if not piece or is_repeated:
            continue
        end = start + 2
        while end < len(sorted_pieces) and sorted_pieces[end].startswith(piece):
            end += 1
        extending_rows = sorted(order[start:end])
        equal_rows = [row for row in extending_rows if pieces[row] == piece]
        extensions += [(row, extending_rows) for row in equal_rows]
    return sorted(extensions)
