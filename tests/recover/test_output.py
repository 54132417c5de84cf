"""Files of a recovery: strict JSON, NumPy without pickles, written atomically; and the plan of a run."""

import json

import numpy as np
import pytest
from logitsmith.recover import (
    Basis,
    RecoverError,
    Recovery,
    RecoverySettings,
    estimate_calls,
    recover,
    save_recovery,
)
from logitsmith.recover.results import read_row, recovery_lines

from .fakes import Fake, log_softmax, row_of

ROW = row_of(50)


def strict(text):
    """JSON without numbers that JSON does not allow."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


ABOUT = {"endpoint": {"api": "fake"}, "prompt": "x"}


def recovery(**change):
    logprobs, errors = ROW.copy(), np.full(50, 1e-6)
    logprobs[[3, 4]] = errors[[3, 4]] = np.nan
    logprobs[5] = 0.0
    pieces = {i: b"\xff" if i == 7 else f" {i}".encode() for i in range(50) if i != 8}
    fields = {
        "max_error_nats": 1e-6,
        "total_calls": 9,
        "new_calls": 9,
        "method": "parallel",
        "is_complete": False,
        **change,
    }
    return Recovery(logprobs, errors, token_bytes=pieces, notes=("a note",), **fields)


def test_json(tmp_path):
    path = tmp_path / "r.json"
    save_recovery(recovery(max_error_nats=float("nan")), path, ABOUT)
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
    save_recovery(recovery(), path, ABOUT)
    head, *tokens = [strict(line) for line in path.read_text().splitlines()]
    assert head["event"] == "recovery"
    assert head["notes"] == ["a note"]
    assert [token["event"] for token in tokens] == ["token"] * 48
    assert "".join(recovery_lines(recovery(), ABOUT)) == path.read_text()


def test_npz(tmp_path):
    path = tmp_path / "r.npz"
    save_recovery(recovery(), path, ABOUT)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        assert data["ids"].dtype == np.int32
        assert data["logprobs"].dtype == np.float64
        place = data["ids"].tolist().index(7)
        start, end = data["offsets"][place : place + 2]
        assert data["bytes"][start:end].tobytes() == b"\xff"
        assert np.array_equal(data["logprobs"], ROW[data["ids"]] * (data["ids"] != 5))
        assert json.loads(str(data["head"]))["calls"] == 9
    with pytest.raises(RecoverError, match="tokens are missing; a basis needs complete recoveries"):
        read_row(path)
    save_recovery(recover(Fake(ROW, 5), "x"), path, ABOUT)
    assert np.abs(read_row(path) - ROW).max() < 1e-12


def test_files_are_written_atomically(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("before")
    with pytest.raises(ValueError, match="JSON"):
        save_recovery(recovery(), path, {"endpoint": float("nan")})
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("window", [2, 5, 20])
@pytest.mark.parametrize("method", ["parallel", "forced", "top_n"])
def test_the_plan_is_exact(window, method):
    n = 30 if method == "top_n" else None
    for repeats in (1, 3):
        settings = RecoverySettings(calls_per_query=repeats)
        endpoint = Fake(row_of(300), window, raw=method == "forced")
        (told,) = estimate_calls(endpoint, "x", method, n, settings=settings)
        found = recover(endpoint, "x", method, n, settings=settings)
        assert not told.is_approximate
        assert abs(told.calls - found.total_calls) <= 1
        assert told.billed_token_count(7) == told.calls * 8


@pytest.mark.parametrize(("window", "method"), [(20, "single"), (0, "bisection")])
def test_the_plan_is_approximate(window, method):
    endpoint = Fake(row_of(500), window)
    (told,) = estimate_calls(endpoint, "x", method)
    assert told.is_approximate
    assert told.calls == pytest.approx(recover(endpoint, "x", method).total_calls, rel=0.4)


MATRIX = np.random.default_rng(0).normal(0, 0.5, (300, 8))
BASIS = Basis.of_matrix(MATRIX.astype(np.float32), "m")
SMALL = Basis.of_matrix(MATRIX[:50].astype(np.float32), "m")
TAKEN = {
    "all": ({}, 20, 18),
    "named": ({"tokens": [5, 6, 6]}, 20, 4),
    "named, a window of one": ({"tokens": [5, 6, 7, 8]}, 1, 9),
    "named, no window": ({"tokens": [5, 6, 7, 8]}, 0, 62),
    "top tokens": ({"top_count": 50}, 20, 5),
    "top tokens that are all shown": ({"top_count": 20}, 20, 3),
    "all by a basis": ({"settings": RecoverySettings(basis=BASIS)}, 20, 8),
    "by a basis, a window of one": ({"settings": RecoverySettings(basis=BASIS)}, 1, 138),
    "by a basis, no window": ({"settings": RecoverySettings(basis=BASIS)}, 0, 1350),
    "few named, so not by a basis": ({"tokens": [5, 6], "settings": RecoverySettings(basis=BASIS)}, 20, 4),
    "top tokens by a basis, as requested": (
        {"method": "basis", "top_count": 10, "settings": RecoverySettings(basis=BASIS)},
        20,
        8,
    ),
    "top tokens, with a basis of another model": (
        {"top_count": 50, "settings": RecoverySettings(basis=SMALL)},
        20,
        5,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_the_first_planned_method_is_used(name):
    arguments, window, calls = TAKEN[name]
    endpoint = Fake(log_softmax(MATRIX @ np.random.default_rng(1).normal(0, 2, 8)), window)
    told = estimate_calls(endpoint, "x", **arguments)[0]
    assert endpoint.calls == 0
    assert told.calls == calls
    found = recover(endpoint, "x", **arguments)
    assert found.method == told.method
    assert found.total_calls == (pytest.approx(calls, rel=0.4) if told.is_approximate else calls)


@pytest.mark.parametrize(
    ("method", "window", "n"), [("parallel", 1, None), ("single", 0, None), ("forced", 0, None), ("top_n", 0, 3)]
)
def test_the_plan_refuses_a_method_without_its_window(method, window, n):
    with pytest.raises(RecoverError, match="does not work"):
        recover(Fake(row_of(300), window), "x", method, n)
    with pytest.raises(RecoverError, match=f"{method} does not work with an endpoint that shows {window} logprob"):
        estimate_calls(Fake(row_of(300), window), "x", method, n)


def test_the_plan_lists_methods_in_the_order_of_auto():
    settings = RecoverySettings(basis=BASIS)
    endpoint = Fake(row_of(300), 20)
    names = [one.method for one in estimate_calls(endpoint, "x", settings=settings)]
    assert names == ["basis", "parallel", "single", "forced", "bisection"]
    assert [one.method for one in estimate_calls(endpoint, "x", top_count=10)][:2] == ["top_n", "parallel"]
    assert [one.method for one in estimate_calls(Fake(row_of(300), 0), "x")] == ["bisection"]
