"""The note of each sampler, against numbers that are worked out by hand."""

import math
import re

import numpy as np
import pytest
from logitsmith.samplers import ChainRecorder, build, catalogue
from logitsmith.samplers.stages import comparison, short_number, token_count

from .rows import FakeVocabulary, row

L = math.log
PS = row(L(0.5), L(0.2), L(0.16), L(0.08), L(0.06))
"""Probabilities 0.5, 0.2, 0.16, 0.08 and 0.06: entropy 1.332 nats."""
HOT = row(4, 2, 0, -2, -4)
EVEN = row(0, 0, 0, 0)
ONE_ENTROPY = "1.33"

CASES = {
    "allow": ("allow(tokens=[1, 2])", PS, [], "3 tokens dropped"),
    "ban": ("ban(tokens=[1, 2])", PS, [], "2 banned tokens dropped"),
    "ban one": ("ban(tokens=[1])", PS, [], "1 banned token dropped"),
    "ban none": ("top_k2 > ban(tokens=[4])", PS, [], "no banned token"),
    "ignore_eos": ("ignore_eos", PS, [], "1 end token dropped"),
    "ignore_eos, none": ("top_k2 > ignore_eos", PS, [], "no end token"),
    "min_tokens": ("min_tokens5", PS, [], "0 of 5 tokens generated: 1 end token dropped"),
    "k_shift": ("k_shift3", PS, [], "only rank 3"),
    "k_shift, fewer": ("k_shift9", PS, [], "only rank 5, since there is no rank 9"),
    "length_decay": ("length_decay2", HOT, [], "0 tokens generated: no change up to 0"),
    "sequence_bias": (
        "sequence_bias(ids=[[[4, 1], -2], [[4, 0], 0.5], [[3], false], [[2, 2], 9]])",
        HOT,
        [4],
        "1 token raised by up to 0.5, 1 token lowered by up to 2, 1 token banned",
    ),
    "sequence_bias, none": ("sequence_bias(ids=[[[4, 1], -2]])", HOT, [3], "no token changed"),
    "scripts": ('scripts=["Latin"]', PS, [], "no token"),
    "no_repeat_ngram": ("no_repeat_ngram2", PS, [0, 1, 0], "1 token that would repeat 2 tokens dropped"),
    "no_repeat_ngram, no": ("no_repeat_ngram2", PS, [0, 1, 2], "no token would repeat 2 tokens"),
    "no_repeat_ngram, all": (
        "top_k1 > no_repeat_ngram2",
        PS,
        [1, 0, 1],
        "each token would repeat 2 tokens: all stay",
    ),
    "penalties": ("penalties(repeat=2)", HOT, [0, 4, 2], "2 tokens lowered by up to 4"),
    "penalties that raise": (
        "penalties(frequency=-0.5, presence=0.25)",
        HOT,
        [0, 1, 1],
        "2 tokens raised by up to 0.75",
    ),
    "penalties, none": ("penalties(repeat=2)", HOT, [], "no token changed"),
    "repetition_penalty": ("repetition_penalty2", HOT, [0], "1 token lowered by up to 2"),
    "encoder_repetition_penalty": (
        "encoder_repetition_penalty2",
        HOT,
        [1, 3],
        "2 tokens raised by up to 2",
    ),
    "dry": (
        "dry(multiplier=0.8, allowed_length=2, breakers=[])",
        HOT,
        [1, 2, 3, 0, 1, 2],
        "1 token lowered by up to 0.8",
    ),
    "dry, none": (
        "dry(multiplier=0.8, breakers=[])",
        HOT,
        [1, 2, 3],
        "no token would continue a repetition of 2 tokens or more",
    ),
    "logit_bias": (
        "logit_bias(0=-1.5, 1=2, 2=0.5, 3=-inf)",
        HOT,
        [],
        "2 tokens raised by up to 2, 1 token lowered by up to 1.5, 1 token banned",
    ),
    "synthid": ("synthid(keys=[1, 2])", PS, [], "mean g 0.75 -> 0.875"),
    "synthid, first": (
        "synthid(keys=[1, 2], skip_first_ngram_calls=true)",
        PS,
        [1, 2, 3, 4, 5],
        "not marked: fewer than 4 tokens precede",
    ),
    "top_k": ("top_k3", PS, [], "mass 0.86 at 3 tokens"),
    "top_k, all": ("top_k9", PS, [], "mass 1 at 5 tokens"),
    "top_k, nearly all": ("top_k1", row(20, 5), [], "mass 0.999999694 at 1 token"),
    "top_a": ("top_a0.4", PS, [], "p >= 0.1 = 0.4 x 0.5^2"),
    "top_a, too much": ("top_a3", PS, [], "p >= 0.75 = 3 x 0.5^2: none, the most likely stays"),
    "top_p": ("top_p0.8", PS, [], "mass 0.86 at 3 tokens"),
    "tfs": ("tfs0.5", PS, [], "mass 0.5 at 1 token"),
    "typical": ("typical0.3", PS, [], f"mass 0.36 at 2 tokens, nearest to {ONE_ENTROPY} nats"),
    "top_h": ("top_h0.6", PS, [], f"entropy 0.668 <= 0.8 = 0.6 x {ONE_ENTROPY} nats"),
    "top_h, top_n": ("top_h(h=0.6, top_n=2)", PS, [], "entropy 0.24 <= 0.359 = 0.6 x 0.598 nats"),
    "top_h, too little": (
        "top_h0.1",
        PS,
        [],
        f"entropy 0.347 > 0.133 = 0.1 x {ONE_ENTROPY} nats: the most likely stays",
    ),
    "min_p": ("min_p0.2", PS, [], "p >= 0.1 = 0.2 x 0.5"),
    "min_p, min_keep": (
        "min_p(p=0.9, min_keep=3)",
        PS,
        [],
        "p >= 0.45 = 0.9 x 0.5, and at least 3 tokens",
    ),
    "p_less": ("p_less", PS, [], "p >= 0.326 = sum p^2"),
    "p_less, norm": ("p_less(norm=true)", PS, [], "p >= 0.157 = (5 x sum p^2 - 1) / 4"),
    "p_less, temperature": ("p_less(temperature=2)", PS, [], "p >= 0.231 = sum p^2 at temperature 2"),
    "p_less, even": ("p_less(norm=true)", EVEN, [], "p >= 0 = (4 x sum p^2 - 1) / 3"),
    "min_k": ("min_k0", row(9, 8, 4, 3), [], "2 tokens before the steepest fall"),
    "min_k, at least": ("min_k18", row(9, 6, 5, 3), [], "3 tokens = 18 / 6, the steepest fall is after 1"),
    "min_k, even": ("min_k", EVEN, [], "equal logits: nothing to cut"),
    "epsilon_cutoff": ("epsilon_cutoff0.1", PS, [], "p >= 0.1"),
    "epsilon_cutoff, too much": ("epsilon_cutoff0.7", PS, [], "p >= 0.7: none, the most likely stays"),
    "eta_cutoff": ("eta_cutoff0.1", PS, [], f"p >= 0.0834 = sqrt(0.1) x exp(-{ONE_ENTROPY})"),
    "eta_cutoff, flat": ("eta_cutoff0.01", PS, [], f"p >= 0.01, below sqrt(0.01) x exp(-{ONE_ENTROPY})"),
    "top_n_sigma": ("top_n_sigma1", HOT, [], "logit >= 1.17 = 4 - 1 x 2.83"),
    "top_n_sigma, one": ("top_k1 > top_n_sigma1", HOT, [], "one token: nothing to compare"),
    "xtc, one": ("top_k1 > xtc(probability=1, threshold=0.1)", PS, [], "one token: not rolled"),
    "quadratic": ("quadratic0.25", HOT, [], "the second is 1 below the first, it was 2"),
    "quadratic, one": ("top_k1 > quadratic0.25", HOT, [], "one token: nothing to bend"),
    "temperature": ("temp0.8", HOT, [], "logits / 0.8"),
    "temperature 0": ("temp0", HOT, [], "t 0: only the most likely token"),
    "dynatemp": (
        "dynatemp(temperature=1, range=0.5)",
        EVEN,
        [],
        "logits / 1.5, entropy 1.39 of at most 1.39 nats",
    ),
    "dynatemp, fixed": ("dynatemp(temperature=0.5)", HOT, [], "logits / 0.5"),
    "dynatemp, one": ("top_k1 > dynatemp0.5", HOT, [], "one token: nothing to divide"),
    "edt": (
        "edt(theta=0.5, temperature=0.9)",
        PS,
        [],
        f"logits / 0.828, t = 0.9 x 0.8^(0.5 / {ONE_ENTROPY}), entropy {ONE_ENTROPY} nats",
    ),
    "edt, fixed": ("edt(temperature=0.5)", HOT, [], "logits / 0.5"),
    "edt, one": ("top_k1 > edt0.5", HOT, [], "one token: nothing to divide"),
    "edt, certain": ("edt0.5", row(2000, 0), [], "t 0: only the most likely token, entropy 0 nats"),
    "edt, nearly certain": (
        "edt(theta=999)",
        EVEN,
        [],
        "t 1.17e-70: only the most likely token, t = 0.8 x 0.8^(999 / 1.39), entropy 1.39 nats",
    ),
    "skew": ("skew0.5", HOT, [], "power 1.65 = e^0.5, toward higher ids"),
    "skew by probability": (
        "skew(skew=-1, order=probability)",
        HOT,
        [],
        "power 0.368 = e^-1, toward more likely tokens",
    ),
    "infill, end": ("infill", row(0, 0, 0, 0, 2), [], "3 x 0.649 x 5 rows = 9.73 > 0.351: end tokens only"),
    "infill, on": (
        "infill",
        row(5, 4, 0, 0, -9),
        [],
        "3 x 6.02e-07 x 5 rows = 9.03e-06 <= 1: 2 tokens to continue with",
    ),
    "dist": ("top_k3 > dist", PS, [], "by chance, one of 3 tokens"),
    "dist, one": ("top_k1 > dist", PS, [], "one token left"),
    "greedy": ("greedy", HOT, [], "the highest of 5 logits, 4"),
    "mirostat": ("mirostat(tau=4)", PS, [], "mu 8 bits"),
    "mirostat_v2": ("mirostat_v2(tau=4.05)", PS, [], "mu 8.1 bits"),
    "adaptive_p": ("adaptive_p(target=0.3)", PS, [], "aims at p 0.3, since the mean is 0.3"),
    "adaptive_p, plain": ("adaptive_p(target=-1)", PS, [], "no target: a plain draw"),
}


