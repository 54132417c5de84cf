"""A greedy lexer reads as much as it can: a cut in the wrong place would lose texts of the grammar."""

import itertools

import pytest
from hypothesis import example, given, strategies as st
from logitsmith.grammars import compile_grammar

from .drawn import ALPHABET, gbnf, grammars, whole

# What is not regular keeps the rest from being one lexeme: around it, or between its parts, where it may be empty.
NESTED = 'root ::= "(" root ")" | x\nn ::= | "<" n ">"\n'

# Each row: the grammar, texts that it takes, texts that it refuses.
CUTS = {
    "a letter after letters": (
        NESTED + 'x ::= [a-z]+ n "b"',
        ["ab", "bb", "abcb", "(abb)", "a<>b"],
        ["b", "abc", "a"],
    ),
    "words that begin alike": (
        NESTED + 'x ::= ("a" | "ab") n ("bc" | "c" | "cd")',
        ["abc", "ac", "acd", "abbc", "abcd"],
        ["ab", "abbcd", "a"],
    ),
    "words that begin alike, recursion": (
        'root ::= x\nx ::= "a" x "." | "a" | "ab"',
        ["a", "ab", "aab."],
        ["b", "aba"],
    ),
    "a tail that begins alike": (
        'root ::= x\nx ::= "a" x | "a" | "ab"',
        ["a", "aa", "ab", "aab"],
        ["", "b", "aba"],
    ),
    "a keyword before a name": (
        NESTED + 'x ::= "let" n name | name n "!"\nname ::= [a-z]+',
        ["leta", "let!", "letter", "letter!", "lets", "le!"],
        ["let", "le", "!"],
    ),
    "a keyword and a space": (
        NESTED + 'x ::= ("if" n " " name) | name n\nname ::= [a-z]+',
        ["if a", "if", "iffy", "if if"],
        ["if ", "iff a", "a a"],
    ),
    "a name before a keyword": (
        NESTED + 'x ::= name n "end"\nname ::= [a-z]+',
        ["aend", "endend", "enden" + "dend"],
        ["end", "aen"],
    ),
    "names and numbers": (
        'root ::= "[" root "]" | [a-z]+ [0-9]+ root?',
        ["a1", "ab12", "a1b2", "[a1]", "a1[b2]"],
        ["a", "1a", "a1b"],
    ),
    "a comment that ends with two signs": (
        NESTED + 'x ::= "/*" ([^*] | "*" [^/])* n "*/"',
        ["/**/", "/*a*/", "/* * */", "/*/*/"],
        ["/*", "/*/", "/*a*/b*"],
    ),
    "a literal that continues in another": (
        NESTED + 'x ::= "a" | "ab" | "abc" | x1\nx1 ::= "abc" n "d" x2\nx2 ::= "e"?',
        ["a", "ab", "abc", "abcd", "abcde"],
        ["abcdee", "b"],
    ),
    "the longer one fails late": (
        NESTED + 'x ::= "ab" n y | "abab" n "c"\ny ::= "abd" | "a" n "b"',
        ["abab", "ababd", "ababc"],
        ["ab", "aba", "ababcd"],
    ),
    "characters of the same first byte": (NESTED + 'x ::= "é"+ n "è"', ["éè", "éééè", "(éè)"], ["è", "é", "éèè"]),
    "a class over characters of the same first byte": (
        NESTED + 'x ::= [é]* n [è]+ n "é"',
        ["èé", "éèé", "ééèèé"],
        ["é", "éè", "èèéé"],
    ),
    "negated characters of the same first byte": (
        NESTED + 'x ::= [^é()]* n "é" n "è"',
        ["éè", "èèéè", "aêéè"],
        ["é", "ééè", "è"],
    ),
    "negated classes side by side": (
        NESTED + 'x ::= [^a()] n [^b()]* n "b"',
        ["bb", "xab", "éaaéb"],
        ["ab", "b", "abb"],
    ),
    "a dot before a letter": (
        NESTED + 'x ::= "{" .* n "}"',
        ["{}", "{a}", "{}}", "({)})", "{<>}"],
        ["{", "{})", ""],
    ),
    "numbers and points": (
        'root ::= n ".." n | n | "(" root ")"\nn ::= [0-9]+ ("." [0-9]+)?',
        ["1", "1.5", "1..2", "1.5..2.5", "(1..2)"],
        ["1.", "1...2", "1..2..3"],
    ),
    "parts that may be empty": (
        'root ::= "(" root ")" | a n b n c\na ::= "a"*\nb ::= "ab"?\nc ::= "b"*\nn ::= | "<" n ">"',
        ["", "a", "ab", "aabb", "aab", "b", "()", "(abb)"],
        ["ba", "aba", "abab"],
    ),
    "empty lists in lists": (
        'root ::= (("a"* "b")* root2?)*\nroot2 ::= "[" root "]"',
        ["", "b", "aab", "[]", "ab[b]b", "[][[]]"],
        ["a", "aba", "[a]", "["],
    ),
    "repeats in repeats": (
        NESTED + 'x ::= ((("a"?)+ n "b"*){1,2} n "c"?){2}',
        ["", "c", "cc", "abacab"],
        ["ccc", "d"],
    ),
    "counts": (NESTED + 'x ::= "a"{2,3} n "a"{1,2} n "b"', ["aaab", "aaaaab", "(aaaab)"], ["aab", "aaaaaab"]),
    "counts of rules": (
        NESTED + 'x ::= y{2,3} n "a"\ny ::= "a" | "aa"',
        ["aaa", "aaaaaaa", "aaaa"],
        ["aa", "a" * 8],
    ),
    "a tail": ('root ::= "a" root | "b"', ["b", "ab", "aaab"], ["", "a", "ba"]),
    "a tail that may be missing": ("root ::= [ab] root?", ["a", "b", "abba"], ["", "c"]),
    "a tail that may be missing, twice": (
        'root ::= "a" ("b" root?)?',
        ["a", "ab", "aba", "abab"],
        ["", "b", "aa"],
    ),
    "a tail in a group": ('root ::= "a" ("," root | ";")', ["a;", "a,a;"], ["a", "a,", "a;a;"]),
    "a tail with two ways": ('root ::= "a" root | "b" root | "c"', ["c", "abac"], ["ab", "ca"]),
    "a tail behind nothing": ('root ::= e "a" root | "b"\ne ::= "e"?', ["b", "ab", "eaab"], ["eb", "e"]),
    "tails that continue in each other": (
        'root ::= "a" x | "."\nx ::= "b" root | "!"',
        [".", "a!", "ab.", "abab."],
        ["a", "a.", "b", "ab!"],
    ),
    "recursion in the middle": ('root ::= "a" root "b" | ""', ["", "ab", "aaabbb"], ["a", "aab", "abab"]),
    "recursion in the middle, unclear where": (
        "root ::= [ab] root [ab] | [ab]",
        ["a", "aba", "bbbbb"],
        ["", "ab", "abab"],
    ),
    "a palindrome": (
        'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',
        ["", "a", "abba", "ababa", "bbbb"],
        ["ab", "aab"],
    ),
    "two counts that are equal": (
        'root ::= x y\nx ::= "a" x "b" | ""\ny ::= "b"* "c"',
        ["c", "bc", "abc", "abbc", "aabbbc"],
        ["aabc", "ac", ""],
    ),
    "ambiguous": ('root ::= "a" root root | "a"', ["a", "aaa", "aaaaa"], ["", "aa", "aaaa"]),
    "a lexeme of thousands of characters": (
        NESTED + f'x ::= "{"ab" * 2000}" y\ny ::= "a"?',
        ["ab" * 2000, "ab" * 2000 + "a", "(" + "ab" * 2000 + ")"],
        ["ab" * 1999 + "a", "ab" * 2001],
    ),
    "thousands of words": (
        NESTED + "x ::= " + " | ".join(f'"w{n}"' for n in range(3000)) + "\n",
        ["w0", "w2999", "(w30)"],
        ["w3000", "w", "w00"],
    ),
    "rules that double": (
        NESTED + "x ::= r1 r1\n" + "".join(f"r{n} ::= r{n + 1} r{n + 1}\n" for n in range(1, 12)) + 'r12 ::= "a"',
        ["a" * 4096, "(" + "a" * 4096 + ")"],
        ["a" * 4095, "a" * 4097, ""],
    ),
    "rules that double, and more may come": (
        NESTED
        + "x ::= r1 r1\n"
        + "".join(f"r{n} ::= r{n + 1} r{n + 1}\n" for n in range(1, 7))
        + 'r7 ::= "a" "b"?',
        ["a" * 128, "ab" * 128, "aab" * 64],
        ["a" * 127, "ab" * 129, "abb" * 128],
    ),
    "rules in rules in rules, in each other's way": (
        NESTED
        + 'x ::= r0 "a"\n'
        + "".join(f'r{n} ::= "a" ((r{n + 1} "b")* | ("b" "a"?)+)?\n' for n in range(20))
        + 'r20 ::= "a"+',
        ["aa", "aba", "aaba", "abaa", "aaabba"],
        ["a", "ba", "ab", "aab"],
    ),
}


