"""`gen run --beams`: the best texts of a beam search, as text, as lines and as choices."""

import json
import re

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "--no-chat", "-n", "8"]
BEAMS = [*RUN, "--beams", "4"]


def dones(result):
    return [line for line in result.lines if line["event"] == "done"]


def test_in_jsonl_each_beam_has_its_lines_the_best_first(gen):
    result = gen(*BEAMS, "--format", "jsonl", "--logprobs", "1", "--logprobs-from", "chain")
    assert [line["beam"] for line in dones(result)] == [0, 1, 2, 3]
    scores = [line["score"] for line in dones(result)]
    assert scores == sorted(scores, reverse=True)
    for number, done in enumerate(dones(result)):
        start, *tokens, _ = own = [line for line in result.lines if line["beam"] == number]
        assert [next(iter(line)) for line in own] == ["beam"] * len(own)
        assert start["event"] == "start"
        assert {name: start[name] for name in ("beams", "length_penalty", "early_stopping", "n_best")} == {
            "beams": 4,
            "length_penalty": 1.0,
            "early_stopping": False,
            "n_best": 4,
        }
        assert "".join(line["text"] for line in tokens) == done["text"]
        logprob = sum(line["logprob"] for line in tokens)
        assert done["score"] == pytest.approx(logprob / done["usage"]["completion_tokens"], abs=1e-5)


def test_text_is_the_best_text_or_the_best_ones(gen):
    texts = [done["text"] for done in dones(gen(*BEAMS, "--format", "jsonl"))]
    assert gen(*BEAMS).out.rstrip("\n") == texts[0].rstrip("\n")
    out = gen(*BEAMS, "--n-best", "3").out
    parts = re.split(r"^--- (\d) of 3, score (-\d+\.\d{4}) ---\n", out, flags=re.MULTILINE)
    assert parts[0] == ""
    assert parts[1::3] == ["1", "2", "3"]
    assert [part.rstrip("\n") for part in parts[3::3]] == [text.rstrip("\n") for text in texts[:3]]
    echoed = gen(*BEAMS, "--echo").out
    assert echoed.rstrip("\n") == "The sea was" + texts[0].rstrip("\n")


def test_the_number_of_lines_is_that_of_n_best(gen):
    assert len(dones(gen(*BEAMS, "--n-best", "2", "--format", "jsonl"))) == 2
    answer = gen("run", "The sea was", "--beams", "4", "-n", "6", "--n-best", "2", "--format", "openai").lines[0]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    single = gen("run", "The sea was", "--beams", "4", "-n", "6", "--format", "openai").lines[0]
    assert [choice["text"] for choice in single["choices"]] == [answer["choices"][0]["text"]]
    (listed,) = gen(*BEAMS, "--format", "llama-server").lines
    assert [each["index"] for each in listed] == [0]


def test_a_grammar_holds_every_beam(gen):
    result = gen(*RUN[:-1], "30", "--beams", "6", "--regex", " (calm|grey)( and wide)?", "--format", "jsonl")
    assert {done["text"] for done in dones(result)} <= {
        f" {a}{b}" for a in ("calm", "grey") for b in ("", " and wide")
    }
    assert {(done["complete"], done["finish_reason"]) for done in dones(result)} == {(True, "grammar")}


def test_a_beam_that_does_not_complete_the_grammar_has_a_note(gen):
    err = gen(*RUN[:-1], "3", "--beams", "2", "--n-best", "2", "--regex", "[a-z ]{30}!").err
    assert "text 1 of 2: the text does not complete the grammar: 3 tokens, see -n" in err
    assert "text 2 of 2: " in err
    completed = gen(*RUN[:-1], "3", "--beams", "2", "--regex", "[a-z ]{30}!", "--grammar-complete")
    assert re.fullmatch(r"[a-z ]{30}!\n", completed.out)
    assert completed.err == ""


def test_the_statistics_name_the_scores(gen):
    err = gen(*BEAMS, "--n-best", "2", "--stats").err
    assert re.search(r"^best text +8 tokens", err, re.MULTILINE)
    assert re.search(r"^beams +4, length penalty 1, scores -\d\.\d{4}, -\d\.\d{4}$", err, re.MULTILINE)
    assert re.search(r"^finish +length$", err, re.MULTILINE)


WRONG = {
    "none": (["--beams", "0"], "--beams: 0"),
    "too many": (["--beams", "257"], "--beams: 257"),
    "n best": (["--beams", "2", "--n-best", "3"], "--n-best 3 is more than --beams 2"),
    "penalty": (["--beams", "2", "--length-penalty", "21"], "--length-penalty: 21 is not within -20..20"),
    "stopping": (["--beams", "2", "--early-stopping", "yes"], "'yes'"),
    "samples": (["--beams", "2", "--samples", "2"], "--samples"),
    "stream": (["--beams", "2", "--format", "openai", "--stream"], "--stream"),
    "trace": (["--beams", "2", "--format", "jsonl", "--trace"], "--trace"),
    "lookup": (["--beams", "2", "--lookup", "4"], "--lookup"),
    "draft": (["--beams", "2", "-md", "draft.gguf"], "-md"),
    "shift": (["--beams", "2", "--context-shift"], "--context-shift"),
    "bans": (["--beams", "2", "--ban-phrase", "x"], "--ban-phrase"),
    "loops": (["--beams", "2", "--loop-guard"], "--loop-guard"),
    "phases": (["--beams", "2", "--reasoning-budget", "4"], "--reasoning-budget"),
    "n best alone": (["--n-best", "3"], "--n-best is for --beams N"),
    "penalty alone": (["--length-penalty", "1"], "--length-penalty is for --beams N"),
    "stopping alone": (["--early-stopping", "true"], "--early-stopping is for --beams N"),
}


