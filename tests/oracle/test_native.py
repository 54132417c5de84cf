"""The oracle itself: does it call llama.cpp with the right arguments and read the answer right?"""

import numpy as np
import pytest

from .native import MAKERS, NativeChain, NativeSampler

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
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_sampler_does_what_it_is_called(name):
    params, ids, logits, token = WORKED[name]
    with NativeSampler(name, vocabulary=4, seed=5489, **params) as native:
        native.accept(1, 1)
        left = native.apply(LOGITS)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == logits
    assert left.token == token


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