@pytest.mark.parametrize(("source", "taken", "refused"), CUTS.values(), ids=CUTS)
def test_cuts(source, taken, refused):
    grammar = compile_grammar(source)
    for text in taken:
        assert grammar.matches(text), text
    for text in refused:
        assert not grammar.matches(text), text


SHORT = ["".join(text) for length in range(4) for text in itertools.product(ALPHABET, repeat=length)]

TEXTS = st.lists(st.text(ALPHABET, min_size=4, max_size=8), max_size=20)


def equals_brute_force(rules, texts):
    grammar = compile_grammar(gbnf(rules))
    for text in [*SHORT, *texts]:
        assert grammar.matches(text) == whole(rules, text), text


# root ::= x "b", x ::= ("a" | "ab" | "é" x "è")*
AB = ("alt", (("text", "a"), ("text", "ab"), ("seq", (("text", "é"), ("ref", "x"), ("text", "è")))))
BEGIN_ALIKE = {
    "root": ("seq", (("ref", "x"), ("text", "b"))),
    "x": ("repeat", AB, 0, None),
    "y": ("text", "a"),
}


@given(grammars(), TEXTS)
@example(BEGIN_ALIKE, ["ababb", "éabèbb", "ééaèèb", "aaab", "abab"])
def test_brute_force(rules, texts):
    equals_brute_force(rules, texts)


@given(grammars(rich=True), TEXTS)
def test_brute_force_with_classes(rules, texts):
    equals_brute_force(rules, texts)


def test_the_brute_force_itself():
    assert whole(BEGIN_ALIKE, "ababb")
    assert whole(BEGIN_ALIKE, "éabèb")
    assert not whole(BEGIN_ALIKE, "aba")
    assert not whole(BEGIN_ALIKE, "éab")
