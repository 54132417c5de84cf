"""What the probe measured of an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class EndpointProfile:
    """What an endpoint does with biases.

    Args:
        window: number of logprobs that a call shows.
        precision: relative error of an answered probability.
        shifts_logprobs: a bias changes the logprobs as asked.
        adds_together: several biases in one call do so.
        chooses_token: a bias chooses the token.
        names_chosen_logprob: it does, and the token's own logprob is given without the bias.
        max_bias: the largest bias that is added as asked.
        confirmed_bias: biases up to it were seen to be added in full.
        bias_step: biases are multiples of it; 0: any.
        unnameable: ids that the endpoint was seen not to name.
        findings: all this in words.
    """

    window: int
    precision: float
    shifts_logprobs: bool = False
    adds_together: bool = True
    chooses_token: bool = False
    names_chosen_logprob: bool = False
    max_bias: float = inf
    confirmed_bias: float = 0.0
    bias_step: float = 0.0
    unnameable: frozenset[int] = frozenset()
    findings: tuple[str, ...] = ()

    @property
    def pointwise_method(self) -> str:
        """The cheapest method for named tokens that works."""
        if self.shifts_logprobs:
            return "parallel" if self.window > 1 and self.adds_together else "single"
        return "forced" if self.names_chosen_logprob else "bisection"
