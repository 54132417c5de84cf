"""Names to samplers: the modules of `methods/`, then what other packages offer as entry points."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from . import methods
from .base import About, Sampler, Selector
from .errors import SamplingError
from .near_names import nearest_name

GROUP = "logitsmith.samplers"
"""The entry-point group under which a package offers samplers: ``name = "package.module:Class"``."""

_NAME_SIMILARITY = 0.5
"""From this similarity on, a sampler's name is suggested (see `difflib`)."""


def normal(name: str) -> str:
    """The snake_case form of a name as people type it: ``Top-P`` is ``top_p``."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def find_sampler(name: str) -> type[Sampler]:
    """Return the sampler class of a name or an alias.

    Only the module that is asked for is imported. Raises ``SamplingError`` that names the nearest known name.
    """
    wanted = normal(name)
    if wanted in builtin_names():
        return _builtin(wanted)
    if wanted in _aliases():
        return _builtin(_aliases()[wanted])
    plugins = _offered()
    if wanted in plugins:
        return _load(wanted, plugins[wanted])
    known = sorted({*builtin_names(), *_aliases(), *plugins})
    near = nearest_name(wanted, known, _NAME_SIMILARITY)
    hint = f"; did you mean {near}?" if near else f"; known are {', '.join(builtin_names())}"
    raise SamplingError(f"unknown sampler {name!r}{hint}")


def is_known(name: str) -> bool:
    """Is this a sampler's name or alias, or what a plug-in offers? Nothing of a plug-in is imported."""
    wanted = normal(name)
    return wanted in builtin_names() or wanted in _aliases() or wanted in _offered()


def catalogue() -> dict[str, type[Sampler]]:
    """Every sampler that comes with this package, by name, in alphabetical order."""
    return {name: _builtin(name) for name in builtin_names()}


def list_plugins() -> dict[str, str]:
    """What other packages offer: the name and where it would be loaded from. Nothing is imported."""
    table = {}
    for name, points in _offered().items():
        place = ", ".join(sorted({point.value for point in points}))
        built_in = name if name in builtin_names() else _aliases().get(name)
        table[name] = f"{place} (hidden by the built-in {built_in})" if built_in else place
    return table


@cache
def builtin_names() -> tuple[str, ...]:
    """The names of the samplers that come with this package: the modules of `methods/`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(methods.__path__)))


@cache
def _builtin(name: str) -> type[Sampler]:
    module = importlib.import_module(f"{methods.__name__}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Sampler) and value.__module__ == module.__name__:
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
    """What other packages offer, by name. Nothing is imported."""
    table: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        name = normal(point.name)
        table[name] = (*table.get(name, ()), point)
    return table


@cache
def _load(name: str, points: tuple[EntryPoint, ...]) -> type[Sampler]:
    """Import a third party's sampler; whatever goes wrong is told with the plug-in's name."""
    if len({point.value for point in points}) > 1:
        raise SamplingError(f"the plug-ins {' and '.join(point.value for point in points)} both offer {name!r}")
    point = points[0]
    plug_in = f"the plug-in {point.name!r} ({point.value})"
    try:
        found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may also call sys.exit
        reason = f"it called sys.exit({error.code!r})" if isinstance(error, SystemExit) else error
        raise SamplingError(f"{plug_in} failed to load: {reason}") from error
    if not (isinstance(found, type) and issubclass(found, Sampler) and hasattr(found, "about")):
        raise SamplingError(f"{plug_in} is not a Sampler with `about`")
    fault = next(_faults(found, name), None)
    if fault is not None:
        raise SamplingError(f"{plug_in} cannot be used: {fault}")
    return found


def _faults(cls: type[Sampler], name: str) -> Iterator[str]:
    """What is wrong with a plug-in's class and would fail later, in a chain; nothing if all is well."""
    about: object = cls.about
    if not isinstance(about, About):
        yield f"its `about` is {about!r}, not an About"
        return
    texts = (about.name, about.summary, about.formula, about.reference, about.llama_cpp)
    if not all(isinstance(text, str) for text in texts):
        yield "name, summary, formula, reference and llama_cpp of its `about` must be texts"
        return
    if normal(about.name) != name:
        yield f"its `about` names it {about.name!r}, its entry point {name!r}; they must be the same"
    for field in (*([] if about.main is None else [about.main]), *about.neutral):
        if field not in cls.model_fields:
            yield f"its `about` speaks of a parameter {field!r}, which it has not"
    if about.selects != issubclass(cls, Selector):
        yield "a Selector, and nothing else, says selects=True in its `about`"
    stage: object = about.stage
    if not isinstance(stage, int | None):
        yield f"the stage in its `about` is {stage!r}, neither a whole number nor None"
    for field, info in cls.model_fields.items():
        if info.is_required():
            yield f"its parameter {field!r} has no default"
