"""APIs that fail: new tries where they help, a sentence where they do not, and no key in any of it."""

import pickle
import time

import httpx
import pytest
from logitsmith.recover import HttpOptions, LlamaServerEndpoint, OpenAIEndpoint, RecoverError, Settings, recover
from logitsmith.recover.http import Http

from .conftest import api
from .fakes import Fake, row_of

QUICK = {"backoff": 0.001, "longest": 0.002}
KEY = "sk-very-secret-0123456789"


def scripted(*steps):
    """An API that answers by a script, then always with {"ok": 1}; keeps what it was asked."""
    left = list(steps)
    seen = []

    def answer(path, body, headers):
        seen.append((path, body, dict(headers)))
        return left.pop(0) if left else (200, {"ok": 1}, {})

    return answer, seen


AGAIN = {
    "429": (429, {"error": {"message": "slow down"}}, {}),
    "500": (500, b"oops", {}),
    "502 with a page": (502, b"<html>bad gateway</html>", {}),
    "503 of llama.cpp": (503, {"error": {"code": 503, "message": "Loading model"}}, {}),
    "no JSON": (200, b'{"ok": ', {}),
    "no JSON number": (200, b'{"ok": NaN}', {}),
    "not UTF-8": (200, b"\xff\xfe\xfa", {}),
}


@pytest.mark.parametrize("name", AGAIN)
def test_tries_again(name):
    answer, seen = scripted(AGAIN[name], AGAIN[name])
    with api(answer) as url:
        http = Http(url, HttpOptions(**QUICK))
        assert http.post("/x", {"a": 1}) == {"ok": 1}
        assert [body for _, body, _ in seen] == [{"a": 1}] * 3
        http.close()


@pytest.mark.parametrize("name", AGAIN)
def test_gives_up_with_a_sentence(name):
    answer, seen = scripted(*[AGAIN[name]] * 9)
    with api(answer) as url:
        http = Http(url, HttpOptions(**QUICK, retries=2))
        with pytest.raises(RecoverError, match=r"^http://127.0.0.1:\d+/: .*\(try 3\)$"):
            http.get("x")
        assert len(seen) == 3
        http.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_no_new_try_can_help(status):
    answer, seen = scripted((status, {"error": {"message": "no such thing"}}, {}))
    with api(answer) as url:
        http = Http(url, HttpOptions(**QUICK))
        with pytest.raises(RecoverError, match=rf"{status} .*: no such thing"):
            http.get("x")
        assert len(seen) == 1
        http.close()


def test_retry_after_is_kept():
    answer, _ = scripted((429, {}, {"Retry-After": "0.3"}))
    with api(answer) as url:
        http = Http(url, HttpOptions(backoff=0.001))
        began = time.monotonic()
        http.get("x")
        assert time.monotonic() - began >= 0.3
        http.close()


def test_time_outs_are_told():
    def answer(path, body, headers):
        time.sleep(0.5)
        return 200, {}, {}

    with api(answer) as url:
        http = Http(url, HttpOptions(timeout=0.05, retries=1, **QUICK))
        with pytest.raises(RecoverError, match=r"no answer within 0.05 s \(try 2\)"):
            http.get("x")
        http.close()


def test_nobody_there():
    http = Http("http://127.0.0.1:9", HttpOptions(retries=1, **QUICK))
    with pytest.raises(RecoverError, match="no connection: "):
        http.get("x")
    http.close()


def test_the_rate_is_kept():
    answer, seen = scripted()
    with api(answer) as url:
        http = Http(url, HttpOptions(rate=50))
        began = time.monotonic()
        for _ in range(6):
            http.get("x")
        assert time.monotonic() - began >= 5 / 50
        assert len(seen) == 6
        http.close()


def test_stop_ends_the_waiting():
    answer, seen = scripted(*[(503, {}, {})] * 9)
    with api(answer) as url:
        http = Http(url, HttpOptions(backoff=1000, longest=1000))
        http.stop()
        with pytest.raises(RecoverError, match="503"):
            http.get("x")
        assert len(seen) == 1
        http.close()


