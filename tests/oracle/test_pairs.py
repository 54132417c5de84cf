"""Every ordered pair and triple of llama.cpp's samplers: the same rows, the same counts, the same tokens."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from logitsmith.engine import Model, locate
from logitsmith.samplers import Candidates, build

from .native import MAKERS, NativeChain
from .pairs import (
    EQUAL_SCORES,
    NAN_ENTROPY,
    SELECTORS,
    SORTED_BIAS,
    STEPS,
    distinct_rows,
    follow,
    tied_rows,
    variants,
)

SIGMA, XTC = {"top_n_sigma": {"n": 1.5}}, {"xtc": {"probability": 0.5, "threshold": 0.08}}
HEATED = {"temperature": {"t": 1.4}}
SELECTORS_THAT_COUNT = [
    {"mirostat": {"m": 100, "overflow": "one"}},
    {"mirostat": {"m": 3, "overflow": "one"}},
    {"adaptive_p": 0.4},
]
MASKING = {"temperature", "dynatemp", "top_n_sigma"}
"""Samplers that set rows to -inf in llama.cpp, the first two at a temperature of 0."""
SORTING = {"dynatemp", "top_k", "top_p", "min_p", "xtc", "infill"}
"""Samplers after which llama.cpp holds the rows to be sorted."""


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Any]:
    with Model.load(locate()[0], n_ctx=64) as model:
        yield model.vocabulary


@pytest.fixture(scope="module")
def distinct(vocabulary):
    return distinct_rows(vocabulary, 1)


@pytest.fixture(scope="module")
def tied(vocabulary):
    return tied_rows(vocabulary, 2)


def test_every_sampler_is_among_them():
    assert STEPS.keys() | SELECTORS.keys() == MAKERS.keys()


def may_end(names):
    """The reasons for which parity may end in a chain of these samplers."""
    reasons = {None}
    for number, name in enumerate(names):
        before = set(names[:number])
        if name == "typical":
            reasons.add(EQUAL_SCORES)
        # Penalties and dynatemp may bring a probability below the least float32, too.
        if name == "typical" and before & (MASKING | {"penalties", "dry"}):
            reasons.add(NAN_ENTROPY)
        if name == "logit_bias" and before & SORTING:
            reasons.add(SORTED_BIAS)
    return reasons


@pytest.mark.parametrize("names", [*product(STEPS, STEPS)], ids=" > ".join)
def test_pairs(names, vocabulary, distinct, tied):
    for rows in (distinct, tied):
        chains = [*variants([*names, "dist"], rows)]
        for steps in {str(chain): chain for chain in (chains[0], chains[-1])}.values():
            assert follow(steps, rows, vocabulary, 42).end in may_end(names)


@pytest.mark.parametrize("names", [*product(STEPS, SELECTORS)], ids=" > ".join)
def test_pairs_that_select(names, vocabulary, distinct, tied):
    for rows in (distinct, tied):
        for steps in variants(names, rows):
            assert follow(steps, rows, vocabulary, 42).end is None


@pytest.mark.slow
@pytest.mark.parametrize("first", STEPS)
def test_triples(first, vocabulary, distinct, tied):
    """Print how many chains and draws were compared, and where parity ended."""
    ends: Counter[str | None] = Counter()
    chains = draws = 0
    triples = [(first, *others, "dist") for others in product(STEPS, STEPS)]
    triples += [(first, *others) for others in product(STEPS, SELECTORS.keys() - {"dist"})]
    for number, names in enumerate(triples):
        for rows in (distinct, tied):
            possible = [*variants(names, rows)]
            for steps in islice(possible, number % 2, None, 2):
                try:
                    outcome = follow(steps, rows, vocabulary, 42)
                except AssertionError as error:
                    raise AssertionError(f"{steps}: {error}") from None
                ends[outcome.end] += 1
                chains, draws = chains + 1, draws + outcome.draws
    print(f"\n{first} first: {len(triples)} triples, {chains} chains, {draws:,} draws equal llama.cpp's")
    for end, count in ends.items():
        if end:
            print(f"  {count} chains ended early: {end}")
    assert ends[None] > 0.75 * chains


def peaked_rows(size, count):
    """Rows in which one token is far ahead, and rows in which some are, in turn."""
    rng = np.random.default_rng(7)
    table = rng.normal(0, 1, (count, size)).astype(np.float32)
    table[::2, 3] += 12
    table[1::2, :4] += 4
    return table


def same_tokens(steps, seed=42, count=180, size=300):
    """Return the number of tokens that equal llama.cpp's."""
    ours, table = build(steps, seed=seed), peaked_rows(size, count)
    native_steps = [
        {name: {key: value for key, value in parameters.items() if key != "dropped"}}
        for step in ours.config
        for name, parameters in step.items()
    ]
    same = 0
    with NativeChain(native_steps, vocabulary=size, seed=seed) as native:
        for logits in table:
            token = native.apply(logits).token
            same += ours.sample(logits) == token
            ours.accept(token)
            native.accept(token)
    return same


