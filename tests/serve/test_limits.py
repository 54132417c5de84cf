"""Hostile requests to `gen serve`: sizes, encodings, work, slow clients, and faults of the program."""

import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from logitsmith.models.errors import ModelError
from logitsmith.serve.errors import client_message
from logitsmith.serve.request_log import RequestLog, RequestRecord, printable

from .gen_serve import SECONDS_TO_WAIT, GenServe, post_bytes, read_all, read_answer


def endless_lark(number):
    """Return a grammar for which llguidance computes for minutes.

    ``number``: 12 to 20; each one is compiled only once, because the result is remembered.
    """
    return f"start: A\nA: /(.*a.*){{10}}/ & /(.*b.*){{10}}/ & ~/(.*c.{{{number}}}.*)/"


PROMPT = {"prompt": "Once", "max_tokens": 1}


@pytest.fixture(scope="module")
def hasty(pruned_model):
    """A server that soon disconnects clients that do not finish their requests."""
    with GenServe("--slots", "1", model=pruned_model, constants={SECONDS_FOR_REQUEST: 0.6}) as server:
        yield server


SECONDS_FOR_REQUEST = "serve.http_protocol.SECONDS_FOR_REQUEST"


@pytest.fixture(scope="module")
def private_folder(tmp_path_factory, pruned_model):
    """A folder with the models and grammars that presets name; its presets are those of the server."""
    folder = tmp_path_factory.mktemp("not told") / "a folder"
    (folder / "logitsmith" / "presets").mkdir(parents=True)
    (folder / "other.gguf").symlink_to(pruned_model)
    (folder / "text.gguf").write_text("no model")
    (folder / "wrong.gbnf").write_text("root ::= (")
    settings = {
        "guided": {"guidance": {"scale": 2, "model": f"{folder}/other.gguf"}},
        "missing-model": {"guidance": {"scale": 2, "model": f"{folder}/none.gguf"}},
        "no-model": {"guidance": {"scale": 2, "model": f"{folder}/text.gguf"}},
        "missing-grammar": {"grammar": {"file": f"{folder}/none.gbnf"}},
        "wrong-grammar": {"grammar": {"file": f"{folder}/wrong.gbnf"}},
        "missing-schema": {"grammar": {"json_schema_file": f"{folder}/none.json"}},
        "unknown-key": {"tempretaure": 1},
    }
    for name, table in settings.items():
        (folder / "logitsmith" / "presets" / f"{name}.yaml").write_text(json.dumps(table))
    return folder


@pytest.fixture(scope="module")
def strict(private_folder, pruned_model):
    """A server whose limits are so low that tests need not wait."""
    constants = {
        "serve.http_protocol.SECONDS_WITHOUT_READING": 1.0,
        "serve.http_protocol._MAX_DISCARDED_BYTES": 1_000_000,
        "grammars.compile_guard.MAX_CPU_SECONDS": 1,
        "serve.openai.model_entry": None,  # calling it fails
    }
    flags = ("--slots", "2", "--queue", "0", "--log-format", "json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(private_folder))
        with GenServe(*flags, model=pruned_model, constants=constants) as server:
            yield server


def test_a_body_that_is_announced_to_be_too_large(server):
    """The answer comes before the body."""
    with server.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n")
        assert read_answer(client).startswith(b"HTTP/1.1 413")


def test_a_body_in_chunks_that_is_too_large(server):
    with server.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(17):
            client.sendall(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert read_answer(client).startswith(b"HTTP/1.1 413")


def test_an_endless_body_after_the_answer_is_cut_off(strict):
    def send_endlessly(client):
        client.sendall(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(100):
            client.sendall(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")

    with strict.connect() as client, pytest.raises((BrokenPipeError, ConnectionResetError)):
        send_endlessly(client)


def test_a_body_that_is_longer_than_announced(server):
    data = post_bytes(PROMPT, **{"content-length": "10"})
    answer = server.send(data)
    assert answer.count(b"HTTP/1.1 400") == 2


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"GET\r\n\r\n", id="no-path"),
        pytest.param(b"GET /health HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", id="negative-length"),
        pytest.param(b"GET /health HTTP/1.1\r\nhost : a\r\n\r\n", id="space-in-header"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", id="path"),
    ],
)
def test_bytes_that_are_not_a_request(server, data):
    answer = server.send(data)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


UNFINISHED_REQUESTS = {
    b"": b"",
    b"GET /heal": b"HTTP/1.1 408",
    b"GET /health HTTP/1.1\r\nhost: localhost\r\n": b"HTTP/1.1 408",
    post_bytes(PROMPT)[:-5]: b"HTTP/1.1 408",
}
"""The bytes that a client sends, and the beginning of the answer."""


def test_clients_that_do_not_finish_their_requests(hasty):
    clients = [hasty.connect() for _ in UNFINISHED_REQUESTS]
    for client, sent in zip(clients, UNFINISHED_REQUESTS, strict=True):
        client.sendall(sent)
    assert [read_all(client)[:12] for client in clients] == list(UNFINISHED_REQUESTS.values())
    for client in clients:
        client.close()


@pytest.mark.slow
def test_a_client_that_sends_a_byte_at_a_time(hasty):
    """Each byte restarts uvicorn's clock, but not the server's."""
    with hasty.connect() as client:
        for _ in range(100_000):
            if select.select([client], [], [], 0.02)[0]:
                break
            client.sendall(b"G")
        assert client.recv(65_536).startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))


