"""Top-n-sigma: a greatest distance from the highest logit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import sequential_sum, sequential_sum_of_squares
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class TopNSigma(Sampler):
    """Keep the logits within n standard deviations of the highest one.

    Formula: keep i if logit_i >= max - n * sigma, float32 (n,); sigma is the population standard deviation of the
    finite logits among the candidates. The order stays. A preceding temperature does not change which tokens stay.
    llama.cpp sets the other logits to -inf, so that its later samplers still count these rows: xtc draws a random
    number for them, dynatemp includes them in n, mirostat keeps one token if they are among the first m, and top_k
    and min_keep count them. With ``dropped: counted``, later steps here count them, too, until a step like top_p
    or min_p drops them. With ``erased``, as in the paper, no step counts them.

    Range: n >= -1; neutral at 0 and below. Source: Tang et al. 2024. Equals llama.cpp's ``top_n_sigma`` with
    dropped: counted.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_n_sigma",
        summary="keep logits within n standard deviations of the highest",
        formula="keep i if logit_i >= max - n * sigma",
        reference="Tang et al. 2024, Top-n-sigma: Not All Logits Are You Need",
        llama_cpp="equal with dropped: counted",
        main_parameter="n",
        example=1.0,
        off_values={"n": 0.0},
        aliases=("nsigma", "n_sigma", "top_nsigma"),
        stage=Stage.TOP_N_SIGMA,
        keeps_top_token=True,
    )

    n: float = Field(default=0.0, ge=-1, description="number of standard deviations; 0 or -1 = off")
    dropped: Literal["counted", "erased"] = Field(
        default="counted", description="whether later steps that count tokens count the dropped ones"
    )

    @property
    def is_neutral(self) -> bool:
        """True for 0 and below."""
        return self.n <= 0

    def apply(self, candidates: Candidates) -> None:
        if self.n <= 0 or len(candidates) <= 1:
            return
        logits = candidates.logits
        finite_logits = logits if np.minimum.reduce(logits) > -np.inf else logits[np.isfinite(logits)]
        # llama.cpp sums in float32 from the first row to the last, and squares in double precision.
        count = np.float32(finite_logits.size)
        mean = sequential_sum(finite_logits) / count
        sigma = np.sqrt(sequential_sum_of_squares(finite_logits - mean) / count)
        with np.errstate(invalid="ignore"):
            threshold = candidates.max - np.float32(self.n) * sigma
        if not np.isnan(threshold):
            is_kept = logits >= threshold
            if self.dropped == "counted":
                candidates.mask_except(is_kept)
            else:
                candidates.filter_rows(is_kept)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if len(before) <= 1:
            return "one token: nothing to compare"
        highest = float(before.candidates.max)
        sigma = float(np.std(before.logits[before.logits > -np.inf], dtype=np.float64))
        parts = f"{short_number(highest)} - {short_number(self.n)} x {short_number(sigma)}"
        return f"logit >= {short_number(highest - self.n * sigma)} = {parts}"
