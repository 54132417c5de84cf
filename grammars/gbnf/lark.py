"""The writer of rules in llguidance's dialect of Lark."""

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
    """Return a Lark grammar.

    Args:
        parts: bodies of the parser's rules, by name. Their regular parts are lexemes.
        rules: bodies of the rules that lexemes refer to, by name. They become terminals.
        root: the start rule.
        token_ids: ids of the referenced tokens, by reference.
        eog: ids of the end-of-generation tokens, which a negated token reference never matches.
    """
    lexeme_names: dict[str, str] = {}  # by expression
    rules_in_lexemes: list[str] = []

    def write_leaf(node: Node) -> str:
        match node:
            case LexemeNode(inner):
                rules_in_lexemes.extend(ref.name for ref in walk(inner) if isinstance(ref, RefNode))
                return lexeme_names.setdefault(expression(inner), f"L{len(lexeme_names)}")
            case TokenNode(reference, is_negated):
                token = token_ids[reference]
                return f"<[^{','.join(map(str, sorted({token, *eog})))}]>" if is_negated else f"<[{token}]>"
            case RefNode(name):
                return _rule_name(name)
        raise TypeError(node)

    lines = [f"start: {_rule_name(root)}"]
    lines += [f"{_rule_name(name)}: {_write(part, write_leaf)}" for name, part in parts.items()]
    lines += [f"{name}: {text}" for text, name in lexeme_names.items()]
    for name in _reachable(rules_in_lexemes, rules):
        lines.append(f"{_terminal_name(name)}: {expression(rules[name])}")
    return "\n".join(lines) + "\n"


def expression(node: Node) -> str:
    """Return a regular node as the body of a Lark terminal. Nodes with equal expressions match the same texts."""
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
            nonempty = [option for option in options if not (isinstance(option, SeqNode) and not option.items)]
            text = " | ".join(_write(option, write_leaf) for option in nonempty)
            return f"({text})" if len(nonempty) == len(options) else f"({text})?" if nonempty else _EMPTY_TEXT
        case RepeatNode(item, min_count, max_count):
            return f"({_write(item, write_leaf)}){_repetition_sign(min_count, max_count)}"
        case _:
            return write_leaf(node)


def _repetition_sign(min_count: int, max_count: int | None) -> str:
    short_sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((min_count, max_count))
    return short_sign or f"{{{min_count},{'' if max_count is None else max_count}}}"


def _class(ranges: CodePointRanges) -> str:
    """Return a character class of Lark. Characters except ASCII letters and digits are written by code point."""
    if not ranges:
        return _NO_CHARACTER
    written = (f"{_code(low)}-{_code(high)}" if high > low else _code(low) for low, high in ranges)
    return f"/[{''.join(written)}]/"


def _code(code_point: int) -> str:
    character = chr(code_point)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code_point:X}}}"


def _rule_name(name: str) -> str:
    """Return a rule's name for Lark, whose rules are in lower case: a capital A becomes _a, a dash becomes __."""
    return "r" + "".join("__" if c == "-" else f"_{c.lower()}" if c.isupper() else c for c in name)


def _terminal_name(name: str) -> str:
    return _rule_name(name).upper()


def _reachable(names: list[str], rules: Rules) -> list[str]:
    """Return the names of these rules and of all rules that they refer to, each once."""
    reachable: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable[name] = None
            pending.extend(node.name for node in walk(rules[name]) if isinstance(node, RefNode))
    return list(reachable)
