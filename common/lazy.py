"""Lazy exports: public names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(
    package: str, names_by_module: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, ``__dir__`` (PEP 562) and ``__all__``.

    Args:
        package: the package's ``__name__``.
        names_by_module: the public names of each module, which is named relative to the package, as in ``.chain``.
            The package imports the same names for type checkers; a test compares the two.
    """
    module_by_name = {name: module for module, names in names_by_module.items() for name in names}

    def import_name(name: str) -> object:
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module_by_name[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_by_name})

    return import_name, list_names, sorted(module_by_name)
