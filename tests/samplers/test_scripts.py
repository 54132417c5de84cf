import unicodedata
from functools import cache

import numpy as np
import pytest
import regex
from hypothesis import given, strategies as st
from logitsmith.samplers import build
from logitsmith.samplers.chain_state import ChainStates

from .rows import NEG, FakeVocabulary, Pieces, row, run, table

BYTES = Pieces(*(bytes([value]) for value in range(256)))
E, PE, KANJI, MARU = "é".encode(), "п".encode(), "日".encode(), "、".encode()
"""In UTF-8 c3 a9, d0 bf, e6 97 a5 and e3 80 81. The last one is punctuation, whose script is Common."""
PARTS = Pieces(
    *(b"a", b"1", b"\xc3", b"\xa9", b"\xd0", b"\xbf", b"\xe3", b"\x80", b"\x81", b"\x82", b"\xe6", b"\x97\xa5"),
    *(b"\x80\x81", b"\xa9a\xc3", b"\xa9\xd0", b"\xbfa", b"a\xe3\x80", b"a\xe3\x81", b"\xff", b"</s>", b"<s>"),
    *(E, PE, KANJI, MARU, b"x" + PE + b"x", b"\x81\xc3", b"\x81\xd0"),
    eog={19},
    control={20},
)
NO_TEXT = [b"</s>", b"<s>"]
FINISHED = [b"a", b"1", b"\xc3", b"\xe3", b"a\xe3\x80", E, MARU]
"""The pieces that are allowed where no character is unfinished: `e3` may become e3 80 81, but `d0` and `e6` only
Cyrillic and Han, and `e3 81` only Hiragana."""

AFTER_C3 = [b"\xa9", b"\xbf", b"\x80", b"\x81", b"\x82", b"\xbfa", b"\xa9a\xc3", b"\x81\xc3"]
"""c3 80..bf are letters of Latin, and two signs; but c3 a9 and the beginning of a Cyrillic letter are dropped."""
AFTER_E3 = [b"\x80", b"\x82", b"\x80\x81"]
"""e3 81 can only become Hiragana. e3 82 can also become U+30A0, a hyphen whose script is Common."""
AFTER_E3_80 = [b"\x80", b"\x81", b"\x82", b"\xbf", b"\xbfa", b"\x81\xc3"]
"""e3 80 80..82 and e3 80 bf are a space and signs, but e3 80 a9 is a numeral of Han."""

# the text so far, in pieces, and the pieces that may follow under scripts: [Latin]
WORKED = {
    "nothing was written": ([], [*FINISHED, *NO_TEXT]),
    "a letter": ([b"a"], [*FINISHED, *NO_TEXT]),
    "a beginning of a letter": ([b"\xc3"], AFTER_C3),
    "a letter, and a beginning": ([b"\xc3", b"\xa9a\xc3"], AFTER_C3),
    "a beginning of punctuation": ([b"\xe3"], AFTER_E3),
    "two bytes of punctuation": ([b"\xe3", b"\x80"], AFTER_E3_80),
    "two bytes of it in one token": ([b"a\xe3\x80"], AFTER_E3_80),
    "punctuation": ([b"\xe3", b"\x80\x81"], [*FINISHED, *NO_TEXT]),
    "a control token is no text": ([b"\xe3", b"<s>", b"\x80", b"<s>"], AFTER_E3_80),
    "a beginning of another script, from a prompt": ([b"\xd0"], [*FINISHED, *NO_TEXT]),
    "two bytes of another script, from a prompt": ([b"\xe6", b"\x97\xa5"], [*FINISHED, *NO_TEXT]),
    "not UTF-8, from a prompt": ([b"\xff", b"\x80"], [*FINISHED, *NO_TEXT]),
    "a broken beginning, from a prompt": ([b"\xc3", b"\xe3"], AFTER_E3),
}


def make(scripts, vocabulary, prompt=(), output=()):
    chain = build([{"scripts": scripts}], vocab=vocabulary)
    chain.reset(prompt)
    for token in output:
        chain.accept(token)
    return chain


@pytest.mark.parametrize("in_prompt", [0, 1, 9])
@pytest.mark.parametrize(("text", "allowed"), WORKED.values(), ids=WORKED)
def test_worked_example(text, allowed, in_prompt):
    tokens = [PARTS.pieces.index(piece) for piece in text]
    chain = make("Latin", PARTS, tokens[:in_prompt], tokens[in_prompt:])
    expected = [(i, float(i)) for i, piece in enumerate(PARTS.pieces) if piece in allowed]
    assert table(chain.apply(row(*range(PARTS.size)))) == expected


