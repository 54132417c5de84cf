"""The batch sampler against chains, llama.cpp's and ours; further parts of it are in test_batch_*.py."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import Candidates, build
from logitsmith.samplers.batch import SamplingData, SamplingParam, sample
from logitsmith.samplers.batch.logits import BLOCK_COUNT

from ..oracle.native import NativeChain
from .rows import LARGEST, NEG, make_row, row, rows

NEUTRAL = {
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
}
DTYPES = {"top_k": np.int64, "seed": np.int64, "do_sample": np.bool_}


@dataclass
class Row:
    """One row of a batch, as a chain would be told of it."""

    logits: np.ndarray
    settings: dict = field(default_factory=dict)
    prompt: list = field(default_factory=list)
    output: list = field(default_factory=list)
    seed: int = 0
    sampled: bool = True

    def chain(self):
        """A chain that has drawn and accepted the output."""
        it = NEUTRAL | self.settings
        penalties = {
            "repeat": it["repetition_penalty"],
            "frequency": it["frequency_penalty"],
            "presence": it["presence_penalty"],
            "last_n": -1,
            "scope": "output",
        }
        steps = [{"penalties": penalties}]
        if self.sampled:
            steps += [{"temperature": it["temperature"]}, {"top_k": it["top_k"]}, {"top_p": it["top_p"]}]
        chain = build([*steps, "dist" if self.sampled else "greedy"], seed=self.seed)
        chain.reset(self.prompt)
        for token in self.output:
            chain.draw(Candidates(row(0)))
            chain.accept(token)
        return chain


def padded(texts, fill, rng=None):
    """Texts as a table; ``fill``, which is not a token, stands on the right, or anywhere if there is an
    ``rng``."""
    width = max((len(text) for text in texts), default=0) + (0 if rng is None else 3)
    table = np.full((len(texts), width), fill, dtype=np.int64)
    for number, text in enumerate(texts):
        places = np.arange(len(text)) if rng is None else np.sort(rng.permutation(width)[: len(text)])
        table[number, places] = text
    return table


def vector(name, values, missing=()):
    """Parameters as `from_numpy` takes them; a top_k of 0 and what is missing are masked."""
    array = np.array(values, dtype=DTYPES.get(name, np.float32))
    masked = (array == 0 if name == "top_k" else np.zeros(array.shape, bool)) | np.isin(
        np.arange(array.size), missing
    )
    return np.ma.masked_array(array, mask=masked) if masked.any() else array


def arguments(batch, to_tensor=np.asarray, rng=None, **data):
    """The arguments of `sample` after the logits."""
    size = batch[0].logits.size
    fill = -1 if rng is None else rng.choice([-1, size, size + 7, 2**40])
    texts = padded([it.prompt + it.output for it in batch], fill, rng)
    outputs = padded([it.output for it in batch], fill, rng)
    settings = {name: vector(name, [(NEUTRAL | it.settings)[name] for it in batch]) for name in NEUTRAL}
    return SamplingData.from_numpy(texts, outputs, to_tensor, **data), SamplingParam.from_numpy(
        **settings,
        seed=vector("seed", [it.seed for it in batch]),
        do_sample=vector("do_sample", [it.sampled for it in batch]),
        to_tensor=to_tensor,
    )


def agrees(batch, rng=None):
    """Assert that the batch gives each row the token and the value of its chain; returns both."""
    logits = np.stack([it.logits for it in batch])
    logits.flags.writeable = False
    tokens, values = sample(logits, *arguments(batch, rng=rng))
    assert tokens.dtype == np.int64
    assert tokens.shape == (len(batch),)
    chains = [it.chain() for it in batch]
    assert tokens.tolist() == [chain.sample(it.logits) for chain, it in zip(chains, batch, strict=True)]
    if not any(it.sampled for it in batch):
        assert values is None
        return tokens, values
    assert values.dtype == np.float32
    for chain, it, token, value in zip(chains, batch, tokens, values, strict=True):
        left = chain.apply(it.logits)
        place = left.ids.tolist().index(token)
        with np.errstate(over="ignore"):
            weights = left.weights().astype(np.float64)
        if not it.sampled:
            assert value == left.logits[place]
            continue
        expected = math.log(weights[place] / weights.sum())
        # A weight so small that float32 holds few of its digits says little of its logarithm.
        assert value == pytest.approx(expected, abs=2e-5 if expected > -80 else 1, rel=1e-6)
    return tokens, values


FLOATS = st.floats(0.0625, 4, width=32)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([1.1, 0.5, 2.0, 1e-30, 1e30]) | FLOATS,
        "frequency_penalty": st.sampled_from([0.1, -0.5, 1e30]) | st.floats(-2, 2, width=32),
        "presence_penalty": st.sampled_from([0.5, -1.0, -1e30]) | st.floats(-2, 2, width=32),
        "temperature": st.sampled_from([0.8, 0.1, 1e-6, 1e-38, 1e-45, 1e6, 1e38]) | FLOATS,
        "top_k": st.sampled_from([1, 2, 40]) | st.integers(1, 4999),
        "top_p": st.sampled_from([0.95, 0.5, 0.01, 1e-9, 0.999999]) | st.floats(2**-10, 1, width=32),
    },
)


@st.composite
def batches(draw, largest=5000):
    """Rows over one vocabulary: ties, -inf and huge logits among them, greedy rows, texts that repeat."""
    first = draw(rows(largest))
    size = first.size
    same = st.integers(0, 2**32 - 1).map(lambda seed: make_row(("normal", "ties", "banned")[seed % 3], size, seed))
    batch = []
    for number in range(draw(st.integers(1, 4))):
        logits = first if number == 0 else draw(same)
        likely = np.argsort(-logits, kind="stable")[:20].tolist()
        tokens = st.lists(st.sampled_from(likely) | st.integers(0, size - 1), max_size=8)
        settings, sampled = draw(SETTINGS), draw(st.integers(0, 4)) > 0
        if settings.get("top_k", 0) >= size:
            del settings["top_k"]
        if not sampled:
            settings = {name: value for name, value in settings.items() if name.endswith("penalty")}
        seed = draw(st.integers(0, 2**32 - 1))
        batch.append(Row(logits, settings, draw(tokens), draw(tokens), seed, sampled))
    return batch


@given(batches(), st.integers(0, 99))
def test_equals_chains(batch, seed):
    agrees(batch, np.random.default_rng(seed))


STYLES = ["normal", "flat", "peaked", "ties", "equal", "banned", "tiny", "huge"]
CUTS = {
    "nothing": {},
    "temperature": {"temperature": 0.8},
    "top_k 1": {"top_k": 1},
    "top_k 40": {"top_k": 40, "temperature": 0.7},
    "top_k 1000": {"top_k": 1000},
    "top_k 30000": {"top_k": 30_000, "top_p": 0.99},
    "all but one": {"top_k": 49_999},
    "top_p": {"top_p": 0.95, "temperature": 0.8},
    "top_p that keeps nearly all": {"top_p": 0.9999},
    "both": {"top_k": 300, "top_p": 0.9, "temperature": 1.3},
}


@pytest.mark.parametrize("style", STYLES)
def test_equals_chains_on_a_large_vocabulary(style):
    # Above 8,192 tokens blocks of several are looked at, and 50,000 is not a multiple of their number.
    history = [7, 7, 100, 49_999]
    for penalty in ({}, {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": -3.0}):
        batch = []
        for seed, cut in enumerate(CUTS.values()):
            logits = make_row(style, 50_000, seed)
            likely = np.argsort(-logits, kind="stable")[:30].tolist()
            batch.append(Row(logits, cut | penalty, [*history, *likely], likely[::2] * 2, seed=seed))
        agrees(batch)


@pytest.mark.parametrize("size", [2 * BLOCK_COUNT - 1, 2 * BLOCK_COUNT, 3 * BLOCK_COUNT - 1, 3 * BLOCK_COUNT + 1])
def test_every_token_lies_in_a_block(size):
    tokens = (0, 1, BLOCK_COUNT - 1, BLOCK_COUNT, size - 2, size - 1)
    logits = np.zeros((len(tokens), size), np.float32)
    logits[range(len(tokens)), tokens] = 1
    found, _ = agrees([Row(it, {"top_k": 1}) for it in logits])
    assert found.tolist() == list(tokens)


def test_equals_chains_on_the_largest_vocabulary():
    batch = [Row(make_row("normal", LARGEST, number), cut, seed=9) for number, cut in enumerate(CUTS.values())]
    agrees(batch)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_equals_chains_in_large_batches(style):
    rng = np.random.default_rng(7)
    penalty = {"repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1}
    batch = []
    for seed in range(64):
        cut = list(CUTS.values())[seed % len(CUTS)]
        text = rng.zipf(1.2, 600).clip(max=152_063).tolist()
        sampled = seed % 8 > 0
        logits, settings = make_row(style, 152_064, seed), penalty | (cut if sampled else {})
        batch.append(Row(logits, settings, text[:300], text[300:], seed, sampled))
    agrees(batch, rng)


@pytest.mark.parametrize("cut", [{"top_p": 0.5}, {"top_p": 0.5, "top_k": 4}], ids=["alone", "after top_k"])
@pytest.mark.parametrize("size", [6, 20_000])
def test_top_p_exactly_at_its_threshold(cut, size):
    # Four tokens of 1/4 each: two reach 0.5, and the third is not kept.
    logits = np.full(size, NEG, np.float32)
    logits[:4] = 1
    tokens, _ = agrees([Row(logits, cut, seed=seed) for seed in range(40)])
    assert set(tokens.tolist()) == {0, 1}


@pytest.mark.parametrize("size", [500, 20_000])
def test_every_row_has_its_own_top_k(size):
    agrees([Row(make_row("ties", size, 3), {"top_k": count}, seed=4) for count in range(1, 40, 3)])


@pytest.mark.parametrize("many", [1, 2, 17])
def test_a_grammars_mask_leaves_few(many):
    logits = np.full(50_000, NEG, np.float32)
    logits[np.random.default_rng(many).permutation(50_000)[:many]] = np.arange(many)
    agrees([Row(logits, cut, [3], [3], seed) for seed, cut in enumerate(CUTS.values())])


def test_long_texts_touch_every_block():
    rng = np.random.default_rng(3)
    batch = []
    for seed in range(4):
        text = rng.integers(0, 20_000, 15_000).tolist()
        settings = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "top_k": 40}
        batch.append(Row(make_row("normal", 20_000, seed), settings, text[:9000], text[9000:], seed=seed))
    agrees(batch)


@pytest.mark.parametrize("temperature", [1e-38, 1e-45, 1e-30, 3e38])
@pytest.mark.parametrize("style", ["normal", "huge", "tiny", "equal"])
def test_temperatures_beyond_float32(style, temperature):
    # The quotients overflow or become equal; where the highest one does, the most likely token alone is left.
    cuts = ({}, {"top_k": 5}, {"top_p": 0.5})
    for size in (100, 3000, 30_000):
        agrees([Row(make_row(style, size, 5), cut | {"temperature": temperature}, seed=3) for cut in cuts])


def test_what_cannot_be_drawn_leaves_the_other_rows_alone():
    fine, lost = row(-1, -2, -3), row(-3e38, -2e38, -1e38)
    settings = {"temperature": 1e-3}
    tokens, values = agrees(
        [Row(fine, {}, seed=1), Row(lost, settings), Row(fine, {}, seed=2), Row(lost, settings)]
    )
    assert tokens[1] == tokens[3] == 2
    assert values[1] == values[3] == 0


def test_greedy_rows_stand_beside_sampled_ones():
    logits = row(1, 3, 3, 2)
    greedy = Row(logits, {"repetition_penalty": 2.0}, [1], sampled=False)
    tokens, values = agrees([greedy, Row(logits, {"temperature": 5.0}, seed=4), greedy, Row(logits, seed=5)])
    assert tokens[0] == tokens[2] == 2  # token 1 has been penalized
    assert values[0] == values[2] == 3.0
    assert values[1] < 0
    assert values[3] < 0


@pytest.mark.parametrize("size", [1, 5, 3000, 30_000])
def test_greedy_rows_only(size):
    batch = [Row(make_row("ties", size, seed), sampled=False) for seed in range(5)]
    tokens, _ = agrees(batch)
    assert tokens.tolist() == [int(it.logits.argmax()) for it in batch]
    alone, values = sample(np.stack([it.logits for it in batch]))
    assert values is None
    assert alone.tolist() == tokens.tolist()


def test_worked_example():
    # Repetition: [4, -2, 6, 1] / 2 for tokens 0 and 2, * 2 for 1 -> [2, -4, 3, 1]. Frequency 0.25 twice and
    # presence 0.5 on token 2 -> [2, -4, 2, 1]. Temperature 2 -> [1, -2, 1, 0.5]. top_k 3 -> tokens 0, 2, 3, with
    # weights 1, 1, exp(-0.5): of 2.6065 the first two have 0.767, so that top_p 0.7 keeps two, and u decides.
    settings = {
        "repetition_penalty": 2.0,
        "frequency_penalty": 0.25,
        "presence_penalty": 0.5,
        "temperature": 2.0,
        "top_k": 3,
        "top_p": 0.7,
    }
    batch = [Row(row(4, -2, 6, 1), settings, [0, 1], [2, 2], seed) for seed in range(20)]
    tokens, values = agrees(batch)
    u = [[np.random.RandomState(seed).bytes(8 * 3)[16:]] for seed in range(20)]
    third = [int.from_bytes(word, "little") / 2**64 for (word,) in u]
    assert tokens.tolist() == [0 if number <= 0.5 else 2 for number in third]
    assert {0, 2} == set(tokens.tolist())
    np.testing.assert_allclose(values, math.log(0.5), rtol=1e-6)


def test_an_output_that_is_not_in_all_input_ids():
    # Token 0 is divided, token 1 lowered, and neither both: 4 / 2 = 2 and 3 - 0.5 = 2.5.
    data = SamplingData.from_numpy(np.array([[0]]), np.array([[1]]), np.asarray)
    param = SamplingParam.from_numpy(np.array([2.0]), np.array([0.5]), to_tensor=np.asarray)
    assert sample(np.array([[4, 3, 2.25]]), data, param)[0].tolist() == [1]
    assert sample(np.array([[4, 3, 2.75]]), data, param)[0].tolist() == [2]


@pytest.mark.parametrize("style", ["normal", "flat"])
def test_equals_llama_cpp(style):
    size, rounds = 3000, 40
    settings = [
        {"temperature": 0.7},
        {"temperature": 1.5, "top_k": 50},
        {"top_k": 20, "top_p": 0.8},
        {"top_p": 0.9},
    ]
    batch = [Row(make_row(style, size, number), it, seed=number) for number, it in enumerate(settings)]
    theirs = []
    for it in batch:
        left = NEUTRAL | it.settings
        steps = [{"temperature": {"t": left["temperature"]}}]
        steps += [{"top_k": {"k": left["top_k"]}}, {"top_p": {"p": left["top_p"]}}, {"dist": {}}]
        with NativeChain(steps, vocabulary=size, seed=it.seed) as native:
            theirs.append([native.apply(it.logits).token for _ in range(rounds)])
    for step in range(rounds):
        for it, tokens in zip(batch, theirs, strict=True):
            it.output = tokens[:step]
        tokens, _ = sample(np.stack([it.logits for it in batch]), *arguments(batch))
        assert tokens.tolist() == [their[step] for their in theirs]


def test_a_repeated_call_gives_the_same():
    batch = [Row(make_row("flat", 2000, number), {}, [1], [2, 3], seed=7) for number in range(3)]
    logits = np.stack([it.logits for it in batch])
    given = arguments(batch)
    first, second = sample(logits, *given), sample(logits, *given)
    assert first[0].tolist() == second[0].tolist()
    assert first[1].tolist() == second[1].tolist()
    shorter = arguments([Row(it.logits, {}, [1], [2], seed=7) for it in batch])
    assert first[0].tolist() != sample(logits, *shorter)[0].tolist(), "it is another draw"


@given(batches(3000), st.data())
def test_any_rows_in_any_order(batch, data):
    orders = st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=6)  # a row may come twice
    alike(batch, *agrees(batch), [data.draw(orders) for _ in range(3)])


def alike(batch, tokens, values, orders):
    """Assert that rows in another order, or only some, have the tokens and values that they have here."""
    for order in orders:
        some = [batch[number] for number in order]
        found, theirs = sample(np.stack([it.logits for it in some]), *arguments(some))
        assert found.tolist() == tokens[order].tolist()
        if any(it.sampled for it in some):
            assert theirs.tolist() == values[order].tolist()
        else:
            assert theirs is None


def test_without_a_seed_no_draw_is_like_another():
    logits = np.zeros((50, 5000), np.float32)
    param = SamplingParam.from_numpy(do_sample=np.ones(50, bool), to_tensor=np.asarray)
    first, second = sample(logits, None, param)[0], sample(logits, None, param)[0]
    assert (first == second).sum() < 5
    assert len(set(first.tolist())) > 40


def test_rows_without_a_seed_stand_beside_rows_with_one():
    batch = [Row(make_row("flat", 5000, 1), seed=seed) for seed in (3, 3, 4)]
    logits = np.stack([it.logits for it in batch])
    data, _ = arguments(batch)
    param = SamplingParam.from_numpy(seed=vector("seed", [3, 3, 4], missing=[1]), to_tensor=np.asarray)
    drawn = np.array([sample(logits, data, param)[0] for _ in range(5)])
    assert param.do_sample.tolist() == [True, False, True]
    sampled = SamplingParam.from_numpy(
        seed=vector("seed", [3, 3, 4], missing=[1]), do_sample=np.ones(3, bool), to_tensor=np.asarray
    )
    other = np.array([sample(logits, data, sampled)[0] for _ in range(5)])
    assert (drawn[:, [0, 2]] == other[:, [0, 2]]).all()
    assert len(set(other[:, 0].tolist())) == 1
    assert len(set(other[:, 1].tolist())) > 1
