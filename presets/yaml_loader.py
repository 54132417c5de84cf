"""The YAML that this project reads: the core schema of YAML 1.2, and no other tags."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode

MAX_VALUES = 100_000
"""The values in a file, keys included. PyYAML takes some 20 µs for each."""


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, YAML 1.1 as other tools read it. Raises ``ComposerError`` for too many values."""

    _value_count = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Return the next node; `parent` and `index` are those of PyYAML's own method."""
        self._value_count += 1
        if self._value_count > MAX_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"more than {MAX_VALUES} values", mark)
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
