import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.engine import Model, locate
from logitsmith.samplers import build
from logitsmith.samplers.methods.dry import LastBreakerTracker, SequenceBreakers
from logitsmith.samplers.tokens import TokenBytesIndex, tokens_starting

from ..oracle.native import NativeChain
from .rows import FakeVocabulary


class PieceVocabulary(FakeVocabulary):
    """The 256 bytes, and these pieces from id 256 on; the longest piece that fits is the next token."""

    def __init__(self, *pieces):
        super().__init__(256 + len(pieces))
        self._pieces = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in pieces]

    @property
    def pieces(self):
        return self._pieces

    def tokenize(self, data, special=False):
        if not data:
            return []
        fitting = [token for token, piece in enumerate(self._pieces) if data.startswith(piece)]
        longest = max(fitting, key=lambda token: len(self._pieces[token]))
        return [longest, *self.tokenize(data[len(self._pieces[longest]) :])]


def starting(text, index):
    return [(token, rest) for ids, rest in tokens_starting(text, index) for token in ids.tolist()]


def named(tokens, pieces):
    return sorted((pieces[token], rest) for token, rest in tokens)


# text, pieces, (piece, what is still to come) of those with which the text can begin
HEADS = {
    "a piece with all of it": (b"the", [b"the", b" the", b"then", b"bathed"],
                               [(b" the", b""), (b"bathed", b""), (b"the", b""), (b"then", b"")]),
    "a piece with its beginning": (b"the", [b"t", b"at", b"th", b"h", b"he", b"ta", b"thx"],
                                   [(b"at", b"he"), (b"t", b"he"), (b"th", b"e")]),
    "two ways": (b"abab", [b"abab", b"aba", b"xaba"],
                 [(b"aba", b"b"), (b"aba", b"bab"), (b"abab", b""), (b"xaba", b"b"), (b"xaba", b"bab")]),
    "one byte": (b"\n", [b"\n", b"\n\n", b".\n", b"n", b""], [(b"\n", b""), (b"\n\n", b""), (b".\n", b"")]),
    "within a character": ("é".encode(), ["é".encode(), b"\xc3", b"\xa9"],
                           [(b"\xc3", b"\xa9"), ("é".encode(), b"")]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "pieces", "expected"), HEADS.values(), ids=HEADS)
def test_heads(text, pieces, expected):
    index = TokenBytesIndex(pieces)
    containing = index.containing(text)
    found = [(token, b"") for token in containing]
    found += [(token, rest) for token, rest in starting(text, index) if token not in containing]
    assert named(found, pieces) == expected


def of(*letters, least, most):
    return st.lists(st.sampled_from(letters), min_size=least, max_size=most).map(b"".join)


TEXTS = of(b"a", b"b", least=1, most=4)
PIECES = st.lists(of(b"a", b"b", least=0, most=5), min_size=5, max_size=30)


@given(TEXTS, PIECES)
def test_heads_by_brute_force(text, pieces):
    expected = [
        (token, text[n:])
        for token, piece in enumerate(pieces)
        for n in range(1, len(text))
        if piece.endswith(text[:n])
    ]
    assert sorted(starting(text, TokenBytesIndex(pieces))) == sorted(expected)


# tails by head, tokens, how many tokens stand after the last breaker
DISTANCES = {
    "no breaker at all": ({}, [1, 2, 3], 3),
    "none in the text": ({9: [()]}, [1, 2, 3], 3),
    "a single one": ({1: [()]}, [1, 2, 3], 2),
    "the last of two": ({1: [()]}, [1, 2, 1, 3], 1),
    "at the end": ({3: [()]}, [1, 2, 3], 0),
    "with a tail": ({1: [(2,)]}, [1, 2, 3], 1),
    "a tail that does not fit": ({1: [(3,)]}, [1, 2, 3], 3),
    "a tail that is cut off": ({3: [(4,)]}, [1, 2, 3], 3),
    "the longest tail": ({1: [(), (2,), (2, 3)]}, [1, 2, 3, 4], 1),
    "the longest that fits": ({1: [(), (2, 4), (2,)]}, [1, 2, 3], 1),
    "the last head, though its tail is shorter": ({1: [(2, 3)], 2: [()]}, [1, 2, 3, 4], 2),
    "empty": ({1: [()]}, [], 0),
}


