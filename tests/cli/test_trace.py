"""`--trace`: what it writes, and where it is refused."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "-n", "4", "-s", "3"]


def test_a_token_line_has_its_trace(gen):
    plain = gen(*RUN, "--format", "jsonl").lines
    traced = gen(*RUN, "--format", "jsonl", "--trace", "2").lines
    assert traced[0].pop("trace") == 2
    assert traced[0].pop("command") == plain[0].pop("command") + " --trace 2"
    assert plain[0] == traced[0]
    for before, line in zip(plain[1:-1], traced[1:-1], strict=True):
        trace = line.pop("trace")
        assert line == before
        assert list(trace) == ["stages", "candidates", "draw"]
        assert [list(stage) for stage in trace["stages"]] == [["name", "step", "kept", "entropy", "note"]] * 6
        assert [stage["name"] for stage in trace["stages"]] == [
            "model",
            "top_k",
            "top_p",
            "min_p",
            "temperature",
            "dist",
        ]
        assert list(trace["draw"]) == ["u", "low", "high"]
        for candidate in trace["candidates"]:
            assert list(candidate) == ["id", "token", "bytes", "logits", "probs", "dropped_by"]
            assert len(candidate["logits"]) == len(candidate["probs"]) == 6
        assert line["id"] in [candidate["id"] for candidate in trace["candidates"]]


@pytest.mark.bundled_model
def test_forced_tokens_say_so(gen):
    lines = gen("run", "A:", "--regex", "yes|no way", "--format", "jsonl", "--trace", "1", "--temp", "0").lines
    tokens = [line for line in lines if line["event"] == "token"]
    assert [line["trace"]["stages"][1]["name"] for line in tokens] == ["grammar"] * len(tokens)
    assert any(line["trace"].get("forced") for line in tokens)


@pytest.mark.parametrize("output_format", ["text", "openai", "openai-chat", "together", "llama-server"])
def test_other_formats_have_no_room(gen, output_format):
    assert "--trace: " in gen(*RUN, "--format", output_format, "--trace", code=2).err


def test_a_batch_writes_traces(gen, home):
    requests = [
        {"id": "a", "prompt": "The sea was", "max_tokens": 3},
        {"id": "b", "prompt": "The sea was", "max_tokens": 3, "trace": 1},
    ]
    (home / "work" / "in.jsonl").write_text("\n".join(map(json.dumps, requests)))
    plain = {line["id"]: line for line in gen("batch", "in.jsonl", "--format", "jsonl").lines}
    assert "tokens" not in plain["a"]
    for more in ([], ["--deterministic"]):
        lines = {
            line["id"]: line for line in gen("batch", "in.jsonl", "--format", "jsonl", "--trace", "5", *more).lines
        }
        assert lines["a"]["text"] == plain["a"]["text"]
        counts = {
            name: [len(token["trace"]["candidates"]) for token in line["tokens"]] for name, line in lines.items()
        }
        assert min(counts["a"]) >= 5
        assert max(counts["b"]) <= 3
