"""The tree of a regular expression."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class CharacterClass:
    r"""One character.

    Attributes:
        source: the part of the pattern that matches the character, such as ``[a-c]``, ``\w`` or ``.``.
    """

    source: str


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


Node = CharacterClass | Position | Repetition | Alternatives | Concatenation | Group


def compile_class(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of one character. Raises ``re.error`` if it is invalid.

    Args:
        source: see `CharacterClass`.
        flags: flags of `re`.
    """
    with warnings.catch_warnings():  # of a class such as [[a], whose meaning may change
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(source, flags)
