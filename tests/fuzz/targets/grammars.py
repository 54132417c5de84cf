"""Grammars of all kinds. After a line of three equals signs stands a text, which is followed and closed."""

from __future__ import annotations

from logitsmith.grammars import GrammarError, compile_grammar

from ...grammars.test_completion import CLOSED
from ..target import Target
from .files import contents

_TEXT = b"\n===\n"
_MAX_FOLLOWED = 60
_MOST_SEED_BYTES = 900
"""A large grammar takes so long that few of its changes would be tried."""


def _reader(kind: str):
    def read(data: bytes) -> None:
        source, _, text = data.partition(_TEXT)
        grammar = compile_grammar(source.decode(errors="replace"), kind=kind)
        grammar.matches(text.decode(errors="replace"))
        state = grammar.start()
        for byte in text[:_MAX_FOLLOWED]:
            if not state.mask()[byte]:
                break
            state.accept(byte)
        state.forced_tokens()
        state.completion_tokens()

    return read


def _seeds(kind: str) -> list[bytes]:
    def data(text: str | bytes) -> bytes:
        return text if isinstance(text, bytes) else text.encode()

    return [data(source) + _TEXT + data(text) for its, source, text, _ in CLOSED.values() if its == kind]


SCHEMA_KEYWORDS = """type properties items required enum const anyOf allOf oneOf $ref $defs pattern format minItems
    maxItems minLength maxLength minimum exclusiveMaximum multipleOf additionalProperties prefixItems x-guidance"""
SCHEMA_VALUES = "object array string integer number boolean null #/$defs/a date-time uuid"
SCHEMA_WORDS = [f'"{word}"' for word in (SCHEMA_KEYWORDS + SCHEMA_VALUES).split()]
LARK_WORDS = (
    "start:",
    "/.*/",
    "[lazy]",
    '[stop="a"]',
    "%ignore",
    "%json {}",
    "%regex {}",
    "|",
    "~2..5",
    "*",
    "+",
    "?",
    "(",
    ")",
    "->",
    "<[1]>",
    "@a",
    "NAME:",
)
GBNF_WORDS = (
    "root ::= ",
    "::=",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{2,5}",
    "{,3}",
    "{99999}",
    "[a-z]",
    "[^\\n]",
    "\\x41",
    "\\u00e9",
    '"a"',
    "<[1]>",
    "!<[2]>",
    "#",
    ".",
    "root",
)
REGEX_WORDS = (
    "(",
    ")",
    "(?:",
    "(?i)",
    "[a-z]",
    "[^a]",
    "\\w",
    "\\p{L}",
    "\\d",
    "\\b",
    "{2,5}",
    "{99999}",
    "*",
    "+",
    "?",
    ".",
    "|",
    "&",
    "~",
    "^",
    "$",
    "\\",
    "(?=",
    "(?!",
    "/",
)

_SCHEMA_FILES = [*contents("examples/**/*.json", "tests/recorded/inputs/person.json")]

TARGETS = (
    Target(
        "gbnf",
        _reader("gbnf"),
        (GrammarError,),
        [
            *_seeds("gbnf"),
            *[data + _TEXT for data in contents("grammars/library/*.gbnf") if len(data) < _MOST_SEED_BYTES],
        ],
        [word.encode() for word in GBNF_WORDS],
    ),
    Target(
        "json schemas",
        _reader("json_schema"),
        (GrammarError,),
        [*_seeds("json_schema"), *_SCHEMA_FILES],
        [word.encode() for word in SCHEMA_WORDS],
    ),
    Target(
        "regex",
        _reader("regex"),
        (GrammarError,),
        [*_seeds("regex"), b"(a|b)*c{2,3}"],
        [w.encode() for w in REGEX_WORDS],
    ),
    Target(
        "lark",
        _reader("lark"),
        (GrammarError,),
        [
            *_seeds("lark"),
            *contents("tests/recorded/inputs/*.lark", "examples/**/*.lark"),
        ],
        [word.encode() for word in LARK_WORDS],
    ),
)