def notes(chain, logits, prompt):
    """The notes by name of step, the last one of equal names."""
    chain = build(chain, seed=1, vocab=FakeVocabulary(logits.size))
    chain.reset(prompt)
    return {stage.name: stage.note for stage in ChainRecorder(chain).sample(logits).stages}


@pytest.mark.parametrize(("chain", "logits", "prompt", "expected"), CASES.values(), ids=CASES)
def test_note(request, chain, logits, prompt, expected):
    name = request.node.callspec.id.partition(",")[0].split(" ")[0]
    assert notes(chain, logits, prompt)[name] == expected


def test_every_sampler_has_a_note_here():
    named = {case.partition(",")[0].split(" ")[0] for case in CASES}
    assert named == set(catalogue())


XTC = {
    "rolled": (1.0, 0.1, r"rolled \(0\.\d+ <= 1\): 2 tokens dropped, the last with p >= 0\.1 stays"),
    "not rolled": (1e-6, 0.1, r"not rolled \(0\.\d+ > 1e-06\)"),
    "rolled without effect": (
        1.0,
        0.45,
        r"rolled \(0\.\d+ <= 1\): nothing dropped, fewer than two tokens have p >= 0\.45",
    ),
}


@pytest.mark.parametrize(("probability", "threshold", "pattern"), XTC.values(), ids=XTC)
def test_the_note_of_xtc(probability, threshold, pattern):
    chain = f"xtc(probability={probability}, threshold={threshold})"
    assert re.fullmatch(pattern, notes(chain, PS, [])["xtc"])


