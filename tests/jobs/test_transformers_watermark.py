"""The detector of watermarks against transformers: g values and masks, and texts that transformers marks."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.jobs.detection import WatermarkDetector, new_context_mask
from logitsmith.samplers import build
from logitsmith.samplers.methods.synthid import Synthid
from logitsmith.samplers.watermark import ngram_hashes

from ..oracle.transformers_oracle import ask
from ..samplers.rows import make_row
from ..samplers.test_synthid import KEYS
from .test_detection import g_values

pytestmark = pytest.mark.slow

INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=200)
@given(
    st.integers(1, 300).flatmap(lambda last: st.lists(st.integers(0, last), min_size=8, max_size=80)),
    st.lists(INT64, min_size=1, max_size=9),
    st.integers(2, 6),
    st.sampled_from([0, 1, 7, 1024]),
    st.sampled_from([1, 100, 2**16]),
    st.integers(0, 2**63),
)
def test_g_values_and_masks(tokens, keys, length, history, size, seed):
    params = {
        "keys": keys,
        "ngram_len": length,
        "context_history_size": history,
        "sampling_table_size": size,
        "sampling_table_seed": seed,
    }
    asked = ask("watermark_g_values", watermark=params, tokens=tokens, eos=5)
    detector = WatermarkDetector(Synthid(**params))
    assert g_values(detector.watermark, tokens).tolist() == asked["g_values"]
    contexts = ngram_hashes(np.array(tokens[:-1]), length - 1)
    assert new_context_mask(contexts, history).tolist() == asked["new_contexts"]
    mask = np.array(asked["new_contexts"]) & np.array(asked["before_end"])
    counted = detector.counted_hashes(tokens, {5})
    # Of equal n-grams, transformers counts those beyond the history again.
    assert counted.tolist() == list(dict.fromkeys(ngram_hashes(np.array(tokens), length)[mask].tolist()))
    if history == 1024:
        assert counted.size == mask.sum()


TABLE = [make_row("normal", 200, number) for number in range(200)]
CONFIG = {
    "do_sample": True,
    "top_k": 0,
    "max_new_tokens": 100,
    "watermarking_config": {"keys": KEYS, "ngram_len": 5},
}


def test_texts_that_transformers_marks_are_found():
    detector = WatermarkDetector(Synthid(keys=KEYS))
    plain = {name: value for name, value in CONFIG.items() if name != "watermarking_config"}
    p_values = {
        name: [
            detector.score(ask("generate", rows=TABLE, prompt=[1], config=config, seed=seed)["tokens"]).p_value
            for seed in range(30)
        ]
        for name, config in (("marked", CONFIG), ("plain", plain))
    }
    print({name: f"p < 0.01 in {np.mean(np.array(values) < 0.01):.0%}" for name, values in p_values.items()})
    assert max(p_values["marked"]) < 1e-3
    assert np.mean(np.array(p_values["plain"]) < 0.05) < 0.2
    assert min(p_values["plain"]) > 1e-4


def test_texts_of_gen_have_as_many_ones_as_those_of_transformers():
    detector, means = WatermarkDetector(Synthid(keys=KEYS)), {"gen": [], "transformers": []}
    for seed in range(30):
        theirs = ask("generate", rows=TABLE, prompt=[1], config=CONFIG, seed=seed)["tokens"]
        means["transformers"].append(detector.score(theirs).mean)
        tokens = [1]
        chain = build([{"synthid": {"keys": KEYS}}], seed=seed)
        for _ in range(100):
            tokens.append(chain.sample(TABLE[tokens[-1]]))
            chain.accept(tokens[-1])
        means["gen"].append(detector.score(tokens[1:]).mean)
    difference = np.mean(means["gen"]) - np.mean(means["transformers"])
    error = np.hypot(*(np.std(values) / np.sqrt(30) for values in means.values()))
    assert abs(difference) < 4 * error
