"""The confidence of answers and of the values of JSON answers, against logits of single calls of llama.cpp."""

import ctypes
import json
import math

import llama_cpp
import numpy as np
import pytest
from logitsmith.engine import (
    BeamSearch,
    ChatMessages,
    Done,
    Model,
    ModelError,
    Token,
    generate,
    generate_beams,
    generate_many,
)
from logitsmith.engine.request import GenerationRequest
from logitsmith.grammars import resolve_grammar
from logitsmith.grammars.bans import parse_bans
from logitsmith.logprobs.confidence import Confidence, FieldConfidence, join_confidences

from .scripted_model import write_scripted_model
from .small_models import write_model

PROMPT = "hello in the he"
SCHEMA = resolve_grammar(
    {
        "json_schema": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["long", "short"]},
                "a/b~": {
                    "type": "array",
                    "items": {"type": "string", "pattern": "^[a-hé中]{0,4}$"},
                    "minItems": 1,
                    "maxItems": 3,
                },
                "n": {"type": "integer", "minimum": 0, "maximum": 9999},
                "o": {
                    "type": "object",
                    "properties": {"is": {"type": ["boolean", "null"]}},
                    "required": ["is"],
                    "additionalProperties": False,
                },
            },
            "required": ["kind", "a/b~", "n", "o"],
            "additionalProperties": False,
        }
    }
)
JSON_IN_SPELLINGS = resolve_grammar({"gbnf": r'root ::= "[\"hello\", " [0-9]{1,3} "," " "* "\"th" [a-z]+ "\"]"'})


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def path(request, tmp_path_factory):
    """Random weights with a vocabulary of byte-level BPE, and with one of SentencePiece."""
    return write_model(tmp_path_factory.mktemp("confidence") / "model.gguf", "llama", request.param)


