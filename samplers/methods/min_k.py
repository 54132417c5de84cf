"""Min-k: a cut at the steepest fall of the sorted logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number, token_count

if TYPE_CHECKING:
    from ..stages import StageCandidates

_FIRST_ROW_COUNT = 64  # number of highest rows that are searched first
_GROWTH = 16  # factor by which this number grows


class MinK(Sampler):
    """Keep the tokens before the steepest fall of the sorted logits.

    Formula, over the n finite logits, sorted from high to low, float64: R = l_1 - l_n, the fall after row i is
    w_i = (l_i - l_(i+1)) / (R * i), and k = max(argmax_i w_i, floor(tau / R)). Of equal falls the first counts.
    The k highest rows stay, sorted; of equal logits the earlier row. If all finite logits are equal, all of them
    stay. Rows with a logit of -inf are dropped.

    A temperature before this step changes floor(tau / R) only, which is the least number of tokens where the
    model has hardly a preference. The paper uses the logits before any temperature, and tau 3. Range: tau >= 0; no
    neutral value, because tau 0 cuts at the steepest fall alone. Source: Min-k Sampling 2026 (arXiv 2604.11012).
    Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="min_k",
        summary="keep tokens before the steepest fall of the sorted logits",
        formula="keep the k highest, k = max(argmax_i (l_(i) - l_(i+1)) / i, floor(tau / (l_(1) - l_(n))))",
        reference="Min-k Sampling: Decoupling Truncation from Temperature Scaling, 2026, arXiv 2604.11012",
        llama_cpp="not in llama.cpp",
        main_parameter="tau",
        stage=Stage.TOP_N_SIGMA + 1,
        keeps_top_token=True,
    )

    tau: float = Field(
        default=3.0, ge=0, description="at least tau / (highest - lowest logit) tokens stay; 0 = no such minimum"
    )

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top_rows(self._find_cut(candidates).kept_count)
        candidates.masked_count = 0

    def _find_cut(self, candidates: Candidates) -> _Cut:
        logits = candidates.logits
        finite_logits = logits if np.minimum.reduce(logits) > -np.inf else logits[logits > -np.inf]
        size = finite_logits.size
        lowest = float(np.minimum.reduce(finite_logits))
        reach = float(candidates.max) - lowest
        if not reach:
            return _Cut(kept_count=size, fall_position=0, reach=reach)
        fall_position = _steepest_fall(candidates, size, lowest)
        min_count = int(min(self.tau / reach, size))
        return _Cut(max(fall_position, min_count), fall_position, reach)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        cut = self._find_cut(before.candidates)
        if not cut.reach:
            return "equal logits: nothing to cut"
        if cut.kept_count > cut.fall_position:
            parts = f"{short_number(self.tau)} / {short_number(cut.reach)}"
            return f"{token_count(cut.kept_count)} = {parts}, the steepest fall is after {cut.fall_position:,}"
        return f"{token_count(cut.kept_count)} before the steepest fall"


class _Cut(NamedTuple):
    """The number of rows that stay, and the numbers from which it follows."""

    kept_count: int
    fall_position: int  # the number of rows before the steepest fall
    reach: float  # the highest minus the lowest finite logit


def _steepest_fall(candidates: Candidates, size: int, lowest: float) -> int:
    """Return the number of rows before the steepest fall."""
    # Only the highest rows are sorted, because a fall after row i is at most (l_i - lowest) / i.
    count = min(_FIRST_ROW_COUNT, size)
    while True:
        highest_logits = candidates.logits[candidates.top_positions(count)].astype(np.float64)
        falls = (highest_logits[:-1] - highest_logits[1:]) / np.arange(1, count)
        position = int(falls.argmax())
        if count == size or falls[position] >= (highest_logits[-1] - lowest) / count:
            return position + 1
        count = min(count * _GROWTH, size)
