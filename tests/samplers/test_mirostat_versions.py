"""Properties of both versions of Mirostat."""

import math

import pytest
from logitsmith.samplers import build

from .drawing import follow
from .rows import make_row
from .test_mirostat import zipf
from .test_mirostat_v2 import HALVES

VERSIONS = pytest.mark.parametrize("name", ["mirostat", "mirostat_v2"])

# name, logits, where surprise is measured, the surprise of each token that may be drawn, in bits, precision
CORRECTIONS = {
    # Probabilities as 1 : 1/4 : 1/9 … of 205.40/144 in all; two are left, with 4/5 and 1/5.
    "mirostat-truncated": ("mirostat", zipf(2), "truncated", {0: math.log2(5 / 4), 1: math.log2(5)}, 1e-4),
    "mirostat-full": ("mirostat", zipf(2), "full", {0: math.log2(1.5274), 1: math.log2(4 * 1.5274)}, 1e-4),
    # Of the two that are left at mu = 2, token 2 has 2/3 and token 0 has 1/3.
    "mirostat_v2-truncated": ("mirostat_v2", HALVES, "truncated", {2: math.log2(3 / 2), 0: math.log2(3)}, 1e-6),
    "mirostat_v2-full": ("mirostat_v2", HALVES, "full", {2: 1.0, 0: 2.0}, 1e-6),
}


@pytest.mark.parametrize(
    ("name", "logits", "surprise", "bits", "precision"), CORRECTIONS.values(), ids=CORRECTIONS
)
@pytest.mark.parametrize("seed", range(6))
def test_mu_is_corrected_by_the_surprise_of_the_token_drawn(name, logits, surprise, bits, precision, seed):
    chain = build([{name: {"tau": 1.0, "eta": 0.25, "surprise": surprise}}], seed=seed)
    token = chain.sample(logits)
    assert chain.steps[-1].mu == pytest.approx(2 - 0.25 * (bits[token] - 1), rel=precision)


@VERSIONS
@pytest.mark.parametrize("seed", [0, 7, 4294967294])
def test_a_long_run_equals_llama_cpps(name, seed):
    logits = make_row("normal", 1000, 3)
    assert follow(name, {"tau": 3.0, "eta": 0.2}, logits, seed, lambda _: False, draws=200) == 200


@VERSIONS
def test_only_a_draw_moves_mu(name):
    chain, logits = build([{name: 3.0}]), make_row("normal", 40, 1)
    assert chain.apply(logits).logits is logits
    chain.accept(3)
    assert chain.steps[-1].mu == 6
