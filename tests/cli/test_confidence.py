"""The confidence of answers and of their fields, in the outputs of `gen run` and `gen batch`."""

import json
import math

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")
RUN = ("run", "The sea", "-n", "30", "--seed", "3")
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["colour", "n"],
        "additionalProperties": False,
    }
)
FIELDS = ("-j", SCHEMA, "--field-confidence")


def done_of(result):
    return json.loads(result.out.splitlines()[-1])


def test_jsonl_has_the_confidence_of_its_token_lines(gen):
    lines = [json.loads(line) for line in gen(*RUN, *FIELDS, "--format", "jsonl").out.splitlines()]
    start, *tokens, done = lines
    assert start["field_confidence"] is True
    drawn = [token["logprob"] for token in tokens if "forced" not in token]
    assert len(tokens) - len(drawn) == done["forced_tokens"] > 0
    assert {token["forced"] for token in tokens if "forced" in token} == {True}
    mean = sum(drawn) / len(drawn)
    expected = {"mean_logprob": mean, "min_logprob": min(drawn), "perplexity": math.exp(-mean)}
    assert done["confidence"] == pytest.approx(expected)
    assert list(done["fields"]) == ["/colour", "/n"]


FORMATS = {
    "openai": lambda answer: (answer["usage"]["confidence"], answer["choices"][0]["fields"]),
    "openai-chat": lambda answer: (answer["usage"]["confidence"], answer["choices"][0]["fields"]),
    "together": lambda answer: (answer["usage"]["confidence"], answer["choices"][0]["fields"]),
    "llama-server": lambda answer: (answer["confidence"], answer["fields"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_both(gen, name):
    done = done_of(gen(*RUN, "--no-chat", *FIELDS, "--format", "jsonl"))
    answer = json.loads(gen(*RUN, "--no-chat", *FIELDS, "--format", name).out)
    confidence, fields = FORMATS[name](answer)
    assert confidence == pytest.approx(done["confidence"])
    assert list(fields) == list(done["fields"])


STATS = {
    "a text": ((), ["confidence  perplexity "]),
    "several texts": (("--samples", "2"), ["confidence  perplexity "]),
    "fields": (FIELDS, ["confidence  perplexity ", " /colour, ", " /n, "]),
}


@pytest.mark.parametrize(("flags", "parts"), STATS.values(), ids=STATS)
def test_stats(gen, flags, parts):
    shown = gen(*RUN, *flags, "--stats").err
    assert all(part in shown for part in parts)
    assert "confidence" not in gen(*RUN, *flags, "-n", "0", "--stats").err


def test_a_batch(gen):
    bodies = {
        "a": {"json_schema": json.loads(SCHEMA), "field_confidence": True},
        "b": {},
        "c": {"field_confidence": True},
        "d": {"max_tokens": 0},
    }
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": "The sea", "max_tokens": 30} | body,
        }
        for name, body in bodies.items()
    ]
    short = {
        "id": "e",
        "prompt": "The sea",
        "grammar": {"json_schema": json.loads(SCHEMA)},
        "field_confidence": True,
    }
    data = "".join(json.dumps(line) + "\n" for line in (*lines, short)).encode()
    results = {result["id"]: result for result in gen("batch", "-", "--format", "jsonl", stdin=data, code=1).lines}
    for name in ("a", "e"):
        assert list(results[name]["fields"]) == ["/colour", "/n"]
    for name in ("a", "b", "e"):
        assert list(results[name]["confidence"]) == ["mean_logprob", "min_logprob", "perplexity"]
    assert "fields" not in results["b"]
    assert "needs a JSON Schema" in results["c"]["error"]["message"]


def test_fields_need_a_grammar(gen):
    assert "field_confidence: needs a JSON Schema" in gen(*RUN, "--field-confidence", code=1).err
    assert "--field-confidence" in gen(*RUN, *FIELDS).err  # a text shows none
    assert "--field-confidence" not in gen(*RUN, *FIELDS, "--stats").err
