"""The writer of rules in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
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
NO_TEXT = "(/a/ & /b/)"  # an expression that no text matches


def write_lark(
    parser_rules: Rules, rules: Rules, root: str, token_ids: Mapping[str, int], eog_tokens: Collection[int]
) -> str:
    """Return a Lark grammar."""
    # In ``parser_rules``, regular parts are lexemes. The ``rules`` that lexemes refer to become terminals.
    # A negated token reference never matches ``eog_tokens``.
    lexeme_names: dict[str, str] = {}  # by expression
    rules_in_lexemes: list[str] = []

    def write_leaf(node: Node) -> str:
        match node:
            case LexemeNode(inner):
                rules_in_lexemes.extend(ref.name for ref in walk(inner) if isinstance(ref, RefNode))
                return lexeme_names.setdefault(expression(inner), f"L{len(lexeme_names)}")
            case TokenNode(reference, is_negated):
                token = token_ids[reference]
                if not is_negated:
                    return f"<[{token}]>"
                excluded_tokens = sorted({token, *eog_tokens})
                return f"<[^{','.join(map(str, excluded_tokens))}]>"
            case RefNode(name):
                return _rule_name(name)
        raise TypeError(node)

    lark_lines = [f"start: {_rule_name(root)}"]
    lark_lines += [f"{_rule_name(name)}: {_write_node(body, write_leaf)}" for name, body in parser_rules.items()]
    lark_lines += [f"{name}: {text}" for text, name in lexeme_names.items()]
    for name in _reachable_names(rules_in_lexemes, rules):
        lark_lines.append(f"{_terminal_name(name)}: {expression(rules[name])}")
    return "\n".join(lark_lines) + "\n"


def expression(node: Node) -> str:
    """Return a regular node as the body of a Lark terminal. Nodes with equal expressions match the same texts."""
    return _write_node(node, _write_terminal_leaf)


def _write_terminal_leaf(node: Node) -> str:
    match node:
        case TextNode(text):
            return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which Lark does not allow
        case CharsNode(ranges):
            return _character_class(ranges)
        case RefNode(name):
            return _terminal_name(name)
    raise TypeError(node)


def _write_node(node: Node, write_leaf: Callable[[Node], str]) -> str:
    match node:
        case SeqNode(items):
            return " ".join(_write_node(item, write_leaf) for item in items) if items else _EMPTY_TEXT
        case AltNode(options):
            nonempty_options = [option for option in options if not _is_empty(option)]
            if options and not nonempty_options:
                return _EMPTY_TEXT
            text = " | ".join(_write_node(option, write_leaf) for option in nonempty_options)
            has_empty_option = len(nonempty_options) < len(options)
            return f"({text})?" if has_empty_option else f"({text})"
        case RepeatNode(item, min_count, max_count):
            return f"({_write_node(item, write_leaf)}){_repetition_sign(min_count, max_count)}"
        case _:
            return write_leaf(node)


def _is_empty(node: Node) -> bool:
    return isinstance(node, SeqNode) and not node.items


def _repetition_sign(min_count: int, max_count: int | None) -> str:
    short_sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((min_count, max_count))
    max_text = "" if max_count is None else str(max_count)
    return short_sign or f"{{{min_count},{max_text}}}"


def _character_class(ranges: CodePointRanges) -> str:
    """Return a character class of Lark. Characters except ASCII letters and digits are written by code point."""
    if not ranges:
        return NO_TEXT
    written_ranges: list[str] = []
    for low, high in ranges:
        written_range = _escape_code_point(low)
        if high > low:
            written_range += f"-{_escape_code_point(high)}"
        written_ranges.append(written_range)
    return f"/[{''.join(written_ranges)}]/"


def _escape_code_point(code_point: int) -> str:
    character = chr(code_point)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code_point:X}}}"


def _rule_name(name: str) -> str:
    """Return a rule's name for Lark, whose rules are in lower case: a capital A becomes _a, a dash becomes __."""
    name_without_dashes = name.replace("-", "__")
    return "r" + re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name_without_dashes)


def _terminal_name(name: str) -> str:
    return _rule_name(name).upper()


def _reachable_names(names: list[str], rules: Rules) -> list[str]:
    """Return the names of these rules and of all rules that they refer to, each once."""
    reachable_names: dict[str, None] = {}
    pending_names = list(names)
    while pending_names:
        name = pending_names.pop()
        if name not in reachable_names:
            reachable_names[name] = None
            pending_names.extend(node.name for node in walk(rules[name]) if isinstance(node, RefNode))
    return list(reachable_names)
