"""Properties of both versions of Mirostat."""

import pytest
from logitsmith.samplers import build

from .drawing import follow
from .rows import make_row

VERSIONS = pytest.mark.parametrize("name", ["mirostat", "mirostat_v2"])


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