def distance(tails, tokens):
    for place in reversed(range(len(tokens))):
        after = tokens[place + 1 :]
        fitting = [len(tail) for tail in tails.get(tokens[place], []) if after[: len(tail)] == list(tail)]
        if fitting:
            return len(after) - max(fitting)
    return len(tokens)


def after_last(breakers, tokens):
    return LastBreakerTracker(breakers, tokens).distance(len(tokens))


@pytest.mark.parametrize(("tails", "tokens", "expected"), DISTANCES.values(), ids=DISTANCES)
def test_distance(tails, tokens, expected):
    assert distance(tails, tokens) == expected
    assert after_last(SequenceBreakers(tails, 10), tokens) == expected


TOKEN = st.integers(0, 4)
TAILS = st.dictionaries(
    TOKEN, st.lists(st.lists(TOKEN, max_size=3).map(tuple), min_size=1, max_size=4), max_size=3
)


@given(
    TAILS,
    st.lists(TOKEN, max_size=20),
    st.integers(0, 3000) | st.sampled_from([0, 255, 256, 257, 2303, 2304, 2305]),
)
def test_distance_by_brute_force(tails, tokens, before):
    """``before``: tokens of no breaker after those, so that the search crosses its blocks."""
    tokens = [*tokens, *[7] * before]
    assert after_last(SequenceBreakers(tails, 8), tokens) == distance(tails, tokens)


@given(TAILS, st.lists(TOKEN, max_size=20), st.data())
def test_distance_as_the_history_grows(tails, tokens, data):
    """In windows of any length, asked after some tokens only."""
    history = []
    last = LastBreakerTracker(SequenceBreakers(tails, 8), history)
    for token in tokens:
        history.append(token)
        if data.draw(st.booleans()):
            window = data.draw(st.integers(0, len(history)))
            assert last.distance(window) == distance(tails, history[len(history) - window :])


def after(breakers, vocabulary, *pieces):
    """Return the number of tokens after the last breaker, of tokens given as texts."""
    tokens = [vocabulary.pieces.index(piece.encode()) for piece in pieces]
    return after_last(breakers, tokens)


def test_overlapping_breakers_are_found_however_they_are_written():
    vocabulary = PieceVocabulary("the", " the", "th", "end", " end", "then", "e end", "he")
    breakers = SequenceBreakers.all_spellings(["the end"], vocabulary)
    assert after(breakers, vocabulary, "x", "the", " end", "x") == 1
    assert after(breakers, vocabulary, "x", " the", " end", "x") == 1
    assert after(breakers, vocabulary, "x", "th", "e end", "x") == 1
    assert after(breakers, vocabulary, "x", "t", "he", " end", "x") == 1
    # Only the encoding of a rest is looked for: "e end" as one token.
    assert after(breakers, vocabulary, "x", "th", "e", " end", "x") == 5
    assert after(breakers, vocabulary, "x", "then", " end", "x") == 4
    assert breakers.single_tokens == set()


def test_a_text_counts_up_to_40_bytes_and_a_rest_up_to_20_tokens():
    vocabulary = PieceVocabulary("b" * 39)
    text = "a" * 30 + "b" * 30
    breakers = SequenceBreakers.all_spellings([text], vocabulary)
    assert after(breakers, vocabulary, *"a" * 21, *"x") == 1
    assert after(breakers, vocabulary, *"a" * 20, *"x") == 21
    breakers = SequenceBreakers.all_spellings(["a" + "b" * 60], vocabulary)
    assert after(breakers, vocabulary, "a", "b" * 39, "x") == 1


def test_a_rest_that_begins_inside_a_character_is_matched_byte_by_byte():
    vocabulary = PieceVocabulary()
    breakers = SequenceBreakers.all_spellings(["é"], vocabulary)
    assert after_last(breakers, [120, 0xC3, 0xA9, 120]) == 1
    assert after_last(breakers, [120, 0xC3, 0xA8, 120]) == 4


def test_a_rest_that_cannot_be_written_is_left_out():
    vocabulary = PieceVocabulary()
    vocabulary._pieces[0xA9] = b"another"
    assert after_last(SequenceBreakers.all_spellings(["é"], vocabulary), [120, 0xC3, 0xA9, 120]) == 4


