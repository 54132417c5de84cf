import math
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from logitsmith.engine import Model, locate
from logitsmith.samplers import SamplingError, build

from ..oracle.native import NativeChain
from .rows import NEG, FakeVocabulary, agree, make_row, row, table


class Words(FakeVocabulary):
    """A vocabulary of these pieces; <e> and the like are control tokens that end a text, <s one that does not."""

    def __init__(self, *pieces):
        super().__init__(len(pieces))
        self._pieces = [piece.encode() for piece in pieces]
        self.eog = frozenset(i for i, piece in enumerate(pieces) if piece.endswith(">"))
        self.end = min(self.eog, default=None)

    @property
    def pieces(self):
        return self._pieces

    def is_control(self, token):
        return self._pieces[token].startswith(b"<") and self._pieces[token] != b"<"


def likely(*probabilities):
    return row(*(math.log(p) if p else NEG for p in probabilities))


def fill(logits, *pieces, mask=None):
    return build(["infill"], vocab=Words(*pieces)).apply(logits, mask)


NONE = math.exp(-200)
# pieces, probabilities, ids left
WORKED = {
    "the end is near": ("a b c <e>", (0.5, 0.2, 0.2, 0.1), [3]),
    "both ends": ("a <e> c <f>", (0.5, 0.1, 0.3, 0.1), [1, 3]),
    # 3 * 5 * 1/16 = 15/16. Of 13/16 the first has 8/13, the second 4/13, less than a third.
    "the end exactly as likely": ("a b c d <e>", (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16), [0, 4]),
    "the end more likely": ("a b c d <e>", (1 / 2, 1 / 4, 1 / 8, 1 / 16, 0.0626), [4]),
    "below 0.2 goes": ("a b c <e>", (0.5, 0.35, 0.15, NONE), [0, 1, 3]),
    "0.2 stays": ("a b c d e <e>", (0.2, 0.2, 0.2, 0.2, 0.2, NONE), [0, 1, 2, 3, 4, 5]),
    "below 1 / (m + 1) of what is left": ("a b c <e>", (0.6, 0.25, 0.15, NONE), [0, 3]),
    "a prefix goes into the likelier": ("a ab b <e>", (0.3, 0.4, 0.3, NONE), [1, 3]),
    "the likelier is the prefix": ("a ab b <e>", (0.4, 0.3, 0.3, NONE), [0, 3]),
    "equally likely: the prefix": ("ab a b <e>", (0.35, 0.35, 0.3, NONE), [1, 3]),
    "equal pieces: the first": ("b a a <e>", (0.3, 0.35, 0.35, NONE), [1, 3]),
    "one into another into a third": ("a ab abc b <e>", (0.2, 0.25, 0.3, 0.25, NONE), [2, 4]),
    "only together above 0.2": ("a ab b <e>", (0.18, 0.18, 0.64, NONE), [2, 0, 3]),
    "the middle of a piece is not a prefix": ("b ab <e>", (0.5, 0.5, NONE), [0, 1, 2]),
    "an end has no prefix": ("< <e> b", (0.5, NONE, 0.5), [0, 2, 1]),
    "nor has another control token": ("< <s b <e>", (0.3, 0.4, 0.3, NONE), [1, 0, 2, 3]),
    "-inf takes no part": ("a ab b <e>", (0.5, 0, 0.5, 0), [0, 2, 3]),
    "one candidate": ("a <e>", (1, 0), [0, 1]),
    "one end": ("a <e>", (0, 1), [1]),
}