WRONG = {
    "no scheme": ("localhost:8080", {}, "does not begin with http"),
    "another scheme": ("ftp://x", {}, "does not begin with http"),
    "no URL": ("http://x:port", {}, "URL is none"),
    "no time": ("http://x", {"timeout": 0}, "timeout: 0 is not a number > 0"),
    "no rate": ("http://x", {"rate": -1}, "rate: -1 is not a number > 0"),
    "retries": ("http://x", {"retries": -1}, "retries: -1 is not ≥ 0"),
    "no key": ("http://x", {"key_env": "NO_SUCH_KEY"}, r"\$NO_SUCH_KEY is not set"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name):
    url, options, message = WRONG[name]
    with pytest.raises(RecoverError, match=message):
        Http(url, HttpOptions(**options))


def test_a_key_of_no_use_is_not_shown(monkeypatch):
    monkeypatch.setenv("K", "sk-\u00e4secret")
    with pytest.raises(RecoverError, match="holds characters that no key has") as failure:
        Http("http://x", HttpOptions(key_env="K"))
    assert "secret" not in str(failure.value)


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    seen = []

    def answer(request):
        seen.append(request.headers["Authorization"])
        return httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}"}})

    endpoint = OpenAIEndpoint(
        "http://user:word-pass@api.test/v1?key=abc",
        "m",
        pieces=[b"a", b"b"],
        transport=httpx.MockTransport(answer),
    )
    path = tmp_path / "c"
    with pytest.raises(RecoverError) as failure:
        recover(endpoint, "x", settings=Settings(checkpoint=path))
    told = [
        str(failure.value),
        repr(failure.value),
        path.read_text(),
        str(endpoint.identity),
        repr(endpoint._http),
    ]
    error = failure.value
    while error is not None:
        told += [repr(error), str(error.args)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for text in told:
        assert KEY not in text
        assert "word-pass" not in text
        assert "key=abc" not in text
    assert "Incorrect API key provided: ***" in told[0]
    assert len(seen) == 1
    endpoint.close()


def test_options_hold_the_keys_name_only():
    assert KEY not in str(pickle.dumps(HttpOptions(key_env="OPENAI_API_KEY")))


SHAPES = {
    "another API": {"hello": 1},
    "a list": [1],
    "no ids": {"completion_probabilities": [{"top_probs": [{"prob": 0.5}]}]},
    "text for a number": {"completion_probabilities": [{"id": 1, "prob": "x", "top_probs": []}]},
    "nothing": None,
}


@pytest.mark.parametrize("name", SHAPES)
def test_answers_of_another_shape(name):
    with api(lambda *_: (200, SHAPES[name], {})) as url:
        endpoint = LlamaServerEndpoint(url, 5, vocab_size=10)
        with pytest.raises(RecoverError, match="has not the shape"):
            endpoint.query("x", {})
        endpoint.close()


def test_a_server_that_hides_every_draw():
    with api(lambda *_: (200, {"tokens": [1]}, {})) as url:
        endpoint = LlamaServerEndpoint(url, 5, vocab_size=10)
        with pytest.raises(RecoverError, match="hides logprobs behind a token that ends inside a character"):
            endpoint.query("x", {})
        assert endpoint.query("x", {1: 50.0}).logprobs == {}
        endpoint.close()
        endpoint = LlamaServerEndpoint(url, 0, vocab_size=10)
        assert endpoint.query("x", {}).token == 1
        endpoint.close()


def test_a_server_that_does_not_say_how_many_tokens():
    with api(lambda *_: (200, {"data": []}, {})) as url:
        endpoint = LlamaServerEndpoint(url, 5)
        with pytest.raises(RecoverError, match="give vocab_size"):
            endpoint.vocab_size  # noqa: B018
        endpoint.close()


def test_a_recovery_through_all_kinds_of_faults():
    """Every third answer is a fault; the result is as if there were none."""
    fake = Fake(row_of(100), 8)
    count = [0]

    def answer(path, body, headers):
        count[0] += 1
        if count[0] % 3 == 0:
            return list(AGAIN.values())[count[0] // 3 % len(AGAIN)]
        said = fake.query("x", {int(token): value for token, value in body["logit_bias"]})
        from math import exp

        shown = [{"id": i, "bytes": [], "prob": exp(value)} for i, value in said.logprobs.items()]
        return 200, {"completion_probabilities": [{"id": said.token, "prob": 0.5, "top_probs": shown}]}, {}

    with api(answer) as url:
        endpoint = LlamaServerEndpoint(url, 8, vocab_size=100, options=HttpOptions(**QUICK))
        found = recover(endpoint, "x", settings=Settings(in_flight=4))
        endpoint.close()
    assert found.complete
    assert abs(found.logprobs - fake.row).max() < 1e-9
    assert found.queries == fake.calls