def test_a_connection_is_kept_after_an_answer(hasty):
    with hasty.connect() as client:
        for seconds in (0, 0.9):  # longer than the limit for a request
            time.sleep(seconds)
            client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_answer(client).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(strict):
    start = len(strict.lines)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", strict.port))
    with client:
        fields = {"max_tokens": 3000, "logprobs": 500, "stream": True, "ignore_eos": True}
        client.sendall(post_bytes(PROMPT | fields))
        assert select.select([client], [], [], SECONDS_TO_WAIT)[0]
        assert strict.post("/v1/completions", PROMPT)[0] == 200  # the other slot answers meanwhile
        strict.wait_for('"status": 499', start)
        assert not read_all(client).endswith(b"0\r\n\r\n")
    strict.wait_until_idle()


def assert_slots_of_strict_are_free(strict):
    """If all slots were busy, the texts of the check would wait, and then begin together."""
    start = len(strict.lines)
    strict.assert_all_slots_are_free(2)
    line = json.loads(strict.wait_for('.*"completion_tokens": 400.*', start)[0])
    assert line["first_token_ms"] < line["total_ms"] / 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [socket.SHUT_WR, socket.SHUT_RDWR, None])
def test_a_client_that_leaves_frees_its_slot(strict, stream, leave):
    """A client that closes only its sending side has left: clients that still read do not do this."""
    body = post_bytes(PROMPT | {"max_tokens": 3000, "stream": stream, "ignore_eos": True, "n": 2})
    client = strict.connect()
    client.sendall(body)
    strict.wait_until(lambda: strict.counts_of_texts() == (2, 0))
    status, headers, answer = strict.request("POST", "/v1/completions", PROMPT)
    assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "unavailable", "1")
    start = len(strict.lines)
    if leave is not None:
        client.shutdown(leave)
    client.close()
    strict.wait_for('"status": 499', start)
    assert_slots_of_strict_are_free(strict)


def test_a_client_that_sends_more_and_leaves_frees_its_slot(strict):
    client = strict.connect()
    client.sendall(post_bytes(PROMPT | {"max_tokens": 3000, "ignore_eos": True}) * 2)
    strict.wait_until(lambda: strict.counts_of_texts() == (1, 0))
    start = len(strict.lines)
    client.close()
    strict.wait_for('"status": 499', start)
    assert_slots_of_strict_are_free(strict)


def post_until_taken(server, path, body):
    """Return the status and the answer of a request, which is sent again while the server is full."""
    answers = []
    server.wait_until(lambda: answers.append(server.post(path, body)) or answers[-1][0] != 503)
    return answers[-1]


# Each row: the path, the request, and the status of the answer.
UNCOMPILED = {
    "lark": ("/v1/completions", PROMPT | {"guided_grammar": endless_lark(20)}, 400),
    "choices": ("/v1/completions", PROMPT | {"guided_grammar": endless_lark(19), "n": 5}, 400),
    "check": ("/gen/grammars/check", {"grammar": endless_lark(18), "text": "a"}, 200),
}


@pytest.mark.slow
@pytest.mark.parametrize(("path", "body", "expected"), UNCOMPILED.values(), ids=UNCOMPILED)
def test_a_grammar_that_does_not_compile_holds_up_no_other_request(strict, path, body, expected):
    with ThreadPoolExecutor(2) as pool:
        evil = pool.submit(post_until_taken, strict, path, body)
        answered = 0
        while not evil.done():
            assert strict.post("/v1/completions", PROMPT)[0] == 200
            answered += 1
            time.sleep(0.05)  # a request for several texts begins only if no other one runs
        status, answer = evil.result()
    assert status == expected
    message = answer["error"]["message"] if status == 400 else answer["message"]
    assert "processor time" in message
    assert answered
    assert strict.post("/v1/completions", PROMPT | {"regex": "a+"})[0] == 200


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", id="loop"),
        pytest.param("{{ 'a' * 10 ** 9 }}", id="memory"),
        pytest.param("{{ ''.__class__.__mro__ }}", id="classes"),
        pytest.param("{% include '/etc/passwd' %}", id="file"),
        pytest.param("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", id="nested"),
        pytest.param("{{ " + "-" * 50_000 + "1 }}", id="operators"),
        pytest.param("{{" + "a." * 40_000 + "b}}", id="attributes"),
        pytest.param("{{ cycler.__init__.__globals__ }}", id="globals"),
    ],
)
def test_templates(server, template):
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "chat_template": template}
    status, answer = server.post("/v1/chat/completions", body)
    assert status == 400, answer
    assert "root:" not in str(answer)


