r"""Regular expressions that are matched in linear time, character by character, and can return to earlier states.

Python's `re` backtracks, so that a pattern of a client may take exponential time, and it needs the complete text.
Here a pattern becomes an automaton, and all ways to match are followed together (Thompson 1968). Of each state,
only the earliest start is kept, so that a character takes time proportional to the length of the pattern, not to
that of the text. The module `regex_syntax` tells which patterns are possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from .errors import GrammarError
from .regex_tree import (
    Alternatives,
    CharacterClass,
    Concatenation,
    Group,
    Node,
    Position,
    Repetition,
    compile_class,
)

# Maximum number of states of an automaton. A counted repetition such as ``a{1000}`` has one for each count.
MAX_STATES = 5_000

_MAX_CACHED_CHARACTERS = 4_096  # maximum number of characters whose membership in a class is remembered


def is_word_character(character: str) -> bool:
    r"""Return whether a character belongs to words, as ``\w`` matches it. The empty string does not."""
    return character.isalnum() or character == "_"


class _CharacterSet:
    """The characters that a part of a pattern matches, as `re` does. It remembers its answers."""

    def __init__(self, source: str, flags: int) -> None:
        self._match = lru_cache(_MAX_CACHED_CHARACTERS)(compile_class(source, flags).fullmatch)

    def __contains__(self, character: str) -> bool:
        return self._match(character) is not None


class _Condition(Enum):
    """A condition on the position between two characters."""

    START = auto()
    END = auto()
    LINE_START = auto()
    LINE_END = auto()
    BOUNDARY = auto()
    NO_BOUNDARY = auto()
    ASCII_BOUNDARY = auto()
    NO_ASCII_BOUNDARY = auto()
    NO_WORD_BEFORE = auto()
    NO_WORD_AFTER = auto()

    def holds(self, before: str, after: str) -> bool:
        """Return whether the condition holds between two characters, which are empty at the ends of the text."""
        return _HOLDS[self](before, after)


def _is_boundary(before: str, after: str) -> bool:
    return is_word_character(before) != is_word_character(after)


def _is_ascii_boundary(before: str, after: str) -> bool:
    return _is_ascii_word_character(before) != _is_ascii_word_character(after)


def _is_ascii_word_character(character: str) -> bool:
    return character.isascii() and is_word_character(character)


_HOLDS: Mapping[_Condition, Callable[[str, str], bool]] = {
    _Condition.START: lambda before, _: not before,
    _Condition.END: lambda _, after: not after,
    _Condition.LINE_START: lambda before, _: before in ("", "\n"),
    _Condition.LINE_END: lambda _, after: after in ("", "\n"),
    _Condition.BOUNDARY: _is_boundary,
    _Condition.NO_BOUNDARY: lambda before, after: not _is_boundary(before, after),
    _Condition.ASCII_BOUNDARY: _is_ascii_boundary,
    _Condition.NO_ASCII_BOUNDARY: lambda before, after: not _is_ascii_boundary(before, after),
    _Condition.NO_WORD_BEFORE: lambda before, _: not is_word_character(before),
    _Condition.NO_WORD_AFTER: lambda _, after: not is_word_character(after),
}


def _always(_condition: _Condition) -> bool:
    return True


class _Fragment(NamedTuple):
    """The part of the automaton that matches a node, by the numbers of two of its states."""

    first: int
    last: int


@dataclass
class _State:
    """A state of the automaton."""

    # the characters that lead to `following`; None: `following` are reached without a character
    characters: _CharacterSet | None = None
    # a condition on the position, for a state without characters; None: no condition
    condition: _Condition | None = None
    following: list[int] = field(default_factory=list)  # the next states


# The live threads of a search: the number of each state that the search is in, with the earliest position at which
# a match in this state began. Only states that match a character, states with a condition, and the final state are
# listed. Never changed in place.
Threads = Mapping[int, int]

NO_THREADS: Threads = {}
_FINAL_STATE = 0


class LinearRegex:
    """A pattern as an automaton, which is shared by all texts. The state of a text is a value of `Threads`."""

    # Raises ``GrammarError`` for a pattern that is invalid, is not regular, is too large, or matches the empty
    # text. ``whole_words``: whether the characters before and after a match must not belong to words.

    def __init__(self, pattern: str, *, ignores_case: bool = False, whole_words: bool = False) -> None:
        from .regex_syntax import parse_regex  # noqa: PLC0415 - lark takes time, which runs without a regex save

        try:
            node = parse_regex(pattern, re.IGNORECASE if ignores_case else 0)
            final_state = _State()
            self._states = [final_state]
            fragment = self._add(node, flags=0)
        except RecursionError:
            raise GrammarError("the regex is nested too deeply") from None
        if whole_words:
            fragment = self._between_word_borders(fragment)
        self._link(fragment.last, _FINAL_STATE)
        self._first_state = fragment.first
        self._reachable_without_condition: dict[int, tuple[int, ...]] = {}
        if _FINAL_STATE in self._expand(self._first_state, _always):
            raise GrammarError(f"the regex {pattern!r} matches the empty text; let it match a character")
        self._may_begin_with = lru_cache(_MAX_CACHED_CHARACTERS)(self._can_begin_with)

    def step(self, threads: Threads, before: str, character: str, position: int, min_start: int) -> Threads:
        """Return the threads after one more character."""
        # ``before``: the character before; empty at the beginning of the text. Threads that began before
        # ``min_start`` are dropped.
        may_begin = self._may_begin_with(character)
        if not threads and not may_begin:
            return NO_THREADS
        followed_threads = list(threads.items())
        if may_begin:
            followed_threads.append((self._first_state, position))
        states = self._states
        stepped: dict[int, int] = {}
        for thread_state, start in followed_threads:
            if start < min_start:
                continue
            for state in self._expand_at(thread_state, before, character):
                characters = states[state].characters
                if characters is None or character not in characters:
                    continue
                for following in states[state].following:
                    for reached in self._expand_unconditionally(following):
                        if start < stepped.get(reached, position + 1):
                            stepped[reached] = start
        return stepped or NO_THREADS

    @staticmethod
    def match_start(threads: Threads) -> int | None:
        """Return the earliest start of a match that ends with the last character; None if there is none."""
        return threads.get(_FINAL_STATE)

    @staticmethod
    def live_starts(threads: Threads) -> set[int]:
        """Return the starts of matches that later characters may complete."""
        return {start for state, start in threads.items() if state != _FINAL_STATE}

    def late_match_start(self, threads: Threads, before: str, after: str) -> int | None:
        """Return the earliest start of a match that ends before ``after``, which decides a condition."""
        # ``before``: the last character; ``after``: the next one, empty at the end of the text
        starts = [
            start
            for state, start in threads.items()
            if self._states[state].condition is not None and _FINAL_STATE in self._expand_at(state, before, after)
        ]
        return min(starts, default=None)

    def _can_begin_with(self, character: str) -> bool:
        reached = self._expand(self._first_state, _always)
        sets = (self._states[state].characters for state in reached)
        return any(characters is not None and character in characters for characters in sets)

    def _expand_unconditionally(self, state: int) -> tuple[int, ...]:
        """Return the states that are reached without a character, up to states with a condition."""
        reached = self._reachable_without_condition.get(state)
        if reached is None:
            reached = tuple(self._expand(state, None))
            self._reachable_without_condition[state] = reached
        return reached

    def _expand_at(self, state: int, before: str, after: str) -> set[int] | tuple[int, ...]:
        """Return the states that are reached without a character, at a position between two characters."""
        if self._states[state].characters is not None or state == _FINAL_STATE:
            return (state,)
        return self._expand(state, lambda condition: condition.holds(before, after))

    def _expand(self, state: int, does_hold: Callable[[_Condition], bool] | None) -> set[int]:
        """Return the states that are reached without a character."""
        # ``does_hold``: tells whether a condition holds; None: the search ends at each state with a condition.
        reached: set[int] = set()
        pending = [state]
        seen = {state}
        while pending:
            number = pending.pop()
            current = self._states[number]
            if current.characters is not None or number == _FINAL_STATE:
                reached.add(number)
                continue
            if current.condition is not None:
                if does_hold is None:
                    reached.add(number)
                    continue
                if not does_hold(current.condition):
                    continue
            pending += (following for following in current.following if following not in seen)
            seen.update(current.following)
        return reached

    def _add_state(self, state: _State) -> int:
        if len(self._states) >= MAX_STATES:
            raise GrammarError(f"the regex needs more than {MAX_STATES:,} states; repeat fewer characters")
        self._states.append(state)
        return len(self._states) - 1

    def _link(self, source: int, target: int) -> None:
        self._states[source].following.append(target)

    def _add(self, node: Node, flags: int) -> _Fragment:
        """Add the states of a node."""
        match node:
            case CharacterClass():
                last = self._add_state(_State())
                first = self._add_state(_State(_character_set(node.source, flags), following=[last]))
                return _Fragment(first, last)
            case Position():
                state = self._add_state(_State(condition=_condition(node, flags)))
                return _Fragment(state, state)
            case Group():
                return self._add(node.node, (flags | node.added) & ~node.removed)
            case Alternatives():
                first = self._add_state(_State())
                last = self._add_state(_State())
                for alternative in node.nodes:
                    fragment = self._add(alternative, flags)
                    self._link(first, fragment.first)
                    self._link(fragment.last, last)
                return _Fragment(first, last)
            case Concatenation():
                return self._add_sequence(node.nodes, flags)
            case _:
                return self._add_repetition(node, flags)

    def _add_sequence(self, nodes: Sequence[Node], flags: int) -> _Fragment:
        first = self._add_state(_State())
        last = first
        for node in nodes:
            fragment = self._add(node, flags)
            self._link(last, fragment.first)
            last = fragment.last
        return _Fragment(first, last)

    def _add_repetition(self, node: Repetition, flags: int) -> _Fragment:
        """Add the states of a node that is repeated."""
        required = self._add_sequence([node.node] * min(node.min_count, MAX_STATES), flags)
        end = self._add_state(_State())
        if node.max_count is None:
            loop = self._add_state(_State(following=[end]))
            repeated = self._add(node.node, flags)
            self._link(loop, repeated.first)
            self._link(required.last, loop)
            self._link(repeated.last, loop)
            return _Fragment(required.first, end)
        last = required.last
        for _ in range(node.max_count - node.min_count):
            optional = self._add(node.node, flags)
            self._link(last, optional.first)
            self._link(last, end)
            last = optional.last
        self._link(last, end)
        return _Fragment(required.first, end)

    def _between_word_borders(self, fragment: _Fragment) -> _Fragment:
        """Require that the characters before and after a match do not belong to words."""
        before = self._add_state(_State(condition=_Condition.NO_WORD_BEFORE, following=[fragment.first]))
        after = self._add_state(_State(condition=_Condition.NO_WORD_AFTER))
        self._link(fragment.last, after)
        return _Fragment(before, after)


@lru_cache(maxsize=4096)
def _character_set(source: str, flags: int) -> _CharacterSet:
    return _CharacterSet(source, flags)


def _condition(position: Position, flags: int) -> _Condition:
    is_multiline, is_ascii = bool(flags & re.MULTILINE), bool(flags & re.ASCII)
    match position.sign:
        case "^":
            return _Condition.LINE_START if is_multiline else _Condition.START
        case "$":
            return _Condition.LINE_END if is_multiline else _Condition.END
        case "A":
            return _Condition.START
        case "Z":
            return _Condition.END
        case "b":
            return _Condition.ASCII_BOUNDARY if is_ascii else _Condition.BOUNDARY
        case _:
            return _Condition.NO_ASCII_BOUNDARY if is_ascii else _Condition.NO_BOUNDARY
