"""The formats of other tools' presets: our own and those of plug-ins, each imported when it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...common.errors import PluginError
from ...common.plugins import Plugin, PluginWarning, find_plugins
from ...common.text import unknown_name
from ..errors import PresetError

if TYPE_CHECKING:
    from .conversion import Imported
    from .exporter import PresetExporter
    from .preset_file import PresetFile

# the entry-point group in which a package lists its formats: ``name = "package.module:FORMAT"``
GROUP = "logitsmith.preset_formats"


@dataclass(frozen=True)
class Format:
    """A format of another tool's presets.

    Attributes:
        name: name of the format, for ``--from`` and ``--to``; in lower case, with dashes.
        tool: name of the tool, for messages.
        description: what a file is, for messages, such as ``a Modelfile of Ollama``.
        read: returns what a file holds; raises ``PresetError`` for a file that it cannot read. None if the
            format cannot be imported.
        write: returns the text of a preset, and reports to the exporter what the text lacks. None if the format
            cannot be exported.
        recognize: returns the share of a file that the tool knows, 0 to 1; None: the share of the file's keys, as
            ``read`` counts them. The format with the largest share reads a file whose format is not named, if the
            tool knows half of the file. Our own formats win a tie.
        aliases: other names.
        extends: names of the formats whose keys this one has, too: they win a tie.
        holds_several: whether a file may hold several presets, of which a section is chosen.
        has_penalty_slope: whether the tool has KoboldAI's repetition penalty with a slope. Otherwise, ``write``
            gets the penalty without the slope, which is reported.
    """

    name: str
    tool: str
    description: str
    read: Callable[[PresetFile], Imported] | None = None
    write: Callable[[PresetExporter], str] | None = None
    recognize: Callable[[PresetFile], float] | None = None
    aliases: tuple[str, ...] = ()
    extends: tuple[str, ...] = ()
    holds_several: bool = False
    has_penalty_slope: bool = False

    def read_file(self, file: PresetFile) -> Imported:
        """Return what a file holds. Raises ``PresetError`` if it cannot be read."""
        if self.read is None:
            raise PresetError(f"{file.origin}: the format {self.name} cannot be imported")
        if not self.holds_several:
            file.reject_section()
        return self.read(file)


class _OwnFormat(NamedTuple):
    """Where a format of our own is, and what completion in shells and help show without importing it."""

    module: str  # the module of this package with the format in its ``FORMATS``
    is_read: bool = True
    written_as: str = ""  # what an export is, if it is no file


_OWN_FORMATS = {
    "llama.cpp": _OwnFormat("llama_cpp", written_as="command line"),
    "llama-server": _OwnFormat("llama_cpp", is_read=False, written_as="request"),
    "webui": _OwnFormat("webui"),
    "sillytavern": _OwnFormat("sillytavern"),
    "koboldai": _OwnFormat("kobold"),
    "koboldcpp": _OwnFormat("kobold", written_as="request"),
    "huggingface": _OwnFormat("huggingface"),
    "ollama": _OwnFormat("ollama"),
    "tabbyapi": _OwnFormat("tabbyapi"),
    "lmstudio": _OwnFormat("lmstudio"),
}
FORMATS = tuple(name for name, own in _OWN_FORMATS.items() if own.is_read)
"""The formats that `import_preset` reads; plug-ins may add more."""
EXPORT_FORMATS = tuple(_OWN_FORMATS)
"""The formats that `export_preset` writes; plug-ins may add more.

``llama.cpp`` is a command line; ``llama-server`` and ``koboldcpp`` are the JSON body of a request.
"""


def described_export_formats() -> list[str]:
    """Return the formats that `export_preset` writes, each with what is written if that is no file."""
    return [f"{name} ({own.written_as})" if own.written_as else name for name, own in _OWN_FORMATS.items()]


@cache
def own_formats() -> tuple[Format, ...]:
    """Return our own formats. All of their modules are imported."""
    modules = dict.fromkeys(own.module for own in _OWN_FORMATS.values())
    return tuple(each for name in modules for each in import_module(f".{name}", __package__).FORMATS)


def normalize_name(text: str) -> str:
    """Return the spelling of a format's name: in lower case, with dashes."""
    return text.strip().lower().replace("_", "-")


