"""A traced chain, stage by stage: each step against llama.cpp's sampler applied alone to the stage before it.

Samplers that llama.cpp has not are compared with brute forces, which share no code with ours.
"""

import ctypes
import itertools
import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import regex
from llama_cpp import llama_cpp
from logitsmith.engine import Model, locate
from logitsmith.engine.token_records import TraceReader
from logitsmith.samplers import ChainRecorder, build, catalogue

from ..samplers.rows import FakeVocabulary, make_row, softmax
from ..samplers.test_synthid import Reference
from .native import MAKERS, ROW, NativeChain, _read
from .test_parity import ALONE, CHAINS, PROMPT, steps_of

RTOL = 3e-6
"""Of logits: a power or a logarithm of libm is sometimes wrong in the last bit."""
TOKENS = 6


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model.load(locate()[0], n_ctx=1024) as loaded:
        yield loaded


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


@pytest.mark.parametrize("name", CHAINS)
def test_each_stage_is_llama_cpps_sampler_alone(model, name):
    vocabulary = model.vocabulary
    chain = build(steps_of(name), seed=7, vocab=vocabulary)
    prompt = vocabulary.tokenize(PROMPT.encode())
    model.context.read(prompt)
    chain.reset(prompt)
    recorder = ChainRecorder(chain)
    pointer = vocabulary._native.handle
    with NativeChain(chain.config, vocabulary=vocabulary.size, seed=7, vocab=pointer) as native:
        native.accept(*prompt)
        for _ in range(TOKENS):
            logits = model.context.logits().copy()
            record = recorder.sample(logits)
            np.testing.assert_array_equal(record.stages[0].candidates.logits, logits)
            for number, (before, stage) in enumerate(zip(record.stages, record.stages[1:], strict=False)):
                left = apply_alone(native, number, before.candidates)
                if stage.step == len(chain.steps) - 1:
                    assert logits[left.token] == logits[record.token]
                else:
                    check_rows(stage.name, stage.candidates, left)
            chain.accept(record.token)
            native.accept(record.token)
            model.context.append(record.token)


PROMPT_IDS = [5, 9, 5, 7, 9, 5]
"""The text before the rows of the brute forces, of tokens that are likely there."""


def by_probability(rows):
    return sorted(rows, key=lambda token: -rows[token])


def probabilities(rows):
    return dict(zip(rows, softmax(np.array(list(rows.values()))), strict=True))


def entropy(probs):
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


def above(rows, floor):
    probs = probabilities(rows)
    best = max(probs.values())
    return {token: rows[token] for token in rows if probs[token] >= min(floor, best) * (1 - 1e-6)}


def eta(rows, epsilon):
    return above(rows, min(epsilon, math.sqrt(epsilon) * math.exp(-entropy(probabilities(rows).values()))))


def top_a(rows, a):
    return above(rows, a * max(probabilities(rows).values()) ** 2)


def tfs(rows, z):
    order = by_probability(rows)
    probs = probabilities(rows)
    p = [probs[token] for token in order]
    bends = [abs(p[i] - 2 * p[i + 1] + p[i + 2]) for i in range(len(p) - 2)]
    kept, so_far = [order[0]], 0.0
    for token, bend in zip(order[1:], bends, strict=False):
        so_far += bend / math.fsum(bends)
        if so_far <= z:
            kept.append(token)
    return {token: rows[token] for token in kept}


def top_h(rows, h, top_n=100):
    head = {token: rows[token] for token in by_probability(rows)[:top_n]}
    probs = probabilities(head)
    limit, so_far, kept = h * entropy(probs.values()), 0.0, {}
    for token in head:
        so_far -= probs[token] * math.log(probs[token])
        if kept and so_far > limit:
            break
        kept[token] = rows[token]
    return kept


def p_less(rows, norm, size=300):
    squares = math.fsum(p * p for p in probabilities(rows).values())
    return above(rows, (size * squares - 1) / (size - 1) if norm else squares)


