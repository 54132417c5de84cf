"""A chain of samplers: logits in, a token out.

A `StepSpec` is a step before it is part of a chain, read and checked once. What a chain needs of its steps is in
two protocols, so that a recorder can stand in for a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .base import BuildContext, Sampler, SamplerInfo, Selector
from .candidates import Candidates
from .errors import SamplingError, StepError
from .kernels import Floats, describe
from .methods.dist import Dist
from .methods.top_k import TopK

MAX_STEPS = 1000
"""The steps of a chain. A real one has about ten; a thousand are read in a tenth of a second."""


def check_step_count(count: int, origin: str) -> None:
    """Raise ``SamplingError`` for a chain of too many steps; ``origin`` begins the message."""
    if count > MAX_STEPS:
        raise SamplingError(f"{origin}: {count:,} steps; at most {MAX_STEPS:,} are allowed")


class Chain:
    """Samplers in the order in which they work, the last of which selects; made by `build`.

    Steps that are switched off are dropped. The state (random numbers, windows) lives in the chain's own copies of
    the samplers: `reset` clears it, `accept` advances it, and only a draw changes it as well.

    Attributes:
        seed: of its random numbers.
        vocabulary: that of the model; None if the chain was built without one.
        steps: copies of the samplers that are on, the selecting one last.

    Raises ``SamplingError`` if two steps select, or if the one that selects is not the last.
    """

    def __init__(self, specs: Sequence[StepSpec], context: BuildContext) -> None:
        """Copy the samplers, and give each what it needs of seed and vocabulary."""
        check_selection([spec.sampler for spec in specs])
        if not specs or not specs[-1].sampler.about.is_selector:
            specs = [*specs, StepSpec(Dist(), location=f"chain[{len(specs)}].dist")]
        self.seed = context.seed
        self.vocabulary = context.vocabulary
        specs = [spec for spec in specs if not spec.is_off]
        # A copy has the parameters, and no state of another chain.
        self.steps: tuple[Sampler, ...] = tuple(spec.sampler.model_copy() for spec in specs)
        selector = self.steps[-1]
        if not isinstance(selector, Selector):
            raise SamplingError(f"{selector.about.name} says that it selects, but is not a Selector")
        self._selector: SelectingStep = selector
        self._before: tuple[ApplyingStep, ...] = self.steps[:-1]
        self._has_top_k = any(isinstance(step, TopK) for step in self._before)
        self._listeners = [s for s in self.steps if type(s).accept is not Sampler.accept]
        for step, spec in zip(self.steps, specs, strict=True):
            _bind(step, spec, context)
        self.reset()

    def reset(self, prompt_ids: Iterable[int] = ()) -> None:
        """Clear all state and remember the prompt; the same calls then give the same tokens again."""
        prompt = list(prompt_ids)
        for step in self.steps:
            try:
                step.reset(prompt)
            except Exception as error:
                raise step_error(step, "reset", error) from error

    # Finite logits may lie further apart than float32 reaches; each step handles the overflow.
    @np.errstate(over="ignore")
    def apply(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> Candidates:
        """Run every step before the draw.

        ``logits``: float32 (V,), nats up to a constant; not written to. ``mask``: bool (V,), the tokens that are
        allowed; it is applied first. Returns the remaining candidates, at least one. Raises ``SamplingError`` that
        names the step, for NaN, +inf, a row of -inf only, a wrong shape, or a mask that allows nothing.
        """
        return self._apply(logits, mask)

    @np.errstate(over="ignore")
    def draw(self, candidates: Candidates) -> int:
        """Return the id of the candidate that the last step selects. It is not accepted yet."""
        return self._select(candidates)

    @np.errstate(over="ignore")
    def sample(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> int:
        """Apply, then draw; return the id of the next token. It is not accepted yet."""
        return self._select(self._apply(logits, mask))

    def _apply(self, logits: Floats, mask: NDArray[np.bool_] | None) -> Candidates:
        candidates = Candidates(logits, expects_top=self._has_top_k)
        if mask is not None:
            _apply_mask(candidates, mask)
        for step in self._before:
            try:
                step.apply(candidates)
                highest = candidates.max
            except Exception as error:
                if not len(candidates):
                    raise SamplingError(f"{step.about.name}: left no candidate") from error
                raise step_error(step, "apply", error) from error
            if not isfinite(highest):
                raise SamplingError(f"{step.about.name}: left no finite logit")
        return candidates

    def _select(self, candidates: Candidates) -> int:
        step = self._selector
        try:
            token = step.select(candidates)
        except Exception as error:
            raise step_error(step, "select", error) from error
        if not 0 <= token < candidates.vocab_size:
            raise SamplingError(f"{step.about.name}: selected {token}, not within 0..{candidates.vocab_size - 1}")
        return token

    def accept(self, token: int) -> None:
        """Tell every sampler which token was emitted."""
        for step in self._listeners:
            try:
                step.accept(token)
            except Exception as error:
                raise step_error(step, "accept", error) from error

    def with_steps(self, before: tuple[ApplyingStep, ...], selector: SelectingStep) -> Chain:
        """Return a chain that runs these in place of its steps. It shares everything else with this one."""
        chain = copy(self)
        chain._before, chain._selector = before, selector
        return chain

    @property
    def config(self) -> list[dict[str, dict[str, Any]]]:
        """The steps as a preset would write them, with every parameter."""
        return [{step.about.name: step.model_dump()} for step in self.steps]

    def __repr__(self) -> str:
        return f"Chain({' > '.join(step.about.name for step in self.steps)}, seed={self.seed})"


def check_selection(samplers: Sequence[Sampler]) -> None:
    """Raise ``SamplingError`` when two samplers select, or when one that selects is not the last."""
    selecting = [(i, s.about.name) for i, s in enumerate(samplers) if s.about.is_selector]
    if len(selecting) > 1:
        (i, first), (j, second) = selecting[:2]
        raise SamplingError(
            f"chain[{i}] {first} and chain[{j}] {second} both select a token; a chain has one, its last step"
        )
    if selecting and selecting[0][0] != len(samplers) - 1:
        i, name = selecting[0]
        after = f"chain[{i + 1}] {samplers[i + 1].about.name}"
        raise SamplingError(f"chain[{i}] {name} selects a token, so it must be the last step; {after} follows")


def step_error(step: ApplyingStep | SelectingStep, verb: str, error: Exception) -> Exception:
    """A step's exception as a ``SamplingError`` with the step's name; the step may be another package's."""
    if isinstance(error, SamplingError):
        return error
    return SamplingError(f"{step.about.name}: {verb} failed: {type(error).__name__}: {error}")


