"""Batches on models that llama.cpp quantized: what is promised holds to the last bit, on any processor."""

import dataclasses
import random

import numpy as np
import pytest
from logitsmith.engine import ExactnessLevel, GenerationRequest, LogprobRequest, Model, ModelError
from logitsmith.engine.exactness import are_slots_like_single_runs
from logitsmith.engine.native.context import NativeContext
from logitsmith.engine.native.options import ContextSize
from logitsmith.samplers import build

from .gpus import gpu, put_gpus
from .quantized_models import QUANTIZATIONS, VOCABULARY
from .test_batch import exact_outputs, generate_alone, generate_batch

LARGE_VOCABULARY = 151_936
MODELS = [
    pytest.param("Q4_K_M", VOCABULARY, id="Q4_K_M"),
    pytest.param("F16", LARGE_VOCABULARY, id="F16 with a large vocabulary", marks=pytest.mark.slow),
    pytest.param("F16", VOCABULARY, id="F16"),
    *(
        pytest.param(name, VOCABULARY, id=name, marks=pytest.mark.slow)
        for name in QUANTIZATIONS
        if name not in ("Q4_K_M", "F16")
    ),
]


class FewTokens:
    """A constraint with three tokens, so that texts repeat themselves and their continuation can be guessed."""

    def __init__(self, size):
        self._mask = np.arange(size) < 3

    def mask(self):
        return self._mask

    def accept(self, token):
        pass


def make_requests(count, max_tokens=12, **options):
    """Prompts of other lengths, some of which share their first 64 tokens and more."""
    draw = random.Random(count)
    common = [draw.randrange(VOCABULARY) for _ in range(70)]
    for key in range(count):
        ids = [draw.randrange(VOCABULARY) for _ in range(draw.choice([1, 3, 20, 64, 80]))]
        yield GenerationRequest(
            prompt=common + ids if key % 3 == 0 else ids,
            chain=build("top-k200 > temp1.2", seed=key),
            max_tokens=max_tokens + key % 5,
            logprobs=LogprobRequest(1),
            id=key,
            **options,
        )


@pytest.mark.parametrize(("quantization", "vocabulary"), MODELS)
def test_neither_slots_nor_order_nor_neighbors_change_a_bit(quantized_models, quantization, vocabulary):
    with Model.load(quantized_models.path(quantization, vocabulary), n_ctx=256) as model:
        requests = list(make_requests(9))
        once = exact_outputs(generate_batch(model, requests, 8))
        levels = {parallel: model.batch_exactness(parallel).level for parallel in range(2, 9)}
        assert len(set(levels.values())) == 1, levels  # the class of kernels does not depend on the slots
        assert levels[8] is not ExactnessLevel.ROUNDING
        for parallel in (7, 4, 2):
            random.Random(parallel).shuffle(requests)
            assert exact_outputs(generate_batch(model, requests, parallel)) == once, parallel
        assert exact_outputs(generate_batch(model, requests[:1], 8)).items() <= once.items()
        if levels[8] is ExactnessLevel.EXACT:
            for request in requests:
                tokens, done = generate_alone(model, request)
                alone = ([(t.id, t.distributions) for t in tokens], done.text)
                assert alone == once[request.id], request.id


@pytest.mark.parametrize(("quantization", "vocabulary"), MODELS)
def test_isolated_requests_are_exact(quantized_models, quantization, vocabulary):
    with Model.load(quantized_models.path(quantization, vocabulary), n_ctx=512) as model:
        requests = list(make_requests(4, max_tokens=8))
        requests[0] = GenerationRequest([7] * 250, requests[0].chain, max_tokens=20, id="beyond 256 tokens")
        answers = generate_batch(model, requests, 4, deterministic=True)
        for request in requests:
            tokens, _ = generate_alone(model, request)
            assert [(t.id, t.distributions) for t in answers[request.id].tokens] == [
                (t.id, t.distributions) for t in tokens
            ]
            assert str(answers[request.id].start.batch_exactness) == "exact"


def test_beyond_256_tokens_neighbors_change_nothing(quantized_models):
    """llama.cpp then computes a token alone by another kernel than several."""
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=512) as model:
        requests = list(make_requests(5))
        requests[1] = GenerationRequest(
            [11] * 250, requests[1].chain, max_tokens=20, logprobs=LogprobRequest(1), id="long"
        )
        once = exact_outputs(generate_batch(model, requests, 5))
        assert exact_outputs(generate_batch(model, requests[::-1], 2)) == once
        answers = generate_batch(model, [requests[0], requests[1]], 4)
        assert exact_outputs(answers)["long"] == once["long"]
        assert {key: str(answer.exactness) for key, answer in answers.items()} == {
            0: "exact",
            "long": "exact among themselves",
        }


