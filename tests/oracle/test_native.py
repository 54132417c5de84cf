"""The oracle itself: does it call llama.cpp with the right arguments and read the answer right?"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from logitsmith.engine import Model, locate

from .native import MAKERS, NativeChain, NativeSampler

# Probabilities 0.087, 0.644, 0.237 and 0.032: an entropy of 0.9475, sigma is 1.118 about the mean of 1.5.
LOGITS = np.array([1.0, 3.0, 2.0, 0.0], dtype=np.float32)

# name: (parameters, ids left, logits left, token) for LOGITS, after accepting token 1 twice
WORKED = {
    "greedy": ({}, [0, 1, 2, 3], [1.0, 3.0, 2.0, 0.0], 1),
    "dist": ({}, [0, 1, 2, 3], [1.0, 3.0, 2.0, 0.0], 1),
    "temperature": ({"t": 2.0}, [0, 1, 2, 3], [0.5, 1.5, 1.0, 0.0], None),
    "top_k": ({"k": 2}, [1, 2], [3.0, 2.0], None),
    "top_p": ({"p": 0.7}, [1, 2], [3.0, 2.0], None),
    "min_p": ({"p": 0.3}, [1, 2], [3.0, 2.0], None),
    "penalties": (
        {"repeat": 1.5, "frequency": 0.25, "presence": 1.0},
        [0, 1, 2, 3],
        [1.0, 0.5, 2.0, 0.0],
        None,
    ),
    "logit_bias": ({"bias": {0: 5.0, 3: -1.0}}, [0, 1, 2, 3], [6.0, 3.0, 2.0, -1.0], None),
    # 0.68 of the greatest entropy, which to the power of 200 is nothing: the temperature is 2.5 - 0.5.
    "dynatemp": (
        {"temperature": 2.5, "range": 0.5, "exponent": 200.0},
        [1, 2, 0, 3],
        [1.5, 1.0, 0.5, 0.0],
        None,
    ),
    # Surprises of 1.440 and 0.440 are 0.493 and 0.507 from the entropy.
    "typical": ({"p": 0.5}, [2, 1], [2.0, 3.0], None),
    "top_n_sigma": ({"n": 1.0}, [0, 1, 2, 3], [-np.inf, 3.0, 2.0, -np.inf], None),
    "xtc": ({"probability": 1.0, "threshold": 0.2}, [2, 0, 3], [2.0, 1.0, 0.0], None),
    # 0.5 * 2^1 for one token repeated.
    "dry": ({"multiplier": 0.5, "base": 2.0, "allowed_length": 0}, [0, 1, 2, 3], [1.0, 2.0, 2.0, 0.0], None),
    # Fitted to the first two rows s is 1.443, and k 4.12. The first number of this seed is 0.135.
    "mirostat": ({"tau": 1.5, "eta": 0.5, "m": 2}, [1, 2, 0, 3], [3.0, 2.0, 1.0, 0.0], 1),
    # Surprises of 0.635 and 2.078 bits are below 2 tau, one of 3.520 is not.
    "mirostat_v2": ({"tau": 1.1, "eta": 0.5}, [1, 2], [3.0, 2.0], 1),
    # 5 - 10 d^2 / (1 + d) with d = |p - 0.3| / 0.3, of which token 2 has 0.909.
    "adaptive_p": ({"target": 0.3}, [0, 1, 2, 3], [2.055212, -1.122814, 4.634298, 0.786385], 2),
}


def test_each_sampler_is_tested():
    assert WORKED.keys() | {"infill"} == MAKERS.keys()


@pytest.mark.parametrize("name", WORKED)
def test_each_sampler_does_what_it_is_called(name):
    params, ids, logits, token = WORKED[name]
    with NativeSampler(name, vocabulary=4, seed=5489, **params) as native:
        native.accept(1, 1)
        left = native.apply(LOGITS)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == pytest.approx(logits, abs=1e-5)
    assert left.token == token


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Any]:
    with Model.load(locate()[0], n_ctx=64) as model:
        yield model.vocabulary


def apply(vocabulary, steps, logits, *history):
    with NativeChain(steps, vocabulary=vocabulary.size, vocab=vocabulary._native.handle) as native:
        native.accept(*history)
        return native.apply(logits)


def test_infill_reads_the_vocabulary(vocabulary):
    t, the, sea = (vocabulary.tokenize(text)[0] for text in (b" t", b" the", b" sea"))
    end = vocabulary.end
    logits = np.full(vocabulary.size, -np.inf, dtype=np.float32)
    logits[[t, the, sea, end]] = [1.0, 1.1, 2.0, -20.0]
    # " t" with 0.21 is merged into " the" with 0.23; apart, both would be below a quarter. " sea" has 0.56.
    left = apply(vocabulary, [{"top_k": {"k": 4}}, {"infill": {}}], logits)
    assert left.ids.tolist() == [sea, the, end]
    assert left.logits.tolist() == pytest.approx([2.0, 1.1, -20.0])


@pytest.mark.parametrize(("breakers", "penalty"), [([], 4.0), ([":"], 1.0)])
def test_dry_reads_the_vocabulary(vocabulary, breakers, penalty):
    a, b, x, colon = (vocabulary.tokenize(text)[0] for text in (b"a", b"b", b"x", b":"))
    dry = {"multiplier": 1.0, "base": 2.0, "allowed_length": 1, "breakers": breakers}
    left = apply(vocabulary, [{"dry": dry}], np.zeros(vocabulary.size, np.float32), a, colon, b, x, a, colon, b)
    assert left.logits[x] == -penalty


def test_a_chain_runs_its_steps_in_order_and_leaves_the_input_alone():
    logits = LOGITS.copy()
    logits.flags.writeable = False
    with NativeChain([{"top_k": {"k": 3}}, {"temperature": {"t": 0.5}}, {"dist": {}}], vocabulary=4) as native:
        left = native.apply(logits)
    assert left.sorted
    assert left.logits.tolist() == [6.0, 4.0, 2.0]
    assert left.p.sum() == pytest.approx(1.0, abs=1e-6)
    assert left.token in left.ids


def test_reset_forgets_the_history():
    with NativeSampler("penalties", vocabulary=4, repeat=2.0) as native:
        native.accept(1)
        assert native.apply(LOGITS).logits[1] == 1.5
        native.reset()
        assert native.apply(LOGITS).logits[1] == 3.0


@pytest.mark.parametrize(
    ("name", "params"),
    [("top_p", {"p": 0.5, "boundary": "exclude"}), ("penalties", {"scope": "output"})],
)
def test_what_llama_cpp_does_not_have_is_refused(name, params):
    with pytest.raises(ValueError, match=r"llama\.cpp has no"):
        NativeSampler(name, vocabulary=4, **params)