def _bind(step: Sampler, spec: StepSpec, context: BuildContext) -> None:
    try:
        step.bind(context)
    except SamplingError as error:
        raise StepError(_with_place(spec, str(error))) from None
    except Exception as error:
        raise step_error(step, "bind", error) from error


def _with_place(spec: StepSpec, message: str) -> str:
    """Replace ``name.parameter`` at the start of a message by where that was written."""
    start = re.match(rf"{re.escape(spec.name)}\b(?:\.(\w+))?", message)
    if start is None:
        return f"{spec.location_of('')}: {message}"
    return spec.location_of(start[1] or "") + message[start.end() :]


def _apply_mask(candidates: Candidates, mask: NDArray[np.bool_]) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (len(candidates),):
        raise SamplingError(f"mask: expected bool of shape ({len(candidates)},), got {describe(mask)}")
    if not mask.any():
        raise SamplingError("mask: it allows no token")
    candidates.filter_rows(mask)
    candidates.grammar_mask = mask
    if not isfinite(candidates.max):
        raise SamplingError("mask: every token it allows has a logit of -inf")


@dataclass(frozen=True)
class StepSpec:
    """A step whose name and parameters were checked, with the origin of each parameter.

    A chain copies the sampler, so one spec serves any number of chains. Nothing in it is checked again.

    Attributes:
        sampler: the sampler's class and parameters; never part of a chain itself.
        origins: by parameter, what set it, such as ``default``, ``preset creative`` or ``--top-k``.
        origin: what put the step into the chain, likewise.
        location: where the step was written, such as ``mine.yaml: chain[2].top_p``; empty if a flag put it in.
    """

    sampler: Sampler
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str = "default"
    location: str = ""

    @classmethod
    def from_origin(cls, sampler: Sampler, origin: str, location: str = "") -> StepSpec:
        """Return the spec of a sampler whose given parameters come from ``origin``; the others are defaults."""
        given = sampler.model_fields_set
        origins = {name: origin if name in given else "default" for name in type(sampler).model_fields}
        return cls(sampler, origins, origin, location)

    @property
    def name(self) -> str:
        """The sampler's name."""
        return self.sampler.about.name

    @property
    def is_off(self) -> bool:
        """True if its parameters leave every row as it is; a chain drops the step."""
        return self.sampler.is_neutral

    def location_of(self, parameter: str) -> str:
        """Where a parameter was written, for a message: its flag, or the location of the step with its name."""
        origin = self.origins.get(parameter, "default")
        if origin != "default" and not (self.location and origin == self.origin):
            return origin  # a flag stands for the sampler and the parameter
        step = self.location or f"{self.origin}: {self.name}"
        return f"{step}.{parameter}" if parameter else step


class ApplyingStep(Protocol):
    """What a chain needs of a step before the draw: a `Sampler`, or what stands in for one."""

    @property
    def about(self) -> SamplerInfo:
        """The facts of the sampler."""
        ...

    def apply(self, candidates: Candidates) -> None:
        """Drop rows or change logits, in place."""
        ...


class SelectingStep(Protocol):
    """What a chain needs of its last step: a `Selector`, or what stands in for one."""

    @property
    def about(self) -> SamplerInfo:
        """The facts of the sampler."""
        ...

    def select(self, candidates: Candidates) -> int:
        """Return the id of one of the candidates."""
        ...
