"""Lazy exports: public names of a package that are imported when they are first used."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from importlib import import_module


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562), which import a public name at its first use.

    The package lists its public names once, in its imports for type checkers. Its source is read when a public
    name is first used. The ``__getattr__`` raises ``AttributeError`` for other names. A name of an earlier release
    warns, and returns the object that has a new name now, see `renamed`. The ``__dir__`` lists the names in
    ``__all__``, imported or not.
    """
    definition_by_name: dict[str, tuple[str, str]] = {}  # the module, and the name in it

    def import_name(name: str) -> object:
        if not definition_by_name and not name.startswith("__"):
            definition_by_name.update(_imports_for_type_checkers(package))
        if name not in definition_by_name:
            from .renamed import find_by_old_name  # noqa: PLC0415 - most runs use no old name

            return find_by_old_name(package, name)
        module, defined_name = definition_by_name[name]
        value: object = getattr(import_module(module, package), defined_name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})

    return import_name, list_names


def _imports_for_type_checkers(package: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each public name with its module, and its name in that module."""
    module = sys.modules[package]
    source = "".join(linecache.getlines(str(module.__file__), vars(module)))
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        yield alias.asname or alias.name, (f"{'.' * node.level}{node.module}", alias.name)
