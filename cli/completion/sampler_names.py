"""The names of samplers and their parameters, from a file: to import the samplers would take too long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .reply import Candidate

_FILE = Path(__file__).with_name("samplers.json")
"""Made from the samplers by ``python tools/sampler_names.py``."""


@dataclass(frozen=True)
class SamplerName:
    """A sampler's names.

    Attributes:
        summary: what it does.
        main: the parameter that ``name=value`` sets; None: there is none.
        parameters: each with its description.
        choices: the values of the parameters that have a fixed few.
    """

    summary: str
    main: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, list[str]] = field(default_factory=dict)


@cache
def built_in_samplers() -> dict[str, SamplerName]:
    """The samplers of this package, by name."""
    return {name: SamplerName(**facts) for name, facts in _table()["samplers"].items()}


@cache
def plugins() -> dict[str, str]:
    """The samplers of other packages, by name, each with where it would be imported from."""
    from importlib.metadata import entry_points

    points = {normal(point.name): point.value for point in entry_points(group="logitsmith.samplers")}
    return {name: value for name, value in points.items() if name not in built_in_samplers()}


def find_sampler_name(name: str) -> SamplerName | None:
    """The sampler of a name; None if there is none. A plug-in is imported, and NumPy with it."""
    key = normal(name)
    # Built-in ones first: to look for plug-ins takes 15 ms.
    return built_in_samplers().get(key) or (_plugin(key) if key in plugins() else None)


def normal(name: str) -> str:
    """The snake_case form of a name."""
    return name.strip().lower().replace("-", "_")


def setting_names() -> list[str]:
    """What ``--set`` takes beside samplers."""
    names: list[str] = _table()["settings"]
    return names


def sampler_candidates() -> list[Candidate]:
    """The samplers' names."""
    names = [Candidate(name, sampler.summary) for name, sampler in built_in_samplers().items()]
    return [*names, *(Candidate(name, f"plug-in {value}") for name, value in plugins().items())]


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def _plugin(name: str) -> SamplerName | None:
    from ...samplers.errors import SamplingError
    from ...samplers.registry import find_sampler

    try:
        cls = find_sampler(name)
    except SamplingError:  # a plug-in that cannot be used: the command says so
        return None
    parameters = {key: info.description or "" for key, info in cls.model_fields.items()}
    return SamplerName(cls.about.summary, cls.about.main, parameters)
