"""Long comparisons with llama.cpp, which print how much was compared; run by `make proof`."""

import numpy as np
import pytest

from .parity import CHAINS, same_tokens
from .rows import STYLES, agree, make_row, native, run
from .test_min_p import decided_by_the_last_bit
from .test_top_p import too_near

ROWS = 3000
SIZES = (1, 2, 3, 10, 127, 128, 129, 256, 257, 1024, 1025, 5000, 32_000)


def any_step(name, rng, size):
    """A step with parameters from the whole of their ranges."""
    if name == "top_k":
        return {"top_k": {"k": int(rng.integers(1, size + 2))}}
    if name in ("top_p", "min_p"):
        p = float(rng.choice([rng.random(), 1 - 10 ** rng.uniform(-4, -1), 10 ** rng.uniform(-6, -1)]))
        return {name: {"p": p, "min_keep": int(rng.choice([1, 1, 7]))}}
    if name == "temperature":
        return {"temperature": {"t": float(10 ** rng.uniform(-2, 2))}}
    if name == "penalties":
        frequency, presence = rng.uniform(-2, 2, 2).tolist()
        params = {"repeat": float(rng.uniform(0.5, 2)), "frequency": frequency, "presence": presence}
        return {"penalties": params | {"last_n": int(rng.choice([-1, 1, 16, 64]))}}
    ids = rng.integers(0, size, 5).tolist()
    return {"logit_bias": {"bias": dict(zip(ids, rng.uniform(-20, 20, 5).tolist(), strict=True))}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "temperature", "penalties", "logit_bias"])
def test_a_sampler_against_llama_cpp(name):
    rng = np.random.default_rng(20)
    styles = sorted(STYLES)
    compared = skipped = 0
    for number in range(ROWS):
        size = int(rng.choice(SIZES))
        logits = make_row(styles[number % len(styles)], size, number)
        step = any_step(name, rng, size)
        p = step[name].get("p", 0)
        if (name == "top_p" and too_near(logits, p)) or (name == "min_p" and decided_by_the_last_bit(logits, p)):
            skipped += 1
            continue
        history = rng.integers(0, size, 100).tolist()
        agree(
            run(step, logits, history),
            native([step], logits, history),
            cut=name in ("top_k", "top_p", "min_p"),
        )
        compared += 1
    print(f"\n{name}: {compared} rows equal llama.cpp's; {skipped} lie too near to a threshold to say")
    assert skipped < ROWS / 10


@pytest.mark.slow
@pytest.mark.parametrize("size", [512, 32_000])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_against_llama_cpp(name, size):
    draws = sum(
        same_tokens(CHAINS[name], seed, draws=2000 if size < 1000 else 300, size=size) for seed in (1, 77, 2**31)
    )
    print(f"\n{name}, {size} tokens: {draws} draws equal llama.cpp's")
