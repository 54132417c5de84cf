"""Greedy decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..base import SamplerInfo, Selector
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Greedy(Selector):
    """Select the token with the highest logit; of equal ones, the first in the current order.

    Formula: argmax_i logit_i over float32 (n,).

    No parameters, no random numbers. Equals llama.cpp's ``greedy``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="greedy",
        summary="always take the most likely token",
        formula="argmax_i logit_i",
        reference="llama.cpp `greedy`",
        llama_cpp="equal",
        aliases=("argmax",),
        is_selector=True,
        is_greedy=True,
    )

    state_slots: ClassVar[tuple[str, ...]] = ()

    def select(self, candidates: Candidates) -> int:
        candidates.select_rows(np.array([candidates.top_position()]), is_ordered=True)
        return int(candidates.ids[0])

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return f"the highest of {len(before):,} logits, {short_number(float(after.logits[0]))}"
