"""Rows of logits, a vocabulary, and the comparison with llama.cpp: shared by the tests of this folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from logitsmith.samplers import BuildContext, Candidates, make_sampler
from numpy.typing import NDArray

from ..oracle.native import Left, NativeChain

Row = NDArray[np.float32]
NEG = -math.inf
MIN_FLOAT32, MAX_FLOAT32 = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)


def row(*values: float) -> Row:
    """A row of logits that can't be written to, so that a sampler that tries is caught."""
    logits = np.array(values, dtype=np.float32)
    logits.flags.writeable = False
    return logits


HALVES = row(*(math.log(p) for p in (1, 0.5, 0.25, 0.125, 0.125)))
"""The probabilities are exactly 1/2, 1/4, 1/8, 1/16 and 1/16, in float32 too."""


def softmax(logits: Row) -> list[float]:
    """Probabilities, by loops and in float64."""
    highest = max(logits.tolist())
    weights = [math.exp(value - highest) for value in logits.tolist()]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def ranked(logits: Row) -> list[int]:
    """Positions from high to low, ties in order, by Python's sort."""
    return sorted(range(logits.size), key=lambda i: (-logits[i], i))


STYLES = {
    "normal": lambda rng, size: rng.normal(0, 3, size),
    "flat": lambda rng, size: rng.normal(0, 0.01, size),
    "peaked": lambda rng, size: rng.normal(0, 10, size),
    "ties": lambda rng, size: np.round(rng.normal(0, 2, size)),
    "equal": lambda rng, size: np.full(size, rng.normal()),
    "banned": lambda rng, size: np.where(rng.random(size) < 0.3, NEG, rng.normal(0, 3, size)),
    "tiny": lambda rng, size: rng.normal(0, 1e-30, size),
    # llama.cpp's bucket sort casts 6.4 * logit to an int: at 3.4e8 that overflows, see test_top_k.py.
    "huge": lambda rng, size: rng.normal(0, 1e7, size),
}


def make_row(style: str, size: int, seed: int) -> Row:
    """A row of one of the styles, the same one for the same arguments."""
    values = STYLES[style](np.random.default_rng(seed), size).astype(np.float32)
    if np.isneginf(values).all():
        values[0] = 1.0
    values.flags.writeable = False
    return values


_EXTREMES = [0.0, -0.0, 1.0, 1.0, -1.0, NEG, 88.0, -88.0, -104.0, 1e30, -1e30, 1e-30, -1e-30, 3e38, -3e38]
_small_rows = (
    st.lists(st.sampled_from(_EXTREMES) | st.floats(-30, 30, width=32), min_size=1, max_size=40)
    .filter(lambda values: max(values) > NEG)
    .map(lambda values: row(*values))
)


LARGEST = 200_000
"""As many logits as the largest vocabularies have. Such a row is drawn as a size and a seed, which is cheap."""


def rows(largest: int = 5000) -> st.SearchStrategy[Row]:
    """Rows of 1 to ``largest`` logits: ties, -inf, one candidate, huge and tiny values among them."""
    sizes = st.integers(1, min(300, largest))
    if largest > 1024:  # where llama.cpp changes its algorithm
        sizes |= st.integers(1000, min(1050, largest)) | st.integers(1, min(5000, largest))
    if largest > 5000:
        sizes |= st.integers(5000, largest)
    large = st.builds(make_row, st.sampled_from(sorted(STYLES)), sizes, st.integers(0, 2**32 - 1))
    return _small_rows | large


NORMAL, TIES = make_row("normal", LARGEST, 11), make_row("ties", LARGEST, 11)
"""Rows as long as the largest vocabularies."""


class FakeVocabulary:
    """Every byte is a token, higher ids are longer pieces; the last id is a control token that ends a text."""

    def __init__(self, size: int = 128) -> None:
        self.size = size
        self.eog = frozenset({size - 1})
        self.newline = 10 % size
        self.end: int | None = size - 1

    @property
    def pieces(self) -> list[bytes]:
        return [bytes([i]) if i < 256 else i.to_bytes(3, "big") for i in range(self.size)]

    def is_control(self, token: int) -> bool:
        return token == self.size - 1

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        return [byte % self.size for byte in data]