# scripts, text, whether it is allowed
TEXTS = {
    "Latin": (["Latin"], "Straße, naïve: ﬀ \uff21 ª ǆ", True),
    "Latin with combining accents": (["Latin"], unicodedata.normalize("NFD", "naïve ộ"), True),
    "digits, signs, emoji": (["Latin"], "12 + 3 = € µ — “” \N{GRINNING FACE} \U0001d400 、", True),
    "a Cyrillic letter that looks Latin": (["Latin"], "\u0405ame", False),
    "Greek": (["Latin"], "αβγ", False),
    "the Ohm sign is Greek": (["Latin"], "\u2126", False),
    "digits of Devanagari": (["Latin"], "\u0967", False),
    "no character": (["Latin"], "\u0378", False),
    "for private use": (["Latin"], "\ue000", False),
    "Unknown can be listed": (["Unknown"], "\u0378\ue000 1", True),
    "Cyrillic": (["Cyrillic"], "Привет, мир 1", True),
    "Cyrillic without Latin": (["Cyrillic"], "мир a", False),
    "Cyrillic and Latin": (["Cyrillic", "Latin"], "мир a", True),
    "Japanese": (["Han", "Hiragana", "Katakana"], "日本語の テスト、ー", True),
    "Japanese without Katakana": (["Han", "Hiragana"], "テスト", False),
    "short names, other cases": (["latn", "CYRILLIC"], "мир a", True),
    "a name of two words": (["Old Italic"], "\U00010300", True),
    "the same with underscores": (["Old_Italic"], "\U00010300", True),
    "Common alone": (["Common"], "1, 2!", True),
    "Common without letters": (["Common"], "a", False),
}  # fmt: skip


@pytest.mark.parametrize(("scripts", "text", "is_allowed"), TEXTS.values(), ids=TEXTS)
def test_a_text_as_one_token_and_spelled_in_bytes(scripts, text, is_allowed):
    whole = make(scripts, Pieces(b"1", text.encode())).apply(row(0, 1)).ids.tolist()
    assert whole == ([0, 1] if is_allowed else [0])
    chain, spelled = make(scripts, BYTES), True
    for byte in text.encode():
        spelled = spelled and byte in chain.apply(row(*[0] * 256)).ids
        chain.accept(byte)
    assert spelled == is_allowed


NAMES = {
    "LATIN SMALL LETTER": "Latin",
    "LATIN CAPITAL LETTER": "Latin",
    "CYRILLIC SMALL LETTER": "Cyrillic",
    "GREEK SMALL LETTER": "Greek",
    "ARABIC LETTER": "Arabic",
    "HEBREW LETTER": "Hebrew",
    "DEVANAGARI LETTER": "Devanagari",
    "THAI CHARACTER": "Thai",
    "HANGUL SYLLABLE": "Hangul",
    "HIRAGANA LETTER": "Hiragana",
    "CJK UNIFIED IDEOGRAPH": "Han",
    "CHEROKEE LETTER": "Cherokee",
    "GOTHIC LETTER": "Gothic",
}
"""Beginnings of the names of letters, from Python's own data, and their script."""
INHERITED = {"\u0670"}  # a small alef above the letters of Arabic and Syriac


@cache
def letters():
    """Every letter whose name tells its script, with the script."""
    return {
        character: script
        for character in map(chr, range(0x110000))
        if unicodedata.category(character)[0] in "LM" and character not in INHERITED
        for beginning, script in NAMES.items()
        if unicodedata.name(character, "").startswith(beginning)
    }


@pytest.mark.parametrize("script", ["Latin", "Cyrillic", "Han", "Arabic", "Gothic"])
def test_every_letter_against_its_name(script):
    """Each letter is a token. More than 100,000 letters of thirteen scripts have a name that tells the script."""
    assert len(letters()) > 100_000
    vocabulary = Pieces(b"1", *(letter.encode() for letter in letters()))
    left = make(script, vocabulary).apply(np.zeros(vocabulary.size, np.float32))
    expected = [number for number, owner in enumerate(letters().values(), 1) if owner == script]
    assert left.ids.tolist() == [0, *expected]


def spell(character, chain):
    """How many bytes of a character are allowed, one after the other."""
    for count, byte in enumerate(character.encode()):
        if byte not in chain.apply(np.zeros(256, np.float32)).ids:
            return count
        chain.accept(byte)
    return len(character.encode())


@given(st.deferred(lambda: st.sampled_from(sorted(letters()))), st.sampled_from(["Latin", "Cyrillic", "Han"]))
def test_a_letter_is_spelled_only_if_its_script_is_listed(letter, script):
    chain = make(script, BYTES)
    assert (spell(letter, chain) == len(letter.encode())) == (letters()[letter] == script)


@cache
def allowed():
    """The characters of Latin and Common, by the data of the sampler, but one by one."""
    return {
        character
        for character in map(chr, (*range(0xD800), *range(0xE000, 0x110000)))
        if regex.match(r"\p{Latin}|\p{Common}|\p{Inherited}", character)
    }


@cache
def beginnings():
    return {character.encode()[:count] for character in allowed() for count in range(1, len(character.encode()))}


