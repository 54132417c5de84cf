"""A reader for YAML 1.2's core schema, with limits. Each error is one line with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from ..common.files import TextFileError, decode_text_file, read_text_file
from ..common.strict_json import read_float
from .errors import PresetError

MAX_FILE_BYTES = 1_000_000  # maximum size of a preset or configuration, which usually has a few hundred bytes
# Maximum depth of nested lists and tables. Printing deeper values would exceed Python's recursion limit.
_MAX_DEPTH = 64
# Maximum number of values in a file, including keys. PyYAML needs about 20 µs for each value.
_MAX_VALUES = 100_000


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader for YAML 1.1, which other tools use. Raises ``ComposerError`` for too many values."""

    _value_count = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._value_count += 1
        if self._value_count > _MAX_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"more than {_MAX_VALUES} values", mark)
        return super().compose_node(parent, index)


class Yaml12Loader(BoundedLoader):
    """PyYAML's safe loader with the plain values of YAML 1.2: ``1e-3`` is a number, ``no`` is a string."""

    # Emptied, because PyYAML's tables follow YAML 1.1, where `no` is false, `1:30` is 90 and `010` is 8.
    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's way to configure a loader)
    yaml_constructors = {}  # noqa: RUF012

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, "expected a mapping", node.start_mark)
        table: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise ConstructorError(None, None, "a list or a table cannot be a key", key_node.start_mark)
            if key in table:
                raise ConstructorError(None, None, f"the key {key!r} occurs twice", key_node.start_mark)
            table[key] = self.construct_object(value_node, deep=deep)
        return table


def _construct_null(loader: Yaml12Loader, node: ScalarNode) -> None:
    loader.construct_scalar(node)


def _construct_bool(loader: Yaml12Loader, node: ScalarNode) -> bool:
    text = str(loader.construct_scalar(node)).lower()
    if text not in ("true", "false"):  # a string with the tag !!bool
        raise ConstructorError(None, None, "it is not true or false", node.start_mark)
    return text == "true"


