"""`gen compare`: the texts are those of `gen run`, and the result says what is shown."""

import csv
import io
import json
import re
import signal
import time
from collections import Counter

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

ARMS = ["--arm", "default", "--arm", "hot=temp1.5 > min-p0.05"]
COMPARE = ["compare", "The sea was", *ARMS, "--seeds", "3", "-n", "8"]


def result_of(gen, *flags, **options):
    return json.loads(gen(*flags, "--format", "json", **options).out)


@pytest.fixture
def prompts(home):
    (home / "work" / "empty.txt").write_text("")
    path = home / "work" / "prompts.jsonl"
    records = [{"id": "sea", "prompt": "The sea was"}, {"messages": [{"role": "user", "content": "Hello"}]}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_each_text_is_that_of_a_run(gen):
    result = result_of(gen, *COMPARE, "--seed", "5")
    assert len(result["texts"]) == 6
    for text in result["texts"]:
        chain = [] if text["arm"] == "default" else ["--chain", "temp1.5 > min-p0.05"]
        run = gen("run", "The sea was", "--no-chat", "-n", "8", *chain, "--seed", str(text["seed"]))
        assert run.out.rstrip("\n") == text["text"].rstrip("\n")
    assert result["prompts"][0]["seeds"] == [5, 6, 7]


def test_the_measures_are_those_of_the_texts(gen):
    result = result_of(gen, *COMPARE)
    length = next(measure for measure in result["measures"] if measure["name"] == "length")
    for arm in length["arms"]:
        counts = [text["tokens"] for text in result["texts"] if text["arm"] == arm["arm"]]
        assert arm["mean"] == pytest.approx(sum(counts) / len(counts))
        assert arm["low"] <= arm["mean"] <= arm["high"]
        assert arm["count"] == 3
    (difference,) = length["differences"]
    assert difference["arm"] == "hot"
    assert difference["shown"] is not difference["low"] <= 0 <= difference["high"]
    assert result["level"] == result["difference_level"] == 0.95
    assert result["adjustment"] is None
    assert len(result["measures"]) == 14


def test_the_same_chain_twice_has_no_difference(gen):
    result = result_of(
        gen, "compare", "The sea was", "--arm", "a=temp1", "--arm", "b=temp1", "--seeds", "2", "-n", "8"
    )
    for measure in result["measures"]:
        for difference in measure["differences"]:
            assert difference["mean"] == 0
            assert not difference["shown"]
    (_, second) = result["distributions"]["arms"]
    assert second["total_variation"]["mean"] == second["jensen_shannon"]["mean"] == 0
    assert second["same_top"] == 1


def test_prompts_of_a_file(gen, prompts):
    result = result_of(gen, "compare", "-f", prompts, *ARMS, "--seeds", "2", "-n", "4")
    assert [prompt["id"] for prompt in result["prompts"]] == ["sea", "2"]
    assert {text["prompt"] for text in result["texts"]} == {"sea", "2"}
    assert [prompt["seeds"] for prompt in result["prompts"]] == [[0, 1], [10_000, 10_001]]
    assert "user: Hello" in result["prompts"][1]["text"]


def test_a_grid_is_adjusted(gen):
    result = result_of(gen, "compare", "The sea", "--grid", "min_p.p=0,0.1,0.5", "--seeds", "2", "-n", "4")
    assert [arm["name"] for arm in result["arms"]] == ["min_p.p=0", "min_p.p=0.1", "min_p.p=0.5"]
    assert [step["min_p"]["p"] for arm in result["arms"] for step in arm["chain"] if "min_p" in step] == [0.1, 0.5]
    assert result["difference_level"] == 0.975
    assert result["adjustment"] == "Bonferroni, 2 differences of each measure"


def test_the_table_fits_into_80_columns(gen):
    run = gen(*COMPARE, "--arm", "a rather long name=xtc(probability=0.5) > temp0.7", "--arm", "top_k=5")
    assert max(map(len, run.out.splitlines())) <= 80
    assert re.search(r"^distinct-1 +1 default +0\.\d{3} ", run.out, re.MULTILINE)
    assert "Intervals hold for this prompt only" in run.out
    assert "98.33% (Bonferroni, 3 differences" in run.out
    assert "No difference is shown for these measures" in run.out
    assert "a step depends on random numbers" in " ".join(run.out.split())
    assert "12 answered" in run.err


def test_csv_has_a_row_for_each_measure_and_arm(gen):
    rows = list(csv.DictReader(io.StringIO(gen(*COMPARE, "--format", "csv").out)))
    result = result_of(gen, *COMPARE)
    surprise = next(measure for measure in result["measures"] if measure["name"] == "surprise")
    (row,) = (row for row in rows if row["measure"] == "surprise" and row["arm"] == "hot")
    assert float(row["mean"]) == surprise["arms"][1]["mean"]
    assert float(row["difference"]) == surprise["differences"][0]["mean"]
    assert row["shown"] == str(surprise["differences"][0]["shown"])
    assert {row["measure"] for row in rows} >= {"total_variation", "kl", "same_top", "dropped_mass"}


@pytest.mark.parametrize("along", ["greedy", "texts", "file"])
def test_distances_along_texts(gen, home, along):
    if along == "file":
        (home / "work" / "file").write_text("The sea was calm. " * 20)
    fields = result_of(gen, *COMPARE, "--along", along)["distributions"]
    first, second = fields["arms"]
    assert first["tokens"] == second["tokens"] > 0
    assert 0 < second["total_variation"]["mean"] < 1
    assert len(second["worst"]) == 5
    if along == "texts":
        assert second["tokens"] == sum(text["tokens"] for text in result_of(gen, *COMPARE)["texts"])


def test_two_models(gen, pruned_model):
    arms = ("--arm", "a=default", "--arm", f"b=default@{pruned_model}")
    result = result_of(gen, "compare", "The sea", *arms, "--seeds", "2", "-n", "4")
    models = result["distributions"]["arms"][1].get("models")
    # The command's model is the pruned one, too, but loaded under another name.
    assert models["kl"]["mean"] == 0
    assert models["same_top"] == 1
    assert models["perplexity"] == models["other_perplexity"]


def test_stored_texts_are_continued(gen, home):
    path = home / "work" / "texts.jsonl"
    short = ["compare", "The sea was", *ARMS, "-n", "8", "--along", "none", "--results", path]
    first = result_of(gen, *short, "--seeds", "2")
    assert len(path.read_text().splitlines()) == 4
    assert "already exists" in gen(*short, "--seeds", "3", code=1).err
    more = gen(*short, "--seeds", "3", "--arm", "temp0.5", "--resume", "--format", "json")
    assert "5 answered, 0 failed, 4 already existed" in more.err
    texts = json.loads(more.out)["texts"]
    old = [text for text in texts if text["seed"] < 2 and text["arm"] != "temp0.5"]
    # The likeness to the other texts of a prompt depends on how many there are.
    old, before = (
        [{**text, "measures": {**text["measures"], "self_bleu": 0}} for text in each]
        for each in (old, first["texts"])
    )
    assert old == before
    assert (
        texts
        == result_of(
            gen, "compare", "The sea was", *ARMS, "-n", "8", "--along", "none", "--seeds", "3", "--arm", "temp0.5"
        )["texts"]
    )


def test_texts_of_other_settings_are_not_mixed(gen, home):
    path = home / "work" / "texts.jsonl"
    base = ["compare", "The sea was", *ARMS, "--seeds", "1", "--along", "none", "--results", path]
    gen(*base, "-n", "8")
    assert "--results" in gen(*base, "-n", "9", "--resume", code=1).err
    (home / "work" / "in.jsonl").write_text(json.dumps({"id": "1/default/0", "prompt": "a", "max_tokens": 1}))
    gen("batch", "in.jsonl", "--format", "jsonl", "-o", "batch.jsonl")
    assert "line 1" in gen(*COMPARE, "--results", "batch.jsonl", "--resume", code=1).err


def test_the_report_has_the_result(gen, home):
    gen(*COMPARE, "-o", "report.html")
    page = (home / "work" / "report.html").read_text()
    assert "default-src 'none'" in page
    assert 'id="result"' in page
    assert (home / "work" / "report.texts.jsonl").exists()


WRONG = {
    "an ignored parameter": (
        ["compare", "x", "--arm", "greedy", "--arm", "temp1.5", "--set", "top_p=0.5"],
        "top_p",
    ),
    "one arm": (["compare", "x", "--arm", "default"], "two arms"),
    "two prompts": (["compare", "x", "-f", "prompts.jsonl", *ARMS], "given twice"),
    "resume": ([*COMPARE, "--resume"], "--resume"),
    "report": ([*COMPARE, "-o", "report.txt"], "HTML"),
    "a folder that is not there": ([*COMPARE, "-o", "nowhere/report.html"], "nowhere"),
    "along": ([*COMPARE, "--along", "nothing.txt"], "nothing.txt"),
    "along nothing": ([*COMPARE, "--along", "empty.txt"], "two tokens"),
    "setting": (["compare", "x", "--grid", "min_p=0.1,2"], "arm min_p=2"),
    "format": ([*COMPARE, "--format", "xml"], "--format"),
    "heal": (["compare", "x", "--grid", "heal=true,false", "--regex", "a"], "arm heal=true: heal"),
    "system": (["compare", "-f", "prompts.jsonl", "--grid", "system=a,b"], "arm system=a: system"),
}


@pytest.mark.parametrize(("words", "named"), WRONG.values(), ids=WRONG)
def test_wrong_usage(gen, prompts, words, named):
    assert named in gen(*words, code=2).err


WRONG_LINES = {
    "a seed": ('{"prompt": "a", "seed": 3}', "line 1: seed"),
    "an id twice": ('{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "line 2: "),
    "no JSON": ("nonsense", "line 1: "),
    "nothing": ("", "no prompts"),
}


@pytest.mark.parametrize(("text", "place"), WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_of_prompts_is_said(gen, home, text, place):
    (home / "work" / "wrong.jsonl").write_text(text)
    assert place in gen("compare", "-f", "wrong.jsonl", *ARMS, code=2).err


def test_a_failed_text_is_said_and_left_out(gen, home):
    path = home / "work" / "prompts.jsonl"
    long_prompt = {"id": "long", "prompt": "word " * 400}
    path.write_text(json.dumps({"id": "short", "prompt": "The sea"}) + "\n" + json.dumps(long_prompt))
    words = ("compare", "-f", path, *ARMS, "--seeds", "2", "-n", "4", "-c", "64", "--along", "none")
    run = gen(*words, "--format", "json", code=1)
    assert "long/default/10000" in run.err
    result = json.loads(run.out)
    assert result["distributions"] is None
    assert {text["prompt"] for text in result["texts"]} == {"short"}
    assert len(result["failures"]) == 4


def test_ctrl_c_keeps_all_texts_and_measures_them(start_gen, home):
    path = home / "work" / "texts.jsonl"
    words = ["compare", "The sea was", *ARMS, "--seeds", "500", "-n", "8", "--results", path, "--format", "json"]
    command = start_gen(*words)
    end = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") > 8):
        assert time.monotonic() < end
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    out, err = command.finish()
    assert command.returncode == 130, err
    assert b"--resume" in err
    result = json.loads(out)
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(text["text"] for text in result["texts"]) == sorted(line["text"] for line in stored)
    assert 8 < len(stored) < 1000
    assert result["distributions"] is None


def test_json_has_the_value_of_each_text_and_how_texts_ended(gen):
    result = result_of(gen, *COMPARE)
    for measure in result["measures"]:
        for arm in measure["arms"]:
            values = [text["measures"][measure["name"]] for text in result["texts"] if text["arm"] == arm["arm"]]
            assert arm["mean"] == pytest.approx(sum(values) / len(values))
    for arm in result["arms"]:
        reasons = Counter(text["finish_reason"] for text in result["texts"] if text["arm"] == arm["name"])
        assert arm["finish_reasons"] == reasons


def test_without_tokens_nothing_is_compared(gen):
    run = gen(*COMPARE[:-1], "0", "--format", "json")
    result = json.loads(run.out)
    assert result["distributions"] is None
    assert "there is no text along which to measure them" in run.err
    assert {measure["name"] for measure in result["measures"]} == {"self_bleu", "loops", "length", "ended"}
    assert "0.0" in gen(*COMPARE[:-1], "0").out


def test_a_piped_prompt_is_part_of_the_command(gen):
    result = result_of(gen, "compare", *ARMS, "--seeds", "1", "-n", "2", stdin="The sea")
    assert re.match(r"printf %s 'The sea' \| (GEN_MODEL=\S+ )?gen compare", result["command"])
    assert result["prompts"][0]["text"] == "The sea"