def min_k(rows, tau):
    order = by_probability(rows)
    falls = [(rows[a] - rows[b]) / i for i, (a, b) in enumerate(itertools.pairwise(order), 1)]
    reach = rows[order[0]] - rows[order[-1]]
    k = max(falls.index(max(falls)) + 1, int(tau / reach))
    return {token: rows[token] for token in order[:k]}


def edt(rows, theta):
    t = 0.8 * 0.8 ** (theta / entropy(probabilities(rows).values()))
    return {token: logit / t for token, logit in rows.items()}


def quadratic(rows, factor):
    best = max(rows.values())
    return {token: best - factor * (logit - best) ** 2 for token, logit in rows.items()}


def skew(rows, amount):
    probs, so_far, skewed = probabilities(rows), 0.0, {}
    for token in sorted(rows):
        below, so_far = so_far, min(so_far + probs[token], 1.0)
        share = so_far ** math.exp(amount) - below ** math.exp(amount)
        if share > 0:
            skewed[token] = math.log(share)
    return skewed


def synthid(rows, keys):
    reference = Reference(keys)
    probs = probabilities(rows)
    for key in keys:
        bits = {token: reference.bit((0, 0, 0, 0, token), key) for token in rows}
        mass = math.fsum(probs[token] * bits[token] for token in rows)
        probs = {token: p * (1 + bits[token] - mass) for token, p in probs.items()}
    return {token: math.log(p) for token, p in probs.items() if p > 0}


def without(rows, tokens):
    return {token: logit for token, logit in rows.items() if token not in tokens}


def scaled(rows, tokens, factor):
    return {
        token: logit if token not in tokens else (logit * factor if logit <= 0 else logit / factor)
        for token, logit in rows.items()
    }


