"""The data of a report: packed traces, runs, and the HTML around them."""

import json
import re
import subprocess
import sys
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from math import exp
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from logitsmith.logprobs import RecordedTrace, read_stream
from logitsmith.logprobs.report import page
from logitsmith.logprobs.report.run_data import TOKENS_PER_BLOCK, RunReader, packed_trace

from ..traced_runs import jsonl, traced_events

LOGPROBS = Path(__file__).parents[2] / "logprobs"
SCRIPTS = sorted([*(LOGPROBS / "report" / "assets").glob("*.js"), *(LOGPROBS / "web").glob("*.js")])


def unpack(text):
    return json.loads(zlib.decompress(b64decode(text)))


def packed_run(events, source=None):
    lines = jsonl(events).encode().splitlines(keepends=True)
    return RunReader("run", source).read(read_stream(lines))


def unpacked_columns(packed):
    """Logits and probabilities of a packed trace, one list per stage, as the page computes them."""
    logits, columns = [], []
    for stage, total in enumerate(packed["totals"]):
        logits = packed["logits"][stage] or logits
        is_present = [by < 0 or stage < by for by in packed["dropped"]]
        shown = [logit if present else None for logit, present in zip(logits, is_present, strict=True)]
        if isinstance(total, list):
            probs = total
        else:
            probs = [
                None if not present else 0 if logit is None else exp(logit - total)
                for logit, present in zip(shown, is_present, strict=True)
            ]
        columns.append((shown, probs))
    return columns


def same(number, expected, error=1e-12):
    """True if both are None, or nearly the same."""
    if number is None or expected is None:
        return number is expected
    return number == pytest.approx(expected, rel=1e-5, abs=error)


def check_columns(trace):
    columns = unpacked_columns(packed_trace(RecordedTrace.model_validate(trace)))
    for stage, (logits, probs) in enumerate(columns):
        for row, candidate in enumerate(trace["candidates"]):
            assert same(probs[row], candidate["probs"][stage])
            assert same(logits[row], candidate["logits"][stage], 2e-6)


def test_a_packed_trace_has_the_same_numbers():
    for line in traced_events(30)[1:-1]:
        check_columns(line["trace"])
        packed = packed_trace(RecordedTrace.model_validate(line["trace"]))
        assert packed["draw"] == list(line["trace"]["draw"].values())
        assert all(isinstance(total, float) for total in packed["totals"])
        assert [packed["logits"][stage] for stage in (2, 3, 5)] == [None] * 3


CELLS = st.none() | st.tuples(st.none() | st.floats(-50, 50), st.floats(0, 1))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=5)))
def test_any_trace_is_packed_without_loss(rows):
    """Also one whose probabilities do not follow from its logits, and whose candidates come back."""
    count = len(rows[0]) if rows else 1
    trace = {
        "stages": [{"name": "s", "kept": 1, "entropy": 0.0}] * count,
        "candidates": [
            {
                "id": number,
                "bytes": [65],
                "logits": [None if cell is None else cell[0] for cell in row],
                "probs": [None if cell is None else cell[1] for cell in row],
                "dropped_by": None,
            }
            for number, row in enumerate(rows)
        ],
    }
    columns = unpacked_columns(packed_trace(RecordedTrace.model_validate(trace)))
    for stage, (_, probs) in enumerate(columns):
        for row, candidate in enumerate(trace["candidates"]):
            assert same(probs[row], candidate["probs"][stage])


def test_a_run_is_packed_in_an_overview_and_blocks():
    events = traced_events(TOKENS_PER_BLOCK + 5)
    run = packed_run(events)
    overview = unpack(run.overview)
    tokens = events[1:-1]
    assert run.token_count == len(tokens)
    assert overview["texts"] == [line["text"] for line in tokens]
    assert overview["logprobs"] == [round(line["logprob"], 6) for line in tokens]
    assert overview["entropies"] == [round(line["entropy"], 6) for line in tokens]
    assert (overview["model"], overview["seed"]) == ("tiny", 7)
    assert (overview["finish"], overview["isCutOff"]) == ("length", False)
    assert overview["command"] == "gen Once --seed 7 --format jsonl"
    assert overview["hasTrace"] is True
    assert [len(unpack(block)) for block in run.blocks] == [TOKENS_PER_BLOCK, 5]
    assert unpack(run.blocks[1])[0]["ids"] == [
        item["id"] for item in tokens[TOKENS_PER_BLOCK]["trace"]["candidates"]
    ]
    contents = dict(zip(*overview["contents"], strict=True))
    assert contents[tokens[3]["id"]] == tokens[3]["token"]


def test_alternatives_that_a_trace_does_not_have_are_kept():
    line = traced_events(1, logprobs=10)[1]
    del line["trace"]["candidates"][2:6]
    (details,) = unpack(packed_run([line]).blocks[0])
    traced = {candidate["id"] for candidate in line["trace"]["candidates"]}
    others = [other for other in line["top_logprobs"] if other["id"] not in traced]
    assert others
    assert details["alternatives"] == [[other["token"], round(other["logprob"], 6)] for other in others]


def test_numbers_that_json_does_not_have_become_texts():
    lines = [b'{"event": "start", "model": "m", "x": [NaN, {"y": Infinity}]}\n']
    overview = unpack(RunReader("run", None).read(read_stream(lines)).overview)
    assert overview["settings"] == {"x": ["nan", {"y": "inf"}]}


def test_the_policy_of_the_page_allows_only_its_own_script_and_style():
    html = page([packed_run(traced_events(3))])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = ["'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'" for text in (script, style)]
    assert policy.startswith(f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data:")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert not re.search(r"(src|href|action)=\"(?!data:)", html)


def test_the_script_passes_the_linter(tmp_path):
    (script,) = re.findall(r"<script>(.*?)</script>", page([packed_run(traced_events(1))]), re.DOTALL)
    (tmp_path / "report.js").write_text(script)
    linter, rules = Path(sys.executable).with_name("oxlint"), Path(__file__).parents[2] / ".oxlintrc.json"
    command = [linter, "--config", rules, "--deny-warnings", "report.js"]
    linted = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
    assert "1 file" in linted.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_make_no_markup_and_no_request(path):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|fetch\(|XMLHttp|import\("
    )
    assert re.findall(forbidden, path.read_text()) == []
