"""mkdocstrings calls this for each module that it reads."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from griffe import Extension, Module


class LazyExports(Extension):
    """Shows the public names of lazy packages. Without it, mkdocstrings reads only a literal `__all__`."""

    def on_module_members(self, *, mod: Module, **_: Any) -> None:
        """Set the public names of a package with `lazy_exports`."""
        if mod.is_init_module and "lazy_exports" in mod.members:
            mod.exports = import_module(mod.path).__all__