def _construct_int(loader: Yaml12Loader, node: ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    try:
        return int(text, base)
    except ValueError:  # a string with the tag !!int, or more digits than Python allows
        raise ConstructorError(None, None, "it is not an integer", node.start_mark) from None


def _construct_float(loader: Yaml12Loader, node: ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    try:
        if "inf" in text or "nan" in text:
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        return read_float(text)
    except ValueError:
        raise ConstructorError(None, None, "it is not a number", node.start_mark) from None


def _construct_string(loader: Yaml12Loader, node: ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConstructorError(None, None, "half of a surrogate pair is not allowed in text", node.start_mark)
    return text


def _reject_tag(loader: Yaml12Loader, node: Node) -> Any:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise ConstructorError(None, None, f"the tag {tag} is not allowed", node.start_mark)


class _PlainValue(NamedTuple):
    """A type of values that are written without quotes."""

    name: str  # YAML's name of the type
    pattern: str  # regular expression for the values
    first_characters: list[str]  # the characters that such a value may begin with; "" for an empty value
    construct: Callable[[Yaml12Loader, ScalarNode], Any]


def _configure_loader() -> None:
    """Add YAML 1.2's core schema to the loader, and the value ``-inf``, which `logit_bias` uses for a ban."""
    number = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    float_pattern = rf"{number}|[-+]?\.(?:inf|Inf|INF)|-inf|\.(?:nan|NaN|NAN)"
    for kind in (
        _PlainValue("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], _construct_null),
        _PlainValue("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), _construct_bool),
        _PlainValue("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _construct_int),
        _PlainValue("float", float_pattern, list("-+.0123456789"), _construct_float),
    ):
        tag = f"tag:yaml.org,2002:{kind.name}"
        Yaml12Loader.add_implicit_resolver(tag, re.compile(f"(?:{kind.pattern})\\Z"), kind.first_characters)
        Yaml12Loader.add_constructor(tag, kind.construct)
    Yaml12Loader.add_constructor("tag:yaml.org,2002:str", _construct_string)
    for name in ("seq", "map"):
        Yaml12Loader.add_constructor(
            f"tag:yaml.org,2002:{name}", getattr(yaml.SafeLoader, f"construct_yaml_{name}")
        )
    Yaml12Loader.add_constructor(None, _reject_tag)


_configure_loader()


# what to do about characters that people write without knowing what YAML reads in them
_ADVICE_BY_CHARACTER = {
    "\t": "indent with spaces, not with tabs",
    ":": "indent all keys of a table alike, and quote a string that contains a colon",
    **{character: f"quote a string that begins with {character}" for character in "%@`*"},
}


def _describe_error(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return the place and PyYAML's sentence in one line, with advice if the character there is a trap."""
    parts = [part for part in (error.context, error.problem) if part]
    sentence = ", ".join(" ".join(part.split()) for part in parts)
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark is not None]
    if isinstance(error, (ScannerError, ComposerError)):
        characters = [text[mark.index : mark.index + 1] for mark in marks]
        traps = [character for character in characters if character in _ADVICE_BY_CHARACTER]
        if traps:
            sentence = f"{sentence}; {_ADVICE_BY_CHARACTER[traps[0]]}"
    if not marks:
        return sentence
    ends_too_early = marks[0].index >= len(text.rstrip())
    place = marks[-1] if ends_too_early else marks[0]  # the last mark is the beginning of what is still open
    return f"line {place.line + 1}, column {place.column + 1}: {sentence}"


def read_table(path: Path, origin: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    # ``origin``: the start of each message. ``empty``: the table for an empty file; without it, that is an error.
    return check_table(parse_yaml(read_text(path, origin), origin), origin, empty)


def check_table(value: Any, origin: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    # ``empty``: the table for None, an empty file; without it, that is an error
    if value is None and empty is not None:
        return empty
    if not isinstance(value, dict):
        description_by_type = {type(None): "is empty", list: "holds a list"}
        description = description_by_type.get(type(value), "holds a single value")
        raise PresetError(f"the file {description}; it must hold keys and values, as in key: value", origin=origin)
    return value


def parse_yaml_scalar(text: str, origin: str = "value") -> Any:
    """Return the value of a text by the rules of a preset file: ``true``, ``1e-3``, ``[a, b]``, ``-inf``."""
    return parse_yaml(text, origin)


def parse_yaml(text: str, origin: str, loader_class: type[BoundedLoader] = Yaml12Loader) -> Any:
    # ``loader_class``: `BoundedLoader` for YAML 1.1, which other tools use
    try:
        loader = loader_class(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise PresetError(_describe_error(error, text), origin=origin) from None
    except ReaderError as error:
        text_before = text[: error.position]
        line = text_before.count("\n") + 1
        column = error.position - text_before.rfind("\n")
        problem = str(error).partition("\n")[0]
        raise PresetError(f"line {line}, column {column}: {problem}", origin=origin) from None
    except RecursionError:
        raise PresetError("it is nested too deeply", origin=origin) from None
    _check_extent(value, origin)
    return value


def read_text(path: Path, origin: str) -> str:
    """Return the text of a file, without a byte order mark."""
    try:
        return read_text_file(path, MAX_FILE_BYTES)
    except TextFileError as error:
        raise PresetError(str(error), origin=origin) from None


def decode_text(data: bytes, origin: str) -> str:
    """Return the text of a file's bytes, without a byte order mark."""
    try:
        return decode_text_file(data)
    except TextFileError as error:
        raise PresetError(str(error), origin=origin) from None


def _check_extent(value: Any, origin: str) -> None:
    """Raise ``PresetError`` for a value that becomes huge, or contains itself, because of aliases."""
    pending_values = [(value, 0)]  # each with its depth
    value_count = 0
    while pending_values:
        item, depth = pending_values.pop()
        value_count += 1
        if depth > _MAX_DEPTH:
            raise PresetError("it is nested too deeply", origin=origin)
        if value_count > _MAX_VALUES:
            raise PresetError(f"its aliases expand to more than {_MAX_VALUES} values", origin=origin)
        if isinstance(item, dict):
            pending_values.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            pending_values.extend((inner, depth + 1) for inner in item)
