"""The shortest way to the end of a sentence that was broken off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from ..errors import GrammarError
from .nodes import AltNode, CharsNode, Node, Ranges, RefNode, RepeatNode, Rules, SeqNode, TextNode
from .shortest_texts import ShortestTexts, plainest

Stack = tuple[Node, "Stack"] | tuple[()]
"""What is still to come, the next first."""

MAX_STACKS = 5_000


def shortest_suffix(rules: Rules, root: str, text: bytes) -> bytes:
    """Return the shortest text, in characters, that makes ``text`` a sentence of the grammar.

    Follows the text with a stack for each way to read it, as llama.cpp does. Raises ``GrammarError`` where the
    text is no beginning of a sentence, no sentence ever ends, or there are more than ``MAX_STACKS`` ways.
    """
    sizes = ShortestTexts(rules)
    reading = _Reading(rules)
    whole = text.decode(errors="ignore")
    partial = text[len(whole.encode()) :]
    stacks = reading.opened([(rules[root], ())])
    for character in whole:
        code = ord(character)
        stacks = reading.opened(reading.after(stack) for stack in stacks if _reads(stack, code))
    if not partial:
        return _cheapest(stacks, sizes).encode()
    ways = [(reading.after(stack), _beginning(_ranges(stack[0]), partial)) for stack in stacks if stack]
    ways = [(stack, fitting) for stack, fitting in ways if fitting]
    rest = _cheapest([stack for stack, _ in ways], sizes)
    _, fitting = min(ways, key=lambda way: _cost(way[0], sizes))
    return plainest(fitting).encode()[len(partial) :] + rest.encode()


class _Reading:
    """Moves stacks on. Equal stacks are one object, so that each is opened once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._stacks: dict[tuple[int, int], Stack] = {}
        self._nodes: dict[tuple[object, ...], Node] = {}

    def opened(self, stacks: Iterable[Stack]) -> list[Stack]:
        """Open what is on top until it reads a character, or nothing is left."""
        found: list[Stack] = []
        seen: set[int] = set()
        todo = list(stacks)
        while todo:
            stack = todo.pop()
            if id(stack) in seen:
                continue
            seen.add(id(stack))
            if len(seen) > MAX_STACKS:
                raise GrammarError("the grammar is too ambiguous to find the shortest way to its end")
            if not stack or isinstance(stack[0], (TextNode, CharsNode)):
                found.append(stack)
            else:
                todo.extend(self._open(stack[0], stack[1]))
        return found

    def after(self, stack: Stack) -> Stack:
        """The stack once its top has read a character."""
        if not stack:
            return ()
        top, below = stack
        if isinstance(top, TextNode) and len(top.text) > 1:
            return self._push(self._node(TextNode, top.text[1:]), below)
        return below

    def _push(self, node: Node, below: Stack) -> Stack:
        return self._stacks.setdefault((id(node), id(below)), (node, below))

    def _node(self, kind: Callable[..., Node], *parts: object) -> Node:
        key = (kind, *(part if isinstance(part, (str, int)) else id(part) for part in parts))
        if key not in self._nodes:
            self._nodes[key] = kind(*parts)
        return self._nodes[key]

    def _open(self, top: Node, below: Stack) -> list[Stack]:
        match top:
            case RefNode(name):
                return [self._push(self._rules[name], below)]
            case AltNode(options):
                return [self._push(option, below) for option in options]
            case SeqNode(items):
                for item in reversed(items):
                    below = self._push(item, below)
                return [below]
            case RepeatNode(item, least, most):
                left = None if most is None else most - 1
                once_more = self._node(RepeatNode, item, max(least - 1, 0), left) if (least or most) else top
                ways = [] if most == 0 else [self._push(item, self._push(once_more, below))]
                return ways if least else [*ways, below]
            case _:
                raise GrammarError("a grammar that names tokens cannot be closed by text")


def _reads(stack: Stack, code: int) -> bool:
    if not stack:
        return False
    top = stack[0]
    return any(low <= code <= high for low, high in _ranges(top))


def _ranges(top: Node) -> Ranges:
    if isinstance(top, TextNode):
        return ((ord(top.text[0]), ord(top.text[0])),)
    return top.ranges if isinstance(top, CharsNode) else ()


def _cost(stack: Stack, sizes: ShortestTexts) -> float:
    cost = 0.0
    while stack:
        cost += sizes.of(stack[0])
        stack = stack[1]
    return cost


def _cheapest(stacks: list[Stack], sizes: ShortestTexts) -> str:
    if not stacks:
        raise GrammarError("the text does not begin a sentence of the grammar")
    stack = min(stacks, key=lambda stack: _cost(stack, sizes))
    if _cost(stack, sizes) == inf:
        raise GrammarError("no sentence that begins like this ever ends")
    done: list[str] = []
    while stack:
        done.append(sizes.text(stack[0]))
        stack = stack[1]
    return "".join(done)


def _beginning(ranges: Ranges, partial: bytes) -> Ranges:
    """Those of the characters whose bytes begin with these."""
    length = 2 if partial[0] < 0xE0 else 3 if partial[0] < 0xF0 else 4
    missing = length - len(partial)
    value = partial[0] & (0xFF >> length + 1)
    for byte in partial[1:]:
        value = value << 6 | byte & 0x3F
    first, last = value << 6 * missing, (value + 1 << 6 * missing) - 1
    floor = {2: 0x80, 3: 0x800, 4: 0x10000}[length]
    first = max(first, floor)
    return tuple((max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first)
