"""A text as a literal of GBNF matches exactly this text."""

import pytest
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.gbnf.literals import literal

CODE_POINTS = [*range(0x81), 0x85, 0xA0, 0xAD, 0x301, 0x200D, 0x2028, 0x2029, 0x202E, 0xD7FF, 0xE000, 0xFEFF,
               0xFFFD, 0xFFFF, 0x10000, 0x1F44D, 0x10FFFF]  # fmt: skip


def test_every_character_is_written():
    text = "".join(map(chr, CODE_POINTS))
    grammar = compile_grammar(f"root ::= {literal(text)}")
    assert grammar.matches(text)
    assert not grammar.matches(text[1:])


def test_each_character_alone():
    for code_point in CODE_POINTS:
        grammar = compile_grammar(f"root ::= {literal(f'a{chr(code_point)}b')} | {literal('👍')}")
        assert grammar.matches(f"a{chr(code_point)}b"), hex(code_point)
        assert not grammar.matches("ab"), hex(code_point)


def test_a_literal_is_printable_text_of_one_line():
    assert literal("".join(map(chr, CODE_POINTS))).isprintable()


@pytest.mark.parametrize("choices", [[""], ["", "a"], ['"', "\\", "\\n", "[a]", "# no comment", "a | b"]])
def test_choices_are_exactly_the_texts(choices):
    grammar = compile_grammar(f"root ::= {' | '.join(map(literal, choices))}")
    assert all(map(grammar.matches, choices))
    assert not any(map(grammar.matches, ["b", "\n", "aa"]))


@pytest.mark.parametrize("text", [chr(0xD83D), chr(0xDC4D), f"a{chr(0xD83D)}b"])
def test_half_a_pair_is_refused(text):
    with pytest.raises(GrammarError, match=r"^\\ud[8c][34]d is half of a surrogate pair"):
        literal(text)
