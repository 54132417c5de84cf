"""The tree of a regular expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class CodeRange(NamedTuple):
    """Characters by their code points.

    Attributes:
        first: the first code point.
        last: the last code point.
    """

    first: int
    last: int


class Category(NamedTuple):
    r"""A class of characters with a name, such as ``\w``.

    Attributes:
        letter: ``d`` for digits, ``s`` for white space, ``w`` for characters of words.
        is_negated: True for all other characters.
    """

    letter: str
    is_negated: bool


@dataclass(frozen=True)
class CharacterClass:
    """One character of a class.

    Attributes:
        items: the characters and categories of the class.
        is_negated: True for all characters except these.
    """

    items: tuple[CodeRange | Category, ...]
    is_negated: bool = False


@dataclass(frozen=True)
class AnyCharacter:
    """Any character; a newline only with the flag ``s``."""


@dataclass(frozen=True)
class Position:
    r"""A condition on a position.

    Attributes:
        sign: ``^``, ``$``, ``A``, ``Z``, ``b`` or ``B``, as in a pattern.
    """

    sign: str


@dataclass(frozen=True)
class Repetition:
    """A node that is repeated.

    Attributes:
        node: the node.
        min_count: least number of times.
        max_count: greatest number of times; None: no limit.
    """

    node: Node
    min_count: int
    max_count: int | None


@dataclass(frozen=True)
class Alternatives:
    """Nodes of which one matches.

    Attributes:
        nodes: the nodes.
    """

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Concatenation:
    """Nodes that match one after another.

    Attributes:
        nodes: the nodes.
    """

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    """A node with flags.

    Attributes:
        node: the node.
        added: the flags that are set inside, as in `re`.
        removed: the flags that are not set inside.
    """

    node: Node
    added: int = 0
    removed: int = 0


Node = CharacterClass | AnyCharacter | Position | Repetition | Alternatives | Concatenation | Group
