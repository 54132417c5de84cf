"""The candidates after a stage of a chain, as notes and traces read them, and the words of notes.

Notes write numbers by the functions here, and several samplers share words.
"""

from __future__ import annotations

from math import exp

import numpy as np
from numpy.typing import NDArray

from ..common.text import count_noun
from .candidates import Candidates
from .kernels import Floats, Ids, Positions, SoftmaxSums, SoftmaxWorkspace

_FEW_ROWS_SHARE = 16
"""Up to this part of the vocabulary, sorting the ids is faster than a table of all positions."""


class StageCandidates:
    """The candidates after one stage of a chain. They stay as they were, whatever later steps do.

    Probabilities and sums are computed when they are first asked for: exponentials in float32, sums in float64.

    Attributes:
        candidates: arrays and flags at that stage; not to be changed.
    """

    __slots__ = ("_same_row", "_sums", "_workspace", "candidates")

    def __init__(
        self,
        candidates: Candidates,
        workspace: SoftmaxWorkspace | None = None,
        previous: StageCandidates | None = None,
    ) -> None:
        """Keep what the candidates are now.

        ``workspace``: shared by all stages of a chain; None: a new one. ``previous``: the stage before, whose sums
        are used if it holds the same rows.
        """
        self.candidates = candidates.snapshot()
        self._workspace = workspace or SoftmaxWorkspace()
        self._sums: SoftmaxSums | None = None
        self._same_row = previous if previous is not None and self.is_same_row(previous) else None

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
        """The probabilities, float64 (m,), that these logits have among the candidates."""
        sums = self._softmax_sums()
        return np.exp(logits.astype(np.float64) - sums.highest - sums.log_weights)

    @property
    def entropy(self) -> float:
        """-sum p ln p, in nats."""
        return max(self._softmax_sums().entropy, 0.0)  # rounding may put it below

    @property
    def highest_probability(self) -> float:
        """The probability of the likeliest token."""
        return exp(-self._softmax_sums().log_weights)

    def top(self, count: int) -> StageCandidates:
        """The ``count`` likeliest of them, as if a stage had kept these."""
        head = self.candidates.snapshot()
        head.keep_top_rows(count)
        return StageCandidates(head, self._workspace)

    def mass_of(self, kept: StageCandidates) -> float:
        """The probability here of the tokens of a later stage, whose logits did not change since."""
        if len(kept) == len(self):
            return 1.0
        all_sums, sums = self._softmax_sums(), kept._softmax_sums()
        return min(exp(sums.highest - all_sums.highest + sums.log_weights - all_sums.log_weights), 1.0)

    def is_same_row(self, other: StageCandidates) -> bool:
        """True if the two stages hold the same arrays: nothing was changed, dropped or sorted between them."""
        return self.logits is other.logits and self._own_ids() is other._own_ids()

    def positions_of(self, tokens: NDArray[np.integer]) -> Positions:
        """The positions of these tokens, intp (m,); -1 for a token that is not among the candidates."""
        if self.candidates.is_full_vocabulary:
            return tokens.astype(np.intp)
        if len(self) * _FEW_ROWS_SHARE > self.candidates.vocab_size:
            table = np.full(self.candidates.vocab_size, -1, dtype=np.intp)
            table[self.ids] = np.arange(len(self))
            return table[tokens]
        order = self.ids.argsort()
        ascending = self.ids[order]
        places = ascending.searchsorted(tokens).clip(max=len(self) - 1)
        return np.where(ascending[places] == tokens, order[places], -1)

    def changes_since(self, before: StageCandidates) -> NDArray[np.float64]:
        """The differences, float64 (m,), of the logits that changed since the stage ``before``; new minus old."""
        if len(before) == len(self) and self._own_ids() is before._own_ids():
            old, new = before.logits, self.logits
        else:
            positions = before.positions_of(self.ids)
            old, new = before.logits[positions[positions >= 0]], self.logits[positions >= 0]
        changed = (new != old).nonzero()[0]
        return new[changed].astype(np.float64) - old[changed]

    def _own_ids(self) -> Ids | None:
        return None if self.candidates.is_full_vocabulary else self.candidates.ids

    def _softmax_sums(self) -> SoftmaxSums:
        if self._same_row is not None:
            return self._same_row._softmax_sums()
        if self._sums is None:
            self._sums = self._workspace.sums(self.candidates.logits, self.candidates.max)
        return self._sums


_DIGITS, _MAX_DIGITS = 3, 9
"""Significant digits of a number; nine tell any two float32 apart."""


def short_number(value: float, digits: int = _DIGITS) -> str:
    """A number with three significant digits: ``0.0105``, ``12.3``, ``49,152``."""
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.{digits}g}"


def comparison(left: float, sign: str, right: float) -> str:
    """Two numbers with a sign between them, as ``0.71 > 0.5``, and so many digits that they differ if they do."""
    for digits in range(_DIGITS, _MAX_DIGITS + 1):
        texts = short_number(left, digits), short_number(right, digits)
        if texts[0] != texts[1] or left == right:
            break
    return f"{texts[0]} {sign} {texts[1]}"


def token_count(count: int) -> str:
    """A number of tokens: ``1 token``, ``12 tokens``."""
    return count_noun(count, "token")


def mass_at(before: StageCandidates, after: StageCandidates) -> str:
    """The mass that was kept, as ``mass 0.953 at 12 tokens``."""
    mass = before.mass_of(after)
    text = short_number(mass)
    if mass < 1 and text == "1":  # nearly all of it
        text = short_number(mass, _MAX_DIGITS)
    return f"mass {text} at {token_count(len(after))}"


def logit_changes(before: StageCandidates, after: StageCandidates) -> str:
    """How many tokens got another logit, and by how much: ``3 tokens lowered by up to 1.2``."""
    changes = after.changes_since(before)
    parts = []
    for verb, distances in (("raised", changes[changes > 0]), ("lowered", -changes[changes < 0])):
        if distances.size:
            parts.append(f"{token_count(distances.size)} {verb} by up to {short_number(distances.max())}")
    return ", ".join(parts) or "no token changed"


def dropped_tokens(before: StageCandidates, after: StageCandidates, what: str) -> str:
    """How many tokens were dropped, and what they are: ``2 end tokens dropped``, ``no end token``."""
    dropped = len(before) - len(after)
    return f"{dropped:,} {what}{'' if dropped == 1 else 's'} dropped" if dropped else f"no {what}"
