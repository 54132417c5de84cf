"""Files of a recovery: strict JSON, NumPy without pickles, whole or not at all; and what a run will cost."""

import json

import numpy as np
import pytest
from logitsmith.recover import Basis, RecoverError, Recovery, Settings, lines, plan, read_row, recover, save

from .fakes import Fake, row_of

ROW = row_of(50)


def strict(text):
    """JSON without the numbers that JSON has not."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


ABOUT = {"endpoint": {"api": "fake"}, "prompt": "x"}


def recovery(**change):
    logprobs, errors = ROW.copy(), np.full(50, 1e-6)
    logprobs[[3, 4]] = errors[[3, 4]] = np.nan
    logprobs[5] = 0.0
    pieces = {i: b"\xff" if i == 7 else f" {i}".encode() for i in range(50) if i != 8}
    fields = {"error": 1e-6, "queries": 9, "sent": 9, "method": "parallel", "complete": False, **change}
    return Recovery(logprobs, errors, pieces=pieces, notes=("a note",), **fields)


def test_json(tmp_path):
    path = tmp_path / "r.json"
    save(recovery(error=float("nan")), path, ABOUT)
    found = strict(path.read_text())
    assert {name: found[name] for name in ("prompt", "method", "calls", "complete", "error", "unit")} == {
        "prompt": "x", "method": "parallel", "calls": 9, "complete": False, "error": None, "unit": "nats",
    }  # fmt: skip
    tokens = {token["id"]: token for token in found["tokens"]}
    assert sorted(tokens) == [i for i in range(50) if i not in (3, 4)]
    assert tokens[1] == {"id": 1, "token": " 1", "bytes": [32, 49], "logprob": ROW[1], "error": 1e-6}
    assert tokens[7]["token"] == "bytes:\\xff"
    assert (tokens[8]["token"], tokens[8]["bytes"]) == (None, None)


def test_jsonl(tmp_path):
    path = tmp_path / "r.jsonl"
    save(recovery(), path, ABOUT)
    head, *tokens = [strict(line) for line in path.read_text().splitlines()]
    assert head["event"] == "recovery"
    assert head["notes"] == ["a note"]
    assert [token["event"] for token in tokens] == ["token"] * 48
    assert "".join(lines(recovery(), ABOUT)) == path.read_text()


def test_npz(tmp_path):
    path = tmp_path / "r.npz"
    save(recovery(), path, ABOUT)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        assert data["ids"].dtype == np.int32
        assert data["logprobs"].dtype == np.float64
        place = data["ids"].tolist().index(7)
        start, end = data["offsets"][place : place + 2]
        assert data["bytes"][start:end].tobytes() == b"\xff"
        assert np.array_equal(data["logprobs"], ROW[data["ids"]] * (data["ids"] != 5))
        assert json.loads(str(data["head"]))["calls"] == 9
    with pytest.raises(RecoverError, match="it lacks tokens; a basis needs whole rows"):
        read_row(path)
    save(recover(Fake(ROW, 5), "x"), path, ABOUT)
    assert np.abs(read_row(path) - ROW).max() < 1e-12


def test_no_half_files(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("before")
    with pytest.raises(ValueError, match="JSON"):
        save(recovery(), path, {"endpoint": float("nan")})
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
    for name, message in (("r.txt", "ends in none of"), ("no/r.json", "there is no folder")):
        with pytest.raises(RecoverError, match=message):
            save(recovery(), tmp_path / name, ABOUT)
    for data in (b"", b"hello", b"PK\x03\x04"):
        path.write_bytes(data)
        with pytest.raises(RecoverError, match="not a recovery"):
            read_row(path)


@pytest.mark.parametrize("window", [2, 5, 20])
@pytest.mark.parametrize("method", ["parallel", "forced", "top_n"])
def test_the_plan_is_what_it_takes(window, method):
    n = 30 if method == "top_n" else None
    for repeats in (1, 3):
        settings = Settings(repeats=repeats)
        endpoint = Fake(row_of(300), window, raw=method == "forced")
        (told,) = plan(method, endpoint.limits, 300, n, settings)
        found = recover(endpoint, "x", method, n, settings=settings)
        assert not told.about
        assert abs(told.calls - found.queries) <= 1
        assert told.billed(7) == told.calls * 8


@pytest.mark.parametrize(("window", "method"), [(20, "single"), (0, "bisection")])
def test_the_plan_is_about_what_it_takes(window, method):
    endpoint = Fake(row_of(500), window)
    (told,) = plan(method, endpoint.limits, 500, None, Settings())
    assert told.about
    assert told.calls == pytest.approx(recover(endpoint, "x", method).queries, rel=0.4)


def test_the_plan_of_auto_stands_in_its_order():
    matrix = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    settings = Settings(basis=Basis.of_matrix(matrix, "m"))
    limits = Fake(row_of(300), 20).limits
    names = [one.method for one in plan("auto", limits, 300, None, settings)]
    assert names == ["basis", "parallel", "single", "forced", "bisection"]
    assert [one.method for one in plan("auto", limits, 300, 10, settings)][:2] == ["top_n", "parallel"]
    assert [one.method for one in plan("auto", Fake(row_of(300), 0).limits, 300, None, Settings())] == [
        "bisection"
    ]
