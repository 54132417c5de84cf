"""The same seed gives llama.cpp's own tokens, on the real model, token for token; see `compare` for ties.

A traced chain is compared stage by stage: each step with llama.cpp's sampler applied alone to the stage before it.
"""

import ctypes
from collections.abc import Iterator
from copy import deepcopy

import numpy as np
import pytest
from llama_cpp import llama_cpp
from logitsmith.engine import Model, locate
from logitsmith.presets import load_preset
from logitsmith.samplers import ChainRecorder, build

from .native import MAKERS, ROW, NativeChain, _read

RTOL = 3e-6
"""Of logits: a power or a logarithm of libm is sometimes wrong in the last bit."""

PROMPT = "The lighthouse keeper opened the door and"

ALONE = {
    "greedy": "greedy",
    "dist": "dist",
    "temperature": "temp0.7",
    "dynatemp": "dynatemp(temperature=0.9, range=0.6, exponent=1.3)",
    "top_k": "top_k50",
    "top_p": "top_p0.9",
    "min_p": "min_p0.05",
    "typical": "typical0.6",
    "top_n_sigma": "top_n_sigma1.5",
    "xtc": "xtc(probability=0.5, threshold=0.05)",
    "penalties": "penalties(repeat=1.2, frequency=0.1, presence=0.2, last_n=64)",
    "dry": "dry0.8",
    "logit_bias": "logit_bias(198=-4, 28=2.5, 253=-1)",
    "infill": "top_k40 > infill",  # by itself llama.cpp compares all pieces with all, which takes minutes a token
    "mirostat": "mirostat(overflow=one)",
    "mirostat_v2": "mirostat_v2",
    "adaptive_p": "adaptive_p0.4",
}
"""Each sampler of llama.cpp, by itself; one that does not select is followed by `dist`."""

DRY = 'dry(multiplier=0.8, allowed_length=1, last_n=128, breakers=["\\n", ".", " the"])'
MIXED = {
    # Without typical, whose entropy is NaN in llama.cpp after the -inf that top_n_sigma leaves: see below.
    "llama.cpp's order": (
        f"logit_bias(28=1) > penalties(repeat=1.1) > {DRY} > top_n_sigma3 > top_k100 > top_p0.95 > min_p0.01"
        " > xtc(probability=0.3, threshold=0.1) > dynatemp(temperature=1, range=0.5)"
    ),
    "typical and top_n_sigma": "top_k200 > typical0.95 > temp1.2 > top_n_sigma2 > min_p0.01",
    "every step before a hot draw": (
        "penalties(repeat=1.2, frequency=0.1, presence=0.2, last_n=16) > top_k60 > top_p0.97 > min_p0.02 > temp1.1"
    ),
    "temperature first": "temp0.7 > min_p0.1 > top_k20",
    "hot and wide": "temp1.4 > top_p0.98",
    "twice, and min_keep": "top_p0.99 > temp0.9 > top_p(p=0.9, min_keep=3)",
    "biased mirostat": "logit_bias(28=1) > temp0.9 > mirostat(tau=4, eta=0.2, m=60, overflow=one)",
    "mirostat_v2 after a cut": "penalties(repeat=1.1) > top_k400 > temp1.2 > mirostat_v2(tau=3, eta=0.3)",
    "adaptive": "min_p0.02 > xtc(probability=0.5, threshold=0.2) > adaptive_p(target=0.3, decay=0.8)",
    "fill in the middle": f"top_k40 > top_p0.99 > {DRY} > infill",
}
"""Ten chains of several steps, in orders that people use and in others."""

PRESETS = ["default", "deterministic", "creative", "precise", "llama-cpp", "mirostat", "xtc-dry", "min-p"]
"""The built-in presets that llama.cpp has all the samplers of."""

CHAINS = {**ALONE, **MIXED, **{f"preset {name}": name for name in PRESETS}}

# Where a chain sorts the whole vocabulary and draws from its tail, ties are drawn sometimes.
SORTS_THE_TAIL = {
    "hot and wide",
    "twice, and min_keep",
    "dynatemp",
    "typical",
    "xtc",
    "mirostat",
    "mirostat_v2",
    "dry",
}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model.load(locate()[0], n_ctx=1024) as loaded:
        yield loaded


def is_tie(chain, row, first, second):
    """Return whether two tokens have exactly the same logit, before or after the steps of the chain.

    A temperature above 1 can make one float32 of two adjacent ones.
    """
    if row[first] == row[second]:
        return True
    left = deepcopy(chain).apply(row)  # a copy, since some steps draw random numbers
    logit_of = dict(zip(left.ids.tolist(), left.logits.tolist(), strict=True))
    return first in logit_of and logit_of[first] == logit_of.get(second)