@pytest.mark.parametrize("between", [[], [{"top_k": {"k": 40}}], [{"top_p": {"p": 0.9, "min_keep": 3}}]], ids=str)
def test_xtc_rolls_where_one_row_is_left_of_many(between):
    after = [*between, XTC, HEATED]
    assert same_tokens([SIGMA, *after]) == 180
    assert same_tokens([{"top_n_sigma": {"n": 1.5, "dropped": "erased"}}, *after]) < 170


@pytest.mark.parametrize("sigma", [1.5, 4.0])
def test_a_large_vocabulary(sigma):
    dynatemp = {"dynatemp": {"temperature": 1.0, "range": 0.6}}
    steps = [{"top_n_sigma": sigma}, {"top_k": 200}, {"top_p": {"p": 0.9, "min_keep": 150}}, XTC, dynatemp]
    assert same_tokens(steps, count=40, size=32_000) == 40
    assert same_tokens([steps[0], *steps[2:]], count=40, size=32_000) == 40


def test_dynatemp_divides_by_the_entropy_of_all_rows():
    logits, after = peaked_rows(300, 2)[1], {"dynatemp": {"temperature": 1.0, "range": 0.8}}
    with NativeChain([SIGMA, after], vocabulary=300) as native:
        theirs = native.apply(logits)
    counted = build([SIGMA, after]).apply(logits)
    np.testing.assert_allclose(counted.logits, theirs.logits[: len(counted)], rtol=1e-6)
    erased = build([{"top_n_sigma": {"n": 1.5, "dropped": "erased"}}, after]).apply(logits)
    assert erased.ids.tolist() == counted.ids.tolist()
    assert erased.max < counted.max  # by the entropy of four rows they are nearly as uncertain as can be: hotter


@pytest.mark.parametrize("selector", SELECTORS_THAT_COUNT, ids=str)
def test_selectors_that_count(selector):
    assert same_tokens([SIGMA, selector]) == 180


def test_an_infinite_mu_draws_a_number_for_rows_that_cannot_be_drawn():
    assert same_tokens([SIGMA, {"mirostat_v2": {"tau": 3e38, "eta": 0.0}}]) == 180


# Where llama.cpp goes wrong, and what is done here.


def test_typical_after_rows_of_minus_inf_takes_the_entropy_of_the_others():
    """llama.cpp's entropy is NaN, so that all scores are equal and its sort decides what stays."""
    logits = peaked_rows(300, 2)[1]
    typical = {"typical": {"p": 0.5}}
    with NativeChain([SIGMA, typical], vocabulary=300) as native:
        theirs = native.apply(logits)
    assert np.isneginf(theirs.logits).any()
    for dropped in ("counted", "erased"):
        ours = build([{"top_n_sigma": {"n": 1.5, "dropped": dropped}}, typical]).apply(logits)
        assert set(ours.ids.tolist()) < {0, 1, 2, 3}
        assert ours.llama_cpp_count == len(ours)


def test_which_masked_rows_a_cut_leaves_is_left_to_llama_cpps_sort():
    """Only infill can tell them apart, by whether they end a text. Here the lowest ids stay."""
    candidates = Candidates(np.array([0, 5, 0, 0, 1, 0], dtype=np.float32))
    candidates.mask_except(np.array([False, True, False, False, True, False]))
    candidates.keep_top_rows(4)
    assert candidates.masked_ids().tolist() == [0, 2]
    assert candidates.llama_cpp_count == 4
