"""A thousand requests with many kinds of settings, compared with the same requests one by one."""

import random

import pytest
from logitsmith.engine import BatchAnswer, GenerationRequest, LogprobRequest, generate_many
from logitsmith.grammars import resolve_grammar
from logitsmith.samplers import build

from .test_batch import generate_alone, ids_of
from .test_batch_engine import GRAMMARS as SMALL_GRAMMARS, WORDS

pytestmark = pytest.mark.slow

COUNT = 250
GRAMMARS = [
    *SMALL_GRAMMARS,
    {"json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
]
STEPS = [
    "top-k40",
    "top-p0.9",
    "min-p0.05",
    "typical0.95",
    "top-n-sigma1",
    "penalties(repeat=1.1, frequency=0.2)",
    "dry(multiplier=0.8)",
    "xtc(probability=0.4, threshold=0.1)",
    "temp0.8",
    "temp1.3",
    "dynatemp(temperature=1, range=0.5)",
    "p-less(norm=true)",
    "min-k",
    "edt(theta=0.3)",
    "k-shift2",
    "length-decay(factor=1.2, start=2)",
    'sequence-bias("the sea"=3, " the"=-1)',
    'scripts=["Latin"]',
]
ENDS = ["dist", "dist", "dist", "greedy", "mirostat-v2", "adaptive-p0.4"]


def requests(model, count, seed):
    """The same requests each time, with new chains and grammars."""
    draw = random.Random(seed)
    for key in range(count):
        steps = sorted(draw.sample(STEPS, draw.randrange(5)), key=lambda step: "scripts" not in step)
        chain = " > ".join([*steps, draw.choice(ENDS)])  # after a cut, scripts may find no token of its scripts
        spec = resolve_grammar(draw.choice(GRAMMARS)) if draw.random() < 0.2 else None
        words = draw.choices(WORDS, k=draw.choice([1, 4, 12, 12, 40, 90, 250]))
        yield GenerationRequest(
            prompt=" ".join(words),
            chain=build(chain, seed=draw.randrange(2**32), vocab=model.vocabulary),
            constraint=spec.start(model.vocabulary) if spec else None,
            stop=draw.choice([(), (".",), ("\n", " the")]),
            max_tokens=draw.choice([1, 3, 8, 16]),
            logprobs=LogprobRequest(draw.choice([None, 0, 3])),
            complete_sentence=spec is not None and draw.random() < 0.5,
            id=key,
        )


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_thousand_requests_get_what_they_get_alone(model, seed):
    """A thousand in all: 250 with each seed."""
    outcomes = {outcome.id: outcome for outcome in generate_many(model, requests(model, COUNT, seed), 8)}
    assert len(outcomes) == COUNT
    assert all(isinstance(outcome, BatchAnswer) for outcome in outcomes.values())
    long = differ = 0
    for request in requests(model, COUNT, seed):
        answer = outcomes[request.id]
        tokens, done = generate_alone(model, request)
        same = ids_of(answer.tokens) == ids_of(tokens) and answer.done.text == done.text
        if answer.start.prompt_tokens + len(tokens) <= 256:
            assert same, request.id
            assert answer.done.finish_reason == done.finish_reason
        else:
            long += 1
            differ += not same
    print(f"\n{COUNT} requests, 8 at a time: {COUNT - long} short ones as from `generate`, token by token")
    print(f"of {long} longer ones, {differ} differ: behind the 256th, llama.cpp computes a lone token otherwise")


def test_isolated_requests_get_what_they_get_alone(model):
    count, seed = 120, 5
    for outcome in generate_many(model, requests(model, count, seed), 8, deterministic=True):
        assert isinstance(outcome, BatchAnswer)
        request = next(r for r in requests(model, count, seed) if r.id == outcome.id)
        tokens, done = generate_alone(model, request)
        assert (ids_of(outcome.tokens), outcome.done.text) == (ids_of(tokens), done.text)
    print(f"\n{count} requests with deterministic=True, 8 slots: all as from `generate`, token by token")