class Pieces:
    """A vocabulary of these pieces, some of which are control tokens, and some end a text."""

    newline = end = None

    def __init__(self, *pieces: bytes, control: Iterable[int] = (), eog: Iterable[int] = ()) -> None:
        self.pieces = list(pieces)
        self.size = len(pieces)
        self.eog = frozenset(eog)
        self._control = frozenset(control)

    def is_control(self, token: int) -> bool:
        return token in self._control


def vocabulary_with_ends(size: int, *eog: int) -> FakeVocabulary:
    """A vocabulary in which these tokens end a text."""
    vocabulary = FakeVocabulary(size)
    vocabulary.eog = frozenset(eog)
    return vocabulary


def within(history: Iterable[int], logits: Row) -> list[int]:
    """The tokens of a history as ids of a row's vocabulary."""
    return [token % logits.size for token in history]


def run(
    step: Any, logits: Row, prompt: Iterable[int] = (), output: Iterable[int] = (), seed: int = 0
) -> Candidates:
    """Apply one step to a row, after a history; nothing may have changed in the row."""
    sampler = make_sampler(step, "step")
    sampler.bind(BuildContext(seed, FakeVocabulary(logits.size)))
    sampler.reset(list(prompt))
    for token in output:
        sampler.accept(token)
    before = logits.tobytes()
    candidates = Candidates(logits)
    with np.errstate(over="ignore"):  # as in a chain
        sampler.apply(candidates)
    assert logits.tobytes() == before, "the input was written to"
    assert len(candidates) >= 1, "nothing is left"
    return candidates


def table(candidates: Candidates) -> list[tuple[int, float]]:
    """The rows left, as (id, logit)."""
    return list(zip(candidates.ids.tolist(), candidates.logits.tolist(), strict=True))


def native(steps: list[Mapping[str, Any]], logits: Row, history: Iterable[int] = ()) -> Left:
    """The candidates that llama.cpp leaves of the row; a `dist` at the end gives the probabilities."""
    with NativeChain([*steps, {"dist": {}}], vocabulary=logits.size) as chain:
        chain.accept(*history)
        return chain.apply(logits)


def agree(ours: Candidates, left: Left, *, cut: bool = False) -> None:
    """Assert the same logits in the same order, the same ids, and probabilities within 1e-5.

    Ids of equal logits may come in another order, as llama.cpp's sort is unstable. ``cut``: the last of the
    rows kept may have been chosen among equals; then these, and only these, need not be the same tokens.
    """
    np.testing.assert_array_equal(ours.logits, left.logits)
    lowest = ours.logits.min()
    sure = np.count_nonzero(ours.logits > lowest) if cut else len(ours)
    mine = ours.ids[np.lexsort((ours.ids, -ours.logits))]
    theirs = left.ids[np.lexsort((left.ids, -left.logits))]
    np.testing.assert_array_equal(mine[:sure], theirs[:sure])
    with np.errstate(over="ignore"):
        weights = ours.weights()
    # Not `probs`: its sum runs in float32, as in llama.cpp's truncating samplers; see test_candidates.py.
    np.testing.assert_allclose(weights / weights.sum(dtype=np.float64), left.p, atol=1e-5, rtol=0)


def check_floor(step: Any, logits: Row, floor: float) -> None:
    """Assert that a step keeps the rows whose probability reaches ``floor``, in their order, and always the best.

    Probabilities are float32, of logits rounded to it: 1e-5 about the floor a row may go either way. A probability
    of 0 need not stay.
    """
    probs = softmax(logits)
    best = max(probs)
    kept = run(step, logits).ids.tolist()
    assert kept == sorted(kept)
    assert {i for i, p in enumerate(probs) if 0 < p >= floor * (1 + 1e-5) or p == best} <= set(kept)
    assert set(kept) <= {i for i, p in enumerate(probs) if p >= floor * (1 - 1e-5)}
