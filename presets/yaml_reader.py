"""Reads YAML files and texts; each fault is one sentence with its line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from ..common.files import TextFileError, decode_text_file, read_text_file
from .errors import PresetError
from .yaml_loader import MAX_VALUES, BoundedLoader, Yaml12Loader
from .yaml_problems import yaml_problem

MAX_FILE_BYTES = 1_000_000
"""A preset or configuration has a few hundred bytes; a larger file is a mistake."""
_MAX_DEPTH = 64
"""To print a value that is nested more deeply exceeds Python's recursion limit."""


def read_yaml(path: Path, origin: str) -> Any:
    """Return the value of a YAML file; None if it is empty.

    ``origin`` begins each message. Raises ``PresetError`` for a file that is missing, unreadable, a folder,
    larger than 1 MB or not UTF-8, and, with line and column, for one that is not YAML.
    """
    return parse_yaml(read_text(path, origin), origin)


def read_table(path: Path, origin: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds, or ``empty``, if given, for an empty file.

    Raises ``PresetError`` as `read_yaml` does, and for a file that is empty or no mapping at the top.
    """
    return check_table(read_yaml(path, origin), origin, empty)


def check_table(value: Any, origin: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the value if it is a mapping, or ``empty``, if given, for None; else raise ``PresetError``."""
    if value is None and empty is not None:
        return empty
    if not isinstance(value, dict):
        kinds = {type(None): "is empty", list: "holds a list"}
        kind = kinds.get(type(value), "holds a single value")
        raise PresetError(f"{origin}: the file {kind}; keys with values are needed, as in key: value")
    return value


def parse_yaml_scalar(text: str, origin: str = "value") -> Any:
    """Return the value of a text by the rules of a preset file: ``true``, ``1e-3``, ``[a, b]``, ``-inf``.

    ``origin`` begins each message. Raises ``PresetError`` with line and column if it is not YAML.
    """
    return parse_yaml(text, origin)


def parse_yaml(text: str, origin: str, loader_class: type[BoundedLoader] = Yaml12Loader) -> Any:
    """Return the value of a YAML text; raises ``PresetError`` with line and column if it is not YAML.

    ``loader_class``: `BoundedLoader` reads YAML 1.1, as other tools do.
    """
    try:
        loader = loader_class(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem, mark = yaml_problem(error)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise PresetError(f"{origin}: {where}{problem}") from None
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        where = f"line {line}, column {column}"
        code = f"U+{ord(text[error.position]):04X}"
        raise PresetError(f"{origin}: {where}: the character {code} is not allowed") from None
    except RecursionError:
        raise PresetError(f"{origin}: it is nested too deeply") from None
    _check_extent(value, origin)
    return value


def read_text(path: Path, origin: str) -> str:
    """Return the text of a file, without a byte order mark; raises ``PresetError`` as `read_yaml` does."""
    try:
        return read_text_file(path, MAX_FILE_BYTES)
    except TextFileError as error:
        raise PresetError(f"{origin}: {error}") from None


def decode_text(data: bytes, origin: str) -> str:
    """Return the bytes of a file as text, without a byte order mark. Raises ``PresetError`` if not UTF-8."""
    try:
        return decode_text_file(data)
    except TextFileError as error:
        raise PresetError(f"{origin}: {error}") from None


def _check_extent(value: Any, origin: str) -> None:
    """Raise ``PresetError`` for a value that aliases make huge, or that contains itself."""
    pending, count = [(value, 0)], 0
    while pending:
        item, depth = pending.pop()
        count += 1
        if depth > _MAX_DEPTH:
            raise PresetError(f"{origin}: it is nested too deeply")
        if count > MAX_VALUES:
            raise PresetError(f"{origin}: it stands for more than {MAX_VALUES} values")
        if isinstance(item, dict):
            pending.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
