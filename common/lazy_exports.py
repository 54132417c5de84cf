"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, names_by_module: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` (PEP 562) that imports a public name from its module at its first use.

    ``names_by_module``: the package's modules, each with the names that it exports, separated by spaces. The
    ``__getattr__`` raises ``AttributeError`` for other names.
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names.split()}

    def import_name(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f".{module_of[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
