"""Writes rules in llguidance's dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

from .nodes import (
    AltNode,
    CharsNode,
    CodePointRanges,
    LexemeNode,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    TokenNode,
    walk,
)

_EMPTY_TEXT = '""'
_NO_CHARACTER = "(/a/ & /b/)"


def write_lark(parts: Rules, rules: Rules, root: str, token_ids: Mapping[str, int], eog: Collection[int]) -> str:
    """Write a grammar.

    Args:
        parts: the rules that are not regular, with lexemes in them.
        rules: the rules that lexemes refer to; they become terminals.
        root: the rule with which sentences begin.
        token_ids: the ids of tokens, by their references.
        eog: the end-of-generation tokens, which no negated token matches.
    """
    lexemes: dict[str, str] = {}  # the name of each expression
    refs_in_lexemes: list[str] = []

    def write_leaf(node: Node) -> str:
        match node:
            case LexemeNode(inner):
                refs_in_lexemes.extend(ref.name for ref in walk(inner) if isinstance(ref, RefNode))
                return lexemes.setdefault(expression(inner), f"L{len(lexemes)}")
            case TokenNode(reference, negated):
                token = token_ids[reference]
                return f"<[^{','.join(map(str, sorted({token, *eog})))}]>" if negated else f"<[{token}]>"
            case RefNode(name):
                return _rule_name(name)
        raise TypeError(node)

    lines = [f"start: {_rule_name(root)}"]
    lines += [f"{_rule_name(name)}: {_write(part, write_leaf)}" for name, part in parts.items()]
    lines += [f"{lexeme}: {text}" for text, lexeme in lexemes.items()]
    for name in _reachable(refs_in_lexemes, rules):
        lines.append(f"{_terminal_name(name)}: {expression(rules[name])}")
    return "\n".join(lines) + "\n"


def expression(node: Node) -> str:
    """Write a regular node as the body of a terminal. Equal texts mean equal languages."""
    return _write(node, _write_terminal_leaf)


def _write_terminal_leaf(node: Node) -> str:
    match node:
        case TextNode(text):
            return json.dumps(text, ensure_ascii=False)
        case CharsNode(ranges):
            return _class(ranges)
        case RefNode(name):
            return _terminal_name(name)
    raise TypeError(node)


def _write(node: Node, write_leaf: Callable[[Node], str]) -> str:
    match node:
        case SeqNode(items):
            return " ".join(_write(item, write_leaf) for item in items) if items else _EMPTY_TEXT
        case AltNode(options):
            full = [option for option in options if not (isinstance(option, SeqNode) and not option.items)]
            text = " | ".join(_write(option, write_leaf) for option in full)
            return f"({text})" if len(full) == len(options) else f"({text})?" if full else _EMPTY_TEXT
        case RepeatNode(item, min_count, max_count):
            return f"({_write(item, write_leaf)}){_repetition_sign(min_count, max_count)}"
        case _:
            return write_leaf(node)


def _repetition_sign(min_count: int, max_count: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((min_count, max_count))
    return short or f"{{{min_count},{'' if max_count is None else max_count}}}"


def _class(ranges: CodePointRanges) -> str:
    """A character class. Other characters than ASCII letters and digits are written by number, without escapes."""
    if not ranges:
        return _NO_CHARACTER
    written = (f"{_code(low)}-{_code(high)}" if high > low else _code(low) for low, high in ranges)
    return f"/[{''.join(written)}]/"


def _code(code_point: int) -> str:
    character = chr(code_point)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code_point:X}}}"


def _rule_name(name: str) -> str:
    """A rule's name for Lark, where rules are in lower case: a capital becomes _a, a dash becomes __."""
    return "r" + "".join("__" if c == "-" else f"_{c.lower()}" if c.isupper() else c for c in name)


def _terminal_name(name: str) -> str:
    return _rule_name(name).upper()


def _reachable(names: list[str], rules: Rules) -> list[str]:
    """These rules and all rules that they refer to, each once."""
    reachable: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable[name] = None
            pending.extend(node.name for node in walk(rules[name]) if isinstance(node, RefNode))
    return list(reachable)
