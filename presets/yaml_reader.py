"""YAML 1.2's core schema within limits; each fault is one sentence with line and column.

PyYAML names the states of its parser. Here its messages say what is wrong with the text.
"""

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

from ..common.files import TextFileError, decode_text_file, read_text_file
from .errors import PresetError

MAX_FILE_BYTES = 1_000_000
"""A preset or configuration has a few hundred bytes; a larger file is a mistake."""
_MAX_DEPTH = 64
"""To print a value that is nested more deeply exceeds Python's recursion limit."""
_MAX_VALUES = 100_000
"""The values in a file, keys included. PyYAML takes some 20 µs for each."""


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, YAML 1.1 as other tools read it. Raises ``ComposerError`` for too many values."""

    _value_count = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Return the next node; `parent` and `index` are those of PyYAML's own method."""
        self._value_count += 1
        if self._value_count > _MAX_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"more than {_MAX_VALUES} values", mark)
        return super().compose_node(parent, index)


class Yaml12Loader(BoundedLoader):
    """PyYAML's safe loader with the plain values of YAML 1.2: ``1e-3`` is a number, ``no`` is a text."""

    # Empty tables: PyYAML's own hold YAML 1.1, where `no` is false, `1:30` is 90 and `010` is 8.
    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's way to configure a loader)
    yaml_constructors = {}  # noqa: RUF012

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping. Raises ``ConstructorError`` for a key that occurs twice."""
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


def _null(loader: Yaml12Loader, node: ScalarNode) -> None:
    loader.construct_scalar(node)


def _bool(loader: Yaml12Loader, node: ScalarNode) -> bool:
    text = str(loader.construct_scalar(node)).lower()
    if text not in ("true", "false"):  # a text with the tag !!bool
        raise ConstructorError(None, None, "it is not true or false", node.start_mark)
    return text == "true"


def _int(loader: Yaml12Loader, node: ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    try:
        return int(text, base)
    except ValueError:  # a text with the tag !!int, or more digits than Python reads
        raise ConstructorError(None, None, "it is not a whole number", node.start_mark) from None


def _float(loader: Yaml12Loader, node: ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise ConstructorError(None, None, "it is not a number", node.start_mark) from None


def _string(loader: Yaml12Loader, node: ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConstructorError(None, None, "half of a surrogate pair is no text", node.start_mark)
    return text


def _refuse(loader: Yaml12Loader, node: Node) -> Any:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise ConstructorError(None, None, f"the tag {tag} is not allowed", node.start_mark)


class _PlainValue(NamedTuple):
    """A kind of value that is written without quotes."""

    name: str
    pattern: str
    first_characters: list[str]
    """The characters with which such a value may begin; "" for an empty one."""
    construct: Callable[[Yaml12Loader, ScalarNode], Any]


def _configure() -> None:
    """Add YAML 1.2's core schema to the loader, and ``-inf``, by which `logit_bias` writes a ban."""
    number = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    float_pattern = rf"{number}|[-+]?\.(?:inf|Inf|INF)|-inf|\.(?:nan|NaN|NAN)"
    for kind in (
        _PlainValue("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], _null),
        _PlainValue("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), _bool),
        _PlainValue("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _int),
        _PlainValue("float", float_pattern, list("-+.0123456789"), _float),
    ):
        tag = f"tag:yaml.org,2002:{kind.name}"
        Yaml12Loader.add_implicit_resolver(tag, re.compile(f"(?:{kind.pattern})\\Z"), kind.first_characters)
        Yaml12Loader.add_constructor(tag, kind.construct)
    Yaml12Loader.add_constructor("tag:yaml.org,2002:str", _string)
    for name in ("seq", "map"):
        Yaml12Loader.add_constructor(
            f"tag:yaml.org,2002:{name}", getattr(yaml.SafeLoader, f"construct_yaml_{name}")
        )
    Yaml12Loader.add_constructor(None, _refuse)


_configure()


_UNCLOSED = {
    r"expected ',' or '\]', but got '<stream end>'": "this [ is never closed",
    r"expected ',' or '\}', but got '<stream end>'": "this { is never closed",
    r"found unexpected (?:end of stream|document separator)": "this quote is never closed",
}
"""Faults that are shown where the unclosed part begins."""
_IN_WORDS = {
    r"expected ',' or '([\]}])', but got .*": r"a comma or \1 is missing",
    r"found character '\\t' that cannot start any token": "YAML is indented with spaces, not with tabs",
    r"found character '(.)' that cannot start any token": r"a text that begins with \1 stands in quotes",
    r"mapping values are not allowed here": (
        "no colon can stand here; keys of one table are indented alike, and a text with a colon stands in quotes"
    ),
    r"could not find expected ':'": "a key without its colon, as in key: value",
    r"expected <block end>, but found '(?:<scalar>|[\]},])'": "more stands behind the end of the value",
    r"expected <block end>, but found .*": (
        "this does not go on from the lines above; indent one list or table alike"
    ),
    r"sequence entries are not allowed here": "no dash can stand here; each item of a list begins a line",
    r"mapping keys are not allowed here": "no key can stand here; it begins a line",
    r"expected the node content, but found .*": "a value is missing",
    r"expected '<document start>', but found .*": "more stands behind the end of the value",
    r"but found another document": "a second document begins here; one can be read",
    r"found undefined alias '(.*)'": r"*\1 stands for nothing; no &\1 comes before it",
    r"second occurrence": "this & name stands twice",
    r"found unknown escape character (?:'(.*)'|\"(.*)\")": r"\\\1\2 is no escape in double quotes",
    r"found unhashable key": "a list or a table cannot be a key",
    r"could not determine a constructor for the tag '(.*)'": r"the tag \1 is not allowed",
}


def _yaml_problem(error: yaml.MarkedYAMLError) -> tuple[str, yaml.Mark | None]:
    """Return what is wrong, and where that is; messages of our own loaders stay as they are."""
    problem = " ".join((error.problem or error.context or "").split())
    mark = error.problem_mark or error.context_mark
    for pattern, words in _UNCLOSED.items():
        if re.fullmatch(pattern, problem):
            return words, error.context_mark or mark
    for pattern, words in _IN_WORDS.items():
        match = re.fullmatch(pattern, problem)
        if match is not None:
            return match.expand(words), mark
    is_of_the_parser = isinstance(error, (yaml.scanner.ScannerError, yaml.parser.ParserError))
    return ("this is not YAML" if is_of_the_parser else problem), mark


def read_table(path: Path, origin: str, empty: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds, or ``empty``, if given, for an empty file.

    ``origin`` begins each message. Raises ``PresetError`` for a file that is missing, unreadable, a folder,
    larger than 1 MB or not UTF-8, with line and column for a file that is not YAML, and for a file that is empty
    or holds something other than a mapping.
    """
    return check_table(parse_yaml(read_text(path, origin), origin), origin, empty)


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
        problem, mark = _yaml_problem(error)
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
    """Return the text of a file, without a byte order mark; raises ``PresetError`` as `read_table` does."""
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
        if count > _MAX_VALUES:
            raise PresetError(f"{origin}: it stands for more than {_MAX_VALUES} values")
        if isinstance(item, dict):
            pending.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
