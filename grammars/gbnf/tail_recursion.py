"""Rules that recur at their end, written as repetitions."""

from __future__ import annotations

from typing import NamedTuple

from .nodes import EMPTY, AltNode, Node, RefNode, RepeatNode, Rules, SeqNode, make_alt, make_repeat, make_seq


def without_tail_recursion(rules: Rules) -> dict[str, Node]:
    """Write ``x ::= a x | b`` as ``x ::= a* b``, which is the same language, and regular where a and b are.

    Without left recursion, a grammar has to write its lists with recursion at the end. An Earley parser pays for
    each turn of them that is still open, but not for a repetition.
    """
    return {name: _as_repetition(name, body) for name, body in rules.items()}


class _Split(NamedTuple):
    """A rule's body in two parts.

    ``turns``: what stands before each recursion at its end; ``ending``: the options without one, None if there
    are none.
    """

    turns: list[Node]
    ending: Node | None


def _as_repetition(name: str, body: Node) -> Node:
    turns, ending = _split(name, body)
    if not turns or ending is None:
        return body
    return make_seq([make_repeat(make_alt(turns), 0, None), ending])


def _split(name: str, node: Node) -> _Split:
    """Split a body, or the end of a body, of the rule ``name``."""
    match node:
        case RefNode(other) if other == name:
            return _Split([EMPTY], None)
        case SeqNode((*before, last)):
            turns, ending = _split(name, last)
            return _Split(
                [make_seq([*before, turn]) for turn in turns],
                None if ending is None else make_seq([*before, ending]),
            )
        case AltNode(options):
            splits = [_split(name, option) for option in options]
            endings = [split.ending for split in splits if split.ending is not None]
            turns = [turn for split in splits for turn in split.turns]
            return _Split(turns, make_alt(endings) if endings else None)
        case RepeatNode(item, 0, 1):
            turns, ending = _split(name, item)
            if not turns:
                return _Split([], node)
            return _Split(turns, make_alt([EMPTY if ending is None else ending, EMPTY]))
        case _:
            return _Split([], node)
