"""`gen detect`: watermarks in texts, ids and runs, and wrong command lines."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

ONE = ("-t", "1")
NUMBERS = [654, 400, 836, 123, 340, 443, 597, 160, 57]
KEYS = ",".join(map(str, NUMBERS))
MARKED = ("--set", f"synthid=[{KEYS}]", "--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0")


@pytest.fixture(scope="module")
def run():
    return "The sea was", "-n", "120", "--seed", "3", "--set", "ignore_eos=true", *ONE


@pytest.fixture
def marked(gen, home, run):
    """A run with a watermark as jsonl, its ids, and a run without."""
    work = home / "work"
    text = gen(*run, *MARKED, "--format", "jsonl").out
    (work / "marked.jsonl").write_text(text)
    events = [json.loads(line) for line in text.splitlines()]
    (work / "marked.ids").write_text(" ".join(str(event["id"]) for event in events if event["event"] == "token"))
    (work / "plain.jsonl").write_text(gen(*run, *MARKED[2:], "--format", "jsonl").out)
    return work


def scores(result):
    return json.loads(result.out)["texts"]


def test_runs(gen, marked):
    found = json.loads(gen("detect", "marked.jsonl", "plain.jsonl", "--keys", KEYS, "--format", "json").out)
    assert (found["ngram_len"], found["depth"]) == (5, 9)
    with_mark, without = found["texts"]
    assert (with_mark["text"], without["text"]) == ("marked.jsonl", "plain.jsonl")
    assert with_mark["tokens"] == without["tokens"] == 120
    assert 60 < with_mark["counted_tokens"] <= 116
    assert with_mark["p_value"] < 1e-6
    assert with_mark["z"] > 4.5
    assert min(with_mark["weighted_mean"], with_mark["mean"]) > 0.54
    assert with_mark["expected_mean"] == pytest.approx(0.5, abs=0.002)
    assert without["p_value"] > 0.001
    for number in NUMBERS:  # the keys are secret
        assert f" {number}," not in json.dumps(found)


def test_forms_of_keys_and_of_files(gen, marked):
    forms = [KEYS, KEYS.replace(",", " "), f"[{KEYS.replace(',', ', ')}]"]
    found = [scores(gen("detect", "marked.ids", "--keys", keys, "--format", "json")) for keys in forms]
    of_run = scores(gen("detect", "marked.jsonl", "--keys", KEYS, "--format", "json"))
    assert found == [[of_run[0] | {"text": "marked.ids"}]] * 3


def test_stdin_and_lines(gen, marked):
    runs = (marked / "marked.jsonl").read_text() + (marked / "plain.jsonl").read_text()
    for arguments in ((), ("-",)):
        lines = gen("detect", *arguments, "--keys", KEYS, "--format", "jsonl", stdin=runs).out.splitlines()
        assert [json.loads(line)["text"] for line in lines] == ["stdin", "stdin"]
        assert json.loads(lines[0])["p_value"] < 1e-6 < json.loads(lines[1])["p_value"]


def test_a_text_is_tokenized_by_the_model(gen, marked, run):
    (marked / "marked.txt").write_text(gen(*run, *MARKED).out)
    (score,) = scores(gen("detect", "marked.txt", "--keys", KEYS, "--format", "json"))
    assert score["text"] == "marked.txt"
    assert score["p_value"] < 1e-3  # the tokens of the text may be others than those that were drawn
    (number,) = scores(gen("detect", "--input", "text", "--keys", KEYS, "--format", "json", stdin="1 2 3 4 5 6"))
    assert number["tokens"] > 0


def test_the_table(gen, marked):
    _, _, with_mark, without = gen("detect", "marked.jsonl", "plain.jsonl", "--keys", KEYS).out.splitlines()
    assert with_mark.split()[:2] == ["marked.jsonl", "120"]
    assert float(with_mark.split()[-1]) < 1e-6 < float(without.split()[-1])
    line = gen("detect", "--keys", KEYS, stdin="1 2 3").out.splitlines()[2]
    assert line.split() == ["stdin", "3", "0", "-", "-", "0.4996", "-", "-"]


def test_other_settings_find_nothing(gen, marked):
    for flags in (
        ("--keys", "1,2,3"),
        ("--keys", KEYS, "--ngram-len", "4"),
        ("--keys", KEYS, "--sampling-table-seed", "1"),
        ("--keys", KEYS, "--sampling-table-size", "1000"),
    ):
        (score,) = scores(gen("detect", "marked.jsonl", *flags, "--format", "json"))
        assert score["p_value"] > 0.001
    (score,) = scores(
        gen("detect", "marked.jsonl", "--keys", KEYS, "--context-history-size", "0", "--format", "json")
    )
    assert score["p_value"] < 1e-3


def test_the_keys_of_a_preset(gen, marked, home):
    (marked / "mine.yaml").write_text(f"chain: [top_k, synthid: {{keys: [{KEYS}]}}, dist]\n")
    by_preset = gen("detect", "marked.jsonl", "-P", "mine.yaml", "--format", "json")
    assert scores(by_preset) == scores(gen("detect", "marked.jsonl", "--keys", KEYS, "--format", "json"))
    (marked / "other.yaml").write_text(f"chain: [synthid: {{keys: [{KEYS}], ngram_len: 4}}]\n")
    assert json.loads(gen("detect", "marked.jsonl", "-P", "other.yaml", "--format", "json").out)["ngram_len"] == 4
    again = gen("detect", "marked.jsonl", "-P", "other.yaml", "--ngram-len", "5", "--format", "json")
    assert scores(again) == scores(by_preset)


def test_a_watermark_that_is_left_out_is_named(gen, marked):
    (marked / "wm.yaml").write_text(f"chain: [top_k, synthid: {{keys: [{KEYS}]}}, dist]\n")
    run = ("x", "-n", "1", "-P", "wm.yaml", *ONE)
    note = "gen: note: synthid has no effect: --mirostat leaves the watermark out"
    assert note in gen(*run, "--mirostat", "2").err
    shown = gen(*run, "--samplers", "top_k;temperature", "--show-config")
    assert "synthid" in shown.out + shown.err
    assert "no effect" not in shown.err


def test_a_batch_has_the_tokens_of_single_runs(gen, marked):
    line = {"prompt": "The sea was", "seed": 3, "max_tokens": 120, "id": "one"}
    requests = json.dumps(line) + "\n" + json.dumps({**line, "id": "two", "seed": 4}) + "\n"
    flags = (*MARKED, "--set", "ignore_eos=true", "--format", "jsonl", "--logprobs", "0", *ONE)
    results = gen("batch", "-", *flags, "--deterministic", stdin=requests).out
    ids = [token["id"] for token in json.loads(results.splitlines()[0])["tokens"]]
    assert " ".join(map(str, ids)) == (marked / "marked.ids").read_text()
    found = scores(gen("detect", "--keys", KEYS, "--format", "json", stdin=results))
    assert sorted(score["text"] for score in found) == ["one", "two"]
    assert all(score["p_value"] < 1e-5 for score in found)


def test_nothing_to_score_is_a_failure(gen, marked):
    for stdin in ("", "\n"):
        result = gen("detect", "--keys", KEYS, stdin=stdin, code=1)
        assert (result.out, result.err) == ("", "gen: stdin: there is nothing to score: it is empty\n")
    (marked / "empty.txt").write_text("")
    result = gen("detect", "empty.txt", "marked.jsonl", "--keys", KEYS, code=1)
    assert "gen: empty.txt: there is nothing to score: it is empty" in result.err
    assert result.out.splitlines()[2].startswith("marked.jsonl ")


def test_each_choice_of_an_answer_on_several_lines_is_scored(gen, run):
    answer = json.dumps(json.loads(gen(*run, *MARKED, "--format", "openai", "--samples", "2").out), indent=4)
    found = scores(gen("detect", "--keys", KEYS, "--format", "json", stdin=answer))
    assert [score["text"].rpartition(": ")[2] for score in found] == ["choice 1", "choice 2"]
    assert all(score["p_value"] < 1e-3 for score in found)


USAGE = {
    "no keys": ((), "--keys"),
    "both": (("--keys", "1", "-P", "x"), "--preset"),
    "words": (("--keys", "one"), "--keys: 'one'"),
    "empty": (("--keys", ""), "--keys: ''"),
    "a huge key": (("--keys", f"1,{2**63}"), f"--keys: {2**63} is not within ±2^63"),
    "a length": (("--keys", "1", "--ngram-len", "1"), "--ngram-len: 1 is not within 2..1000"),
    "no step": (("-P", "creative"), "creative"),
    "stdin twice": (("-", "-", "--keys", "1"), "stdin"),
}


@pytest.mark.parametrize(("arguments", "named"), USAGE.values(), ids=USAGE)
def test_wrong_command_lines(gen, arguments, named):
    assert named in gen("detect", *arguments, stdin="1 2", code=2).err.replace("\n", " ")


def test_a_broken_line_has_its_place(gen, marked):
    (marked / "broken.jsonl").write_text('{"event": "start"}\n{"event": "token"}\n')
    result = gen("detect", "broken.jsonl", "--keys", KEYS, code=1)
    assert "broken.jsonl: line 2: id null is not a token id" in result.err
