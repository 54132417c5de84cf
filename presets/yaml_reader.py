"""YAML as this project reads it: the YAML 1.2 core schema, no other tags, every fault in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.reader import ReaderError

from .errors import PresetError

SIZE_LIMIT = 1_000_000
"""Bytes that a file may have."""

# Aliases may make a small file stand for a huge value, and printing one that is too deep fails.
_VALUES_LIMIT = 100_000
_DEPTH_LIMIT = 64


def read_yaml(path: Path, place: str) -> Any:
    """Return what a YAML file holds; None if it is empty.

    ``place`` begins each complaint. Raises ``PresetError`` for a file that is missing, unreadable, a folder,
    larger than 1 MB or not UTF-8, and, with line and column, for one that is not YAML.
    """
    return parse_yaml(_text(path, place), place)


def read_table(path: Path, place: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds, or ``empty``, if given, for an empty file.

    Raises ``PresetError`` as `read_yaml` does, and for a file that is empty or no mapping at the top.
    """
    value = read_yaml(path, place)
    if value is None and empty is not None:
        return empty
    if not isinstance(value, dict):
        kinds = {type(None): "is empty", list: "holds a list"}
        kind = kinds.get(type(value), "holds a single value")
        raise PresetError(f"{place}: the file {kind}; keys with values are needed, as in key: value")
    return value


def parse_yaml_scalar(text: str, place: str = "value") -> Any:
    """Return the value of a text by the rules of a preset file: ``true``, ``1e-3``, ``[a, b]``, ``-inf``.

    ``place`` begins each complaint. Raises ``PresetError`` with line and column if it is not YAML.
    """
    return parse_yaml(text, place)


def parse_yaml(text: str, place: str) -> Any:
    """Return the value of a YAML text; raises ``PresetError`` with line and column if it is not YAML."""
    try:
        loader = _Loader(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join((error.problem or error.context or "not YAML").split())
        raise PresetError(f"{place}: {where}{problem}") from None
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        where = f"line {line}, column {column}"
        code = f"U+{ord(text[error.position]):04X}"
        raise PresetError(f"{place}: {where}: the character {code} is not allowed") from None
    except RecursionError:
        raise PresetError(f"{place}: it is nested too deeply") from None
    _check_extent(value, place)
    return value


def _text(path: Path, place: str) -> str:
    try:
        with path.open("rb") as file:
            # One byte more than allowed: a device or a pipe has no size to ask for.
            data = file.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        raise PresetError(f"{place}: {_file_complaint(path, error)}") from None
    if len(data) > SIZE_LIMIT:
        raise PresetError(f"{place}: the file is larger than 1 MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PresetError(f"{place}: line {line}: the file is not UTF-8") from None


def _file_complaint(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError) or (isinstance(error, OSError) and path.is_dir()):
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "the file may not be read (permission denied)"
    return f"the file cannot be read ({getattr(error, 'strerror', None) or error})"


def _check_extent(value: Any, place: str) -> None:
    """Refuse a value that aliases blow up, or that contains itself."""
    waiting, count = [(value, 0)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        if depth > _DEPTH_LIMIT:
            raise PresetError(f"{place}: it is nested too deeply")
        if count > _VALUES_LIMIT:
            raise PresetError(f"{place}: it stands for more than {_VALUES_LIMIT} values")
        if isinstance(item, dict):
            waiting.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            waiting.extend((inner, depth + 1) for inner in item)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with YAML 1.2's plain values: ``1e-3`` is a number, ``no`` is a text."""

    # Empty tables of our own: PyYAML's hold YAML 1.1, whose `no`, `1:30` and `010` surprise people.
    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's way to configure a loader)
    yaml_constructors = {}  # noqa: RUF012

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; a key that stands twice is refused."""
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, "expected a mapping", node.start_mark)
        table: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise ConstructorError(None, None, "a list or a table cannot be a key", key_node.start_mark)
            if key in table:
                raise ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
            table[key] = self.construct_object(value_node, deep=deep)
        return table


def _null(loader: _Loader, node: ScalarNode) -> None:
    loader.construct_scalar(node)


def _bool(loader: _Loader, node: ScalarNode) -> bool:
    text = str(loader.construct_scalar(node)).lower()
    if text not in ("true", "false"):  # a text with the tag !!bool
        raise ConstructorError(None, None, "it is not true or false", node.start_mark)
    return text == "true"


def _int(loader: _Loader, node: ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    try:
        return int(text, base)
    except ValueError:  # a text with the tag !!int, or more digits than Python reads
        raise ConstructorError(None, None, "it is not a whole number", node.start_mark) from None


def _float(loader: _Loader, node: ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise ConstructorError(None, None, "it is not a number", node.start_mark) from None


def _string(loader: _Loader, node: ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConstructorError(None, None, "half of a surrogate pair is no text", node.start_mark)
    return text


def _refuse(loader: _Loader, node: Node) -> Any:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise ConstructorError(None, None, f"the tag {tag} is not allowed", node.start_mark)


def _configure() -> None:
    """Teach the loader YAML 1.2's core schema, and ``-inf`` as `logit_bias` writes a ban."""
    number = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    plain: tuple[tuple[str, str, list[str], Any], ...] = (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], _null),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), _bool),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _int),
        (
            "float",
            rf"{number}|[-+]?\.(?:inf|Inf|INF)|-inf|\.(?:nan|NaN|NAN)",
            list("-+.0123456789"),
            _float,
        ),
    )
    for name, pattern, first, construct in plain:
        tag = f"tag:yaml.org,2002:{name}"
        _Loader.add_implicit_resolver(tag, re.compile(f"(?:{pattern})\\Z"), first)
        _Loader.add_constructor(tag, construct)
    _Loader.add_constructor("tag:yaml.org,2002:str", _string)
    for name in ("seq", "map"):
        _Loader.add_constructor(f"tag:yaml.org,2002:{name}", getattr(yaml.SafeLoader, f"construct_yaml_{name}"))
    _Loader.add_constructor(None, _refuse)


_configure()
