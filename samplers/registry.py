"""Samplers by name: the modules of `methods/`, then the entry points of other packages.

An unknown name is reported with the known name that it probably means.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ..common.text import nearest_name
from . import methods
from .base import Sampler, SamplerInfo, Selector
from .errors import SamplingError

GROUP = "logitsmith.samplers"
"""The entry-point group under which a package offers samplers: ``name = "package.module:Class"``."""

_NAME_SIMILARITY = 0.5
"""From this similarity on, a sampler's name is suggested (see `difflib`)."""


def find_sampler(name: str) -> type[Sampler]:
    """Return the sampler class of a name or an alias.

    Of the plug-ins, only the one asked for is imported. Raises ``SamplingError`` with the nearest known name.
    """
    key = normalize_name(name)
    if key in builtin_names():
        return _builtin(key)
    if key in _aliases():
        return _builtin(_aliases()[key])
    plugins = _offered()
    if key in plugins:
        return _load(key, plugins[key])
    known = sorted({*builtin_names(), *_aliases(), *plugins})
    near = nearest_name(key, known, _NAME_SIMILARITY)
    hint = f"; did you mean {near}?" if near else f"; known are {', '.join(builtin_names())}"
    raise SamplingError(f"unknown sampler {name!r}{hint}")


def normalize_name(name: str) -> str:
    """Return the snake_case form of a name as people type it: ``Top-P`` gives ``top_p``."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def is_known(name: str) -> bool:
    """True for the name or alias of a sampler, and for the name of a plug-in. No plug-in is imported."""
    key = normalize_name(name)
    return key in builtin_names() or key in _aliases() or key in _offered()


def catalogue() -> dict[str, type[Sampler]]:
    """Return every sampler of this package, by name, in alphabetical order."""
    return {name: _builtin(name) for name in builtin_names()}


def list_plugins() -> dict[str, str]:
    """Return the samplers of other packages: by name, where it would be loaded from. Nothing is imported."""
    table = {}
    for name, points in _offered().items():
        packages = ", ".join(sorted({point.value for point in points}))
        built_in = name if name in builtin_names() else _aliases().get(name)
        table[name] = f"{packages} (hidden by the built-in {built_in})" if built_in else packages
    return table


@cache
def builtin_names() -> tuple[str, ...]:
    """Return the names of this package's samplers: the modules of `methods/`, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(methods.__path__)))


@cache
def _builtin(name: str) -> type[Sampler]:
    module = importlib.import_module(f"{methods.__name__}.{name}")
    own = (value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__)
    for value in own:
        if isinstance(value, type) and issubclass(value, Sampler) and "about" in vars(value):  # a base has none
            return value
    raise SamplingError(f"{module.__name__} defines no sampler")


@cache
def _aliases() -> dict[str, str]:
    table: dict[str, str] = {}
    for name in builtin_names():
        for alias in _builtin(name).about.aliases:
            if alias in table or alias in builtin_names():
                raise SamplingError(f"the alias {alias!r} of {name} is already {table.get(alias, alias)}")
            table[alias] = name
    return table


@cache
def _offered() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of other packages, by the sampler's name. Nothing is imported."""
    table: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        name = normalize_name(point.name)
        table[name] = (*table.get(name, ()), point)
    return table


@cache
def _load(name: str, points: tuple[EntryPoint, ...]) -> type[Sampler]:
    """Import a plug-in's sampler. Raises ``SamplingError`` with the plug-in's name, whatever goes wrong."""
    if len({point.value for point in points}) > 1:
        raise SamplingError(f"the plug-ins {' and '.join(point.value for point in points)} both offer {name!r}")
    point = points[0]
    plug_in = f"the plug-in {point.name!r} ({point.value})"
    try:
        cls = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may also call sys.exit
        reason = f"it called sys.exit({error.code!r})" if isinstance(error, SystemExit) else error
        raise SamplingError(f"{plug_in} failed to load: {reason}") from error
    if not (isinstance(cls, type) and issubclass(cls, Sampler) and hasattr(cls, "about")):
        raise SamplingError(f"{plug_in} is not a Sampler with `about`")
    fault = next(_faults(cls, name), None)
    if fault is not None:
        raise SamplingError(f"{plug_in} cannot be used: {fault}")
    return cls


def _faults(cls: type[Sampler], name: str) -> Iterator[str]:
    """What is wrong with a plug-in's class and would fail later, in a chain; nothing if all is well."""
    about: object = cls.about
    if not isinstance(about, SamplerInfo):
        yield f"its `about` is {about!r}, not a SamplerInfo"
        return
    texts = (about.name, about.summary, about.formula, about.reference, about.llama_cpp)
    if not all(isinstance(text, str) for text in texts):
        yield "name, summary, formula, reference and llama_cpp of its `about` must be texts"
        return
    if normalize_name(about.name) != name:
        yield f"its `about` names it {about.name!r}, its entry point {name!r}; they must be the same"
    for field in (*([] if about.main_parameter is None else [about.main_parameter]), *about.off_values):
        if field not in cls.model_fields:
            yield f"its `about` speaks of a parameter {field!r}, which it has not"
    if about.is_selector != issubclass(cls, Selector):
        yield "a Selector, and nothing else, says selects=True in its `about`"
    stage: object = about.stage
    if not isinstance(stage, int | None):
        yield f"the stage in its `about` is {stage!r}, neither a whole number nor None"
    for field, info in cls.model_fields.items():
        if info.is_required():
            yield f"its parameter {field!r} has no default"