def test_last_tokens():
    vocabulary = PieceVocabulary("end", "aend", "the", "ath")
    breakers = SequenceBreakers.single_token_breakers(["\n", "the end", "end", "th"], vocabulary)
    # "a\n", "athe end", "aend" and "ath" end with these tokens.
    expected = [vocabulary.pieces.index(piece) for piece in (b"\n", b"end", b"aend", b"ath")]
    assert breakers.single_tokens == set(expected)


@pytest.fixture(scope="module")
def vocabulary():
    with Model.load(locate()[0], n_ctx=64) as model:
        yield model.vocabulary


SETS = [["\n"], [":"], ['"'], ["*"], [" the"], ["the end"], ["\n\n"], ["\n", ":", '"', "*"], ["ab", "abab"],
        ["<|im_end|>"], ["the end", " the", "e"], ["x" * 50], ["", "\n"]]  # fmt: skip


@pytest.fixture(scope="module", params=SETS, ids=str)
def pair(request, vocabulary):
    """logitsmith's dry and llama.cpp's with these breakers, and the tokens that matter to them."""
    params = {"multiplier": 1.0, "base": 1.5, "allowed_length": 1, "breakers": request.param}
    texts = [text.encode() for text in request.param]
    parts = {text[i:j] for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    tokens = [
        token
        for token, piece in enumerate(vocabulary.pieces)
        if piece in parts or (len(piece) < 6 and any(text and (text in piece) for text in texts))
        or (len(piece) < 8 and any(piece.endswith(text[:n]) for text in texts for n in range(2, len(text))))
    ]  # fmt: skip
    steps = [{"dry": params}]
    with NativeChain(steps, vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        yield build(steps, vocab=vocabulary), native, [tokens, vocabulary.tokenize(b"a b")]


@settings(max_examples=15)
@given(data=st.data())
def test_dry_finds_the_breakers_of_llama_cpp(pair, vocabulary, data):
    ours, native, (tokens, letters) = pair
    some = data.draw(st.lists(st.sampled_from(tokens), min_size=1, max_size=4)) + letters
    history = data.draw(st.lists(st.sampled_from(some), max_size=50))
    logits = np.zeros(vocabulary.size, dtype=np.float32)
    ours.reset(history)
    native.reset()
    native.accept(*history)
    np.testing.assert_array_equal(ours.apply(logits).logits, native.apply(logits).logits)


def both(vocabulary, breaker, history):
    """The logits that ours and llama.cpp's make of zeros."""
    steps = [{"dry": {"multiplier": 1.0, "base": 2.0, "allowed_length": 1, "breakers": [breaker]}}]
    logits = np.zeros(vocabulary.size, dtype=np.float32)
    ours = build(steps, vocab=vocabulary)
    ours.reset(history)
    with NativeChain(steps, vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        native.accept(*history)
        return ours.apply(logits).logits, native.apply(logits).logits


@pytest.mark.parametrize("breaker", ["é", "。", "—", "。\n", "日本語"])
def test_other_characters_as_the_vocabulary_writes_them(vocabulary, breaker):
    history = vocabulary.tokenize(f"x y {breaker} a x y {breaker} a".encode())
    mine, theirs = both(vocabulary, breaker, history)
    np.testing.assert_array_equal(mine, theirs)
    assert mine.any()


def test_a_character_in_two_tokens_is_a_breaker_where_llama_cpp_looks_for_replacement_characters(vocabulary):
    first, second = (vocabulary.pieces.index(byte) for byte in (b"\xc3", b"\xa9"))
    x, y = vocabulary.tokenize(b"x")[0], vocabulary.tokenize(b"y")[0]
    mine, theirs = both(vocabulary, "é", [x, first, second, y, x, first, second])
    assert mine[y] == 0
    assert theirs[y] == -4


def test_a_breaker_that_is_written_while_it_is_asked_for():
    history = [9, 1, 2]
    last = LastBreakerTracker(SequenceBreakers({1: [(2, 3)]}, 10), history)
    assert last.distance(3) == 3
    history.append(3)
    assert last.distance(4) == 0
    history.append(9)
    assert last.distance(5) == 1
