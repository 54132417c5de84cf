"""Samplers by name: built-in ones from the modules of `methods/`, and plug-ins from the entry points of packages.

If a name is unknown, the error message suggests a similar known name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from ..common.errors import PluginError
from ..common.plugins import Plugin, find_plugins
from ..common.text import unknown_name
from . import methods
from .base import Sampler, SamplerInfo, Selector
from .errors import SamplingError

# the entry-point group in which a package lists its samplers: ``name = "package.module:Class"``
GROUP = "logitsmith.samplers"


def find_sampler(name: str) -> type[Sampler]:
    """Return the sampler class with a name or alias.

    No plug-in is imported except the requested one. Raises ``SamplingError`` for an unknown name, with the most
    similar known name.
    """
    key = normalize_name(name)
    if key in builtin_names():
        return _builtin_sampler(key)
    if key in _name_by_alias():
        return _builtin_sampler(_name_by_alias()[key])
    if key in plugins():
        return load_plugin(plugins()[key])
    raise SamplingError(unknown_name("sampler", name, [*builtin_names(), *plugins()], aliases=_name_by_alias()))


def normalize_name(name: str) -> str:
    """Return the snake_case form of a typed name: ``Top-P`` becomes ``top_p``."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def is_known(name: str) -> bool:
    """Return True for the name or alias of a sampler, and for the name of a plug-in. No plug-in is imported."""
    key = normalize_name(name)
    return key in builtin_names() or key in _name_by_alias() or key in plugins()


def catalogue() -> dict[str, type[Sampler]]:
    """Return every built-in sampler, by name, in alphabetical order."""
    return {name: _builtin_sampler(name) for name in builtin_names()}


def list_plugins() -> dict[str, str]:
    """Return the plug-ins: by name, the place from which the sampler would be loaded. Nothing is imported."""
    table = {}
    for name, plugin in plugins().items():
        reason = reason_against(name)
        table[name] = plugin.place if reason is None else f"{plugin.place} ({reason})"
    return table


def reason_against(name: str) -> str | None:
    """Return the reason why no plug-in can have a sampler of this name; None if one can."""
    built_in = name if name in builtin_names() else _name_by_alias().get(name)
    return f"hidden by the built-in {built_in}" if built_in else None


@cache
def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in samplers, sorted: the names of the modules in `methods/`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(methods.__path__)))


@cache
def _builtin_sampler(name: str) -> type[Sampler]:
    module = importlib.import_module(f"{methods.__name__}.{name}")
    for value in vars(module).values():
        is_sampler = isinstance(value, type) and issubclass(value, Sampler) and "about" in vars(value)
        if is_sampler and value.__module__ == module.__name__:  # others are imported
            sampler: type[Sampler] = value
            return sampler
    raise SamplingError(f"{module.__name__} defines no sampler")


@cache
def _name_by_alias() -> dict[str, str]:
    table: dict[str, str] = {}
    for name in builtin_names():
        for alias in _builtin_sampler(name).about.aliases:
            if alias in table or alias in builtin_names():
                raise SamplingError(f"the alias {alias!r} of {name} is already {table.get(alias, alias)}")
            table[alias] = name
    return table


@cache
def plugins() -> dict[str, Plugin]:
    """Return the plug-ins of `GROUP`, by name, usable or not. None of them is imported."""
    return find_plugins(GROUP, normalize_name)


@cache
def load_plugin(plugin: Plugin) -> type[Sampler]:
    """Import the sampler of a plug-in. Raises ``SamplingError`` with the plug-in's name for every failure."""
    try:
        cls = plugin.load()
    except PluginError as error:
        raise SamplingError.of(error) from error
    if not (isinstance(cls, type) and issubclass(cls, Sampler) and hasattr(cls, "about")):
        raise SamplingError(f"{plugin.title} is not a Sampler with an `about`")
    problem = next(_find_problems(cls, plugin.name), None)
    if problem is not None:
        raise SamplingError(f"{plugin.title} cannot be used: {problem}")
    return cls


def _find_problems(cls: type[Sampler], name: str) -> Iterator[str]:
    """Yield the mistakes in the class of a plug-in that would make a chain fail later."""
    about: object = cls.about
    if not isinstance(about, SamplerInfo):
        yield f"its `about` is {about!r}, not a SamplerInfo"
        return
    texts = (about.name, about.summary, about.formula, about.reference, about.llama_cpp)
    if not all(isinstance(text, str) for text in texts):
        yield "name, summary, formula, reference and llama_cpp of its `about` must be strings"
        return
    if normalize_name(about.name) != name:
        yield f"the name in its `about` is {about.name!r}, not {name!r} as in its entry point"
    for parameter in (about.main_parameter, *about.off_values):
        if parameter is not None and parameter not in cls.model_fields:
            yield f"its `about` names a parameter {parameter!r} that the sampler does not have"
    if about.is_selector != issubclass(cls, Selector):
        yield "`is_selector` in its `about` must be true for a Selector, and false for other samplers"
    stage: object = about.stage
    if not isinstance(stage, int | None):
        yield f"the stage in its `about` is {stage!r}, neither an integer nor None"
    for parameter, field in cls.model_fields.items():
        if field.is_required():
            yield f"its parameter {parameter!r} has no default"