@pytest.mark.parametrize(("pieces", "probabilities", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(pieces, probabilities, ids):
    logits = likely(*probabilities)
    assert table(fill(logits, *pieces.split())) == [(i, float(logits[i])) for i in ids]


SIX = [*"abcdef", "<e>"]
# None of them has 0.2.
UNLIKELY = likely(0.1, 0.19, 0.18, 0.18, 0.18, 0.17, NONE)


def test_where_no_text_stays_the_end_remains():
    assert table(fill(UNLIKELY, *SIX)) == [(6, 1.0)]
    # Also where an earlier step dropped it.
    assert table(build("top_k6 > infill", vocab=Words(*SIX)).apply(UNLIKELY)) == [(6, 1.0)]


def test_a_grammar_that_forbids_the_end_leaves_the_best_row():
    mask = np.array([True] * 6 + [False])
    assert table(fill(UNLIKELY, *SIX, mask=mask)) == [(1, float(UNLIKELY[1]))]
    mask[6] = True
    assert table(fill(UNLIKELY, *SIX, mask=mask)) == [(6, 1.0)]


def test_which_of_two_ends_remains():
    vocabulary, logits = Words(*SIX, "<f>"), likely(*[1 / 6] * 6, NONE, NONE)
    vocabulary.end = 7
    assert table(build(["infill"], vocab=vocabulary).apply(logits)) == [(7, 1.0)]
    vocabulary.end = None  # a vocabulary need not say which is the end of a turn
    assert table(build(["infill"], vocab=vocabulary).apply(logits)) == [(6, 1.0)]


def by_hand(logits, pieces):
    """The formula as it stands, in float32, every pair of rows compared."""
    order = sorted(range(len(pieces)), key=lambda i: (-logits[i], i))
    weights = [np.float32(math.exp(np.float32(logits[i] - logits[order[0]]))) for i in order]

    def total(values):
        result = np.float32(0)
        for value in values:
            result = result + value
        return result

    p = [weight / total(weights) for weight in weights]
    is_end = [pieces[i].endswith(">") for i in order]
    ending = total(q for q, end in zip(p, is_end, strict=True) if end)
    writing = total(q for q, end in zip(p, is_end, strict=True) if not end)
    places = range(len(order))
    if np.float32(3) * ending * np.float32(len(order)) > writing:
        return [order[i] for i in places if is_end[i]]
    alive = [logits[i] > NEG for i in order]
    for one in places:
        for other in places:
            begins = not is_end[one] and not is_end[other] and pieces[order[other]].startswith(pieces[order[one]])
            if one != other and begins and alive[one] and alive[other]:
                into, gone = (other, one) if p[other] > p[one] else (one, other)
                p[into], p[gone], alive[gone] = p[into] + p[gone], np.float32(0), False
    left = [i for i in places if is_end[i] or p[i] >= np.float32(0.2)]
    text = sum(not is_end[i] for i in left)
    if not text:
        return [min(i for i, piece in enumerate(pieces) if piece.endswith(">"))]
    mass = total(p[i] for i in left)
    return [order[i] for i in left if is_end[i] or p[i] / mass >= np.float32(1 / (text + 1))]


words = st.lists(st.text("ab", min_size=1, max_size=3), max_size=9).flatmap(
    lambda texts: st.permutations([*texts, "<e>", "<f>"])
)
numbers = st.sampled_from([0.0, 0.0, 1.0, -1.0, -30.0, NEG]) | st.floats(-4, 4, width=32)


@given(words, st.data())
def test_brute_force(pieces, data):
    texts = st.lists(numbers, min_size=len(pieces), max_size=len(pieces)).filter(lambda values: max(values) > NEG)
    # Were the ends as likely as the rest, there would be nothing to do but to end.
    values = [value - 9 * piece.endswith(">") for value, piece in zip(data.draw(texts), pieces, strict=True)]
    left = fill(row(*values), *pieces)
    assert left.ids.tolist() == by_hand(row(*values), pieces)


@pytest.fixture(scope="module")
def vocabulary():
    with Model.load(locate()[0], n_ctx=64) as model:
        yield model.vocabulary


@cache
def ours(vocabulary, k):
    return build([{"top_k": k}, "infill"], vocab=vocabulary)


def check(vocabulary, logits, k):
    steps = [{"top_k": {"k": k}}, {"infill": {}}, {"dist": {}}]
    with NativeChain(steps, vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        theirs = native.apply(logits)
    left = ours(vocabulary, k).apply(logits)
    assert left.ids.tolist() == theirs.ids.tolist()
    agree(left, theirs)


# Tokens of which many begin another one, and the three ends.
RELATED = [
    "t",
    "th",
    "the",
    "them",
    "then",
    "there",
    "there's",
    "a",
    "ab",
    "abs",
    "an",
    "and",
    "any",
    "b",
    "in",
    "I",
]


@given(data=st.data(), k=st.sampled_from([1, 5, 12, 64]))
def test_equals_llama_cpp_on_related_tokens(vocabulary, data, k):
    texts = [
        token for word in RELATED for text in (word, " " + word) for token in vocabulary.tokenize(text.encode())
    ]
    chosen = data.draw(st.lists(st.sampled_from(sorted({*texts, 0, 1, 2, 4})), max_size=20, unique=True))
    near = st.floats(-2, 2, width=32)
    values = data.draw(st.lists(near, min_size=len(chosen), max_size=len(chosen), unique=True))
    logits = np.linspace(-100, -150, vocabulary.size, dtype=np.float32)
    logits[chosen] = values
    logits[[0, 2, 4]] -= np.float32(data.draw(st.sampled_from([0, 4, 9, 20])))
    assume(np.unique(logits).size == logits.size)  # llama.cpp's sort may exchange equal ones
    check(vocabulary, logits, k)


@pytest.mark.parametrize("style", ["normal", "flat", "peaked"])
@pytest.mark.parametrize("k", [5, 40, 200])
def test_equals_llama_cpp_on_any_row(vocabulary, style, k):
    for seed in range(5):
        check(vocabulary, make_row(style, vocabulary.size, seed), k)


@settings(max_examples=5)
@given(
    chosen=st.lists(st.integers(0, 49_151), min_size=1, max_size=12, unique=True), seed=st.integers(0, 2**32 - 1)
)
def test_equals_llama_cpp_on_the_whole_vocabulary(vocabulary, chosen, seed):
    logits = np.full(vocabulary.size, NEG, dtype=np.float32)
    logits[chosen] = make_row("normal", len(chosen), seed)
    with NativeChain([{"infill": {}}], vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        theirs = native.apply(logits)
    left = ours(vocabulary, 0).apply(logits)
    assert left.ids[left.logits > NEG].tolist() == theirs.ids[theirs.logits > NEG].tolist()
    assert sorted(left.ids.tolist()) == sorted(theirs.ids.tolist())


def test_equal_logits_keep_their_order_where_llama_cpp_mixes_them(vocabulary):
    tokens = [vocabulary.tokenize(text)[0] for text in (b" apple", b" bread", b" sea", b" tree")]
    logits = np.full(vocabulary.size, NEG, dtype=np.float32)
    logits[tokens] = 3
    left = ours(vocabulary, 40).apply(logits)
    assert left.ids[left.logits > NEG].tolist() == sorted(tokens)
    steps = [{"top_k": {"k": 40}}, {"infill": {}}]
    with NativeChain(steps, vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        theirs = native.apply(logits)
    assert sorted(theirs.ids[theirs.logits > NEG].tolist()) == sorted(tokens)
    assert theirs.ids[:4].tolist() != sorted(tokens), "llama.cpp's sort became stable: say so in the docstring"


def test_a_vocabulary_without_an_end():
    with pytest.raises(
        SamplingError, match=r"^chain\[0\]\.infill: the vocabulary has no end-of-generation token$"
    ):
        build(["infill"], vocab=Words("a", "b"))