@cache
def unfinished_bytes():
    codes = (*range(0x80, 0xD800, 64), *range(0xE000, 0x110000, 64))  # the last byte is not among them
    return {chr(code).encode()[:count] for code in codes for count in range(1, len(chr(code).encode()))}


def may_follow(unfinished, piece):
    """Whether some end makes the bytes a text of allowed characters, by Python's strict decoder."""
    text = unfinished + piece
    for cut in range(min(3, len(text)) + 1):
        head, tail = text[: len(text) - cut], text[len(text) - cut :]
        try:
            characters = set(head.decode())
        except UnicodeDecodeError:
            continue
        if characters <= allowed() and (not tail or tail in beginnings()):
            return True
    return False


def expected_tokens(text, pieces):
    unfinished = next((text[-count:] for count in (3, 2, 1) if text[-count:] in unfinished_bytes()), b"")
    continuing = [token for token, piece in enumerate(pieces) if piece and may_follow(unfinished, piece)]
    if unfinished and continuing:
        return continuing
    return [token for token, piece in enumerate(pieces) if may_follow(b"", piece)]


MIXED = st.text("aéßпд日本あ、€1\N{GRINNING FACE}", min_size=1, max_size=3).map(str.encode)


@st.composite
def parts(draw):
    """Parts of texts, cut anywhere, and any bytes: incomplete at both ends as well."""
    text = draw(MIXED)
    start, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    return draw(st.sampled_from([text[start:end], text, text[start : start + 1]]) | st.binary(max_size=3))


@given(st.lists(parts(), min_size=1, max_size=25), st.lists(parts(), max_size=3), st.data())
def test_brute_force_and_no_walk_writes_another_script(vocabulary, prompt, data):
    """What Python's decoder makes of the output has no letter of another script, however tokens are chosen."""
    pieces = [*vocabulary, *prompt, b"1"]
    chain = make("Latin", Pieces(*pieces), range(len(vocabulary), len(pieces) - 1))
    text = b"".join(prompt)
    before = len(text.decode(errors="replace"))
    for _ in range(10):
        left = chain.apply(np.zeros(len(pieces), np.float32)).ids.tolist()
        assert left == expected_tokens(text, pieces)
        token = data.draw(st.sampled_from(left))
        text += pieces[token]
        chain.accept(token)
        # The last character of the prompt may be unfinished there, and become U+FFFD or an allowed one.
        assert set(text.decode(errors="replace")[before:]) <= allowed()


@given(st.lists(parts(), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=8))
def test_a_saved_state_is_that_of_the_text(vocabulary, numbers):
    pieces = [*vocabulary, b"1"]
    output = [number % len(pieces) for number in numbers]
    chain, logits = make("Latin", Pieces(*pieces), [0]), np.zeros(len(pieces), np.float32)
    states, saved, seen = ChainStates(chain), [], []
    for token in output:
        saved.append(states.save())
        seen.append(chain.apply(logits).ids.tolist())
        chain.accept(token)
    for place in reversed(range(len(output))):
        states.restore(saved[place], [0], output[:place])
        assert chain.apply(logits).ids.tolist() == seen[place]
    chain.reset([0, *output])
    after_reset = chain.apply(logits).ids.tolist()
    states.restore(saved[0], [0], []) if saved else chain.reset([0])
    for token in output:
        chain.accept(token)
    assert chain.apply(logits).ids.tolist() == after_reset


@pytest.mark.slow
@pytest.mark.parametrize("size", [128, 300, 20_000])
def test_brute_force_on_vocabularies_of_a_step(size):
    logits = np.zeros(size, np.float32)
    pieces = FakeVocabulary(size).pieces
    kept = [i for i in range(size) if i == size - 1 or may_follow(b"", pieces[i])]
    assert run({"scripts": "Latin"}, logits).ids.tolist() == kept


def test_nothing_continues_the_character():
    """Where an earlier step has dropped what would continue it, or the vocabulary lacks it, a new one begins."""
    vocabulary = Pieces(b"a", b"\xc3", b"\xa9", "п".encode())
    chain = build('top_k2 > scripts=["Latin"]', vocab=vocabulary)
    chain.accept(1)
    assert chain.apply(row(4, 1, 2, 3)).ids.tolist() == [0]  # of the tokens 0 and 3
    assert chain.apply(row(4, 1, 5, 3)).ids.tolist() == [2]
    chain = make("Latin", Pieces(b"a", b"\xc3", "п".encode(), b"</s>", eog={3}), [], [1])
    assert chain.apply(row(0, 1, 2, 3)).ids.tolist() == [0, 1, 3]


def test_minus_infinity_continues_nothing():
    chain = make("Latin", PARTS, [2])
    logits = np.zeros(PARTS.size, np.float32)
    logits[[3, 5, 7, 8, 9, 13, 15, 26]] = NEG
    assert b"a" in [PARTS.pieces[i] for i in chain.apply(logits).ids]