def test_guessed_tokens_do_not_depend_on_neighbors(quantized_models):
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=256) as model:
        options = {"max_tokens": 30, "lookup": 10, "constraint": FewTokens(model.vocabulary.size)}
        requests = list(make_requests(6, **options))
        answers = generate_batch(model, requests, 6)
        assert sum(answer.done.accepted_tokens for answer in answers.values()) > 5
        assert exact_outputs(generate_batch(model, requests[::-1], 3)) == exact_outputs(answers)


def test_a_probe_leaves_no_trace(quantized_models):
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=64) as model:
        model.context.read([5, 6, 7])
        before = model.context.logits().copy()
        assert model.batch_exactness(4) == model.batch_exactness(8)
        assert (model.context.logits() == before).all()
        assert model.context.tokens == [5, 6, 7]


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_start_of_an_answer_tells_what_holds(model, parallel):
    answers = generate_batch(model, [GenerationRequest("The sea", build("greedy"), max_tokens=2)], parallel)
    assert answers[None].start.batch_exactness == model.batch_exactness(parallel)
    assert str(model.batch_exactness(parallel, deterministic=True)) == "exact"


def test_the_model_decides_once(model):
    assert model.batch_exactness(6) is model.batch_exactness(6)


def test_without_memory_for_a_probe_nothing_is_promised(quantized_models, monkeypatch):
    def fail(*_):
        raise ModelError("no memory")

    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=64) as model:
        monkeypatch.setattr("logitsmith.engine.exactness.NativeContext", fail)
        requests = list(make_requests(2, max_tokens=2))
        answers = generate_batch(model, [dataclasses.replace(r, prompt=[5, 6]) for r in requests], 2)
        assert {str(answer.exactness) for answer in answers.values()} == {"to rounding"}


@pytest.fixture
def model_on_gpu(quantized_models, monkeypatch):
    put_gpus(monkeypatch, gpu())
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=64) as loaded:
        yield loaded


@pytest.mark.parametrize("slots", [1, 32])
def test_on_a_gpu_nothing_is_promised(model_on_gpu, slots):
    assert str(model_on_gpu.batch_exactness(slots)) == "to rounding"


def test_on_a_gpu_deterministic_batches_are_checked(model_on_gpu, monkeypatch):
    requests = [GenerationRequest([5, 6], build("greedy"), max_tokens=2)]
    answers = generate_batch(model_on_gpu, requests, 2, deterministic=True)
    assert str(answers[None].exactness) == "exact"
    monkeypatch.setattr("logitsmith.engine.model.are_slots_like_single_runs", lambda *_: False)
    with pytest.raises(
        ModelError, match=r"deterministic: not possible with 3 of 3 layers on CUDA0, .* gpu_layers 0"
    ):
        generate_batch(model_on_gpu, requests, 2, deterministic=True)


# tokens of the context, and the numbers of tokens before those that are compared
CHECKED = {
    "one token": (1, [0]),
    "a short context": (64, [2, 32, 63]),
    "longer than what is checked": (8192, [2, 32, 256, 511]),
}


@pytest.mark.parametrize(("length", "places"), CHECKED.values(), ids=CHECKED)
def test_a_gpu_is_checked_along_the_context(quantized_models, monkeypatch, length, places):
    decoded = []
    decode = NativeContext.decode_spans

    def record(native, spans, all_logits=True):
        if all_logits:
            decoded.extend(span.position for span in spans)
        decode(native, spans, all_logits)

    monkeypatch.setattr(NativeContext, "decode_spans", record)
    with Model.load(quantized_models.path("Q4_K_M")) as model:
        assert are_slots_like_single_runs(model._native, ContextSize(length, 512))
    assert decoded == [*places, *places]


def test_a_mixture_of_experts_is_not_promised_more_than_holds(quantized_models):
    """Its router is in F32, in which llama.cpp computes one row otherwise than several; logits seldom show it."""
    with Model.load(quantized_models.path("Q8_0", experts=4), n_ctx=256) as model:
        exactness = model.batch_exactness(4)
        if exactness.level is ExactnessLevel.EXACT:
            requests = list(make_requests(6))
            answers = generate_batch(model, requests, 4)
            for request in requests:
                tokens, _ = generate_alone(model, request)
                assert [t.distributions for t in tokens] == [t.distributions for t in answers[request.id].tokens]
