"""`gen inspect --token` and `--text`: one token of a recorded run, with its draw in words."""

import json

import pytest

from ..traced_runs import jsonl, traced_events

EVENTS = traced_events(12, seed=3)
LINES = [event for event in EVENTS if event["event"] == "token"]


@pytest.fixture
def run_file(home):
    path = home / "work" / "run.jsonl"
    path.write_text(jsonl(EVENTS))
    return "run.jsonl"


@pytest.mark.parametrize("number", [0, 5, 11])
def test_the_table_and_the_draw_of_a_token(gen, run_file, number):
    line = LINES[number]
    trace, draw = line["trace"], line["trace"]["draw"]
    out = gen("inspect", run_file, "--token", str(number)).out
    assert out.startswith(f"token {number}: {line['token']!r}\n")
    rows = [row for row in out.splitlines() if row.startswith(">")]
    assert len(rows) == 1
    assert rows[0].startswith(f"> {line['token']!r}")
    chosen = next(each for each in trace["candidates"] if each["id"] == line["id"])
    cells = rows[0].removeprefix(f"> {line['token']!r}").split()
    assert cells[0] == f"{chosen['probs'][0]:.4f}"
    notes = [stage["note"] for stage in trace["stages"] if stage["note"] is not None]
    assert all(note in out for note in notes)
    assert out.splitlines()[-1] == (
        f"u = {draw['u']:.6g} lies in {draw['low']:.6g} … {draw['high']:.6g}: {line['token']!r}"
    )


def test_the_first_token_with_a_text(gen, run_file):
    number = next(number for number, line in enumerate(LINES) if "e" in line["token"])
    out = gen("inspect", run_file, "--text", "e").out
    assert out == gen("inspect", run_file, "--token", str(number)).out


def test_a_run_is_read_back_as_it_was_shown(gen, home):
    run = ["The sea was", "-s", "3", "--format", "jsonl", "--trace", "5", "-n", "2"]
    (home / "work" / "real.jsonl").write_text(gen("run", *run).out)
    shown = gen("inspect", "real.jsonl", "--token", "0").out.splitlines()
    table = gen("next", "The sea was", "-s", "3", "--top", "5").out.splitlines()
    assert [line.removeprefix("  ") for line in shown[4:6]] == table[2:4]
    assert shown[-1].startswith("u = 0.")


def test_forced_and_certain_tokens(gen, home):
    lines = [json.loads(json.dumps(event)) for event in EVENTS[:3]]
    lines[1]["trace"] |= {"forced": True, "draw": None}
    lines[2]["trace"] |= {"draw": None}
    (home / "work" / "forced.jsonl").write_text(jsonl(lines))
    assert (
        "forced: the grammar allows only one text, which continues with"
        in gen("inspect", "forced.jsonl", "--token", "0").out
    )
    assert "no random number: dist selects" in gen("inspect", "forced.jsonl", "--token", "1").out


def test_the_token_of_each_of_several_runs(gen, run_file, home):
    answers = [{"id": name, "line": 1, "model": "tiny", "seed": 1, "tokens": LINES} for name in ("one", "two")]
    (home / "work" / "results.jsonl").write_text(jsonl(answers))
    headings = [line for line in gen("inspect", "results.jsonl", "--token", "1").out.splitlines() if "==" in line]
    assert headings == ["==> one <==", "==> two <=="]
    out = gen("inspect", run_file, "results.jsonl", "--token", "1", "--id", "two").out
    assert out.startswith("==> results.jsonl: two <==\n")
    message = "results.jsonl: one: there is no token 99"
    assert message in gen("inspect", "results.jsonl", "--token", "99", code=1).err


def test_names_and_notes_of_stages_are_shown_and_not_obeyed(gen, home):
    lines = json.loads(json.dumps(EVENTS[:2]))
    stage = lines[1]["trace"]["stages"][1]
    stage["name"], stage["note"] = "\x1b[2Jname" + "e" * 60, "red \x1b[31m\x9b31m"
    (home / "work" / "odd.jsonl").write_text(jsonl(lines))
    out = gen("inspect", "odd.jsonl", "--token", "0", COLUMNS="80").out
    assert "\u241b[2Jname" in out
    assert "red \u241b[31m\\u009b31m" in out
    assert not {"\x1b", "\x9b"} & set(out)
    assert max(map(len, out.splitlines())) <= 80


def test_what_is_not_there(gen, run_file, home):
    (home / "work" / "plain.jsonl").write_text(jsonl(traced_events(3, traced=False)))
    missing = {
        (run_file, "--token", "99"): "99",
        (run_file, "--text", "zebra"): "'zebra'",
        ("plain.jsonl", "--token", "0"): "--format jsonl --trace",
    }
    for words, named in missing.items():
        assert named in gen("inspect", *words, code=1).err


REFUSED = {
    "both": ["--token", "1", "--text", "a"],
    "a table of all": ["--token", "1", "--top", "3"],
    "a page": ["--text", "a", "--html", "x.html"],
    "nothing": ["--text", ""],
    "a negative number": ["--token", "-1"],
}


@pytest.mark.parametrize("flags", REFUSED.values(), ids=REFUSED)
def test_refused(gen, run_file, flags):
    error = gen("inspect", run_file, *flags, code=2).err
    assert all(flag in error for flag in flags if flag.startswith("--t"))
