"""The candidates after a stage of a chain, for notes and traces; and phrases that the notes of samplers share."""

from __future__ import annotations

from math import exp

import numpy as np
from numpy.typing import NDArray

from ..common.text import count_noun
from .candidates import Candidates
from .kernels import Floats, Ids, Positions, SoftmaxSums, SoftmaxWorkspace

# If less than one in this many tokens is a candidate, sorting the ids is faster than a table of all positions
_SORTED_LOOKUP_RATIO = 16


class StageCandidates:
    """The candidates after one stage of a chain, which later steps do not change.

    Probabilities and sums are computed at their first use: exponentials in float32, sums in float64.

    Attributes:
        candidates: a snapshot of the candidates; it must not be changed.
    """

    __slots__ = ("_stage_with_same_rows", "_sums", "_workspace", "candidates")

    def __init__(
        self,
        candidates: Candidates,
        workspace: SoftmaxWorkspace | None = None,
        previous: StageCandidates | None = None,
    ) -> None:
        """Take a snapshot of the candidates.

        Args:
            candidates: the candidates of the chain.
            workspace: work arrays that all stages of a chain share; None for new ones.
            previous: the stage before this one. If it has the same rows, its sums are reused. None if there is
                none.
        """
        self.candidates = candidates.snapshot()
        self._workspace = workspace or SoftmaxWorkspace()
        self._sums: SoftmaxSums | None = None
        self._stage_with_same_rows = previous if previous is not None and self.is_same_row(previous) else None

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def ids(self) -> Ids:
        """Token ids, int32 (n,), in the order of this stage."""
        return self.candidates.ids

    @property
    def logits(self) -> Floats:
        """Logits, float32 (n,), in the order of this stage."""
        return self.candidates.logits

    def probs_of(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the probabilities, float64 (m,), of some ``logits`` among the candidates."""
        sums = self._softmax_sums()
        return np.exp(logits.astype(np.float64) - sums.highest - sums.log_weight_sum)

    @property
    def entropy(self) -> float:
        """The entropy of the candidates, -sum p ln p, in nats."""
        return max(self._softmax_sums().entropy, 0.0)  # rounding may give a value below 0

    @property
    def highest_probability(self) -> float:
        """The probability of the most likely token."""
        return exp(-self._softmax_sums().log_weight_sum)

    def top(self, count: int) -> StageCandidates:
        """Return the ``count`` most likely candidates, as a stage that keeps only these would leave them."""
        top_candidates = self.candidates.snapshot()
        top_candidates.keep_top_rows(count)
        return StageCandidates(top_candidates, self._workspace)

    def mass_of(self, kept: StageCandidates) -> float:
        """Return the probability that the tokens of a later stage have together at this stage.

        The logits must not have changed between the two stages.
        """
        if len(kept) == len(self):
            return 1.0
        all_sums, sums = self._softmax_sums(), kept._softmax_sums()
        return min(exp(sums.highest - all_sums.highest + sums.log_weight_sum - all_sums.log_weight_sum), 1.0)

    def is_same_row(self, other: StageCandidates) -> bool:
        """Return True if both stages have the same arrays, because no step in between changed anything."""
        return self.logits is other.logits and self._stored_ids() is other._stored_ids()

    def positions_of(self, tokens: NDArray[np.integer]) -> Positions:
        """Return the positions of ``tokens``, intp (m,); -1 for a token that is not among the candidates."""
        if self.candidates.is_full_vocabulary:
            return tokens.astype(np.intp)
        if len(self) * _SORTED_LOOKUP_RATIO > self.candidates.vocab_size:
            table = np.full(self.candidates.vocab_size, -1, dtype=np.intp)
            table[self.ids] = np.arange(len(self))
            return table[tokens]
        order = self.ids.argsort()
        sorted_ids = self.ids[order]
        places_in_order = sorted_ids.searchsorted(tokens).clip(max=len(self) - 1)
        return np.where(sorted_ids[places_in_order] == tokens, order[places_in_order], -1)

    def changes_since(self, before: StageCandidates) -> NDArray[np.float64]:
        """Return the changes of the logits since the stage ``before``: new minus old, nonzero, float64 (m,)."""
        if len(before) == len(self) and self._stored_ids() is before._stored_ids():
            old_logits, new_logits = before.logits, self.logits
        else:
            positions = before.positions_of(self.ids)
            old_logits, new_logits = before.logits[positions[positions >= 0]], self.logits[positions >= 0]
        changed_positions = (new_logits != old_logits).nonzero()[0]
        return new_logits[changed_positions].astype(np.float64) - old_logits[changed_positions]

    def _stored_ids(self) -> Ids | None:
        return None if self.candidates.is_full_vocabulary else self.candidates.ids

    def _softmax_sums(self) -> SoftmaxSums:
        if self._stage_with_same_rows is not None:
            return self._stage_with_same_rows._softmax_sums()
        if self._sums is None:
            self._sums = self._workspace.sums(self.candidates.logits, self.candidates.max)
        return self._sums


# Usual and greatest number of significant digits. Nine digits distinguish any two float32.
_USUAL_DIGITS, _MAX_DIGITS = 3, 9


def short_number(value: float, digits: int = _USUAL_DIGITS) -> str:
    """Return a number with three significant digits, ``0.0105`` or ``12.3``; an integer in full, ``49,152``."""
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.{digits}g}"


def comparison(left: float, sign: str, right: float) -> str:
    """Return a comparison such as ``0.71 > 0.5``. Different numbers get enough digits to look different."""
    for digits in range(_USUAL_DIGITS, _MAX_DIGITS + 1):
        texts = short_number(left, digits), short_number(right, digits)
        if texts[0] != texts[1] or left == right:
            break
    return f"{texts[0]} {sign} {texts[1]}"


def token_count(count: int) -> str:
    """Return ``1 token``, ``12 tokens``."""
    return count_noun(count, "token")


def mass_at(before: StageCandidates, after: StageCandidates) -> str:
    """Describe the probability mass that a step kept: ``mass 0.953 at 12 tokens``."""
    mass = before.mass_of(after)
    text = short_number(mass)
    if mass < 1 and text == "1":  # more digits, since the mass is not 1
        text = short_number(mass, _MAX_DIGITS)
    return f"mass {text} at {token_count(len(after))}"


def logit_changes(before: StageCandidates, after: StageCandidates) -> str:
    """Describe how many logits a step changed, and by how much: ``3 tokens lowered by up to 1.2``."""
    changes = after.changes_since(before)
    parts = []
    for verb, distances in (("raised", changes[changes > 0]), ("lowered", -changes[changes < 0])):
        if distances.size:
            parts.append(f"{token_count(distances.size)} {verb} by up to {short_number(distances.max())}")
    return ", ".join(parts) or "no token changed"


def dropped_tokens(before: StageCandidates, after: StageCandidates, noun: str) -> str:
    """Describe how many tokens a step dropped: ``2 end tokens dropped``, ``no end token``."""
    count = len(before) - len(after)
    return f"{count:,} {noun}{'' if count == 1 else 's'} dropped" if count else f"no {noun}"
