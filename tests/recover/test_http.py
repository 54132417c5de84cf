"""APIs that fail: retries where they help, one sentence where they do not, and no key in any message."""

import base64
import contextlib
import email.utils
import json
import pickle
import socket
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from logitsmith.recover import (
    HttpOptions,
    LlamaServerEndpoint,
    OpenAIEndpoint,
    RecoverError,
    RecoverySettings,
    recover,
)
from logitsmith.recover.endpoints.http import ApiClient, response_summary

from .conftest import api
from .fakes import Fake, row_of, served

QUICK = {"first_retry_wait_seconds": 0.001, "max_retry_wait_seconds": 0.002}
KEY = "sk-very-secret-0123456789"


@contextlib.contextmanager
def scripted(*steps, path="", **options):
    """A client of an API that responds by a script, then always with {"ok": 1}; and the recorded requests."""
    left = list(steps)
    seen = []

    def answer(path, body, headers):
        seen.append((path, body))
        return left.pop(0) if left else (200, {"ok": 1}, {})

    with api(answer) as url:
        http = ApiClient(url + path, HttpOptions(**{**QUICK, **options}))
        yield http, seen
        http.close()


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
def test_tries_again_and_gives_up_with_a_sentence(name):
    with scripted(AGAIN[name], AGAIN[name]) as (http, seen):
        assert http.post("/x", {"a": 1}) == {"ok": 1}
        assert [body for _, body in seen] == [{"a": 1}] * 3
    with scripted(*[AGAIN[name]] * 9, max_retries=2) as (http, seen):
        with pytest.raises(RecoverError, match=r"^http://127.0.0.1:\d+/: .*\(try 3\)$"):
            http.get("x")
        assert len(seen) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_no_retry_where_it_cannot_help(status):
    with scripted((status, {"error": {"message": "no such thing"}}, {})) as (http, seen):
        with pytest.raises(RecoverError, match=rf"{status} .*: no such thing"):
            http.get("x")
        assert len(seen) == 1


def test_the_rate_is_kept():
    with scripted(max_calls_per_second=50) as (http, seen):
        began = time.monotonic()
        for _ in range(6):
            http.get("x")
        assert time.monotonic() - began >= 5 / 50
        assert len(seen) == 6


def test_stop_ends_the_waiting():
    waits = {"first_retry_wait_seconds": 1000, "max_retry_wait_seconds": 1000}
    with scripted(*[(503, {}, {})] * 9, **waits) as (http, seen):
        http.stop_retries()
        with pytest.raises(RecoverError, match="503"):
            http.get("x")
        assert len(seen) == 1


WRONG = {
    "no scheme": ("localhost:8080", {}, "must begin with http"),
    "another scheme": ("ftp://x", {}, "must begin with http"),
    "no URL": ("http://x:port", {}, "URL is not valid"),
    "no time": ("http://x", {"timeout_seconds": 0}, "timeout_seconds: 0 is not a number > 0"),
    "no rate": ("http://x", {"max_calls_per_second": -1}, "max_calls_per_second: -1 is not a number > 0"),
    "retries": ("http://x", {"max_retries": -1}, "max_retries: -1 is not ≥ 0"),
    "no key": ("http://x", {"key_env": "NO_SUCH_KEY"}, r"\$NO_SUCH_KEY is not set"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name):
    url, options, message = WRONG[name]
    with pytest.raises(RecoverError, match=message):
        ApiClient(url, HttpOptions(**options))


def test_an_invalid_key_is_not_shown(monkeypatch):
    monkeypatch.setenv("K", "sk-\u00e4secret")
    with pytest.raises(RecoverError, match="contains characters that a key cannot have") as failure:
        ApiClient("http://x", HttpOptions(key_env="K"))
    assert "secret" not in str(failure.value)


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    seen = []

    def answer(request):
        seen.append(request.headers["Authorization"])
        if len(seen) == 1:
            return httpx.Response(200, json={"choices": [{"text": "a", "logprobs": None}]})
        return httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}"}})

    endpoint = OpenAIEndpoint(
        "http://user:word-pass@api.test/v1?key=abc",
        "m",
        token_bytes=[b"a", b"b"],
        transport=httpx.MockTransport(answer),
    )
    path = tmp_path / "c"
    with pytest.raises(RecoverError) as failure:
        recover(endpoint, "x", settings=RecoverySettings(checkpoint=path))
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
    assert len(seen) == 2
    endpoint.close()


