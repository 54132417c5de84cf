"""The first mismatch of a text with its grammar, and what is said of it."""

import pytest
from logitsmith.grammars import BYTE_VOCABULARY, compile_grammar, find_mismatch

from .vocabularies import SMALL

RECORD = 'root ::= "{" key ":" [0-9]+ "}"\nkey ::= "name" | "age"'
NUMBERS = '{"type": "array", "items": {"type": "integer"}}'

# Each row: kind, grammar, text, then line, column, the character, and what could have come.
LEAVES = {
    "the first character": ("gbnf", RECORD, "[", 1, 1, "[", "'{'"),
    "one of two": ("gbnf", RECORD, "{x", 1, 2, "x", "a or n"),
    "in a word": ("gbnf", RECORD, "{nome", 1, 3, "o", "'ame:'"),
    "a range": ("gbnf", RECORD, "{age:x", 1, 6, "x", "0-9"),
    "ranges and a sign": ("gbnf", RECORD, "{age:1x", 1, 7, "x", "'}' or 0-9"),
    "too early": ("gbnf", RECORD, "{age:1", 1, 7, None, "'}' or 0-9"),
    "nothing at all": ("gbnf", RECORD, "", 1, 1, None, "'{'"),
    "too long": ("gbnf", RECORD, "{age:1}\n", 1, 8, "\n", "the end of the text"),
    "another line": ("gbnf", 'root ::= ([ab]+ "\\n")+', "a\nb\nac\n", 3, 2, "c", "a newline or a-b"),
    "behind characters of many bytes": ("gbnf", "root ::= [é中😀]+ [0-9]", "é中😀x", 1, 4, "x", None),
    "a character that begins like another": ("gbnf", "root ::= [é]+ [0-9]", "éè", 1, 2, "è", None),
    "but a comma": ("gbnf", 'root ::= "a" [^,] "b"', "a,", 1, 2, ",", "any character except ','"),
    "but ASCII": (
        "gbnf",
        r"root ::= [\x20-\x7e]+ [é]?",
        "a\n",
        1,
        2,
        "\n",
        "the end of the text or any character",
    ),
    "ASCII only": ("gbnf", r"root ::= [\x20-\x2b\x2d-\x7e]+", "a,", 1, 2, ",", None),
    "a schema": (
        "json_schema",
        NUMBERS,
        "[1, x]",
        1,
        5,
        "x",
        "a tab, a newline, a carriage return, a space, '-' or 0-9",
    ),
    "a schema after spaces": ("json_schema", NUMBERS, " \n [1,\n x]\n", 3, 2, "x", None),
    "a schema too early": ("json_schema", NUMBERS, "[1,\n", 1, 4, None, None),
    "a regex": ("regex", "[0-9]{3}", "12", 1, 3, None, "0-9"),
    "half a pair": ("gbnf", "root ::= .+", "a\ud83d", 1, 2, "\ud83d", None),
}


@pytest.mark.parametrize("vocabulary", [BYTE_VOCABULARY, *SMALL.values()], ids=["bytes", *SMALL])
@pytest.mark.parametrize(
    ("kind", "source", "text", "line", "column", "character", "words"), LEAVES.values(), ids=LEAVES
)
def test_leaves(vocabulary, kind, source, text, line, column, character, words):
    grammar = compile_grammar(source, vocabulary, kind)
    assert not grammar.matches(text)
    found = find_mismatch(grammar, text)
    assert (found.line, found.column, found.character) == (line, column, character)
    assert text[found.offset : found.offset + 1] == (character or "") or character is None
    assert words is None or found.expected == words


STAYS = {
    "a sentence": ("gbnf", RECORD, "{age:10}"),
    "a schema": ("json_schema", NUMBERS, "[1,2,   3]"),
    "spaces around a schema's text": ("json_schema", NUMBERS, "\n [1]\t\r\n"),
    "a regex": ("regex", "[0-9]{3}", "123"),
    "Lark": ("lark", 'start: "a" "b"+', "abb"),
}


@pytest.mark.parametrize(("kind", "source", "text"), STAYS.values(), ids=STAYS)
def test_stays(kind, source, text):
    grammar = compile_grammar(source, None, kind)
    assert grammar.matches(text)
    assert grammar.matches(text.encode())
    assert find_mismatch(grammar, text) is None