@cache
def plugins() -> dict[str, Plugin]:
    """Return the plug-ins of `GROUP`, by name, usable or not. None of them is imported."""
    return find_plugins(GROUP, normalize_name)


def reason_against(name: str) -> str | None:
    """Return the reason why no plug-in can have a format of this name; None if one can."""
    is_taken = any(name in (each.name, *each.aliases) for each in own_formats())
    return "gen has a format of this name" if is_taken else None


def format_names(*, written: bool = False) -> list[str]:
    # No format is imported, so that completion in shells lists all of them quickly.
    return [*(EXPORT_FORMATS if written else FORMATS), *(name for name in plugins() if name not in _OWN_FORMATS)]


@cache
def plugin_formats() -> tuple[Format, ...]:
    """Return the formats of plug-ins. A plug-in that cannot be used is left out, with a ``PluginWarning``."""
    found = []
    for name, plugin in plugins().items():
        reason = reason_against(name)
        if reason is not None:
            warnings.warn(PluginWarning(f"{plugin.title} is not used: {reason}"), stacklevel=2)
            continue
        try:
            found.append(load_plugin(plugin))
        except PluginError as error:
            warnings.warn(PluginWarning(f"{error}; its format is left out"), stacklevel=2)
    return tuple(found)


@cache
def load_plugin(plugin: Plugin) -> Format:
    """Import the format of a plug-in. Raises ``PluginError`` if that fails, or if the format could not be used."""
    found = plugin.load()
    if not isinstance(found, Format):
        raise PluginError(f"{plugin.title} is not a Format")
    if normalize_name(found.name) != plugin.name:
        raise PluginError(f"{plugin.title} cannot be used: its name is {found.name!r}, not {plugin.name!r}")
    if found.read is None and found.write is None:
        raise PluginError(f"{plugin.title} cannot be used: it has neither `read` nor `write`")
    return replace(
        found,
        name=plugin.name,
        aliases=tuple(map(normalize_name, found.aliases)),
        read=found.read and _named(found.read, plugin),
        write=found.write and _named(found.write, plugin),
        recognize=found.recognize and _share(found.recognize, plugin),
    )


def _named(function: Callable[[Any], Any], plugin: Plugin) -> Callable[[Any], Any]:
    """Return a function of a plug-in whose exceptions become a ``PresetError`` that names the plug-in."""

    def call(argument: Any) -> Any:
        try:
            return function(argument)
        except PresetError:
            raise
        except Exception as error:
            raise PresetError(f"{plugin.title} failed: {type(error).__name__}: {error}") from error

    return call


def _share(recognize: Callable[[PresetFile], float], plugin: Plugin) -> Callable[[PresetFile], float]:
    """Return ``recognize`` of a plug-in: 0 where it fails, and a ``PluginWarning`` for a bug."""

    def share(file: PresetFile) -> float:
        try:
            return float(recognize(file))
        except PresetError:
            return 0.0
        except Exception as error:
            reason = f"{plugin.title} failed at {file.origin}: {type(error).__name__}: {error}"
            warnings.warn(PluginWarning(reason), stacklevel=2)
            return 0.0

    return share


def find_format(text: str, *, written: bool = False) -> Format:
    """Return the format with a name or alias. A ``PresetError`` suggests a similar name, or lists all names."""
    name = normalize_name(text)
    found = _by_name(own_formats(), name, written)
    if found is None and name in plugins():
        try:
            found = _by_name([load_plugin(plugins()[name])], name, written)
        except PluginError as error:
            raise PresetError(str(error)) from None
    found = found or _by_name(plugin_formats(), name, written)
    if found is not None:
        return found
    names = format_names(written=written)
    aliases = [alias for each in own_formats() if each.name in names for alias in each.aliases]
    raise PresetError(unknown_name("format", text, names, aliases=aliases))


def _by_name(formats: Sequence[Format], name: str, written: bool) -> Format | None:
    named = (each for each in formats if name in (each.name, *each.aliases))
    return next((each for each in named if (each.write if written else each.read) is not None), None)
