import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import SamplingError, build

from .rows import NEG, NORMAL, FakeVocabulary, Pieces, row, rows, run, table


class Bytewise(Pieces):
    """Texts are encoded byte by byte."""

    def tokenize(self, data, special=False):
        return [self.pieces.index(bytes([byte])) for byte in data]


WORDS = Bytewise(b"a", b"b", b"ab", b"ba", b"cab", b"bc", b"c", b"<s>", b"AB", "é".encode(), control={7})

# what is banned, prompt, output, pieces that are dropped
WORKED = {
    "a token by its id": ({"tokens": [2]}, b"", b"", [b"ab"]),
    "tokens by id and by text": ({"tokens": [2, "c"]}, b"", b"", [b"ab", b"c"]),
    "one token, without a list": ({"tokens": "c"}, b"", b"", [b"c"]),
    "a token stays banned": ({"tokens": [2]}, b"a", b"b", [b"ab"]),
    "a control token by its id": ({"tokens": [7]}, b"", b"", [b"<s>"]),
    "a string that is within tokens": ({"strings": ["ab"]}, b"", b"", [b"ab", b"cab"]),
    "one string, without a list": ({"strings": "ab"}, b"", b"", [b"ab", b"cab"]),
    "a string that begins in the output": ({"strings": ["ab"]}, b"", b"ca", [b"ab", b"cab", b"b", b"ba", b"bc"]),
    "a string that begins in the prompt": ({"strings": ["ab"]}, b"ca", b"", [b"ab", b"cab", b"b", b"ba", b"bc"]),
    "a string in the prompt stays there": ({"strings": ["ab"]}, b"ab", b"", [b"ab", b"cab"]),
    "over three tokens": ({"strings": ["abc"]}, b"", b"ab", [b"c", b"cab"]),
    "over two tokens of the prompt": ({"strings": ["abc"]}, b"ab", b"", [b"c", b"cab"]),
    "over prompt and output": ({"strings": ["abc"]}, b"a", b"b", [b"c", b"cab"]),
    "not after something else": ({"strings": ["abc"]}, b"", b"abb", []),
    "a string that overlaps itself": ({"strings": ["aba"]}, b"", b"ab", [b"a", b"ab"]),
    "two strings": ({"strings": ["aa", "bb"]}, b"", b"a", [b"a", b"ab"]),
    "tokens and strings": ({"tokens": [6], "strings": ["aa"]}, b"", b"a", [b"c", b"a", b"ab"]),
    "half of a letter": ({"strings": ["é"]}, b"", b"", ["é".encode()]),
    "cases differ": ({"strings": ["AB"]}, b"", b"a", [b"AB"]),
    "cases do not differ": (
        {"strings": ["AB"], "ignore_case": True}, b"", b"a", [b"ab", b"cab", b"AB", b"b", b"ba", b"bc"]
    ),
    "nor in what was written": (
        {"strings": ["cAb"], "ignore_case": True}, b"", b"ca", [b"cab", b"b", b"ba", b"bc"]
    ),
    "cases of tokens always differ": ({"tokens": [8], "ignore_case": True}, b"", b"", [b"AB"]),
    "a control token has no text": ({"strings": ["<s>", "s>"]}, b"", b"", []),
}  # fmt: skip


def make(params, vocabulary, seed=0):
    return build([{"ban": params}], seed=seed, vocab=vocabulary)


@pytest.mark.parametrize(("params", "prompt", "output", "dropped"), WORKED.values(), ids=WORKED)
def test_worked_example(params, prompt, output, dropped):
    chain = make(params, WORDS)
    chain.reset(WORDS.tokenize(prompt))
    for token in WORDS.tokenize(output):
        chain.accept(token)
    logits = row(*range(WORDS.size))
    left = [(i, float(i)) for i in range(WORDS.size) if WORDS.pieces[i] not in dropped]
    assert table(chain.apply(logits)) == left


@pytest.mark.parametrize("prompt", [[], [0], [0, 7]])
def test_a_control_token_parts_no_string(prompt):
    chain = make({"strings": ["ab"]}, WORDS)
    chain.reset(prompt)
    for token in [0, 7, 7][len(prompt) :]:
        chain.accept(token)
    assert 1 not in chain.apply(row(*[0] * WORDS.size)).ids


