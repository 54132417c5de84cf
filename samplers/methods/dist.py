"""The draw from what is left."""

from typing import ClassVar

from ..base import About, BuildContext, Selector
from ..candidates import Candidates
from ..mersenne_twister import MersenneTwister


class Dist(Selector):
    """Draw a token with the probabilities that are left.

    Formula: the first i with sum_{j<=i} w_j >= u * sum_j w_j, w_j = exp(logit_j - max) in float32, sums in
    float64, over the candidates in their current order; u is the next number of an MT19937 seeded with the
    chain's seed. One number is drawn a token, also when one candidate is left. Equals llama.cpp's ``dist``.
    """

    about: ClassVar[About] = About(
        name="dist",
        summary="draw a token with the probabilities that are left",
        formula="first i with sum_{j<=i} p_j >= u,  u from MT19937(seed)",
        reference="llama.cpp `dist`",
        llama_cpp="equal: the same seed draws the same tokens",
        aliases=("distribution", "multinomial"),
        selects=True,
    )

    __slots__ = ("_random",)

    def bind(self, context: BuildContext) -> None:
        """Seed the generator."""
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        """Go back to the first random number."""
        self._random.restart()

    def select(self, candidates: Candidates) -> int:
        """Draw one of the candidates."""
        return candidates.pick(self._random.uniform())