@cache
def first_bytes(script):
    """The first bytes in UTF-8 of the characters of a script, and of signs."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    return {c.encode()[0] for c in regex.findall(rf"[\p{{{script}}}\p{{Common}}\p{{Inherited}}]", every)}


def is_greek_or_sign(token):
    """Of the fake vocabulary: bytes, then three bytes that are signs, and the token that ends a text."""
    return token >= 256 or token in first_bytes("Greek")


ALL_BUT_TWO = [token for token in range(300) if token not in {5, 9}]
BRUTE = {
    "top_a": ("top_a0.3", lambda rows: top_a(rows, 0.3)),
    "epsilon_cutoff": ("epsilon_cutoff0.004", lambda rows: above(rows, 0.004)),
    "eta_cutoff": ("eta_cutoff0.02", lambda rows: eta(rows, 0.02)),
    "tfs": ("tfs0.9", lambda rows: tfs(rows, 0.9)),
    "top_h": ("top_h0.5", lambda rows: top_h(rows, 0.5)),
    "p_less": ("p_less(norm=true)", lambda rows: p_less(rows, norm=True)),
    "min_k": ("min_k4", lambda rows: min_k(rows, 4)),
    "edt": ("edt0.6", lambda rows: edt(rows, 0.6)),
    "quadratic": ("quadratic0.4", lambda rows: quadratic(rows, 0.4)),
    "skew": ("skew0.6", lambda rows: skew(rows, 0.6)),
    "allow": (f"allow(tokens={ALL_BUT_TWO})", lambda rows: without(rows, {5, 9})),
    "ban": ("ban(tokens=[5, 9])", lambda rows: without(rows, {5, 9})),
    "ignore_eos": ("ignore_eos", lambda rows: without(rows, {299})),
    "min_tokens": ("min_tokens3", lambda rows: without(rows, {299})),
    "k_shift": ("k_shift3", lambda rows: {token: rows[token] for token in by_probability(rows)[2:3]}),
    "length_decay": ("length_decay(factor=1.5, start=0)", lambda rows: rows),
    "sequence_bias": (
        "sequence_bias(ids=[[[9, 5], 1.5], [[7, 9, 5, 7], -2], [[9], -1], [[5, 5], 9]])",
        lambda rows: {token: logit + {5: 9, 7: -2, 9: -1}.get(token, 0) for token, logit in rows.items()},
    ),
    "scripts": (
        'scripts=["Greek"]',
        lambda rows: {token: rows[token] for token in rows if is_greek_or_sign(token)},
    ),
    "synthid": ("synthid(keys=[6, 5, 4])", lambda rows: synthid(rows, [6, 5, 4])),
    "no_repeat_ngram": ("no_repeat_ngram2", lambda rows: without(rows, {9, 7})),
    "repetition_penalty": ("repetition_penalty1.5", lambda rows: scaled(rows, {5, 7, 9}, 1.5)),
    "encoder_repetition_penalty": ("encoder_repetition_penalty1.5", lambda rows: scaled(rows, {5, 7, 9}, 1 / 1.5)),
}
"""The samplers that llama.cpp has not, or not as one sampler: a step, and what it should leave."""


def test_every_sampler_has_an_oracle():
    assert MAKERS.keys() | BRUTE.keys() == set(catalogue())


def by_token(stage):
    """Its logits by token."""
    return dict(zip(stage.candidates.ids.tolist(), stage.candidates.logits.tolist(), strict=True))


@pytest.mark.parametrize("before", ["temp1.3", "top_k60", "top_k60 > temp0.5", "min_p0.01"])
@pytest.mark.parametrize("name", BRUTE)
@pytest.mark.parametrize("style", ["normal", "flat", "peaked"])
def test_each_stage_is_a_brute_force_of_the_stage_before(name, before, style):
    step, force = BRUTE[name]
    for seed in range(3):
        logits = make_row(style, 300, seed).copy()
        logits[[5, 7, 9, 299]] = logits.max() - np.array([0.5, 1.0, 0.2, 0.1], np.float32)
        chain = build(f"{before} > {step} > temp0.9", seed=seed, vocab=FakeVocabulary(300))
        chain.reset(PROMPT_IDS)
        stages = ChainRecorder(chain).sample(logits).stages
        number = next(number for number, stage in enumerate(stages) if stage.name == name)
        expected, left = force(by_token(stages[number - 1])), by_token(stages[number])
        if name == "skew":  # of shares that are nearly 0, rounding decides
            expected, left = ({token: x for token, x in rows.items() if x > -12} for rows in (expected, left))
        assert left.keys() == expected.keys()
        assert left == pytest.approx(expected, rel=1e-4, abs=1e-4)


class PieceVocabulary(FakeVocabulary):
    """With the pieces that a trace has."""

    def piece(self, token):
        return self.pieces[token]


@pytest.mark.parametrize("chain", [*ALONE.values(), "top_k20 > xtc(probability=1, threshold=0.01) > skew0.3"])
def test_a_trace_has_the_logits_and_probabilities_of_every_stage(chain):
    vocabulary = PieceVocabulary(200)
    chain = build(chain.replace("198=-4, 28=2.5, 253=-1", "19=-4, 28=2.5"), seed=2, vocab=vocabulary)
    chain.reset(PROMPT_IDS)
    reader = TraceReader(vocabulary, chain, 200)
    logits = make_row("normal", 200, 4)
    token = reader.sample(logits, None)
    trace = reader.read(token)
    stages = [stage.candidates for stage in reader._chain_record.stages]
    assert len(trace.candidates) == 200
    for number, stage in enumerate(stages):
        row = dict(zip(stage.ids.tolist(), stage.logits.tolist(), strict=True))
        probs = dict(zip(stage.ids.tolist(), softmax(stage.logits), strict=True))
        assert {
            each.id: each.logits[number] for each in trace.candidates if each.logits[number] is not None
        } == row
        found = {each.id: each.probs[number] for each in trace.candidates if each.probs[number] is not None}
        assert found == pytest.approx(probs, rel=1e-5, abs=1e-12)
        assert trace.stages[number].kept == len(row)
        assert trace.stages[number].entropy == pytest.approx(entropy(probs.values()), abs=1e-5)
