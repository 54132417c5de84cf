"""The model's own texts, compared with further texts of the same chain: how often is a difference shown?"""

from dataclasses import replace

import numpy as np
import pytest
from logitsmith.common.intervals import LEVEL, POWER, Bootstrap
from logitsmith.compare.arms import make_arms
from logitsmith.compare.plan import Plan, TextTable, make_run, text_prompt
from logitsmith.compare.text_measures import MEASURES
from logitsmith.engine import Model, locate
from logitsmith.jobs.batch import BatchCounts
from logitsmith.presets.overrides import Override
from logitsmith.requests.resolve import RequestDefaults
from scipy.stats import binomtest

pytestmark = pytest.mark.slow

PROMPTS = [
    "The sea was", "My dog likes to", "In the city of glass,", "The old king said:", "To bake bread, you",
    "When the rain stopped,", "The recipe calls for", "Nobody in the village", "At the end of the war,",
    "She opened the letter and", "The experiment showed that", "A good teacher",
]  # fmt: skip
SEEDS, PAIRS, REPETITIONS = 60, 20, 200


@pytest.fixture(scope="module")
def values():
    """The values of each measure, float64 (prompts, seeds), of texts of the preset ``default``."""
    defaults = RequestDefaults(overrides=(Override("-n", "max_tokens", 24),))
    prompts = [text_prompt(text) for text in PROMPTS]
    prompts = [replace(prompt, id=str(number), number=number) for number, prompt in enumerate(prompts, 1)]
    plan = Plan(make_arms(["default", "temp1"], None, [])[:1], prompts, 0, SEEDS, defaults)
    table = TextTable()
    with Model.load(locate()[0]) as model:
        make_run(plan, plan.arms, model, table, BatchCounts(), describe_error=str).run(
            model, plan.lines(plan.arms), 8
        )
    return {measure: table.values(plan, plan.arms[0], measure) for measure in MEASURES}


def differences(rows, random):
    """Return the differences of pairs of texts, float64 (prompts, PAIRS). No text is in two pairs."""
    order = random.permuted(np.tile(np.arange(SEEDS), (len(rows), 1)), axis=1)
    chosen = np.take_along_axis(rows, order, axis=1)
    return chosen[:, PAIRS : 2 * PAIRS] - chosen[:, :PAIRS]


def test_texts_of_one_chain_differ_at_the_nominal_rate(values):
    """Each repetition draws pairs of texts with different seeds, and asks whether zero is in the interval."""
    random, bootstrap = np.random.default_rng(0), Bootstrap(resamples=1000)
    hits = dict.fromkeys(values, 0)
    for _ in range(REPETITIONS):
        for measure, rows in values.items():
            estimate = bootstrap.estimate(differences(rows, random), is_share=measure.is_share)
            hits[measure] += estimate.interval.contains_zero
    for measure, count in hits.items():
        print(f"{measure.title}: zero in {count / REPETITIONS:.1%} of {REPETITIONS} intervals")
    for measure, count in hits.items():
        # Repetitions share texts, so the rate varies more than that of independent ones. Shares of rare events,
        # such as loops, have wider intervals than necessary.
        low = binomtest(count, REPETITIONS).proportion_ci(0.9999).low
        high = binomtest(count, REPETITIONS).proportion_ci(0.9999).high
        assert low <= LEVEL or measure.is_share, measure.name
        assert high >= LEVEL or measure.is_share, measure.name


def test_a_planted_difference_is_found_at_the_stated_power(values):
    """The surprise of one arm's texts is raised by the difference that the estimate calls detectable."""
    (rows,) = (rows for measure, rows in values.items() if measure.name == "surprise")
    random, bootstrap = np.random.default_rng(1), Bootstrap(resamples=1000)

    detectable = np.mean([bootstrap.estimate(differences(rows, random)).detectable for _ in range(REPETITIONS)])
    found = (
        sum(bootstrap.estimate(differences(rows, random) + detectable).is_shown for _ in range(REPETITIONS))
        / REPETITIONS
    )
    print(f"a difference of {detectable:.3f} nats is found in {found:.1%} of {REPETITIONS} comparisons")
    assert abs(found - POWER) < 0.1
