"""What a chat template may compute: a template comes with a model file, and anybody may have written it."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from typing import Any, NamedTuple

from jinja2.utils import Namespace

MAX_WORK = 20_000_000
"""Units of work of one rendering; a unit is a character that is written, or takes as long as a few of them. The
templates in llama.cpp's repository need 40,000 to 1,500,000 for a hundred messages; these take some seconds."""
TURN_WORK, NODE_WORK, CALL_WORK = 20, 4, 100
"""Of a turn of a loop, of each node in its body, and of a filter, a test, an operator or a call."""
WORK_PER_CHARACTER = 100
"""More work for each character of the messages."""
MAX_TEXT_CHARACTERS = 4_000_000
"""Of each text that a template makes, its result included."""
TEXT_PER_CHARACTER = 10
"""More text for each character of the messages."""
_MAX_INTEGER_BITS = 4096
_MAX_TUPLE_NODES = 10_000
"""Python computes the hash of a tuple anew each time, through all tuples inside it."""
_CONTAINERS = (list, tuple, Mapping, KeysView, ValuesView, ItemsView)


class TemplateLimitError(Exception):
    """A chat template computes more than a template for messages can need."""


class TreeSize(NamedTuple):
    """How large a value is if each part counts wherever it appears: ``nodes``, and ``characters`` of its text."""

    nodes: int
    characters: int


class WorkBudget:
    """What one rendering may still do.

    ``input_characters``: of the messages and the other variables; long messages may cost more.
    """

    def __init__(self, input_characters: int) -> None:
        self._work = self._remaining = MAX_WORK + WORK_PER_CHARACTER * input_characters
        self._max_characters = MAX_TEXT_CHARACTERS + TEXT_PER_CHARACTER * input_characters
        self._trees: dict[int, tuple[object, TreeSize]] = {}
        """By identity; the values are kept, so that none of their ids is used again."""

    def spend(self, units: int) -> None:
        """Count work. Raises ``TemplateLimitError`` when the budget is used up."""
        self._remaining -= units
        if self._remaining < 0:
            raise TemplateLimitError(f"it does not end within {self._work:,} steps")

    def check_length(self, length: int) -> None:
        """Raise ``TemplateLimitError`` for the length of a text or a list that is too long to be made."""
        if length > self._max_characters:
            raise TemplateLimitError(f"it makes a text of more than {self._max_characters:,} characters")

    def check(self, value: Any) -> Any:
        """Return a value that was just computed. Counts its length, and raises if it is too large."""
        if isinstance(value, (str, *_CONTAINERS)):
            self.spend(1 + len(value))
            self.check_length(len(value))
            if isinstance(value, tuple):
                self._check_tuple(value)
        elif isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
            raise TemplateLimitError(f"it computes a number of more than {_MAX_INTEGER_BITS:,} bits")
        return value

    def check_integer_bits(self, bits: float) -> None:
        """Raise ``TemplateLimitError`` for the bits of an integer that is too large to be computed."""
        if bits > _MAX_INTEGER_BITS:
            raise TemplateLimitError(f"it computes a number of more than {_MAX_INTEGER_BITS:,} bits")

    def _check_tuple(self, value: tuple[Any, ...]) -> None:
        nodes, pending = 0, [value]
        while pending:
            parts = pending.pop()
            nodes += 1
            if nodes > _MAX_TUPLE_NODES:
                raise TemplateLimitError(f"it nests more than {_MAX_TUPLE_NODES:,} tuples")
            pending += (part for part in parts if isinstance(part, tuple))

    def tree_size(self, value: Any) -> TreeSize:
        """The size of a value as a tree. Raises ``TemplateLimitError`` if its text would be too long."""
        if isinstance(value, str):
            return TreeSize(1, len(value))
        if isinstance(value, Namespace):
            raise TemplateLimitError("it writes a namespace, which may hold itself")
        if not isinstance(value, _CONTAINERS):
            return TreeSize(1, 8)
        stored = self._trees.get(id(value))
        if stored is not None:
            return stored[1]
        parts = [*value, *value.values()] if isinstance(value, Mapping) else list(value)
        self.spend(1 + len(parts))
        sizes = [self.tree_size(part) for part in parts]
        size = TreeSize(1 + sum(part.nodes for part in sizes), 2 + sum(part.characters + 4 for part in sizes))
        self.check_length(size.characters)
        self._trees[id(value)] = value, size
        return size

    def text(self, value: Any) -> str:
        """Return ``str(value)``, if that is not too long."""
        if not isinstance(value, str):
            self.spend(self.tree_size(value).characters)
            value = str(value)
        self.check_length(len(value))
        return value

    def scan(self, value: Any) -> Any:
        """Return a value that is about to be compared, or searched. Counts what that takes."""
        if isinstance(value, (str, *_CONTAINERS)):
            size = self.tree_size(value)
            self.spend(size.nodes + size.characters // 64)
        return value


current_budget: ContextVar[WorkBudget] = ContextVar("current_budget")
"""The budget of the rendering that runs."""