def apply_alone(native, number, stage):
    """The candidates that llama.cpp's sampler of this number leaves of a stage; masked rows stand behind it, at
    -inf."""
    candidates = stage.candidates
    masked = candidates.masked_ids()[: candidates.masked_count]
    rows = np.zeros(len(candidates) + masked.size, dtype=ROW)
    rows["id"] = np.concatenate([candidates.ids, masked])
    rows["logit"] = np.concatenate([candidates.logits, np.full(masked.size, -np.inf, np.float32)])
    array = llama_cpp.llama_token_data_array(
        data=rows.ctypes.data_as(llama_cpp.llama_token_data_p),
        size=rows.size,
        selected=-1,
        sorted=candidates.is_ordered,
    )
    llama_cpp.llama_sampler_apply(llama_cpp.llama_sampler_chain_get(native._chain, number), ctypes.byref(array))
    return _read(array)


def check_rows(name, after, left):
    """The same logits in the same order, and the same tokens but for ties, which llama.cpp's sort shuffles."""
    is_held = left.logits > -np.inf
    logits, ids = left.logits[is_held], left.ids[is_held]
    assert after.logits.size == logits.size, f"{name}: {after.logits.size} rows, not {logits.size}"
    np.testing.assert_allclose(after.logits, logits, rtol=RTOL, atol=RTOL, err_msg=name)
    values, counts = np.unique(after.logits, return_counts=True)
    tied = np.isin(after.logits, values[counts > 1]) | (after.logits == after.logits.min())
    np.testing.assert_array_equal(after.ids[~tied], ids[~tied], err_msg=name)


def check_stages(native, record, selector):
    """Each stage is what llama.cpp's sampler leaves of the stage before it."""
    for number, (before, stage) in enumerate(zip(record.stages, record.stages[1:], strict=False)):
        left = apply_alone(native, number, before.candidates)
        if stage.step == selector:
            logits = record.stages[0].candidates.logits
            assert logits[left.token] == logits[record.token]
        else:
            check_rows(stage.name, stage.candidates, left)


def compare(model, steps, seed, count, traced_count=0):
    """Draw ``count`` tokens with our chain and with llama.cpp's, on the same logits and history.

    Returns at how many places the two drew different tokens of exactly the same logit: llama.cpp sorts long rows
    by an unstable sort, so that equal logits change places there, and keep their order here. Any other difference
    fails. The first ``traced_count`` tokens are traced, which llama.cpp's samplers follow one by one.
    """
    vocabulary = model.vocabulary
    ours = build(steps, seed=seed, vocab=vocabulary)
    prompt = vocabulary.tokenize(PROMPT.encode())
    model.context.read(prompt)
    ours.reset(prompt)
    ties = 0
    recorder = ChainRecorder(ours)
    same = {"vocabulary": vocabulary.size, "seed": seed, "vocab": vocabulary._native.handle}
    with NativeChain(ours.config, **same) as native, NativeChain(ours.config, **same) as alone:
        native.accept(*prompt)
        alone.accept(*prompt)
        for step in range(count):
            row = model.context.logits().copy()
            if step < traced_count:
                record = recorder.sample(row)
                mine = record.token
                check_stages(alone, record, len(ours.steps) - 1)
            else:
                mine = ours.sample(row)
            theirs = native.apply(row).token
            is_equal = mine == theirs or is_tie(ours, row, mine, theirs)
            assert is_equal, f"token {step}: {mine}, and llama.cpp has {theirs}"
            ties += mine != theirs
            ours.accept(theirs)
            native.accept(theirs)
            alone.accept(theirs)
            model.context.append(theirs)
    return ties


def steps_of(name):
    return load_preset(CHAINS[name]).chain if name.startswith("preset ") else CHAINS[name]


def test_every_native_sampler_is_compared():
    assert ALONE.keys() == MAKERS.keys()
    assert len(MIXED) == 10


def test_typical_after_top_n_sigma_is_where_llama_cpp_goes_wrong(model):
    """Its top_n_sigma leaves rows of -inf, and of these its typical makes an entropy that is not a number."""
    model.context.read(model.vocabulary.tokenize(PROMPT.encode()))
    row = model.context.logits()
    steps = [{"top_n_sigma": {"n": 1.0}}, {"top_k": {"k": 1000}}, {"typical": {"p": 0.9, "min_keep": 1}}]
    with NativeChain(steps, vocabulary=row.size) as native:
        assert np.isneginf(native.apply(row).logits).any()
    assert np.isfinite(build(steps).apply(row).logits).all()


@pytest.mark.parametrize("name", CHAINS)
def test_five_tokens(model, name):
    seed = 4294967294 if name.startswith("preset ") else 7
    ties = compare(model, steps_of(name), seed, 5, traced_count=2)
    assert ties == 0 or name in SORTS_THE_TAIL


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_tokens(model, seed):
    """Print how many tokens were compared, and how many of them were ties."""
    ties = {name: compare(model, steps_of(name), seed, 300) for name in CHAINS}
    assert {name for name, count in ties.items() if count} <= SORTS_THE_TAIL
    print(
        f"\nparity: {len(ALONE)} samplers alone, {len(MIXED)} mixed chains, {len(PRESETS)} presets, seed {seed}, "
        f"{300 * len(CHAINS):,} tokens: {sum(ties.values())} ties of equal logits drawn in another order, "
        "0 other differences"
    )
    for name, count in ties.items():
        if count:
            print(f"  {count} ties: {name}")
