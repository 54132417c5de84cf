"""Splits a grammar into lexemes: the parts that the mask engine's lexer reads as regular expressions.

The lexer is greedy: it ends a lexeme only where none of the lexemes that it may be reading can go on, and it never
goes back. Larger lexemes make faster masks. But a lexeme may go on only where no other that begins at the same
place can have ended; otherwise a text of the grammar would be refused. A lexeme that breaks this is split, if need
be down to single characters, which cannot go on.
"""

from __future__ import annotations

from itertools import count

from ..errors import GrammarError
from .lexeme_conflicts import LexemeConflicts
from .lexeme_splitting import LexemeSplitter
from .nodes import AltNode, LexemeNode, Node, RefNode, RepeatNode, Rules, SeqNode, make_alt, walk
from .regularity import is_regular

MAX_NODES = 100_000
"""The largest grammar after splitting, in nodes; a lexeme counts as one."""


def split_into_lexemes(rules: Rules, regular: set[str], root: str) -> dict[str, Node]:
    """Return the rules that the parser needs, with lexemes in place of what is regular in them.

    These are the root, the rules that are not regular, and the regular rules that are too large for one lexeme.
    Raises ``GrammarError`` for more than ``MAX_NODES`` nodes.

    Args:
        rules: the bodies of the rules.
        regular: the names of the regular rules.
        root: the rule with which sentences begin.
    """
    parts = {name: _put_into_lexemes(rules[name], regular) for name in _irregular_rules(rules, regular, root)}
    if root in regular:
        return parts
    conflicts = LexemeConflicts(rules)
    numbers = count()
    while True:
        _refuse_too_many_nodes(parts)
        to_split = conflicts.too_large(parts)
        # A lexeme that is too large may name one rule many times. It stays one rule, or the grammar would explode.
        inline = not to_split
        to_split = to_split or conflicts.conflicting(parts, root)
        if not to_split:
            return parts
        splitter = LexemeSplitter(to_split, rules, inline, numbers)
        parts = {name: splitter.split(part) for name, part in parts.items()}
        parts |= {name: part for name, part in splitter.new_rules.items() if name not in parts}


def _refuse_too_many_nodes(parts: Rules) -> None:
    nodes = sum(1 for part in parts.values() for _ in walk(part))
    if nodes > MAX_NODES:
        raise GrammarError(f"the grammar is too large: {nodes:,} parts; at most {MAX_NODES:,} are taken")


def _irregular_rules(rules: Rules, regular: set[str], root: str) -> list[str]:
    """The root, and the rules that are not regular and that it leads to."""
    reached = {root: None}
    pending = [root]
    while pending:
        for node in walk(rules[pending.pop()]):
            if isinstance(node, RefNode) and node.name not in regular and node.name not in reached:
                reached[node.name] = None
                pending.append(node.name)
    return list(reached)


def _put_into_lexemes(node: Node, regular: set[str]) -> Node:
    """Put the largest regular parts of a node into lexemes."""
    if is_regular(node, regular):
        return LexemeNode(node)
    match node:
        case SeqNode(items):
            return SeqNode(tuple(_group_regular_items(items, regular)))
        case AltNode(options):
            regular_options = [option for option in options if is_regular(option, regular)]
            lexemes = [LexemeNode(make_alt(regular_options))] if regular_options else []
            others = [_put_into_lexemes(option, regular) for option in options if not is_regular(option, regular)]
            return AltNode((*lexemes, *others))
        case RepeatNode(item, least, most):
            return RepeatNode(_put_into_lexemes(item, regular), least, most)
        case _:
            return node


def _group_regular_items(items: tuple[Node, ...], regular: set[str]) -> list[Node]:
    """The items of a sequence, with each run of regular ones in one lexeme."""
    grouped: list[Node] = []
    run: list[Node] = []
    for item in (*items, None):
        if item is not None and is_regular(item, regular):
            run.append(item)
            continue
        if run:
            grouped.append(LexemeNode(SeqNode(tuple(run)) if len(run) > 1 else run[0]))
            run = []
        if item is not None:
            grouped.append(_put_into_lexemes(item, regular))
    return grouped
