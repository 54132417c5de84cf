"""Temperature: a division of the logits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import as_float32
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Temperature(Sampler):
    """Divide the logits by a temperature: below 1 the distribution gets sharper, above 1 flatter.

    Formula: logit_i / t, float32 (n,). t = 0, or a t so small that the quotient overflows, keeps only the most
    likely token (of equal ones the first).

    Range: t >= 0; neutral at 1. Source: Ackley, Hinton & Sejnowski 1985. Equals llama.cpp's ``temp``. At
    t = 0 llama.cpp sets the other rows to -inf; here they are dropped, and later steps count them like rows that
    `top_n_sigma` dropped.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="temperature",
        summary="sharpen (< 1) or flatten (> 1) the distribution",
        formula="logit_i / t;  t = 0: only the most likely token is kept",
        reference="Ackley, Hinton & Sejnowski 1985, A Learning Algorithm for Boltzmann Machines",
        llama_cpp="equal; at t = 0 the other tokens are dropped, and later steps still count them",
        main_parameter="t",
        off_values={"t": 1.0},
        aliases=("temp",),
        stage=Stage.TEMPERATURE,
        keeps_top_token=True,
        family="temperature",
    )

    t: float = Field(default=0.8, ge=0, description="temperature; 0 = the most likely token")

    def apply(self, candidates: Candidates) -> None:
        divide(candidates, as_float32(self.t))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return division_note(self.t, before, after)


def divide(candidates: Candidates, t: np.float32) -> None:
    """Divide the logits by ``t``. If a quotient is not finite, keep only the most likely token."""
    if t > 0:
        highest = candidates.max / t  # the highest quotient, since rounding keeps the order
        if math.isfinite(highest):
            candidates.set_logits(candidates.logits / t, monotone=True, highest=highest)
            return
    candidates.mask_except_best()


def division_note(t: float, before: StageCandidates, after: StageCandidates) -> str:
    """Return the note on a call of `divide`."""
    is_cut = len(after) < len(before)
    return f"t {short_number(t)}: only the most likely token" if is_cut else f"logits / {short_number(t)}"
