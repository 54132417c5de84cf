"""Requests that cannot be run: each is refused with its field, alone and in a batch, before any token is made."""

import pytest
from logitsmith.engine import BatchFailure, DraftOptions, GenerationRequest, generate, generate_many
from logitsmith.engine.beams import generate_beams
from logitsmith.engine.guidance import Guidance
from logitsmith.engine.request import BeamSearch
from logitsmith.grammars.bans import parse_bans
from logitsmith.models.errors import ModelError
from logitsmith.samplers.chain import Phase
from logitsmith.samplers.errors import SamplingError
from logitsmith.samplers.loop_guard import LoopGuard

NAN = float("nan")
REFUSED = {
    "a prompt that is not UTF-8": ({"prompt": b"\xff"}, "the text is not UTF-8"),
    "half a surrogate pair": ({"prompt": "\udcff"}, "the prompt is not UTF-8"),
    "a negative token": ({"prompt": [-1]}, "token id -1 is not"),
    "a token that is not there": ({"prompt": [10**6]}, "token id 1000000 is not"),
    "a prompt that is too long": ({"prompt": [5] * 2000}, "the prompt has 2,000 tokens"),
    "a long prompt with an echo": ({"prompt": [5] * 2000, "echo": True}, "the prompt has 2,000 tokens"),
    "max_tokens": ({"max_tokens": -1}, "max_tokens: -1 is not ≥ 0"),
    "stop tokens": ({"stop_token_ids": (10**7,)}, "stop_token_ids: token id 10000000 is not"),
    "lookup": ({"lookup": -1}, "lookup: -1"),
    "trace": ({"trace": -1}, "trace: -1 is not within 1.."),
    "trace beyond the vocabulary": ({"trace": 10**5}, "trace: 100000 is not within 1.."),
    "top_logprobs": ({"top_logprobs": -2}, "top_logprobs: -2"),
    "top_logprobs beyond the vocabulary": ({"top_logprobs": 50_000}, "top_logprobs: 50000"),
    "a source of logprobs": ({"top_logprobs": 0, "logprobs_from": "both of them"}, "logprobs_from"),
    "logprobs of a token": ({"top_logprobs": 0, "logprob_of": [50_000]}, "logprobs: token id 50000"),
    "logprobs of a token alone": ({"logprob_of": [5]}, "need top_logprobs"),
    "a source alone": ({"logprobs_from": "both"}, "need top_logprobs"),
    "a sentence without a grammar": ({"complete_sentence": True}, "only a text under a grammar"),
    "n_max": ({"draft": {"n_max": -1}}, "draft: n_max: -1 is not ≥ 0"),
    "n_min": ({"draft": {"n_min": -2}}, "draft: n_min: -2 is not ≥ 0"),
    "n_min above n_max": ({"draft": {"n_min": 5}}, "draft: n_min: 5 is more than n_max, 3"),
    "p_min": ({"draft": {"p_min": 1.5}}, "draft: p_min: 1.5 is not within 0..1"),
    "p_min, no number": ({"draft": {"p_min": NAN}}, "draft: p_min: nan is not within 0..1"),
    "a draft model": ({"draft": {"model": "nonsuch.gguf"}}, "nonsuch.gguf"),
    "a scale": ({"guidance": Guidance(101.0, "a")}, "the scale 101 is not within ±100"),
    "a low scale": ({"guidance": Guidance(-101.0, "a")}, "the scale -101 is not within ±100"),
    "a scale without end": ({"guidance": Guidance(float("inf"), "a")}, "the scale inf is not within ±100"),
    "a scale, no number": ({"guidance": Guidance(NAN)}, "the scale nan is not within ±100"),
    "a model of guidance": ({"guidance": Guidance(2.0, model="nowhere.gguf")}, "nowhere.gguf"),
    "beams": ({"beams": BeamSearch(0)}, "beams: 0 is not within 1..256"),
    "many beams": ({"beams": BeamSearch(257)}, "beams: 257 is not"),
    "a length penalty": ({"beams": BeamSearch(2, 21.0)}, "length_penalty: 21.0 is not within ±20"),
    "a length penalty, no number": ({"beams": BeamSearch(2, NAN)}, "length_penalty: nan"),
    "a way to stop": ({"beams": BeamSearch(2, early_stopping="ever")}, "early_stopping: 'ever' is not"),
    "a number as a way to stop": ({"beams": BeamSearch(2, early_stopping=1)}, "early_stopping: 1 is not"),
    "more texts than beams": ({"beams": BeamSearch(2, best_count=3)}, "n_best: 3 is not within 1..2"),
    "no text": ({"beams": BeamSearch(2, best_count=0)}, "n_best: 0 is not"),
    "beams, bans": ({"beams": BeamSearch(2), "bans": parse_bans(["x"])}, "bans: not supported by a beam"),
    "beams, a loop guard": ({"beams": BeamSearch(2), "loop_guard": LoopGuard()}, "loop_guard: not supported by a"),
    "beams, phases": ({"beams": BeamSearch(2), "phases": [Phase(steps="greedy", until="x")]}, "phases: not supp"),
    "beams, lookup": ({"beams": BeamSearch(2), "lookup": 3}, "lookup: not supported by a beam search"),
    "beams, a draft": ({"beams": BeamSearch(2), "draft": {}}, "draft: not supported by a beam search"),
    "beams, a trace": ({"beams": BeamSearch(2), "trace": 3}, "trace: not supported by a beam search"),
    "beams, a shift": ({"beams": BeamSearch(2), "keep_on_shift": 0}, "keep_on_shift: not supported by a beam"),
    "beams, xtc": ({"beams": BeamSearch(2), "chain": "xtc(probability=0.5)"}, "beams: xtc draws random numbers"),
    "beams, mirostat": ({"beams": BeamSearch(2), "chain": "mirostat_v2"}, "beams: mirostat_v2 chooses by what"),
    "beams, adaptive_p": ({"beams": BeamSearch(2), "chain": "adaptive_p0.5"}, "beams: adaptive_p chooses by"),
    "beams, temperature 0": ({"beams": BeamSearch(2), "chain": "temp0 > dist"}, "beams: temperature 0 keeps"),
}


def run_alone(model, request):
    return generate_beams(model, request) if request.beams is not None else list(generate(model, request))


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_request_is_refused_with_its_field(pruned, draft_path, fields, sentence):
    fields = {"prompt": "The sea", "chain": "temp1", "max_tokens": 3, **fields}
    if "draft" in fields:
        fields["draft"] = DraftOptions(**{"model": draft_path, **fields["draft"]})
    request = GenerationRequest.of(fields.pop("prompt"), fields.pop("chain"), **fields)
    with pytest.raises((ModelError, SamplingError)) as caught:
        run_alone(pruned, request)
    assert sentence in str(caught.value)
    (failure,) = generate_many(pruned, [request], 2)
    assert isinstance(failure, BatchFailure)
    assert not failure.has_begun
    assert sentence in str(failure.error)


SHIFTS = {
    "no number of tokens": ({"keep_on_shift": -2}, "keep_on_shift: -2 is not ≥ -1"),
    "with guidance": (
        {"keep_on_shift": 0, "guidance": Guidance(2.0)},
        "guidance: not supported with a context shift",
    ),
}


@pytest.mark.parametrize(("fields", "sentence"), SHIFTS.values(), ids=SHIFTS)
def test_a_context_shift_is_refused(pruned, fields, sentence):
    with pytest.raises(ModelError, match=sentence):
        run_alone(pruned, GenerationRequest.of("The sea", "temp1", max_tokens=3, **fields))
