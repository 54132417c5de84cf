import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import SamplingError, build

from .rows import MAX_FLOAT32, MIN_FLOAT32, NEG, Pieces, row, table


class Split(Pieces):
    """Texts are written with a bar between two tokens."""

    def tokenize(self, data, special=False):
        return [self.pieces.index(word) for word in data.split(b"|")] if data else []


WORDS = Split(
    *(b"New", b" New", b" York", b"York", b"k", b" Yor", b"Ne", b"w", b" ", b"\n", b"(New", b" Yorkshire"),
    *(
        b"Paris",
        b" Paris",
        b"is",
        b"Par",
        b"xParis",
        b"<s>",
        b"New York",
        b" New York",
        b"\xc3",
        b"\xa9",
        "é".encode(),
    ),
    control={17},
)
NEW_YORK = {"bias": {"New York": -2}}
WHOLE = {b"New York": -2, b" New York": -2}

# parameters, prompt, output, what is added by piece
WORKED = {
    "the whole text": (NEW_YORK, b"", b"", WHOLE),
    "after the rest": (NEW_YORK, b"", b"New", {b" York": -2, **WHOLE}),
    "after the rest with a space": (NEW_YORK, b"", b" New", {b" York": -2, **WHOLE}),
    "after the rest in a longer token": (NEW_YORK, b"", b"(New", {b" York": -2, **WHOLE}),
    "after a line": (NEW_YORK, b"", b"\n|New", {b" York": -2, **WHOLE}),
    "the rest in two tokens": (NEW_YORK, b"", b"Ne|w", {b" York": -2, **WHOLE}),
    "the end in two tokens": (NEW_YORK, b"", b" New| Yor", {b"k": -2, **WHOLE}),
    "the space alone": (NEW_YORK, b"", b"New| ", {b"York": -2, **WHOLE}),
    "the rest in the prompt": (NEW_YORK, b"New", b"", {b" York": -2, **WHOLE}),
    "the rest in prompt and output": (NEW_YORK, b"Ne", b"w", {b" York": -2, **WHOLE}),
    "something else after the rest": (NEW_YORK, b"", b"New|\n", WHOLE),
    "a control token is no text": (NEW_YORK, b"", b"New|<s>", {b" York": -2, **WHOLE}),
    "nothing for a longer word": ({"bias": {"York": 1}}, b"", b"", {b"York": 1, b" York": 1}),
    "one token, with a space": ({"bias": {"Paris": 1}}, b"", b"", {b"Paris": 1, b" Paris": 1}),
    "one token, or two": ({"bias": {"Paris": 1}}, b"", b"Par", {b"Paris": 1, b" Paris": 1, b"is": 1}),
    "a text that begins with a space": ({"bias": {" Paris": 1}}, b"", b"", {b" Paris": 1}),
    "it begins with a space that was written": (
        {"bias": {" Paris": 1}}, b"", b" ", {b" Paris": 1, b"Paris": 1}
    ),
    "the name of a control token": ({"bias": {"<s>": 1}}, b"", b"", {}),
    "half of a letter": ({"bias": {"é": 1}}, b"", b"\xc3", {b"\xa9": 1, "é".encode(): 1}),
    "two texts": (
        {"bias": {"Paris": 1, "New York": 2}}, b"", b"New",
        {b"Paris": 1, b" Paris": 1, b" York": 2, b"New York": 2, b" New York": 2},
    ),
    "two texts with one end": ({"bias": {"New York": 1, "York": 2}}, b"", b"New",
        {b"York": 2, b" York": 3, b"New York": 1, b" New York": 1}),
    "ids, one token": ({"ids": [[[3], -1.5]]}, b"", b"", {b"York": -1.5}),
    "ids, nothing was written": ({"ids": [[[1, 2], -1.5]]}, b"", b"", {}),
    "ids, the rest was written": ({"ids": [[[1, 2], -1.5]]}, b"", b" New", {b" York": -1.5}),
    "ids, another token of the same text": ({"ids": [[[1, 2], -1.5]]}, b"", b"New", {}),
    "ids, the rest in the prompt": ({"ids": [[[1, 2], -1.5]]}, b" New", b"", {b" York": -1.5}),
    "ids, a token came between": ({"ids": [[[1, 2], -1.5]]}, b"", b" New|<s>", {}),
    "ids, three": ({"ids": [[[6, 7, 2], 1]]}, b"Ne", b"w", {b" York": 1}),
    "ids, only the end of the rest": ({"ids": [[[6, 7, 2], 1]]}, b"", b"w", {}),
    "ids, one rest and two ends": ({"ids": [[[0, 2], 1], [[0, 3], 2]]}, b"", b"New", {b" York": 1, b"York": 2}),
    "ids, rests of two lengths": ({"ids": [[[6, 7, 2], 1], [[7, 2], 2], [[2], 4]]}, b"", b"Ne|w", {b" York": 7}),
    "ids that repeat": ({"ids": [[[6, 6, 6], 1]]}, b"", b"Ne|Ne", {b"Ne": 1}),
    "ids, a text shorter than a rest": ({"ids": [[[0, 2], 1], [[1, 4, 5, 3], 2]]}, b"", b"New", {b" York": 1}),
    "ids with a control token": ({"ids": [[[17, 0], 1]]}, b"<s>", b"", {b"New": 1}),
    "ids and texts": ({"bias": {"York": 1}, "ids": [[[0, 2], 2]]}, b"", b"New", {b"York": 1, b" York": 3}),
}  # fmt: skip


