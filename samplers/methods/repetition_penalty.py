"""KoboldAI's repetition penalty, with range and slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import About, Sampler
from ..candidates import Candidates
from ..history import LastSeen
from ..stage import Stage


class RepetitionPenalty(Sampler):
    """Make tokens of the story less likely, the more so the nearer to its end they stand.

    Formula, float32: logit <= 0: logit * r, else logit / r, once a token. Without a slope r = penalty. With
    range n > 0 and slope s > 0, a token whose last occurrence stands d tokens from the end (0: the last one)
    has x = 2 (n - 1 - d) / (n - 1) - 1, y = s x / (1 + |x| (s - 1)), r = 1 + (y + 1) / 2 * (penalty - 1): a
    sigmoid from 1 at the far end of the range to ``penalty`` at the near one; tokens beyond the range are left
    alone. Range 1 has no far end: r = penalty. The story is the prompt and the output. Neutral at penalty 1.
    Source: Keskar et al. 2019 (CTRL); Clover Edition and KoboldAI for range and slope.
    """

    about: ClassVar[About] = About(
        name="repetition_penalty",
        summary="KoboldAI's penalty on past tokens, sloping with their distance",
        formula="l > 0: l / r, else l * r;  r = 1 + (y + 1) / 2 * (penalty - 1), y a sigmoid of the distance",
        reference="Keskar et al. 2019, CTRL; KoboldAI wiki, Repetition penalty",
        llama_cpp="with slope 0 it is llama.cpp's `penalties` with repeat: penalty, last_n: range (0 is -1 there)",
        main="penalty",
        example=1.1,
        neutral={"penalty": 1.0},
        aliases=("rep_pen", "repetition"),
        stage=Stage.PENALTIES - 2,
    )

    penalty: float = Field(default=1.0, gt=0, description="divides logits > 0, multiplies the others; 1 = off")
    range: int = Field(default=0, ge=0, description="tokens to look back; 0 = all")
    slope: float = Field(default=0.0, ge=0, description="steepness over the range; 0, or range 0 = flat")

    __slots__ = ("_seen",)

    def reset(self, prompt: Sequence[int]) -> None:
        """Start with the prompt."""
        self._seen = LastSeen("repetition_penalty", prompt)

    def accept(self, token: int) -> None:
        """Take note of one more token."""
        self._seen.add(token)

    def apply(self, candidates: Candidates) -> None:
        """Lower the logits of the tokens in range."""
        places = self._seen.places(candidates.vocabulary)
        count = len(self._seen)
        touched = candidates.where(places >= max(count - (self.range or count), 0))
        if not touched.size:
            return
        old = candidates.logits[touched]
        factor = self._factor(count - 1 - places[candidates.tokens(touched)])
        # A penalty that float32 holds as 0, or a product beyond its range: `change` sees to that.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            candidates.change(touched, np.where(old <= 0, old * factor, old / factor))

    def _factor(self, distances: NDArray[np.int64]) -> NDArray[np.float32]:
        """r for each distance from the end."""
        if not self.range or not self.slope or self.range == 1:
            return np.full(distances.size, self.penalty, dtype=np.float32)
        x = 1 - 2 * distances / (self.range - 1)
        y = self.slope * x / (1 - np.abs(x) + np.abs(x) * self.slope)
        factor: NDArray[np.float32] = (1 + (y + 1) / 2 * (self.penalty - 1)).astype(np.float32)
        return factor
