"""A chain of samplers: logits in, a token out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Sampler, Selector, Surroundings
from .candidates import Candidates, Floats, describe
from .errors import SamplingError
from .methods.dist import Dist


class Chain:
    """Samplers in the order in which they work, the last of which selects; made by `build`.

    Steps that are switched off are dropped. The state (random numbers, windows) lives in the steps: `reset`
    forgets it, `accept` moves it on, and nothing else changes it but a draw.

    Raises ``SamplingError`` when two steps select, or when one that selects is not the last.
    """

    def __init__(self, samplers: Sequence[Sampler], surroundings: Surroundings) -> None:
        check_selection(samplers)
        if not samplers or not samplers[-1].about.selects:
            samplers = [*samplers, Dist()]
        self.seed = surroundings.seed
        self.vocabulary = surroundings.vocabulary
        self.steps: tuple[Sampler, ...] = tuple(s for s in samplers if not s.is_neutral)
        """The steps that are on, the selecting one last."""
        selector = self.steps[-1]
        if not isinstance(selector, Selector):
            raise SamplingError(f"{selector.about.name} says that it selects, but is not a Selector")
        self._selector = selector
        self._before = self.steps[:-1]
        self._listeners = [s for s in self.steps if type(s).accept is not Sampler.accept]
        for step in self.steps:
            step.bind(surroundings)
        self.reset()

    def reset(self, prompt_ids: Iterable[int] = ()) -> None:
        """Forget all state, remember the prompt; the next run repeats the last one exactly."""
        prompt = list(prompt_ids)
        for step in self.steps:
            step.reset(prompt)

    def apply(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> Candidates:
        """Run every step before the draw.

        ``logits``: float32 (V,), not written to. ``mask``: bool (V,), the tokens that are allowed; it goes
        first. Returns the candidates that are left, at least one. Raises ``SamplingError`` that names the
        step, for NaN, +inf, a row of -inf only, a wrong shape, or a mask that allows nothing.
        """
        # Finite logits may lie further apart than float32 reaches; each step sees to what that does.
        with np.errstate(over="ignore"):
            return self._apply(logits, mask)

    def draw(self, candidates: Candidates) -> int:
        """Let the last step select one of the candidates; returns its id, and does not accept it."""
        with np.errstate(over="ignore"):
            return self._selector.select(candidates)

    def sample(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> int:
        """Apply, then draw: the id of the next token, which is not yet accepted."""
        with np.errstate(over="ignore"):
            return self._selector.select(self._apply(logits, mask))

    def _apply(self, logits: Floats, mask: NDArray[np.bool_] | None) -> Candidates:
        candidates = Candidates(logits)
        if mask is not None:
            _apply_mask(candidates, mask)
        for step in self._before:
            step.apply(candidates)
            if not isfinite(candidates.max):
                raise SamplingError(f"{step.about.name}: left no finite logit")
        return candidates

    def accept(self, token: int) -> None:
        """Tell every sampler which token was really emitted."""
        for step in self._listeners:
            step.accept(token)

    @property
    def config(self) -> list[dict[str, dict[str, Any]]]:
        """The steps as a preset would write them, every parameter spelled out."""
        return [{step.about.name: step.model_dump()} for step in self.steps]

    def __repr__(self) -> str:
        return f"Chain({' > '.join(step.about.name for step in self.steps)}, seed={self.seed})"


def check_selection(samplers: Sequence[Sampler]) -> None:
    """Raise ``SamplingError`` when two samplers select, or when one that selects is not the last."""
    selecting = [(i, s.about.name) for i, s in enumerate(samplers) if s.about.selects]
    if len(selecting) > 1:
        (i, first), (j, second) = selecting[:2]
        raise SamplingError(
            f"chain[{i}] {first} and chain[{j}] {second} both select a token; a chain has one, its last step"
        )
    if selecting and selecting[0][0] != len(samplers) - 1:
        i, name = selecting[0]
        after = f"chain[{i + 1}] {samplers[i + 1].about.name}"
        raise SamplingError(f"chain[{i}] {name} selects a token, so it must be the last step; {after} follows")


def _apply_mask(candidates: Candidates, mask: NDArray[np.bool_]) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (len(candidates),):
        raise SamplingError(f"mask: expected bool of shape ({len(candidates)},), got {describe(mask)}")
    if not mask.any():
        raise SamplingError("mask: it allows no token")
    candidates.keep(mask)
    candidates.allowed = mask
    if not isfinite(candidates.max):
        raise SamplingError("mask: every token it allows has a logit of -inf")
