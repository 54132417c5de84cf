"""Plug-ins: objects of other packages, found by the entry points of a group and imported when they are used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace


class PluginWarning(UserWarning):
    """A plug-in is left out; the rest works. `gen` prints the message as a note."""


@dataclass(frozen=True)
class Plugin:
    """An object of another package."""

    name: str  # name of the entry point
    # where the object is imported from, as ``package.module:object``; several places are an error
    places: tuple[str, ...]
    packages: tuple[str, ...] = ()  # the names of the installed packages that offer it

    @property
    def place(self) -> str:
        """The place, or all places, as text."""
        return ", ".join(sorted(self.places))

    @property
    def package(self) -> str:
        """The name of the package, or all names, as text."""
        return " and ".join(self.packages)

    @property
    def title(self) -> str:
        """The beginning of every message about the plug-in."""
        owner = f" of {self.package}" if self.packages else ""
        return f"the plug-in {self.name!r}{owner} ({self.place})"

    def load(self) -> object:
        """Import the object. Raises ``PluginError``, whatever the module does while it is imported."""
        from importlib.metadata import EntryPoint  # noqa: PLC0415 - 25 ms that a start without plug-ins saves

        from .errors import PluginError  # noqa: PLC0415 - `gen --help` does without it

        if len(self.places) > 1:
            raise PluginError(f"the plug-ins {' and '.join(self.places)} both offer {self.name!r}")
        try:
            return EntryPoint(self.name, self.places[0], "").load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module may also call sys.exit
            reason = f"it called sys.exit({error.code!r})" if isinstance(error, SystemExit) else error
            raise PluginError(f"{self.title} failed to load: {reason}") from error


def find_plugins(group: str, normalize: Callable[[str], str] = str) -> dict[str, Plugin]:
    """Return the plug-ins of a group, such as ``logitsmith.samplers``, by name. None of them is imported."""
    # ``normalize``: returns the spelling of a name that the result has
    if not any(_may_offer(folder, group) for folder in sys.path):
        return {}
    from importlib.metadata import entry_points  # noqa: PLC0415 - see load

    plugins: dict[str, Plugin] = {}
    for point in entry_points(group=group):
        name = normalize(point.name)
        plugin = plugins.get(name, Plugin(name, places=()))
        if point.value not in plugin.places:
            plugin = replace(plugin, places=(*plugin.places, point.value))
        if point.dist is not None and point.dist.name not in plugin.packages:
            plugin = replace(plugin, packages=(*plugin.packages, point.dist.name))
        plugins[name] = plugin
    return plugins


def _may_offer(folder: str, group: str) -> bool:
    """Return False if no package in a folder of ``sys.path`` has the group."""
    # Reading these files takes 2 ms. importlib.metadata takes 40 ms, and a `Path` for each file 10 ms, which every
    # start would pay without plug-ins.
    header = f"[{group}]".encode()
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208
    except NotADirectoryError:  # a zip file, which importlib.metadata can read
        return True
    except OSError:
        return False
    packages = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
    return any(header in _read_or_empty(f"{folder or '.'}/{package}/entry_points.txt") for package in packages)


def _read_or_empty(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:  # most packages have no entry points
        return b""