def make(params, vocabulary=WORDS, prompt=(), output=()):
    chain = build([{"sequence_bias": params}], vocab=vocabulary)
    chain.reset(prompt)
    for token in output:
        chain.accept(token)
    return chain


@pytest.mark.parametrize(("params", "prompt", "output", "added"), WORKED.values(), ids=WORKED)
def test_worked_example(params, prompt, output, added):
    chain = make(params, prompt=WORDS.tokenize(prompt), output=WORDS.tokenize(output))
    expected = [(i, i + added.get(piece, 0)) for i, piece in enumerate(WORDS.pieces)]
    assert table(chain.apply(row(*range(WORDS.size)))) == expected


def reference(sequence_bias, input_ids, scores):
    """``SequenceBiasLogitsProcessor`` of transformers 5.23 with NumPy in torch's place, for one row."""
    bias = np.zeros_like(scores)
    for sequence, value in sequence_bias.items():
        if len(sequence) == 1:
            bias[sequence[0]] = value
    for sequence, value in sequence_bias.items():
        prefix = sequence[:-1]
        if prefix and len(prefix) <= len(input_ids) and (np.array(input_ids[-len(prefix) :]) == prefix).all():
            bias[sequence[-1]] += np.float32(value)
    return scores + bias


IDS = st.integers(0, 5)
SEQUENCES = st.dictionaries(
    st.lists(IDS, min_size=1, max_size=4).map(tuple), st.floats(-9, 9, width=32), max_size=8
)


@given(SEQUENCES, st.lists(IDS, max_size=6), st.lists(IDS, max_size=6), st.integers(0, 2**32 - 1))
def test_equal_to_transformers(sequences, prompt, output, seed):
    logits = np.random.default_rng(seed).normal(0, 3, 6).astype(np.float32)
    logits[seed % 6] = NEG
    pairs = [[list(sequence), value] for sequence, value in sequences.items()]
    chain = make({"ids": pairs}, None, prompt, output)
    ours = chain.apply(logits).logits
    np.testing.assert_allclose(ours, reference(sequences, prompt + output, logits), rtol=1e-6, atol=1e-6)


TEXTS = st.text("ab é", min_size=1, max_size=4)
BYTES = TEXTS.map(str.encode) | st.sampled_from([b"\xc3", b"\xa9", b"a\xc3", b""])


@given(st.data())
def test_brute_force_on_a_random_vocabulary(data):
    """Every token in turn is appended, and the whole text is looked at."""
    pieces = data.draw(st.lists(BYTES, min_size=1, max_size=12))
    control = data.draw(st.sets(st.integers(0, len(pieces) - 1), max_size=2))
    ids = st.lists(st.integers(0, len(pieces) - 1), max_size=6)
    biases = data.draw(st.dictionaries(TEXTS, st.sampled_from([-2.0, 0.5, 4.0, False]), max_size=4))
    prompt, output = data.draw(ids), data.draw(ids)
    chain = make({"bias": biases}, Pieces(*pieces, control=control), prompt, output)
    written = b"".join(b"" if token in control else pieces[token] for token in prompt + output)
    expected = []
    for token, piece in enumerate(pieces):
        total = 0.0
        for text, value in biases.items():
            encoded = text.encode()
            completes = (written + piece).endswith(encoded) and len(piece) <= len(encoded)
            after_space = piece == b" " + encoded and encoded[:1] != b" "
            if piece and token not in control and (completes or after_space):
                total += -math.inf if value is False else value
        if total > NEG:
            expected.append((token, total))
    logits = row(*[0.0] * len(pieces))
    if expected:
        assert table(chain.apply(logits)) == expected
    else:
        with pytest.raises(SamplingError, match=r"^sequence_bias: every candidate left is banned$"):
            chain.apply(logits)


def test_a_banned_sequence_is_dropped_where_it_would_be_completed():
    chain = make({"ids": [[[1, 2], "-inf"], [[3], False]]}, None, [1])
    assert table(chain.apply(row(0, 1, 2, 3))) == [(0, 0.0), (1, 1.0)]
    chain.accept(0)
    assert table(chain.apply(row(0, 1, 2, 3))) == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_values_beyond_float32_are_clamped():
    chain = make({"ids": [[[0], 3e38], [[1], -3e38], [[2], 3e38]]}, None)
    assert chain.apply(row(3e38, -3e38, NEG)).logits.tolist() == [MAX_FLOAT32, MIN_FLOAT32, NEG]


def test_a_lone_surrogate_is_rejected():
    with pytest.raises(SamplingError, match=r"^chain\[0\]\.sequence_bias\.bias: '\\ud800' is not UTF-8$"):
        make({"bias": {"\ud800": 1}})
