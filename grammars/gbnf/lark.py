"""Writes nodes in the Lark dialect of llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable

from .nodes import (
    AltNode,
    CharsNode,
    LexemeNode,
    Node,
    Ranges,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    TokenNode,
    walk,
)

_NOTHING = '""'
_NEVER = "(/a/ & /b/)"


def to_lark(parts: Rules, rules: Rules, root: str, ends: frozenset[int]) -> str:
    """Write a grammar.

    ``parts``: the rules that have lexemes for leaves; ``rules``: those that lexemes refer to, as terminals;
    ``ends``: tokens that a negated token does not stand for.
    """
    lexemes: dict[str, str] = {}
    used: list[str] = []

    def leaf(node: Node) -> str:
        match node:
            case LexemeNode(inner):
                used.extend(ref.name for ref in walk(inner) if isinstance(ref, RefNode))
                return lexemes.setdefault(expression(inner), f"L{len(lexemes)}")
            case TokenNode(id, negated):
                return f"<[^{','.join(map(str, sorted({id, *ends})))}]>" if negated else f"<[{id}]>"
            case RefNode(name):
                return _rule(name)
        raise TypeError(node)

    lines = [f"start: {_rule(root)}"]
    lines += [f"{_rule(name)}: {_written(part, leaf)}" for name, part in parts.items()]
    lines += [f"{lexeme}: {text}" for text, lexeme in lexemes.items()]
    for name in _reached(used, rules):
        lines.append(f"{_terminal(name)}: {expression(rules[name])}")
    return "\n".join(lines) + "\n"


def expression(node: Node) -> str:
    """A regular node as the body of a terminal. Equal texts are equal languages."""
    return _written(node, _terminal_leaf)


def _terminal_leaf(node: Node) -> str:
    match node:
        case TextNode(text):
            return json.dumps(text, ensure_ascii=False)
        case CharsNode(ranges):
            return _class(ranges)
        case RefNode(name):
            return _terminal(name)
    raise TypeError(node)


def _written(node: Node, leaf: Callable[[Node], str]) -> str:
    match node:
        case SeqNode(items):
            return " ".join(_written(item, leaf) for item in items) if items else _NOTHING
        case AltNode(options):
            full = [option for option in options if not (isinstance(option, SeqNode) and not option.items)]
            text = " | ".join(_written(option, leaf) for option in full)
            return f"({text})" if len(full) == len(options) else f"({text})?" if full else _NOTHING
        case RepeatNode(item, least, most):
            return f"({_written(item, leaf)}){_count(least, most)}"
        case _:
            return leaf(node)


def _count(least: int, most: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    return simple or f"{{{least},{'' if most is None else most}}}"


def _class(ranges: Ranges) -> str:
    """A character class; characters by number, so that none needs an escape."""
    if not ranges:
        return _NEVER
    return (
        "/[" + "".join(f"{_code(low)}-{_code(high)}" if high > low else _code(low) for low, high in ranges) + "]/"
    )


def _code(number: int) -> str:
    return chr(number) if chr(number).isascii() and chr(number).isalnum() else f"\\x{{{number:X}}}"


def _rule(name: str) -> str:
    """A rule's name in lower case: a capital is _a, a dash is __."""
    return "r" + "".join("__" if c == "-" else f"_{c.lower()}" if c.isupper() else c for c in name)


def _terminal(name: str) -> str:
    return _rule(name).upper()


def _reached(names: list[str], rules: Rules) -> list[str]:
    """These rules and those that they refer to, each once."""
    found: dict[str, None] = {}
    todo = names
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = None
            todo.extend(node.name for node in walk(rules[name]) if isinstance(node, RefNode))
    return list(found)