CREDENTIALS = {
    "the key": KEY,
    "the user's name": "someone",
    "the password": "w/rd pass",
    "the password as in the URL": "w%2Frd%20pass",
    "basic auth": base64.b64encode(b"someone:w/rd pass").decode(),
    "a key in the query": "abc123",
}


@pytest.mark.parametrize("name", CREDENTIALS)
@pytest.mark.parametrize("status", [401, 500, 200])
def test_no_part_of_a_secret_is_shown_wherever_the_text_is_cut(monkeypatch, name, status):
    monkeypatch.setenv("K", KEY)
    secret = CREDENTIALS[name]
    for before in range(240, 301, 3):
        text = "." * before + secret
        body = text if status == 200 else {"error": {"message": text}}
        content = text.encode() if status == 200 else json.dumps(body).encode()
        http = ApiClient(
            "http://someone:w%2Frd%20pass@api.test/v1?api_key=abc123",
            HttpOptions(key_env="K", max_retries=0),
            httpx.MockTransport(lambda _, content=content: httpx.Response(status, content=content)),
        )
        with pytest.raises(RecoverError) as failure:
            http.get("x")
        assert secret[:4] not in str(failure.value)
        http.close()


URLS = {
    "a query": ("/ok?api-version=2024", "/ok/completion?api-version=2024"),
    "two of them": ("/ok/?a=1&b=x%20y", "/ok/completion?a=1&b=x%20y"),
    "an encoded path": ("/a%2Fb", "/a%2Fb/completion"),
    "a fragment": ("/ok#part", "/ok/completion"),
}