XTC_OBSTACLES = {"min_keep=5": "at least 5 tokens stay", "keep_special=cancel": "newline and end tokens stay"}


@pytest.mark.parametrize(("parameter", "words"), XTC_OBSTACLES.items(), ids=XTC_OBSTACLES)
def test_xtc_says_why_it_dropped_nothing(parameter, words):
    note = notes(f"xtc(probability=1, threshold=0.01, {parameter})", np.flip(PS).copy(), [])["xtc"]
    assert note.endswith(f": nothing dropped, {words}")


def test_the_end_of_infill():
    assert (
        notes("infill", row(0, 0, 0, 0, 0, 0, -9), [])["infill"]
        == "no text token has p >= 0.2: only the end token"
    )


def test_mu_is_that_of_the_cut_and_not_of_the_next():
    chain = build("mirostat_v2(tau=1.5)", seed=3)
    recorder = ChainRecorder(chain)
    for _ in range(5):
        mu = chain.steps[-1].mu
        record = recorder.sample(PS)
        assert record.stages[-1].note == f"mu {mu:.3g} bits"
        probs = record.stages[-2].candidates.candidates.probs()
        assert len(record.stages[-1].candidates) == max(1, int((-np.log2(probs) <= mu).sum()))
        chain.accept(record.token)