@pytest.mark.parametrize(("flags", "named"), WRONG.values(), ids=WRONG)
def test_wrong_usage(gen, flags, named):
    assert named in gen(*RUN, *flags, code=2).err


@pytest.mark.parametrize("flags", ["--xtc-probability 0.5", "--mirostat 2", "--temp 0"])
def test_chains_that_draw(gen, flags):
    assert "beams: " in gen(*BEAMS, *flags.split(), code=1).err


def batch(gen, home, lines, *flags, code=0):
    path = home / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = gen("batch", str(path), "--format", "jsonl", "--no-chat", *flags, code=code)
    return {line["id"]: line for line in result.lines}


def test_lines_of_a_batch_are_answered_by_the_best_text(gen, home):
    prompts = ("The sea was", "Once upon a time", "A hill")
    search = {"beams": 3, "length_penalty": 0.5, "early_stopping": "never"}
    lines = [{"id": prompt, "prompt": prompt, "max_tokens": 7, **search} for prompt in prompts]
    drawn = {"id": "drawn", "prompt": "The sea was", "max_tokens": 7, "seed": 3}
    results = batch(gen, home, [drawn, *lines])
    flags = ["--beams", "3", "--length-penalty", "0.5", "--early-stopping", "never"]
    by_flags = batch(gen, home, [{"id": each, "prompt": each, "max_tokens": 7} for each in prompts], *flags)
    for prompt in prompts:
        done = dones(gen("run", prompt, "--no-chat", "-n", "7", *flags, "--n-best", "1", "--format", "jsonl"))[0]
        assert (results[prompt]["text"], results[prompt]["score"]) == (done["text"], done["score"])
        assert results[prompt]["finish_reason"] == done["finish_reason"]
        assert by_flags[prompt]["score"] == done["score"]
    assert "score" not in results["drawn"]
    assert results["drawn"]["text"] == gen(*RUN[:-1], "7", "--seed", "3").out


def test_a_line_changes_the_search_of_the_flags(gen, home):
    lines = [
        {"id": "flags", "prompt": "The sea was", "max_tokens": 5},
        {"id": "penalty", "prompt": "The sea was", "max_tokens": 5, "length_penalty": 0},
        {"id": "beams", "prompt": "The sea was", "max_tokens": 5, "beams": 1},
    ]
    results = batch(gen, home, lines, "--beams", "4", "--logprobs", "0")
    assert results["penalty"]["score"] == pytest.approx(5 * results["flags"]["score"])
    assert results["beams"]["text"] == gen(*RUN[:-1], "5", "--temp", "0").out
    assert len(results["flags"]["tokens"]) == 5


WRONG_LINES = {
    "length_penalty": {"length_penalty": 1},
    "beams": {"beams": 0},
    "early_stopping": {"beams": 2, "early_stopping": "soon"},
    "bans": {"beams": 2, "bans": ["x"]},
    "mirostat": {"beams": 2, "chain": "mirostat"},
}
"""By what the error names."""


def test_a_wrong_line_is_a_failure_of_this_line(gen, home):
    wrong = [{"id": name, "prompt": "x", **fields} for name, fields in WRONG_LINES.items()]
    results = batch(gen, home, [*wrong, {"id": "right", "prompt": "x", "max_tokens": 1}], code=1)
    assert [name for name in WRONG_LINES if name not in results[name]["error"]["message"]] == []
    assert results["right"]["error"] is None


def test_the_flags_of_a_search_are_settings_of_the_results(gen, home):
    (home / "requests.jsonl").write_text('{"id": "a", "prompt": "x", "max_tokens": 2}\n')
    run = ["batch", str(home / "requests.jsonl"), "-o", str(home / "results.jsonl")]
    gen(*run, "--beams", "2")
    assert "was made with beams 2, now" in gen(*run, "--resume", code=1).err
    assert gen(*run, "--resume", "--beams", "2").out == ""
    assert (
        "--trace records how tokens are drawn"
        in gen(*run[:2], "--beams", "2", "--format", "jsonl", "--trace", code=2).err
    )
    assert "--length-penalty is for --beams N" in gen(*run[:2], "--length-penalty", "2", code=2).err


def test_a_line_of_openai_with_several_choices_has_no_search(gen, home):
    path = home / "requests.jsonl"
    body = {"prompt": "x", "max_tokens": 2}
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": {**body, **more}}
        for name, more in (("one", {}), ("two", {"n": 2}))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    one, two = sorted(gen("batch", str(path), "--beams", "2", code=1).lines, key=lambda line: line["custom_id"])
    assert one["error"] is None
    assert "body.n: the answer of a beam search is its best text; leave n out" in two["error"]["message"]
