import pytest
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.gbnf.grammar import parse_gbnf
from logitsmith.grammars.gbnf.parser import MAX_DEPTH, MAX_RANGES
from logitsmith.grammars.gbnf.rules import MAX_CHAIN

from .vocabularies import SMALL

# Each row: the grammar, texts that it takes, texts that it refuses.
READS = {
    "a literal": ('root ::= "abc"', ["abc"], ["", "ab", "abcd", "ABC"]),
    "an empty literal": ('root ::= ""', [""], ["a", '""']),
    "an empty literal between": ('root ::= "a" "" "b"', ["ab"], ["a", "b"]),
    "literals side by side": ('root ::= "a""b"', ["ab"], ["a"]),
    "\\t \\r \\n": (r'root ::= "\t\r\n"', ["\t\r\n"], [r"\t\r\n", "\t\n"]),
    "an escaped backslash": (r'root ::= "\\n"', [r"\n"], ["\n"]),
    "escaped quotes": (r'root ::= "\"\""', ['""'], ['\\"\\"']),
    "escaped brackets": (r'root ::= "\[\]\-"', ["[]-"], [r"\[\]\-"]),
    "\\x": (r'root ::= "\x41\x6a\x6A"', ["Ajj"], ["AJj"]),
    "\\x beyond ASCII is a character": (r'root ::= "\xe9"', ["é"], [b"\xe9"]),
    "\\x takes two digits": (r'root ::= "\x412"', ["A2"], []),
    "\\u": (r'root ::= "\u00e9\u4E2d"', ["é中"], ["é"]),
    "\\U": (r'root ::= "\U0001F600\U0010ffff"', ["😀\U0010ffff"], ["😀"]),
    "\\x00": (r'root ::= "a\x00b"', ["a\0b"], ["ab", "a"]),
    "characters as they are": ('root ::= "é中😀\t#|()"', ["é中😀\t#|()"], ["é"]),
    "a line break in a literal": ('root ::= "a\nb"', ["a\nb"], ["ab"]),
    "a class": ("root ::= [abc]", ["a", "c"], ["", "d", "ab"]),
    "a range": ("root ::= [a-cx-z]", ["b", "y"], ["d", "-", "w"]),
    "a range of one": ("root ::= [b-b]", ["b"], ["a", "c"]),
    "a range over several lengths in UTF-8": ("root ::= [z-😀]", ["z", "é", "中", "😀"], ["y", "😁"]),
    "a dash first": ("root ::= [-a]", ["-", "a"], ["b"]),
    "a dash last": ("root ::= [a-]", ["a", "-"], ["b", "]"]),
    "an escaped dash": (r"root ::= [a\-z]", ["a", "-", "z"], ["b", "\\"]),
    "escaped brackets in a class": (r"root ::= [\[\]\\]", ["[", "]", "\\"], ["a"]),
    "an opening bracket in a class": ("root ::= [[]", ["["], ["]"]),
    "quotes in a class": ("root ::= [\"']", ['"', "'"], ["a"]),
    "escapes in a class": (r"root ::= [\x41-\u0043\U00000061\t]", ["A", "B", "a", "\t"], ["D", "x"]),
    "a caret not in front": ("root ::= [a^]", ["a", "^"], ["b"]),
    "negation": ("root ::= [^ab]", ["c", "\n", "é", "😀", "^", "\x7f"], ["", "a", "b", "cc"]),
    "negation of a range": ("root ::= [^a-y]", ["z", "A"], ["a", "m", "y"]),
    "negation of a caret": ("root ::= [^^]", ["a"], ["^"]),
    "negation of another length": ("root ::= [^é]", ["a", "è", "中"], ["é"]),
    "negation does not take NUL": ("root ::= [^a]", ["\x01"], ["\0"]),
    "NUL by name": (r"root ::= [\x00-\x02]", ["\0", "\2"], ["\3"]),
    "a class over the surrogates": (r"root ::= [\uD000-\uE000]", ["\ud7ff", "\ue000"], ["\ue001"]),
    "a dot": ("root ::= .", ["a", "\n", "é", "😀"], ["", "ab", "\0"]),
    "a group": ('root ::= ("a" "b") "c"', ["abc"], ["ab"]),
    "alternatives": ('root ::= "a" | "b" "c" | "d"', ["a", "bc", "d"], ["b", "ac", "ad"]),
    "alternatives in a group": ('root ::= ("a" | "b") "c"', ["ac", "bc"], ["a", "c"]),
    "alternatives over lines": ('root ::= "a" |\n  "b" |\n\n "c"', ["a", "b", "c"], ["ab"]),
    "a group over lines": ('root ::= (\n "a"\n "b"\n | "c"\n)\n', ["ab", "c"], ["a"]),
    "a body in the next line": ('root ::=\n  "a"', ["a"], []),
    "an empty alternative last": ('root ::= "a" |', ["", "a"], ["b"]),
    "an empty alternative last in a group": ('root ::= "a" ("b" | ) "c"', ["abc", "ac"], ["a"]),
    "an empty alternative first": ('root ::= | "a"', ["", "a"], ["b"]),
    "empty alternatives in the middle": ('root ::= "a" || "b"', ["", "a", "b"], ["ab"]),
    "an empty body": ("root ::=", [""], ["a"]),
    "an empty group": ('root ::= "a" () "b"', ["ab"], ["a"]),
    "a star": ('root ::= "a"*', ["", "a", "aaaa"], ["b"]),
    "a star after a literal repeats all of it": ('root ::= "ab"*', ["", "ab", "abab"], ["abb", "a"]),
    "a plus": ('root ::= "a"+', ["a", "aaaa"], ["", "b"]),
    "a question mark": ('root ::= "a"?', ["", "a"], ["aa"]),
    "a sign after a space": ('root ::= "a" *', ["", "aa"], ["b"]),
    "a sign binds to the last": ('root ::= "a" "b"*', ["a", "abb"], ["", "abab"]),
    "a repeated class": ("root ::= [ab]+", ["abba"], [""]),
    "a repeated rule": ('root ::= x+\nx ::= "a" | "b"', ["abba"], [""]),
    "a repeated group": ('root ::= ("a" | "b" "c")+', ["abca"], ["ab"]),
    "{m}": ('root ::= "a"{3}', ["aaa"], ["aa", "aaaa"]),
    "{m,}": ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
    "{m,n}": ('root ::= "a"{1,3}', ["a", "aa", "aaa"], ["", "aaaa"]),
    "{0,n}": ('root ::= "a"{0,2}', ["", "aa"], ["aaa"]),
    "{0}": ('root ::= "a"{0} "b"', ["b"], ["ab"]),
    "{0,0}": ('root ::= "a"{0,0} "b"', ["b"], ["ab"]),
    "{ m , n }": ('root ::= "a"{ 1 , 2 }', ["a", "aa"], ["aaa"]),
    "signs on signs": ('root ::= "a"{2}{2}', ["aaaa"], ["aaa", "aa"]),
    "a question mark on a plus": ('root ::= "a"+?', ["", "aaa"], ["b"]),
    "a comment": ('# about\nroot ::= "a" # here "b"\n# end', ["a"], ["ab"]),
    "a comment in a group": ('root ::= ("a" # |\n "b")', ["ab"], ["a"]),
    "a comment after a bar": ('root ::= "a" | # two\n "b"', ["a", "b"], []),
    "a hash in a literal": ('root ::= "#a"', ["#a"], ["#"]),
    "CRLF": ('root ::= "a" |\r\n  x\r\n\r\nx ::= "b"\r\n', ["a", "b"], ["a\r\n"]),
    "tabs": ('root\t::=\t"a"\t"b"', ["ab"], []),
    "no spaces": ('root::="a"x\nx::="b"', ["ab"], []),
    "names with capitals, digits and dashes": (
        'root ::= A a A-1 a--1 9\nA ::= "b"\na ::= "c"\nA-1 ::= "d"\na--1 ::= "e"\n9 ::= "f"',
        ["bcdef"],
        ["bbdef"],
    ),
    "names that look alike in another spelling": (
        'root ::= a-b ab aB a-B "x" root | "."\na-b ::= "1"\nab ::= "2"\naB ::= "3"\na-B ::= "4"',
        [".", "1234x."],
        ["1111x."],
    ),
    "rules used before and after": ('x ::= "a"\nroot ::= x y\ny ::= "b"', ["ab"], []),
    "a rule without a reference": ('root ::= "a"\nx ::= "b" x', ["a"], ["b"]),
    "the last of four signs": ('root ::= "a"*+?{1}', ["", "aa"], ["b"]),
    "as many levels of groups as there may be": (
        "root ::= " + "(" * MAX_DEPTH + '"a"' + ' | "b" "c")' * MAX_DEPTH,
        ["a", "bc"],
        ["", "b", "ac"],
    ),
    "as many levels in a rule that comes back": (
        'root ::= "[" root "]" | ' + "(" * MAX_DEPTH + '"a"' + ' "b")?' * MAX_DEPTH,
        ["", "[]", "b", "a" + "b" * MAX_DEPTH, "[[bb]]", "b" * (MAX_DEPTH - 1)],
        ["[", "ab", "b" * MAX_DEPTH],
    ),
    "a class of surrogates only takes nothing": (r'root ::= "a" [\uD800-\uDFFF] | "b"', ["b"], ["a", "ab"]),
    "a class without any character takes nothing": (r'root ::= [^\x01-\U0010FFFF] | "b"', ["b"], ["", "\0"]),
}


