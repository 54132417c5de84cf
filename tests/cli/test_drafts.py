"""Drafts of a smaller model on the command line: the same text, counts, and errors."""

import json
import re
import struct

import pytest

from ..engine.small_models import write_model

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "--no-chat", "-n", "24", "-s", "3", "--temp", "0.5"]


@pytest.fixture
def draft(draft_path):
    return ["-md", str(draft_path)]


LIMITS = ["--spec-draft-n-max", "6", "--spec-draft-n-min", "2", "--spec-draft-p-min", "0.1"]


def lines_of_tokens(lines):
    return [line for line in lines if line["event"] in ("token", "prompt", "rewind")]


def test_limits_change_no_token(gen, draft):
    flags = [*RUN, "--format", "jsonl", "--logprobs", "2"]
    plain, drafted = gen(*flags).lines, gen(*flags, *draft, *LIMITS).lines
    assert lines_of_tokens(drafted) == lines_of_tokens(plain)
    assert drafted[-1]["usage"]["draft_tokens"] > 0


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--mirostat", "2"],
        ["--grammar", "list"],
        ["--ban-regex", "[aeo]", "--ban-retries", "3"],
        ["--context-shift", "-c", "16"],
        ["--cfg-scale", "1.5", "--cfg-negative-prompt", "The lake"],
        ["--echo"],
        ["--samples", "2", "--lookup", "4"],
        ["-P", "creative"],
    ],
    ids=" ".join,
)
def test_the_tokens_are_those_of_a_run_without(gen, draft, flags):
    flags = [*RUN, *flags, "--format", "jsonl", "--logprobs", "2", "--logprobs-from", "both", "--trace", "3"]
    plain, drafted = gen(*flags).lines, gen(*flags, *draft).lines
    assert lines_of_tokens(drafted) == lines_of_tokens(plain)
    ends = [line for line in drafted if line["event"] == "done"]
    assert all(0 <= end["usage"]["accepted_tokens"] <= end["usage"]["draft_tokens"] for end in ends)
    assert sum(end["usage"]["draft_tokens"] for end in ends) > 0


def test_the_first_line_says_who_drafts(gen, draft):
    start = gen(*RUN, *draft, "--spec-draft-n-max", "2", "--format", "jsonl").lines[0]
    assert start["draft"] == {"model": "draft", "n_max": 2, "n_min": 0, "p_min": 0.0}
    assert start["draft_exactness"] == "exact up to 256 tokens"
    assert "draft" not in gen(*RUN, "--format", "jsonl").lines[0]


@pytest.mark.parametrize("form", ["openai", "openai-chat", "together"])
def test_answers_of_apis_count_drafts(gen, draft, form):
    run = ["run", "The sea was", "-n", "12", "-s", "3", "--format", form]
    usage = gen(*run, *draft).lines[0]["usage"]
    assert usage["draft_tokens"] >= usage["accepted_tokens"]
    two = gen(*run, *draft, "--samples", "2").lines[0]["usage"]
    assert two["draft_tokens"] > usage["draft_tokens"]
    assert "draft_tokens" not in gen(*run).lines[0]["usage"]


def test_statistics(gen, draft):
    assert re.search(r"^drafts +\d+ tokens drafted, \d+ accepted, \d+%$", gen(*RUN, *draft, "--stats").err, re.M)
    assert re.search(r"^drafts +", gen(*RUN, "--stats").err, re.M) is None
    samples = gen(*RUN, *draft, "--stats", "--samples", "2").err
    assert re.search(r"^drafts +\d+ tokens drafted, \d+ accepted, \d+%$", samples, re.M)


WRONG = {
    "no draft model": (["--spec-draft-n-max", "4"], 2, "--spec-draft-n-max"),
    "negative": (["-md", "x", "--spec-draft-n-max", "-1"], 2, "--spec-draft-n-max: -1 is not ≥ 1"),
    "probability": (["-md", "x", "--spec-draft-p-min", "1.5"], 2, "--spec-draft-p-min: 1.5 is not within 0..1"),
    "more than the default": (["-md", "x", "--spec-draft-n-min", "5"], 2, "add --spec-draft-n-max 5"),
    "more than the maximum": (
        ["-md", "x", "--spec-draft-n-min", "5", "--spec-draft-n-max", "4"],
        2,
        "--spec-draft-n-min: 5 is more than --spec-draft-n-max",
    ),
    "missing": (["-md", "nonsuch"], 1, "-md: nonsuch: "),
}


@pytest.mark.parametrize(("flags", "code", "named"), WRONG.values(), ids=WRONG)
def test_wrong_usage(gen, flags, code, named):
    assert named in gen(*RUN, *flags, code=code).err


