"""The rates of a watermark's detector: false alarms in what people write, and marked texts that are found."""

import math

import numpy as np
import pytest
from logitsmith.engine import Model, locate
from logitsmith.engine.batch import generate_many
from logitsmith.engine.request import GenerationRequest
from logitsmith.jobs.detection import WatermarkDetector
from logitsmith.samplers.methods.synthid import Synthid

from ..human_texts import human_texts
from ..samplers.test_synthid import KEYS

LEVELS = (0.05, 0.01, 0.001)
THIRTY_KEYS = np.random.default_rng(30).integers(0, 2**31, 30).tolist()


def allowed_rate(level, count):
    """The highest rate that is likely, if each text is below the level with this probability."""
    return level + 4 * math.sqrt(level * (1 - level) / count)


@pytest.fixture(scope="module")
def bundled():
    with Model.load(locate()[0], n_ctx=512, threads=2) as loaded:
        yield loaded


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("keys", [KEYS, THIRTY_KEYS, None], ids=["nine keys", "thirty keys", "a key set per text"])
def test_false_alarms(bundled, count, keys):
    texts = [bundled.vocabulary.tokenize(text.encode()) for text in human_texts(count)]
    chooser = np.random.default_rng(1)
    detector = WatermarkDetector(Synthid(keys=keys or KEYS))
    scores = []
    for text in texts:
        if keys is None:
            detector = WatermarkDetector(Synthid(keys=chooser.integers(0, 2**31, 9).tolist()))
        scores.append(detector.score(text))
    p_values = np.array([score.p_value for score in scores if score.p_value is not None])
    tokens = sum(score.counted_count for score in scores)
    print(f"{p_values.size} human texts with {tokens:,} counted tokens:")
    for level in LEVELS:
        rate = float((p_values < level).mean())
        print(f"p < {level:g} in {rate:.2%}")
        assert rate <= allowed_rate(level, p_values.size)
    assert p_values.size > 0.95 * count


CHAINS = {
    "temperature 1": [{"temperature": 1.0}],
    "default": [{"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.05}, {"temperature": 0.8}],
}
FOUND_AT = {"temperature 1": {50: 0.9, 100: 0.95, 200: 0.97}, "default": {50: 0.5, 100: 0.7, 200: 0.8}}
"""The share of texts that must be found at p < 0.01, by the number of their tokens."""


@pytest.mark.slow
@pytest.mark.parametrize("keys", [KEYS, THIRTY_KEYS], ids=["nine keys", "thirty keys"])
@pytest.mark.parametrize("name", CHAINS)
def test_marked_texts_that_are_found(bundled, name, keys):
    """Texts of the bundled model, whose next token is more certain than that of a large model."""
    # The step that drops end tokens comes first, because a cut may keep nothing else.
    chain = [{"ignore_eos": {}}, *CHAINS[name], {"synthid": {"keys": keys}}]
    prompts = [text[:200] for text in human_texts(1000) if len(text) >= 200][:64]
    requests = [
        GenerationRequest(prompt=prompt, chain=chain, seed=number, max_tokens=200, id=number)
        for number, prompt in enumerate(prompts)
    ]
    answers = [[token.id for token in each.tokens] for each in generate_many(bundled, requests, parallel=8)]
    detector = WatermarkDetector(Synthid(keys=keys))
    assert {len(tokens) for tokens in answers} == {200}
    for length, share in FOUND_AT[name].items():
        p_values = np.array([detector.score(tokens[:length]).p_value for tokens in answers])
        found = [float((p_values < level).mean()) for level in (0.01, 0.001)]
        print(f"{len(answers)} texts of {length} tokens: p < 0.01 in {found[0]:.0%}, p < 0.001 in {found[1]:.0%}")
        assert found[0] >= share
