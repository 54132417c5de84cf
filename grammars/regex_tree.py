"""The tree of a regular expression."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class CharacterClass:
    """One character."""

    source: str  # the part of the pattern that matches the character, such as ``[a-c]``, ``\w`` or ``.``


@dataclass(frozen=True)
class Position:
    """A condition on a position."""

    sign: str  # ``^``, ``$``, ``A``, ``Z``, ``b`` or ``B``, as in a pattern


@dataclass(frozen=True)
class Repetition:
    node: Node
    min_count: int
    max_count: int | None  # greatest number of times; None: no limit


@dataclass(frozen=True)
class Alternatives:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Concatenation:
    """Nodes that match one after another."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    """A node with flags."""

    node: Node
    added: int = 0  # the flags that are set inside, as in `re`
    removed: int = 0  # the flags that are not set inside


Node = CharacterClass | Position | Repetition | Alternatives | Concatenation | Group


def compile_class(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of one character. Raises ``re.error`` if it is invalid."""
    with warnings.catch_warnings():  # of a class such as [[a], whose meaning may change
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(source, flags)