@pytest.mark.parametrize(("source", "taken", "refused"), READS.values(), ids=READS)
def test_reads(source, taken, refused):
    grammar = compile_grammar(source)
    for text in taken:
        assert grammar.matches(text), text
    for text in refused:
        assert not grammar.matches(text), text


# Each row: the grammar, line, column, a part of the message.
MISTAKES = {
    "nothing": ("", 1, 1, "the grammar is empty"),
    "spaces only": (" \n# nothing\n", 1, 1, "the grammar is empty"),
    "no ::=": ('root "a"', 1, 6, "expected ::= after the rule name 'root'"),
    "one colon": ('root := "a"', 1, 6, "expected ::="),
    "no name": ('::= "a"', 1, 1, "expected a rule name, got ':'"),
    "a literal for a name": ('"root" ::= "a"', 1, 1, "expected a rule name"),
    "an underscore in a name": ('my_rule ::= "a"', 1, 3, "without an underscore"),
    "an underscore in a reference": ("root ::= my_rule", 1, 12, "without an underscore"),
    "twice the same rule": ('root ::= "a"\nx ::= "b"\nx ::= "c"', 3, 1, "is already defined in line 2"),
    "a bar on the next line": ('root ::= "a"\n  | "b"', 2, 3, "only after | or inside parentheses"),
    "an open literal": ('root ::= "abc', 1, 10, 'this " is never closed'),
    "an open class": ("root ::= [abc", 1, 10, "this [ is never closed"),
    "an open group": ('root ::= ("a"', 1, 10, "this ( is never closed"),
    "an open group before a rule": (
        'root ::= ("a"\nx ::= "b"',
        1,
        10,
        "this ( is not closed before the next rule",
    ),
    "a group too many closed": ('root ::= "a")', 1, 13, "this ) was never opened"),
    "a class too many closed": ("root ::= a]", 1, 11, "this ] was never opened"),
    "a count too many closed": ("root ::= a}", 1, 11, "this } was never opened"),
    "a bar before the next rule": ('root ::= "a" |\nx ::= "b"', 2, 3, "continues after its last |"),
    "single quotes": ("root ::= 'a'", 1, 10, "double quotes"),
    "an unknown sign": ('root ::= "a" & "b"', 1, 14, "'&' is not allowed here"),
    "an unknown escape": (r'root ::= "a\d"', 1, 12, r"\d is not an escape"),
    "an escaped quote that is none": (r"root ::= [a\']", 1, 12, r"\' is not an escape"),
    "a short \\x": (r'root ::= "\x4"', 1, 11, r"\x must be followed by 2 hexadecimal digits"),
    "a short \\u": (r'root ::= "\u12g4"', 1, 11, r"\u must be followed by 4 hexadecimal digits"),
    "a short \\U": (r'root ::= "\U0001F60"', 1, 11, r"\U must be followed by 8 hexadecimal digits"),
    "beyond the last character": (r'root ::= "\U00110000"', 1, 11, "is above the last character"),
    "half a surrogate pair": (r'root ::= "a\uD83D"', 1, 12, "half of a surrogate pair"),
    "an empty class": ("root ::= []", 1, 10, "this class is empty"),
    "a range broken by a newline": ("root ::= [a-\nx ::= [b]", 1, 10, "this [ is never closed"),
    "a range broken by CRLF": ("root ::= [a-\r\n", 1, 10, "this [ is never closed"),
    "a range backwards": ("root ::= [az-b]", 1, 12, "the range z-b ends before its start"),
    "a class of too many ranges": (
        "root ::= [" + "".join(chr(0x10000 + 2 * i) for i in range(MAX_RANGES + 1)) + "]",
        1,
        10,
        "20,001 separate ranges",
    ),
    "a star of nothing": ("root ::= *", 1, 10, "* has nothing before it"),
    "a count of nothing": ('root ::= "a" | {2}', 1, 16, "{ has nothing before it"),
    "a count backwards": ('root ::= "a"{3,2}', 1, 13, "the count {3,2} has a maximum below its minimum"),
    "an empty count": ('root ::= "a"{}', 1, 13, "a count must be {m}, {m,} or {m,n}"),
    "a count from nothing": ('root ::= "a"{,2}', 1, 13, "a count must be {m}, {m,} or {m,n}"),
    "a negative count": ('root ::= "a"{-1}', 1, 13, "a count must be {m}, {m,} or {m,n}"),
    "an open count": ('root ::= "a"{2', 1, 13, "a count must be {m}, {m,} or {m,n}"),
    "a long count": ('root ::= "a"{1234567}', 1, 13, "at most six digits"),
    "five signs": ('root ::= "a"*****', 1, 17, "more than 4 repetitions"),
    "a rule that is not there": ('root ::= "a" | number', 1, 16, "unknown rule 'number'; known: root"),
    "a rule misspelt": ('root ::= nmber\nnumber ::= "1"', 1, 10, "did you mean number?"),
    "the first of two that are not there": ('x ::= "a" z\nroot ::= y x', 1, 11, "rule 'z'"),
    "no root": ('main ::= "a"', 1, 1, "unknown root rule 'root'"),
    "a root misspelt": ('roots ::= "a"', 1, 1, "did you mean roots?"),
    "left recursion": ('root ::= root "a" | "b"', 1, 10, "left recursion: root > root"),
    "left recursion behind an alternative": ('root ::= "b" | root "a"', 1, 16, "root > root"),
    "indirect left recursion": ('root ::= x "a"\nx ::= y | "c"\ny ::= x "b"', 3, 7, "left recursion: x > y > x"),
    "left recursion behind an empty rule": (
        'root ::= e root "a" | "b"\ne ::= "c"?',
        1,
        12,
        "left recursion: root > root",
    ),
    "left recursion behind an empty count": ('root ::= "a"{0,2} root "b"', 1, 19, "root > root"),
    "left recursion in a repetition": ('root ::= (x)* "a"\nx ::= root', 2, 7, "root > x > root"),
    "left recursion in groups": ('root ::= (((((((root "a")))))))', 1, 17, "recursion: root > root"),
    "left recursion of a rule without a reference": ('root ::= "a"\nx ::= x "b"', 2, 7, "x > x"),
    "groups in groups": ("root ::= " + "(" * 101 + '"a"' + ")" * 101, 1, 110, "more than 100 levels deep"),
    "a line with tabs": ('root ::= "a"\n\t\tx ::= [z-a]', 2, 10, "ends before its start"),
    "behind CRLF": ('root ::= "a"\r\nx ::= $', 2, 7, "'$' is not allowed here"),
    "behind wide characters": ('root ::= "é中😀" $', 1, 16, "'$' is not allowed here"),
    "a token by text without brackets": ("root ::= <", 1, 10, "a token reference must be <text> or <[id]>"),
    "a token beyond the vocabulary": ("root ::= <[257]>", 1, 10, "the token id must be from 0 to 256"),
    "a text of several tokens": ("root ::= <ab>", 1, 10, "is not one token of this model but 4"),
    "a negation of no token": ('root ::= !"a"', 1, 10, "a token reference must be <text> or <[id]>"),
    "an exclamation mark at the end": ("root ::= !", 1, 10, "a token reference must be <text> or <[id]>"),
    "a rule that never ends": ('x ::= "b"\nroot ::= "a" root', 2, 1, "no sentence of rule 'root' ever ends"),
    "rules that never end together": ('root ::= "a" x\nx ::= root', 1, 1, "no sentence of rule 'root'"),
    "a named token that ends the text": ("root ::= <[256]>", 1, 10, "this token ends the text"),
    "a chain of many rules": (
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(600)) + 'r600 ::= "a"',
        102,
        1,
        f"a chain of more than {MAX_CHAIN} rules",
    ),
}


