"""A step on its way from a preset to a chain: read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .base import Sampler
from .errors import SamplingError

MAX_STEPS = 1000
"""The steps of a chain. A real one has about ten; a thousand are read in a tenth of a second."""


def check_step_count(count: int, origin: str) -> None:
    """Raise ``SamplingError`` for a chain of too many steps; ``origin`` begins the message."""
    if count > MAX_STEPS:
        raise SamplingError(f"{origin}: {count:,} steps; at most {MAX_STEPS:,} are allowed")


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
