"""The keys of a JSON text in the order in which a grammar writes them.

JSON is the same in any order of its keys, but masks have one. A text is brought into it by trials: at each place
of a key, each key that remains is tried, first those that the schema names first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from .json_strings import json_string
from .schema_parts import all_parts
from .schema_references import SchemaPart

_MAX_FAILURES = 2_000  # maximum number of keys and values that are tried at a place where they do not fit


class TextState(Protocol):
    """The state of a text that follows a grammar."""

    def after(self, text: str) -> TextState | None:
        """Return the state after more text; None if the grammar does not allow it."""
        ...

    @property
    def is_complete(self) -> bool: ...


class _Object(NamedTuple):
    members: list[tuple[str, Any]]  # each key as JSON, and its value


class _Number(NamedTuple):
    text: str


class KeyOrder:
    """The search for the order of the keys of one text. ``ranks``: the place of each key in the schema."""

    def __init__(self, ranks: Mapping[str, int]) -> None:
        self._ranks = ranks
        self._remaining_failures = _MAX_FAILURES

    def find(self, text: str, start: TextState) -> str | None:
        """Return a JSON text of one line in an order that the grammar allows; None if none was found."""
        try:
            value = json.loads(text, object_pairs_hook=self._object, parse_float=_Number, parse_int=_Number)
        except (ValueError, RecursionError):
            return None
        try:
            for state, ordered_text in self._place(value, start):
                if state.is_complete:
                    return ordered_text
        except RecursionError:
            return None
        return None

    def _object(self, pairs: list[tuple[str, Any]]) -> _Object:
        last_rank = len(self._ranks)
        ranked = sorted(pairs, key=lambda pair: self._ranks.get(pair[0], last_rank))
        return _Object([(json_string(key), value) for key, value in ranked])

    def _place(self, value: Any, state: TextState) -> Iterator[tuple[TextState, str]]:
        """Yield the ways to write a value that the grammar allows, each with the state after it."""
        if isinstance(value, _Object):
            for next_state, text in self._literal("{", state):
                yield from self._members(value.members, next_state, text)
        elif isinstance(value, list):
            for next_state, text in self._literal("[", state):
                yield from self._items(value, next_state, text)
        else:
            text = (
                value.text
                if isinstance(value, _Number)
                else (json_string(value) if isinstance(value, str) else json.dumps(value))
            )
            yield from self._literal(text, state)

    def _literal(self, text: str, state: TextState) -> Iterator[tuple[TextState, str]]:
        next_state = state.after(text) if self._remaining_failures > 0 else None
        if next_state is None:
            self._remaining_failures -= 1
        else:
            yield next_state, text

    def _items(self, items: list[Any], state: TextState, text: str) -> Iterator[tuple[TextState, str]]:
        if not items:
            for next_state, closing in self._literal("]", state):
                yield next_state, text + closing
            return
        for placed_state, placed in self._place(items[0], state):
            separator = ", " if len(items) > 1 else ""
            for next_state, _ in self._literal(separator, placed_state):
                yield from self._items(items[1:], next_state, text + placed + separator)

    def _members(
        self, members: list[tuple[str, Any]], state: TextState, text: str
    ) -> Iterator[tuple[TextState, str]]:
        if not members:
            for next_state, closing in self._literal("}", state):
                yield next_state, text + closing
            return
        for index, (key, value) in enumerate(members):
            for key_state, key_text in self._literal(f"{key}: ", state):
                for placed_state, placed in self._place(value, key_state):
                    others = members[:index] + members[index + 1 :]
                    separator = ", " if others else ""
                    for next_state, _ in self._literal(separator, placed_state):
                        yield from self._members(others, next_state, text + key_text + placed + separator)


def ranks_of_keys(schema: dict[str, Any]) -> dict[str, int]:
    """Return the place of each key that a schema names, in the order of the schema."""
    names: dict[str, None] = {}
    for part in all_parts(SchemaPart("", schema)):
        for keyword in ("properties", "required"):
            names |= dict.fromkeys(part.schema.get(keyword, ()))
    return {name: rank for rank, name in enumerate(names)}