@pytest.mark.parametrize("name", URLS)
def test_urls(name):
    given, asked = URLS[name]
    with scripted(path=given) as (http, seen):
        http.post("completion", {})
        assert [path.replace("+", "%20") for path, _ in seen] == [asked]
        assert "?" not in http.shown_url


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_server_that_drips_runs_out_of_time(part):
    """Each byte arrives in time, but the complete response does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                data = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n"
                connection.sendall(data if part == "headers" else data + b"\r\n")
                for _ in range(50):
                    connection.sendall(b"x")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        http = ApiClient(
            f"http://127.0.0.1:{server.getsockname()[1]}", HttpOptions(timeout_seconds=0.4, max_retries=0)
        )
        began = time.monotonic()
        with pytest.raises(RecoverError, match=r"no response within 0.4 s"):
            http.get("x")
        assert time.monotonic() - began < 1.5
        http.close()


def test_a_redirect_says_where_to():
    with (
        scripted((302, b"", {"Location": "https://other.test/v1?token=abc"})) as (http, _),
        pytest.raises(RecoverError, match=r"302 Found: redirects to https://other.test/v1; use that URL"),
    ):
        http.get("x")


BODIES = {
    "nothing": (b"", "404 Not Found"),
    "an empty object": (b"{}", "404 Not Found"),
    "a message": (b'{"error": {"message": "gone"}}', "404 Not Found: gone"),
    "an error without a message": (b'{"error": {}}', '404 Not Found: {"error": {}}'),
    "another key": (b'{"detail": "gone"}', '404 Not Found: {"detail": "gone"}'),
    "a text": (b"gone", "404 Not Found: gone"),
}


@pytest.mark.parametrize(("body", "summary"), BODIES.values(), ids=BODIES)
def test_the_summary_of_an_answer(body, summary):
    assert response_summary(httpx.Response(404), body) == summary


WAITS = {  # Retry-After -> seconds
    "7": 7,
    "45": 45,  # more than the own longest
    "7200": 600,  # more than ten minutes
    "inf": 600,
    "-3": 0,
    "in 90 s": 90,
    "Wed, 21 Oct 2015 07:28:00 GMT": 0,
    "Wed, 21 Oct 2015 07:28:00": 0,
    **dict.fromkeys(("soon", "nan", ""), 0.75),  # no time: half to one times the first wait
}


@pytest.mark.parametrize("text", WAITS)
def test_how_long_is_waited(text):
    date = email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=90))
    told, waited = [], []
    refusal = (429, {}, {"Retry-After": date if text == "in 90 s" else text})
    waits = {"first_retry_wait_seconds": 1, "max_retry_wait_seconds": 30}
    with scripted(refusal, **waits, on_retry=told.append) as (http, _):
        http._are_retries_stopped.wait = lambda delay: waited.append(delay) or False
        http.get("x")
    tolerance = 0.25 if WAITS[text] == 0.75 else 2
    assert waited == [pytest.approx(WAITS[text], abs=tolerance)] == [told[0].wait_seconds]
    assert (told[0].attempt_number, told[0].max_attempts) == (2, HttpOptions().max_retries + 1)
    assert ("the server asks to wait" in told[0].problem) == (WAITS[text] > 30)


def test_options_hold_the_keys_name_only():
    assert KEY not in str(pickle.dumps(HttpOptions(key_env="OPENAI_API_KEY")))


def test_a_server_that_hides_every_draw():
    with api(lambda *_: (200, {"tokens": [1]}, {})) as url:
        endpoint = LlamaServerEndpoint(url, 5, vocab_size=10)
        with pytest.raises(RecoverError, match="hides the logprobs if its token ends inside a character"):
            endpoint.query("x", {})
        assert endpoint.query("x", {1: 50.0}).logprobs == {}
        endpoint.close()
        endpoint = LlamaServerEndpoint(url, 0, vocab_size=10)
        assert endpoint.query("x", {}).token == 1
        endpoint.close()


@pytest.mark.parametrize("draws", [1, 2, 6])
def test_repeated_draws_count_as_calls(draws):
    """A server that hides the logprobs is queried with other seeds, up to the limit of calls."""
    seen = []

    def answer(path, body, headers):
        if path.endswith("/completion"):
            seen.append(body["seed"])
        return 200, {"tokens": [1]}, {}

    with api(answer) as url:
        endpoint = LlamaServerEndpoint(url, 5, vocab_size=10)
        found = recover(endpoint, "x", settings=RecoverySettings(max_calls=draws))
        endpoint.close()
    assert (found.stop_reason, found.new_calls) == ("max_calls", draws)
    assert len(seen) == draws


MODEL = {"id": "a.gguf", "meta": {"n_vocab": 10, "n_params": 5, "size": 6, "n_embd": 2, "n_ctx": 7}}
SAID = {
    "all": ((200, {"data": [MODEL]}, {}), {"id": "a.gguf", "n_params": 5, "size": 6, "n_vocab": 10, "n_embd": 2}),
    "only a name": ((200, {"data": [{"id": "a"}]}, {}), {"id": "a"}),
    "nothing": ((200, {"data": []}, {}), {}),
    "another shape": ((200, [1], {}), {}),
    "no such path": ((404, {}, {}), {}),
}


@pytest.mark.parametrize("name", SAID)
def test_the_identity_of_a_server(name):
    said, model = SAID[name]
    with api(lambda *_: said) as url:
        endpoint = LlamaServerEndpoint(url, 5, slot=3)
        assert endpoint.identity["model"] == model
        assert endpoint.identity["slot"] == 3
        endpoint.close()


def test_a_recovery_through_all_kinds_of_faults():
    """Every third response is a fault; the result is the same as without faults."""
    answer, fake = served(fake=Fake(row_of(100), 8))
    count = [0]

    def faulty(path, body, headers):
        count[0] += 1
        if count[0] % 3 == 0:
            return list(AGAIN.values())[count[0] // 3 % len(AGAIN)]
        return answer(path, body, headers)

    with api(faulty) as url:
        endpoint = LlamaServerEndpoint(url, 8, vocab_size=100, options=HttpOptions(**QUICK))
        found = recover(endpoint, "x", settings=RecoverySettings(max_concurrent_calls=4))
        endpoint.close()
    assert found.is_complete
    assert abs(found.logprobs - fake.row).max() < 1e-9
    assert found.total_calls == fake.calls


def test_a_server_that_goes_away_is_waited_for():
    told = []
    with scripted(max_retries=1, should_wait_for_server=False, on_retry=told.append) as (http, _):
        http.get("x")
        http._client.close()
        http._client = httpx.Client(base_url="http://127.0.0.1:9")
        with pytest.raises(RecoverError, match=r"no connection: .*\(try 2\)"):
            http.get("x")
    assert len(told) == 1