@pytest.fixture(scope="module")
def model(path):
    with Model.load(path, n_ctx=512, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def logprobs_of(path, model):
    """A function of a run: the model's logprob of each token, from llama.cpp alone, in float64."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads = 512, 1
    own_model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    context = llama_cpp.llama_init_from_model(own_model, params)

    def decode(token):
        batch = llama_cpp.llama_batch_get_one((ctypes.c_int32 * 1)(token), 1)
        assert llama_cpp.llama_decode(context, batch) == 0
        row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (model.vocabulary.size,))
        wide = row.astype(np.float64)
        return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())

    def logprobs(events):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        prompt_ids, ids = events[0].prompt_ids, [token.id for token in tokens_of(events)]
        rows = [decode(token) for token in (*prompt_ids, *ids)]
        return [float(row[token]) for row, token in zip(rows[len(prompt_ids) - 1 :], ids, strict=False)]

    yield logprobs
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(own_model)


def tokens_of(events):
    return [event for event in events if isinstance(event, Token)]


RUNS = {
    "a plain text": {"chain": "temp1.5"},
    "a truncated chain": {"chain": "top-k5>temp2"},
    "the chain's logprobs": {"chain": "temp1.5", "top_logprobs": 2, "logprobs_from": "chain"},
    "both logprobs": {"chain": "temp1.5", "top_logprobs": 2, "logprobs_from": "both"},
    "a trace": {"chain": "temp1.5", "trace": 3},
    "guidance": {"chain": "temp1.5", "guidance": {"scale": 1.5, "negative_prompt": "the"}},
    "bans that go back": {"chain": "temp1.5", "bans": parse_bans([{"regex": "[a-m]"}]), "ban_retries": 2},
    "a stop string": {"chain": "temp1.5", "stop": ["e", "h", "in"]},
    "drafts": {"chain": "greedy", "lookup": 4},
    "a grammar": {"chain": "temp1.5", "constraint": SCHEMA},
    "a grammar without jump": {"chain": "temp1.5", "constraint": SCHEMA, "jump": False},
    "a grammar that is completed": {
        "chain": "temp1.5",
        "constraint": SCHEMA,
        "max_tokens": 20,
        "complete_sentence": True,
    },
}


def request(chain, constraint=None, **fields):
    defaults = {"max_tokens": 60, "seed": 4, "confidence": True}
    return GenerationRequest.of(PROMPT, chain, constraint, **(defaults | fields))


@pytest.mark.parametrize("fields", RUNS.values(), ids=RUNS)
def test_confidence_is_that_of_single_decodes(model, logprobs_of, fields):
    events = list(generate(model, request(**fields)))
    tokens, done = tokens_of(events), events[-1]
    drawn = [logprob for token, logprob in zip(tokens, logprobs_of(events), strict=True) if not token.is_forced]
    assert done.forced_tokens == len(tokens) - len(drawn)
    expected = {
        "mean_logprob": np.mean(drawn),
        "min_logprob": min(drawn),
        "perplexity": np.exp(-np.mean(drawn)),
    }
    # forced tokens are read in one call, which rounds differently
    assert done.confidence.as_json() == pytest.approx(expected, rel=1e-3 if done.forced_tokens else 1e-5)
    if fields.get("jump") is False:
        assert done.forced_tokens == 0
    elif "constraint" in fields:
        assert done.forced_tokens > 0


@pytest.mark.parametrize("fields", RUNS.values(), ids=RUNS)
def test_confidence_changes_nothing_else(model, fields):
    def without_confidence(events):
        return [(token.id, token.text, token.distributions) for token in tokens_of(events)]

    # Otherwise the second run would continue the tokens of the first, with other rounding.
    fields = fields | {"exact_reuse": True}
    plain = list(generate(model, request(**fields, confidence=False)))
    assert plain[-1].confidence is None
    assert all(token.model_logprob is None for token in tokens_of(plain))
    assert without_confidence(plain) == without_confidence(generate(model, request(**fields)))


def test_a_batch_has_the_confidence_of_single_runs(model):
    requests = [
        request(chain, id=number, seed=number, constraint=grammar, field_confidence=grammar is not None)
        for number, (chain, grammar) in enumerate(
            [("temp1.5", None), ("temp2", SCHEMA), ("temp1", SCHEMA), ("temp2", JSON_IN_SPELLINGS)] * 2
        )
    ]
    for answer in generate_many(model, requests, 4, deterministic=True):
        *_, done = generate(model, requests[answer.id])
        expected = done.confidence.as_json()
        assert answer.done.confidence.as_json() == pytest.approx(expected, rel=1e-5)
        assert (answer.done.fields is None) == (done.fields is None)
        for pointer, field in (done.fields or {}).items():
            assert answer.done.fields[pointer].as_json() == pytest.approx(field.as_json(), rel=1e-3)


def values_of(value, pointer=""):
    if isinstance(value, (list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from values_of(item, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
    else:
        yield pointer, value


def span_of(text, value, start):
    """The first place from ``start`` on at which JSON says this value."""
    for position in range(start, len(text)):
        try:
            found, end = json.JSONDecoder().raw_decode(text, position)
        except ValueError:
            continue
        if type(found) is type(value) and found == value:
            return position, end
    raise AssertionError(value)


def fields_by_brute_force(text, tokens, logprobs):
    """Each byte is looked up: the value of its place, and its token."""
    owner_of_byte = [number for number, token in enumerate(tokens) for _ in token.data if not token.is_control]
    assert len(owner_of_byte) == len(text.encode())
    fields = {}
    end = 0
    for pointer, value in values_of(json.loads(text)):
        key = pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        if not key.isdigit():
            _, end = span_of(text, key, end)
        start, end = span_of(text, value, end)
        numbers = sorted(set(owner_of_byte[len(text[:start].encode()) : len(text[:end].encode())]))
        drawn = [logprobs[number] for number in numbers if not tokens[number].is_forced]
        fields[pointer] = (sum(drawn), len(numbers), len(numbers) - len(drawn))
    return fields


@pytest.mark.parametrize("jump", [True, False], ids=["jump", "no jump"])
@pytest.mark.parametrize("grammar", [SCHEMA, JSON_IN_SPELLINGS], ids=["a schema", "GBNF"])
@pytest.mark.parametrize("seed", range(4))
def test_fields_are_those_of_the_tokens_of_each_value(model, logprobs_of, seed, grammar, jump):
    fields = {"seed": seed, "jump": jump, "field_confidence": True, "confidence": False, "max_tokens": 300}
    events = list(generate(model, request("temp2", grammar, **fields)))
    tokens, done = tokens_of(events), events[-1]
    expected = fields_by_brute_force(done.text, tokens, logprobs_of(events))
    assert list(done.fields) == list(expected)
    for pointer, (logprob, token_count, forced_count) in expected.items():
        found = done.fields[pointer].as_json()
        assert found["logprob"] == pytest.approx(logprob, rel=1e-3)
        assert found["probability"] == math.exp(found["logprob"])
        assert (found["tokens"], found["forced"]) == (token_count, forced_count)
    assert done.confidence is not None


NOT_JSON = {
    "cut by the length": {"max_tokens": 9},
    "cut by a stop string": {"stop": '"o"'},
    "no token": {"max_tokens": 0},
}


@pytest.mark.parametrize("fields", NOT_JSON.values(), ids=NOT_JSON)
def test_an_answer_that_is_not_json_has_no_fields(model, fields):
    *_, done = generate(model, request("temp2", SCHEMA, field_confidence=True, **fields))
    assert done.fields is None


def test_without_drawn_tokens_there_is_no_confidence(model):
    grammar = resolve_grammar({"gbnf": 'root ::= "[7, true]"'})
    *_, done = generate(model, request("temp2", grammar, field_confidence=True))
    assert done.confidence is None
    assert done.text == "[7, true]"
    assert [field.logprob for field in done.fields.values()] == [0, 0]
    assert all(field.token_count == field.forced_count for field in done.fields.values())


def test_a_value_that_the_beginning_has_gets_the_tokens_after_it(model):
    grammar = resolve_grammar({"gbnf": r'root ::= " "* "[1, \"he" [a-h]{1,4} "\", 2" "]"'})
    events = list(
        generate(
            model,
            GenerationRequest.of(PROMPT + '[1, "he', "temp2", grammar, beginning='[1, "he', field_confidence=True),
        )
    )
    tokens, done = tokens_of(events), events[-1]
    spelled = [token for token in tokens if token.data]
    count = next(index for index, token in enumerate(spelled) if b'"' in token.data) + 1
    assert done.fields["/0"] == FieldConfidence(0, 0, 0)
    assert done.fields["/1"].token_count == count
    assert list(done.fields) == ["/0", "/1", "/2"]


NEEDS_A_GRAMMAR = "field_confidence: needs a JSON Schema"


def test_what_cannot_measure_fields(model):
    with pytest.raises(ModelError, match=NEEDS_A_GRAMMAR):
        list(generate(model, request("temp2", field_confidence=True)))
    (failure,) = generate_many(model, [request("temp2", field_confidence=True)], 2)
    assert NEEDS_A_GRAMMAR in str(failure.error)
    with pytest.raises(ModelError, match="field_confidence: not supported by a beam search"):
        generate_beams(model, request("dist", SCHEMA, field_confidence=True, beams=BeamSearch(2)))


def test_a_beam_search_draws_no_token(model):
    for *_, done in generate_beams(model, request("dist", beams=BeamSearch(2), max_tokens=3)):
        assert done.confidence is None


SCRIPT = ["<A>", "<think>", "\n", "hm", "</think>", "\n\n", '{"a": ', '"yes', '"}', "<end>"]
TEMPLATE = "{{ messages[-1].content }}<A>{# <think></think> #}"


BUDGET = [{"max_tokens": 1, "adds_end": True}]
FORCED = {  # the forced tokens of the reasoning and of the answer
    "free": ({"jump": False}, 0, 0),
    "forced answer": ({}, 0, 2),
    "forced end": ({"phases": BUDGET, "jump": False}, 1, 0),
}


@pytest.mark.parametrize(("fields", "forced_reasoning", "forced_answer"), FORCED.values(), ids=FORCED)
def test_the_reasoning_does_not_count(tmp_path, fields, forced_reasoning, forced_answer):
    grammar = resolve_grammar({"gbnf": r'root ::= "{\"a\": \"" ("yes" | "no") "\"}"'})
    chat = ChatMessages([{"role": "user", "content": "Hi"}])
    asked = {"confidence": True, "field_confidence": True} | fields
    with Model.load(write_scripted_model(tmp_path / "model.gguf", [SCRIPT], TEMPLATE)) as model:
        events = list(generate(model, chat, "temp0.5", grammar, **asked))
    tokens, done = tokens_of(events), events[-1]
    assert isinstance(done, Done)
    answer = [token for token in tokens if token.part == "answer"]
    assert sum(token.is_forced for token in answer) == forced_answer
    assert sum(token.is_forced for token in tokens) - forced_answer == forced_reasoning
    assert done.confidence == Confidence.of([token.model_logprob for token in answer if not token.is_forced])
    assert done.confidence.token_count < len(tokens)
    assert list(done.fields) == ["/a"]


def test_confidences_of_several_answers():
    first, second = Confidence.of([-1.0, -3.0]), Confidence.of([-8.0])
    assert join_confidences([first, None, second]) == Confidence.of([-1.0, -3.0, -8.0])
    assert join_confidences([None]) is None
    impossible = Confidence.of([-math.inf, -1.0])
    assert impossible.as_json() == {"mean_logprob": None, "min_logprob": None, "perplexity": None}
    assert Confidence.of([-1e4]).as_json() == {"mean_logprob": -1e4, "min_logprob": -1e4, "perplexity": None}
    assert FieldConfidence(-math.inf, 1, 0).as_json()["probability"] == 0