@pytest.mark.parametrize("letter", ["É", "é", "\N{KELVIN SIGN}", "ß"])
def test_ignore_case_is_for_a_to_z_only(letter):
    pieces = [letter, *{letter.lower(), letter.upper()} - {letter}]
    chain = make({"strings": [letter], "ignore_case": True}, Bytewise(*map(str.encode, pieces)))
    assert chain.apply(row(*range(len(pieces)))).ids.tolist() == list(range(1, len(pieces)))


def folded(text, ignore_case):
    return bytes(byte + 32 if ignore_case and 65 <= byte <= 90 else byte for byte in text)


def ends_beyond(text, banned, start):
    """Does one of these texts stand in the text so that its last byte is at ``start`` or after?"""
    for one in banned:
        place = text.find(one)
        while place >= 0:
            if place + len(one) > start:
                return True
            place = text.find(one, place + 1)
    return False


TEXT = st.text("abAé", min_size=1, max_size=4)
PIECES = TEXT.map(str.encode) | st.sampled_from([b"\xc3", b"\xa9", b"a\xc3"])


@given(st.data(), st.booleans(), st.integers(0, 2**32 - 1))
def test_brute_force_on_a_random_vocabulary(data, ignore_case, seed):
    """The dropped tokens are those that are banned or would write a banned string, and so none comes to stand
    there."""
    pieces = data.draw(st.lists(PIECES, min_size=1, max_size=12))
    ids = st.sets(st.integers(0, len(pieces) - 1), max_size=3)
    control, tokens = data.draw(ids), data.draw(ids)
    strings = data.draw(st.lists(TEXT, max_size=4))
    prompt = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=8))
    params = {"tokens": sorted(tokens), "strings": strings, "ignore_case": ignore_case}
    chain = make(params, Bytewise(*pieces, control=control), seed)
    written = [b"" if i in control else folded(piece, ignore_case) for i, piece in enumerate(pieces)]
    banned = [folded(text.encode(), ignore_case) for text in strings]
    rng = np.random.default_rng(seed)
    chain.reset(prompt)
    text = b"".join(written[token] for token in prompt)
    start = len(text)
    for _ in range(40):
        allowed = [
            i
            for i in range(len(pieces))
            if i not in tokens and not ends_beyond(text + written[i], banned, len(text))
        ]
        logits = rng.normal(0, 3, len(pieces)).astype(np.float32)
        if not allowed:
            with pytest.raises(SamplingError, match=r"^ban: every candidate left is banned$"):
                chain.apply(logits)
            break
        left = chain.apply(logits)
        assert left.ids.tolist() == allowed
        assert left.logits.tolist() == logits[allowed].tolist()
        token = chain.draw(left)
        chain.accept(token)
        text += written[token]
        assert not ends_beyond(text, banned, start)


@given(rows(300), st.sets(st.integers(0, 299), max_size=8))
@example(NORMAL, {7, 199_998})
def test_brute_force_of_tokens(logits, tokens):
    tokens = {token % logits.size for token in tokens}
    left = [entry for entry in enumerate(logits.tolist()) if entry[0] not in tokens]
    step = {"ban": {"tokens": sorted(tokens)}}
    if any(logit > NEG for _, logit in left):
        assert table(run(step, logits)) == left
        assert table(build([step]).apply(logits)) == left, "ids need no vocabulary"
    else:
        with pytest.raises(SamplingError, match=r"^ban: every candidate left is banned$"):
            run(step, logits)


WITH_A_VOCABULARY = [
    (
        {"tokens": ["ab"]},
        "chain[0].ban.tokens: 'ab' is 2 tokens [97, 98]; give one token, or its id; or use ban.strings",
    ),
    ({"tokens": [128]}, "chain[0].ban.tokens: token id 128 is not within 0..127"),
    ({"strings": ["\udcff"]}, "chain[0].ban.strings: '\\udcff' is not UTF-8"),
    ({"tokens": ["\udcff"]}, "chain[0].ban.tokens: '\\udcff' is not UTF-8"),
]


@pytest.mark.parametrize(("params", "message"), WITH_A_VOCABULARY)
def test_refusal_with_a_vocabulary(params, message):
    with pytest.raises(SamplingError) as caught:
        make(params, FakeVocabulary())
    assert str(caught.value) == message
