"""A single setting given by a flag or ``--set``, and the parameter that it sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..common.text import shorten
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .errors import PresetError
from .yaml_reader import parse_yaml_scalar

SETTINGS = ("seed", "max_tokens", "stop", "system", "grammar")
"""The settings beside the samplers' parameters."""

_TARGET = re.compile(r"(?P<name>[^.#]+)(?:#(?P<occurrence>[1-9][0-9]{0,8}))?(?:\.(?P<parameter>[^#]+))?")


@dataclass(frozen=True)
class Override:
    """A value that goes before the preset's.

    Attributes:
        origin: what the user typed, such as ``--top-k``.
        target: ``sampler.parameter``, ``sampler`` for its main parameter, ``sampler#2.parameter`` for the second
            step of that name, or one of `SETTINGS`.
        value: the value. A sampler without parameters, such as ``ignore_eos``, takes true, false, or None, which
            means true.
    """

    origin: str
    target: str
    value: Any


@dataclass(frozen=True)
class StepTarget:
    """A parameter of a step.

    Attributes:
        name: the sampler.
        occurrence: which step of that name, from 1; None: the only one.
        parameter: None for a sampler without parameters, which is on or off.
    """

    name: str
    occurrence: int | None
    parameter: str | None

    def __str__(self) -> str:
        number = "" if self.occurrence is None else f"#{self.occurrence}"
        parameter = "" if self.parameter is None else f".{self.parameter}"
        return f"{self.name}{number}{parameter}"


def parse_set(text: str) -> Override:
    """Return the override of a ``--set``: ``top_k.k=20``, ``top_k=20``, ``top_p#2.p=0.5``, ``seed=7``.

    The value is YAML. Dashes and aliases are accepted. Raises ``PresetError`` for a text of another form, an
    unknown sampler, and a value that is not YAML.
    """
    name, sign, value = text.partition("=")
    name = name.strip()
    if not sign or not name:
        raise PresetError(f"--set {text}: write name.parameter=value, such as top_k.k=20 or seed=7")
    origin = f"--set {name}"
    target = setting_of(name) or str(step_target(name, origin))
    return Override(origin, target, parse_yaml_scalar(value, origin))


def setting_of(target: str) -> str | None:
    """The setting of that name, or None if the target is no setting."""
    name = target.strip().lower().replace("-", "_")
    return name if name in SETTINGS else None


def step_target(text: str, origin: str) -> StepTarget:
    """Return the step and the parameter that a target names.

    Raises ``PresetError`` that begins with ``origin``, for another form, an unknown sampler, and a sampler that
    has no main parameter if none is named.
    """
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise PresetError(f"{origin}: {shorten(text)} is not name, name.parameter or name#2.parameter (from #1)")
    try:
        cls = find_sampler(match["name"])
    except SamplingError as error:
        raise PresetError(f"{origin}: {error}; other settings: {', '.join(SETTINGS)}") from None
    parameter = match["parameter"].strip().replace("-", "_") if match["parameter"] else cls.about.main
    if parameter is None and cls.model_fields:
        raise PresetError(f"{origin}: say which parameter of {cls.about.name}: {', '.join(cls.model_fields)}")
    return StepTarget(cls.about.name, int(match["occurrence"]) if match["occurrence"] else None, parameter)