@pytest.mark.parametrize(("source", "line", "column", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(source, line, column, message):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(source)
    error = caught.value
    assert message in error.message
    assert (error.line, error.column) == (line, column)
    place, shown, below = str(error).split("\n")
    assert place == f"line {line}, column {column}: {error.message}"
    # The caret stands under the character that the column says.
    whole = source.split("\n")[line - 1].rstrip("\r").replace("\t", " ")
    assert shown[len(below) - 1 :][:1] == whole[column - 1 : column]


def test_another_root():
    source = 'root ::= "a"\nx ::= "b" root'
    assert compile_grammar(source, root="x").matches("ba")
    with pytest.raises(GrammarError, match="unknown root rule 'y'"):
        compile_grammar(source, root="y")


def test_a_group_is_not_a_root():
    with pytest.raises(GrammarError, match="unknown root rule 'root_13'"):
        compile_grammar('root ::= (((((("a"))))))', root="root_13")


TOKENS = {
    "by text": ('root ::= "a" <think> "b"', ["a<think>b"], ["ab", "a</think>b", "a<think>"]),
    "by id": ('root ::= "a" <[1]>? "b"', ["a<think>b", "ab"], ["a</think>b", "a<think><think>b"]),
    "negated": ('root ::= !<think> "b"', ["zb", "</think>b"], ["<think>b", "b", "ab"]),
    "negated, by id": ("root ::= !<[1]>", ["a", "</think>"], ["<think>", ""]),
    "any but one, over and over": ("root ::= <think> !</think>* </think>", ["<think>abé</think>"], ["<think>ab"]),
    "in a rule that comes back": ('root ::= "x" | <think> root', ["x", "<think><think>x"], ["<think>"]),
    "that end a text": ("root ::= !<[2]>", ["a"], ["<end>", "</think>"]),
}


@pytest.mark.parametrize(("source", "taken", "refused"), TOKENS.values(), ids=TOKENS)
def test_tokens(source, taken, refused):
    grammar = compile_grammar(source, SMALL["bpe"])
    assert grammar.has_token_references
    for text in taken:
        assert grammar.matches(text), text
    for text in refused:
        assert not grammar.matches(text), text


def test_without_a_vocabulary_only_ids_are_read():
    assert parse_gbnf("root ::= <[7]>").find_token_ids(None)
    with pytest.raises(GrammarError, match="needs a model's vocabulary"):
        parse_gbnf("root ::= <a>").find_token_ids(None)


# Each row: GBNF, and a sentence of it.
CONTROL_CHARACTERS = {
    "DEL in text": (r'root ::= "\x7f"', b"\x7f"),
    "DEL as it is": ('root ::= "a\x7fb" root? "c"', b"a\x7fbc"),
    "DEL in a class beside recursion": (r'root ::= [\x7f] root "b" | "c"', b"\x7fcb"),
    "NUL": (r'root ::= "\x00" root | "\u0000"', b"\0\0"),
    "all below the space": (r"root ::= [\x00-\x1f]+", bytes(range(0x20))),
    "C1": (r'root ::= "\x85" root | "\U0000009f"', "\x85\x9f".encode()),
}


@pytest.mark.parametrize(("source", "sentence"), CONTROL_CHARACTERS.values(), ids=CONTROL_CHARACTERS)
def test_control_characters(source, sentence):
    assert compile_grammar(source).matches(sentence)
