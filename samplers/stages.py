"""The candidates after a stage of a chain, for notes and traces; and phrases that the notes of samplers share."""

from __future__ import annotations

from math import exp

import numpy as np
from numpy.typing import NDArray

from ..common.text import count_noun
from .candidates import Candidates
from .kernels import Floats, Ids, Positions, SoftmaxSums, SoftmaxWorkspace

# If at least one in this many tokens is a candidate, a table of all positions is faster than a sort of the ids.
_MAX_TOKENS_PER_CANDIDATE_IN_TABLE = 16


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
        self._stage_with_same_rows: StageCandidates | None = None
        if previous is not None and self.is_same_row(previous):
            self._stage_with_same_rows = previous

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
        sums = self._softmax_sums()
        kept_sums = kept._softmax_sums()
        # The difference of `log_total` would lose digits where the logits are large.
        log_mass = kept_sums.highest - sums.highest + kept_sums.log_weight_sum - sums.log_weight_sum
        return min(exp(log_mass), 1.0)

    def is_same_row(self, other: StageCandidates) -> bool:
        """Return True if both stages have the same arrays, because no step in between changed anything."""
        return self.logits is other.logits and self._stored_ids() is other._stored_ids()

    def positions_of(self, tokens: NDArray[np.integer]) -> Positions:
        """Return the positions of ``tokens``, intp (m,); -1 for a token that is not among the candidates."""
        if self.candidates.is_full_vocabulary:
            return tokens.astype(np.intp)
        if len(self) * _MAX_TOKENS_PER_CANDIDATE_IN_TABLE > self.candidates.vocab_size:
            table = np.full(self.candidates.vocab_size, -1, dtype=np.intp)
            table[self.ids] = np.arange(len(self))
            return table[tokens]
        order = self.ids.argsort()
        sorted_ids = self.ids[order]
        ranks = sorted_ids.searchsorted(tokens).clip(max=len(self) - 1)
        is_candidate = sorted_ids[ranks] == tokens
        return np.where(is_candidate, order[ranks], -1)

    def changes_since(self, before: StageCandidates) -> NDArray[np.float64]:
        """Return the changes of the logits since the stage ``before``: new minus old, nonzero, float64 (m,)."""
        old_logits = before.logits
        new_logits = self.logits
        has_same_ids = len(before) == len(self) and self._stored_ids() is before._stored_ids()
        if not has_same_ids:
            old_positions = before.positions_of(self.ids)
            is_in_both = old_positions >= 0
            old_logits = old_logits[old_positions[is_in_both]]
            new_logits = new_logits[is_in_both]
        changed = (new_logits != old_logits).nonzero()[0]
        return new_logits[changed].astype(np.float64) - old_logits[changed]

    def _stored_ids(self) -> Ids | None:
        return None if self.candidates.is_full_vocabulary else self.candidates.ids

    def _softmax_sums(self) -> SoftmaxSums:
        if self._stage_with_same_rows is not None:
            return self._stage_with_same_rows._softmax_sums()
        if self._sums is None:
            self._sums = self._workspace.sums(self.candidates.logits, self.candidates.max)
        return self._sums


_USUAL_DIGITS = 3  # usual number of significant digits
_MAX_DIGITS = 9  # nine digits distinguish any two float32


def short_number(value: float, digits: int = _USUAL_DIGITS) -> str:
    """Return a number with three significant digits, ``0.0105`` or ``12.3``; an integer in full, ``49,152``."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{float(value):.{digits}g}"


def comparison(left: float, sign: str, right: float) -> str:
    """Return a comparison such as ``0.71 > 0.5``. Different numbers get enough digits to look different."""
    for digits in range(_USUAL_DIGITS, _MAX_DIGITS + 1):
        left_text = short_number(left, digits)
        right_text = short_number(right, digits)
        if left_text != right_text or left == right:
            break
    return f"{left_text} {sign} {right_text}"


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
    raised = changes[changes > 0]
    lowered = changes[changes < 0]
    parts = []
    if raised.size:
        parts.append(f"{token_count(raised.size)} raised by up to {short_number(raised.max())}")
    if lowered.size:
        parts.append(f"{token_count(lowered.size)} lowered by up to {short_number(-lowered.min())}")
    return ", ".join(parts) or "no token changed"


def dropped_tokens(before: StageCandidates, after: StageCandidates, noun: str) -> str:
    """Describe how many tokens a step dropped: ``2 end tokens dropped``, ``no end token``."""
    count = len(before) - len(after)
    return f"{count_noun(count, noun)} dropped" if count else f"no {noun}"
