"""Masked arrays of logits: a masked entry counts as -inf, whatever stands under the mask."""

import numpy as np
import pytest
from logitsmith.samplers import Candidates, SamplingError, build
from logitsmith.samplers.batch import SamplingData, SamplingParam, sample

STEPS = {
    "all": {},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.7},
    "top_k, top_p": {"top_k": 7, "top_p": 0.7},
    "greedy": {"do_sample": False},
    "penalty": {"repetition_penalty": 1.7, "top_p": 0.8},
}


def masked_rows(height, width, seed=0):
    """Logits whose masked entries are the highest, NaN or +inf."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (height, width)).astype(np.float32)
    mask = rng.random((height, width)) < 0.4
    mask[:, 0] = False
    logits[mask] = rng.choice(np.float32([9, np.nan, np.inf, -np.inf]), np.count_nonzero(mask))
    return np.ma.masked_array(logits, mask)


def parameters(height, settings):
    values = {"do_sample": True, "seed": np.arange(height), **settings}
    return SamplingParam.from_numpy(
        **{name: np.broadcast_to(np.asarray(value), height) for name, value in values.items()},
        to_tensor=np.asarray,
    )


def nucleus(logits, allowed, settings):
    """By brute force: the tokens that may be drawn, as a set."""
    ids = sorted(np.flatnonzero(allowed).tolist(), key=lambda token: (-float(logits[token]), token))
    ids = ids[: settings.get("top_k", len(ids))]
    weights = np.exp([float(logits[token]) - float(logits[ids[0]]) for token in ids])
    reached = np.add.accumulate(weights / weights.sum()) >= settings.get("top_p", 1.0)
    count = int(reached.argmax()) + 1 if reached.any() else len(ids)
    return set(ids[:count] if settings.get("do_sample", True) else ids[:1])


@pytest.mark.parametrize("width", [40, 9000])
@pytest.mark.parametrize("settings", STEPS.values(), ids=STEPS)
def test_no_masked_token_is_drawn_in_a_batch(settings, width):
    height = 64
    logits = masked_rows(height, width)
    ids = np.zeros((height, 1), np.int64)
    data = SamplingData.from_numpy(all_input_ids=ids, output_ids=ids[:, :0], to_tensor=np.asarray)
    param = parameters(height, settings)
    tokens, values = sample(logits, data, param)
    same_tokens, same_values = sample(logits.filled(-np.inf), data, param)
    np.testing.assert_array_equal(tokens, same_tokens)
    np.testing.assert_array_equal(values, same_values)
    for row, token in enumerate(tokens.tolist()):
        assert not logits.mask[row, token]
        if "repetition_penalty" not in settings:
            assert token in nucleus(logits.data[row], ~logits.mask[row], settings)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_without_any_entry_is_named(dtype):
    logits = np.ma.masked_array(np.ones((3, 9), dtype), mask=[[False] * 9, [False] * 9, [True] * 9])
    for settings in STEPS.values():
        data = SamplingData.from_numpy(all_input_ids=np.zeros((3, 1), np.int64), to_tensor=np.asarray)
        with pytest.raises(SamplingError, match=r"^logits: row 2: every entry is -inf$"):
            sample(logits, data, parameters(3, settings))


def test_masked_integers_are_rejected():
    with pytest.raises(SamplingError, match="expected floats of shape"):
        sample(np.ma.masked_equal([[1, 2]], 2))


def test_a_chain_draws_no_masked_token():
    for row in masked_rows(32, 50, seed=1):
        chain = build([{"top_p": 0.9}], seed=3)
        candidates = chain.apply(row)
        assert set(candidates.ids.tolist()) <= nucleus(row.data, ~row.mask, {"top_p": 0.9 + 1e-6})
        assert not row.mask[chain.sample(row)]
    with pytest.raises(SamplingError, match="every entry of the row is -inf"):
        Candidates(np.ma.masked_array(np.ones(3, np.float32), mask=True))