@pytest.mark.parametrize("command", [RUN, ["batch", "-"], ["chat", "--no-log"]], ids=["run", "batch", "chat"])
def test_a_model_of_another_family_is_refused_before_the_work(gen, tmp_path, command):
    path = write_model(tmp_path / "other.gguf", "llama", "llama")
    result = gen(*command, "-md", str(path), stdin=REQUESTS, code=1)
    assert "other.gguf cannot draft for" in result.err
    assert result.out == ""


REQUESTS = "".join(
    json.dumps(
        {"id": f"r{number}", "prompt": prompt, "max_tokens": 16, "logprobs": 2, "set": {"temperature.t": 0.5}}
    )
    + "\n"
    for number, prompt in enumerate(["The sea was", "The sea is", "one two three one two three one"])
)


def results(result):
    """Return the results by the ids of their requests, without the counts of drafts."""
    found = {line["id"]: line for line in result.lines}
    for line in found.values():
        for name in ("draft_tokens", "accepted_tokens"):
            line["usage"].pop(name, None)
    return found


@pytest.mark.parametrize("parallel", ["1", "3"])
def test_a_batch(gen, draft, parallel):
    batch = ["batch", "-", "--format", "jsonl", "--parallel", parallel]
    plain = gen(*batch, stdin=REQUESTS)
    drafted = gen(*batch, *draft, "--spec-draft-n-max", "4", stdin=REQUESTS)
    assert all(line["usage"]["draft_tokens"] >= line["usage"]["accepted_tokens"] for line in drafted.lines)
    assert results(drafted) == results(plain)
    both = gen(*batch, *draft, "--lookup", "4", stdin=REQUESTS)
    assert results(both) == results(plain)


def test_a_batch_on_a_cluster_has_no_draft_model(gen, draft):
    result = gen("batch", "-", "--on", "ray", *draft, stdin=REQUESTS, code=2)
    assert "-md: workers of a cluster have no draft model" in result.err


@pytest.mark.parametrize("flags", [["-md", "draft.gguf"], ["--lookup", "4"]], ids=" ".join)
def test_a_beam_search_has_no_drafts(gen, flags):
    result = gen("batch", "-", "--beams", "2", *flags, stdin=REQUESTS, code=2)
    assert flags[0] in result.err


def test_a_line_with_a_beam_search_among_lines_with_drafts(gen, draft):
    lines = [json.loads(line) for line in REQUESTS.splitlines()]
    requests = "".join(
        json.dumps(line | {"chain": "dist"} | ({"beams": 2} if number == 1 else {})) + "\n"
        for number, line in enumerate(lines)
    )
    batch = ["batch", "-", "--format", "jsonl"]
    drafted = gen(*batch, *draft, stdin=requests)
    has_drafts = {line["id"]: "draft_tokens" in line["usage"] for line in drafted.lines}
    assert has_drafts == {"r0": True, "r1": False, "r2": True}
    assert results(drafted) == results(gen(*batch, stdin=requests))


@pytest.mark.parametrize("command", [["run", "x", "--no-chat"], ["chat", "--no-log"], ["batch", "-"]], ids=str)
def test_a_draft_model_of_a_shorter_training_is_noted(gen, tmp_path, pruned_model, command):
    path = tmp_path / "short.gguf"
    key = b"llama.context_length" + struct.pack("<I", 4)
    before, after = pruned_model.read_bytes().split(key)
    path.write_bytes(before + key + struct.pack("<I", 64) + after[4:])
    note = f"gen: note: -md {path}: the draft model was trained with 64 tokens, and may guess badly in the rest of"
    flags = [*command, "-md", str(path), "-n", "1"]
    assert f"{note} the context of 256\n" in gen(*flags, "-c", "256", stdin="").err
    assert note not in gen(*flags, "-c", "64", stdin="").err


@pytest.mark.parametrize("flags", [["-md"], ["--lookup", "4"]], ids=" ".join)
def test_the_statistics_of_a_chat(gen, draft_path, flags):
    flags = [*flags, str(draft_path)] if flags == ["-md"] else flags
    messages = "one two three one two three one two three\n/stats\n"
    drafted = gen("chat", "--no-log", "--seed", "3", "-n", "8", *flags, stdin=messages)
    assert re.search(r"^drafts +\d+ tokens? drafted, \d+ accepted(, \d+%)?$", drafted.out, re.M)
    assert "drafts" not in gen("chat", "--no-log", "--seed", "3", "-n", "8", stdin=messages).out


def test_a_chat(gen, draft):
    chat = ["chat", "--no-log", "--seed", "3", "-n", "8"]
    plain = gen(*chat, stdin="Hello\nAnd again\n")
    drafted = gen(*chat, *draft, stdin="Hello\nAnd again\n")
    assert drafted.out == plain.out
