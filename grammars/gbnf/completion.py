"""The shortest text that completes a sentence of GBNF."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from ..errors import GrammarError
from .grammar import GbnfGrammar
from .nodes import (
    AltNode,
    CharsNode,
    CodePointRanges,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    most_readable_character,
    ranges_with_prefix,
)
from .shortest_texts import ShortestTexts

# the nodes that must still be matched, as a linked list that begins with the next node
Stack = tuple[Node, "Stack"] | tuple[()]

# Maximum number of stacks after a character. With more stacks, the grammar counts as too ambiguous.
MAX_STACKS = 5_000


def shortest_suffix(grammar: GbnfGrammar, text: bytes) -> bytes:
    """Return the shortest text, in characters, that makes ``text`` a complete sentence of the grammar."""
    # The text is parsed with one stack for each possible parse, as llama.cpp does. Raises ``GrammarError`` if no
    # sentence begins with the text, if no such sentence ends, or if there are more than ``MAX_STACKS`` stacks.
    expander = _StackExpander(grammar.rules)
    characters = text.decode(errors="ignore")
    partial_character = text[len(characters.encode()) :]
    current_stacks = expander.expand([(grammar.rules[grammar.root], ())])
    for character in characters:
        code_point = ord(character)
        current_stacks = expander.expand(
            expander.after_character(stack) for stack in current_stacks if _can_match(stack, code_point)
        )
    shortest_texts = grammar.shortest_texts
    if not partial_character:
        return _shortest_text(current_stacks, shortest_texts).encode()
    # For each possible parse, the characters that begin with the partial character, and the stack after them
    characters_and_stacks: list[tuple[CodePointRanges, Stack]] = []
    for stack in current_stacks:
        if stack:
            ranges = ranges_with_prefix(_next_ranges(stack[0]), partial_character)
            if ranges:
                characters_and_stacks.append((ranges, expander.after_character(stack)))
    suffix = _shortest_text([stack for _, stack in characters_and_stacks], shortest_texts)
    ranges, _ = min(characters_and_stacks, key=lambda pair: _shortest_length(pair[1], shortest_texts))
    completed_character = most_readable_character(ranges).encode()
    return completed_character[len(partial_character) :] + suffix.encode()


class _StackExpander:
    """A creator of stacks, which also expands them."""

    # Equal stacks are one object, so that each stack is expanded only once.

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._stacks: dict[tuple[int, int], Stack] = {}
        self._nodes: dict[tuple[object, ...], Node] = {}

    def expand(self, stacks: Iterable[Stack]) -> list[Stack]:
        """Expand the top nodes of stacks until each stack is empty or begins with a literal or a class."""
        expanded_stacks: list[Stack] = []
        seen_ids: set[int] = set()
        pending_stacks = list(stacks)
        while pending_stacks:
            stack = pending_stacks.pop()
            if id(stack) in seen_ids:
                continue
            seen_ids.add(id(stack))
            if len(seen_ids) > MAX_STACKS:
                raise GrammarError("the grammar is too ambiguous to find the shortest completion")
            if not stack or isinstance(stack[0], (TextNode, CharsNode)):
                expanded_stacks.append(stack)
            else:
                pending_stacks.extend(self._expand_top(stack[0], stack[1]))
        return expanded_stacks

    def after_character(self, stack: Stack) -> Stack:
        if not stack:
            return ()
        top, below = stack
        if isinstance(top, TextNode) and len(top.text) > 1:
            return self._push_node(self._shared_node(TextNode, top.text[1:]), below)
        return below

    def _push_node(self, node: Node, below: Stack) -> Stack:
        return self._stacks.setdefault((id(node), id(below)), (node, below))

    def _shared_node(self, kind: Callable[..., Node], *parts: object) -> Node:
        """Return a node with these parts. Equal parts give the same object."""
        key = (kind, *(part if isinstance(part, (str, int)) else id(part) for part in parts))
        if key not in self._nodes:
            self._nodes[key] = kind(*parts)
        return self._nodes[key]

    def _expand_top(self, top: Node, below: Stack) -> list[Stack]:
        match top:
            case RefNode(name):
                return [self._push_node(self._rules[name], below)]
            case AltNode(options):
                return [self._push_node(option, below) for option in options]
            case SeqNode(items):
                for item in reversed(items):
                    below = self._push_node(item, below)
                return [below]
            case RepeatNode(item, min_count, max_count):
                stacks: list[Stack] = []
                if max_count != 0:
                    remaining_repetition: Node = top
                    if min_count or max_count:
                        remaining_min = max(min_count - 1, 0)
                        remaining_max = None if max_count is None else max_count - 1
                        remaining_repetition = self._shared_node(RepeatNode, item, remaining_min, remaining_max)
                    stacks.append(self._push_node(item, self._push_node(remaining_repetition, below)))
                if min_count == 0:
                    stacks.append(below)
                return stacks
            case _:
                raise GrammarError("a grammar with token references cannot be completed by text")


def _can_match(stack: Stack, code_point: int) -> bool:
    if not stack:
        return False
    return any(low <= code_point <= high for low, high in _next_ranges(stack[0]))


def _next_ranges(top: Node) -> CodePointRanges:
    """Return the characters that an expanded stack can match next, by its top node."""
    if isinstance(top, TextNode):
        return ((ord(top.text[0]), ord(top.text[0])),)
    return top.ranges if isinstance(top, CharsNode) else ()


def _shortest_length(stack: Stack, shortest_texts: ShortestTexts) -> float:
    """Return the length of the shortest text that matches the complete stack, characters."""
    length = 0.0
    while stack:
        length += shortest_texts.length(stack[0])
        stack = stack[1]
    return length


def _shortest_text(stacks: list[Stack], shortest_texts: ShortestTexts) -> str:
    """Return the shortest text that completely matches one of the stacks."""
    if not stacks:
        raise GrammarError("the text does not begin a sentence of the grammar")
    stack = min(stacks, key=lambda stack: _shortest_length(stack, shortest_texts))
    if _shortest_length(stack, shortest_texts) == inf:
        raise GrammarError("no sentence that begins like this ever ends")
    texts: list[str] = []
    while stack:
        texts.append(shortest_texts.text(stack[0]))
        stack = stack[1]
    return "".join(texts)
