"""The plain draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..base import BuildContext, SamplerInfo, Selection, Selector
from ..candidates import Candidates
from ..mersenne_twister import MersenneTwister
from ..stages import token_count

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Dist(Selector):
    """Draw a token with the remaining probabilities.

    Formula: the first i with sum_{j<=i} w_j >= u * sum_j w_j, w_j = exp(logit_j - max), float32 (n,), sums in
    float64, over the candidates in their current order; u is the next number of an MT19937 seeded with the
    chain's seed. Each token takes one number, even if only one candidate remains.

    It selects, so it has no neutral value. Equals llama.cpp's ``dist``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="dist",
        summary="draw a token with the remaining probabilities",
        formula="first i with sum_{j<=i} p_j >= u,  u from MT19937(seed)",
        reference="llama.cpp `dist`",
        llama_cpp="equal: the same seed draws the same tokens",
        aliases=("distribution", "multinomial"),
        is_selector=True,
    )

    state_slots: ClassVar[tuple[str, ...]] = ()
    __slots__ = ("_random",)

    def bind(self, context: BuildContext) -> None:
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        self._random.restart()

    def select(self, candidates: Candidates) -> int:
        return candidates.pick(self._random.uniform())

    def trace_select(self, candidates: Candidates) -> Selection:
        u, weights = self._random.peek(), candidates.weights()  # the draw uses these weights, too
        return Selection(self.select(candidates), u, weights)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return "one token left" if len(after) == 1 else f"by chance, one of {token_count(len(after))}"
