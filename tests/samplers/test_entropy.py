import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import Candidates
from logitsmith.samplers.kernels import entropy_terms, llama_cpp_entropy, logarithms

from .rows import NEG, NORMAL, TIES, row

PROBS = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=300).map(lambda values: row(*values))

# probabilities, logarithms, entropy
WORKED = {
    "sure": (row(1, 0, 0), [0, NEG, NEG], 0.0),
    "a coin": (row(0.5, 0.5), [-0.6931472, -0.6931472], 0.6931472),
    "four equals": (row(0.25, 0.25, 0.25, 0.25), [-1.3862944] * 4, 1.3862944),
    "1/2, 1/4, 1/4": (row(0.5, 0.25, 0.25), [-0.6931472, -1.3862944, -1.3862944], 1.0397208),
    "the smallest there is": (row(2**-149), [-103.27893], 1.447246e-43),
}


@pytest.mark.parametrize(("probs", "logs", "entropy"), WORKED.values(), ids=WORKED)
def test_worked_example(probs, logs, entropy):
    np.testing.assert_allclose(logarithms(probs), logs, rtol=1e-7)
    # The smallest numbers that float32 holds are 1.4e-45 apart.
    assert llama_cpp_entropy(probs, logarithms(probs)) == pytest.approx(entropy, rel=1e-6, abs=1e-45)
    assert entropy_terms(probs).sum() == pytest.approx(entropy, rel=1e-6, abs=0)


@given(PROBS)
def test_logarithms_are_correctly_rounded(probs):
    assert logarithms(probs).dtype == np.float32
    expected = [np.float32(math.log(p)) if p else NEG for p in probs.tolist()]
    assert logarithms(probs).tolist() == expected


@given(PROBS)
def test_rough_entropy_is_summed_in_float32_from_the_first_to_the_last(probs):
    total = np.float32(0)
    for p in probs:
        if p > 0:
            total = total + -p * np.float32(math.log(p))
    entropy = llama_cpp_entropy(probs, logarithms(probs))
    assert entropy.dtype == np.float32
    assert entropy == total


@given(PROBS)
def test_terms_are_those_of_doubles(probs):
    terms = entropy_terms(probs)
    assert terms.dtype == np.float64
    expected = [-p * math.log(p) if p else 0.0 for p in probs.tolist()]
    np.testing.assert_allclose(terms, expected, rtol=1e-14, atol=0)
    assert entropy_terms(probs.astype(np.float64)).tolist() == terms.tolist()


@pytest.mark.parametrize("logits", [NORMAL, TIES], ids=["normal", "ties"])
def test_a_large_vocabulary(logits):
    probs = Candidates(logits).probs()
    exact = -math.fsum(p * math.log(p) for p in probs.tolist() if p)
    assert entropy_terms(probs).sum() == pytest.approx(exact, rel=1e-12)
    assert llama_cpp_entropy(probs, logarithms(probs)) == pytest.approx(exact, rel=1e-3)