MESSAGES = {
    "a folder": ("/srv/a model/m.gguf: no such file", "…/m.gguf: no such file"),
    "two folders": (
        "the vocabularies of /a/b.gguf, '/c d/e.gguf' differ",
        "the vocabularies of …/b.gguf, '…/e.gguf' differ",
    ),
    "an address": ("see https://example.com/a/b and/or c", "see https://example.com/a/b and/or c"),
    "a relative path": ("./presets/a.yaml: line 1", "./presets/a.yaml: line 1"),
}


@pytest.mark.parametrize(("message", "told"), MESSAGES.values(), ids=MESSAGES)
def test_paths_in_messages(message, told):
    assert client_message(ModelError(message)) == told


@pytest.fixture(scope="module")
def guided_by_a_flag(private_folder, pruned_model):
    flags = ("--cfg-scale", "2", "--cfg-model", str(private_folder / "other.gguf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(private_folder))
        with GenServe(*flags, model=pruned_model) as server:
            yield server


@pytest.mark.parametrize("name", ["guided_by_a_flag", "strict"])
def test_no_answer_tells_a_folder(request, private_folder, name):
    server = request.getfixturevalue(name)
    names = [path.stem for path in (private_folder / "logitsmith" / "presets").iterdir()]
    for route in ("/v1/completions", "/gen/generate", "/gen/next", "/api/v1/generate"):
        for fields in ({}, *({"preset": name} for name in names), {"against": names[:3]}):
            length = {} if route == "/gen/next" else {"max_tokens": 1}
            _, _, answer = server.request("POST", route, PROMPT | length | fields)
            assert "a folder" not in str(answer), (route, fields)
            assert "not told" not in str(answer), (route, fields)
    _, _, listed = server.request("GET", "/gen/presets")
    assert "unknown-key" in str(listed)
    assert "a folder" not in str(listed)


def test_a_fault_has_an_id(strict):
    status, answer = strict.post("/v1/models", {})
    assert status == 405
    status, _, answer = strict.request("GET", "/v1/models")
    assert status == 500
    number = re.search(r"request ([0-9a-f]{12})", answer["error"]["message"])[1]
    assert "NoneType" not in str(answer)
    fault = json.loads(strict.wait_for(f'.*"{number}".*"fault".*')[0])["fault"]
    assert "TypeError" in fault
    assert "openai.py" in fault
    assert "not callable" not in fault  # messages of exceptions may quote prompts


def test_lines_of_the_log(strict):
    start = len(strict.lines)
    strict.post(
        "/v1/completions", {"prompt": "A secret", "max_tokens": 2, "num_ctx": 5}, authorization="Bearer k3y"
    )
    line = json.loads(strict.wait_for('.*"path": "/v1/completions".*', start)[0])
    assert (line["method"], line["status"], line["completion_tokens"]) == ("POST", 200, 2)
    assert line["ignored"] == ["num_ctx"]
    assert 0 < line["first_token_ms"] <= line["total_ms"]
    assert line["prompt_tokens"] > 0
    assert not any("secret" in str(line) or "k3y" in str(line) for line in strict.lines)


def test_prompts_are_logged_if_asked():
    lines = []
    log = RequestLog("text", has_prompts=True, write=lines.append)
    log(RequestRecord("POST", "/a\x1b[2J\n", prompts=["a\x1bb"], status=200))
    log.flush(60)
    assert len(lines) == 1
    assert 'prompts: ["a\\u001bb"]' in lines[0]
    assert lines[0] == printable(lines[0])


NEWLINE_KEY = "é\n\x1b"
LENIENT = {
    "schema_lenient": True,
    "json_schema": {"properties": {NEWLINE_KEY: {"type": "string", "pattern": "(?!a)"}}},
}


def test_ignored_parts_of_a_schema_are_told_to_the_client_alone(strict):
    """The log would grow with each schema, and quote the request."""
    start = len(strict.lines)
    status, headers, answer = strict.request(
        "POST", "/v1/completions", PROMPT | {"max_tokens": 4, "grammar": LENIENT}
    )
    assert status == 200, answer
    (ignored,) = answer["x_gen"]["ignored"]
    assert NEWLINE_KEY in ignored
    assert headers["x-gen-ignored"] == ascii(ignored)[1:-1]
    strict.wait_for('"status": 200', start)
    assert not any("/pattern" in str(line) and '"path"' not in str(line) for line in strict.lines)


def test_notes_are_written_once():
    lines = []
    log = RequestLog("none", write=lines.append)
    for _ in range(2):
        log.note("a\x1b")
    for number in range(2_000):
        log.note(f"{number}")
    log.flush(60)
    assert lines[:2] == ["gen: note: a\\x1b", "gen: note: 0"]
    assert len(lines) == len(set(lines)) < 2_000


@pytest.mark.slow
def test_a_log_that_is_not_read_stops_nothing(pruned_model):
    """The pipe of stderr has space for 64 KiB."""
    server = GenServe("--slots", "1", model=pruned_model)
    with server:
        server.pause_reading()
        for _ in range(3000):
            with server.connect() as client:
                client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert read_answer(client).startswith(b"HTTP/1.1 200")
        server.process.kill()