def test_the_aim_of_adaptive_p_follows_what_was_drawn():
    chain = build("adaptive_p(target=0.3, decay=0.5)", seed=3)
    recorder = ChainRecorder(chain)
    weights, total = 2.0, 0.6
    for _ in range(6):
        record = recorder.sample(PS)
        mean = total / weights
        aim = min(max(0.6 - mean, 0), 1)
        assert record.stages[-1].note == f"aims at p {aim:.3g}, since the mean is {mean:.3g}"
        chain.accept(record.token)
        total, weights = math.exp(PS[record.token]) + 0.5 * total, 1 + 0.5 * weights


def test_min_tokens_when_they_are_made():
    chain = build("min_tokens2 > greedy", vocab=FakeVocabulary(5))
    recorder = ChainRecorder(chain)
    found = []
    for _ in range(3):
        found.append(recorder.sample(PS).stages[1].note)
        chain.accept(0)
    assert found == [
        "0 of 2 tokens generated: 1 end token dropped",
        "1 of 2 tokens generated: 1 end token dropped",
        "2 tokens generated: the text may end",
    ]


GROWTH = {
    "k_shift": ("k_shift(k=2, steps=2)", ["only rank 2", "only rank 2", "2 tokens generated: all stay"]),
    "length_decay": (
        "length_decay(factor=2, start=1)",
        [
            "0 tokens generated: no change up to 1",
            "1 token generated: no change up to 1",
            "1 token after the first 1: 1 token raised by up to 4",
            "2 tokens after the first 1: 1 token raised by up to 12",
        ],
    ),
}


@pytest.mark.parametrize(("step", "expected"), GROWTH.values(), ids=GROWTH)
def test_notes_as_the_text_grows(step, expected):
    chain = build(f"{step} > greedy", vocab=FakeVocabulary(5))
    recorder, found = ChainRecorder(chain), []
    for _ in expected:
        found.append(recorder.sample(HOT).stages[1].note)
        chain.accept(0)
    assert found == expected


def test_the_note_of_scripts_shows_an_unfinished_character():
    vocabulary = FakeVocabulary(256)
    chain = build('scripts=["Latin"] > greedy', vocab=vocabulary)
    logits, found = np.zeros(256, np.float32), []
    for byte in (0xE3, 0x80, 0x81):
        found.append(ChainRecorder(chain).sample(logits).stages[1].note)
        chain.accept(byte)
    # Of the blocks that begin with e3, 12 have a character of Latin or Common; of U+3000 to U+303F 47 are such.
    assert found[1:] == ["after the bytes e3: 244 tokens dropped", "after the bytes e3 80: 209 tokens dropped"]


def test_numbers():
    assert [short_number(x) for x in (0.01049, 12.34, 1e-9, 49152, 0.0)] == [
        "0.0105",
        "12.3",
        "1e-09",
        "49,152",
        "0",
    ]
    assert comparison(0.71, ">", 0.5) == "0.71 > 0.5"
    assert comparison(0.50004, ">", 0.5) == "0.50004 > 0.5"
    assert comparison(0.5, "<=", 0.5) == "0.5 <= 0.5"
    assert (token_count(1), token_count(2000)) == ("1 token", "2,000 tokens")
