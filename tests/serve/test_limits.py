"""Hostile requests to `gen serve`: sizes, encodings, work, slow clients, and faults of the program."""

import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logitsmith.models.errors import ModelError
from logitsmith.serve import limits
from logitsmith.serve.errors import client_message
from logitsmith.serve.request_log import RequestLog, RequestRecord, printable

from .gen_serve import SECONDS_TO_WAIT, GenServe, post_bytes, read_all, read_answer


def endless_lark(number):
    """Return a grammar for which llguidance computes for minutes.

    ``number``: 12 to 20; each one is compiled only once, because the result is remembered.
    """
    return f"start: A\nA: /(.*a.*){{10}}/ & /(.*b.*){{10}}/ & ~/(.*c.{{{number}}}.*)/"


PROMPT = {"prompt": "Once", "max_tokens": 1}
MANY = [f"b{number}" for number in range(limits.MAX_ITEMS + 1)]
LONG = "a" * (limits.MAX_STRING_CHARACTERS + 1)


@pytest.fixture(scope="module")
def hasty(pruned_model):
    """A server that soon disconnects clients that do not finish their requests."""
    with GenServe("--slots", "1", model=pruned_model, constants={SECONDS_FOR_REQUEST: 0.6}) as server:
        yield server


SECONDS_FOR_REQUEST = "serve.http_protocol.SECONDS_FOR_REQUEST"


@pytest.fixture(scope="module")
def strict(pruned_model):
    """A server whose limits are so low that tests need not wait."""
    constants = {
        "serve.http_protocol.SECONDS_WITHOUT_READING": 1.0,
        "serve.http_protocol._MAX_DISCARDED_BYTES": 1_000_000,
        "grammars.compile_guard.MAX_CPU_SECONDS": 1,
        "serve.openai.model_entry": None,  # calling it fails
    }
    flags = ("--slots", "2", "--queue", "0", "--log-format", "json")
    with GenServe(*flags, model=pruned_model, constants=constants) as server:
        yield server


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"\x00", "not JSON", id="null-byte"),
        pytest.param(b'{"prompt": "\xff"}', "is not UTF-8", id="not-utf-8"),
        pytest.param('{"prompt": "a"}'.encode("utf-16"), "byte 0 is not UTF-8", id="utf-16"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="nested"),
        pytest.param(b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply", id="nested-objects"),
        pytest.param(b'{"prompt": NaN}', "NaN", id="nan"),
        pytest.param(b'{"prompt": "a", "seed": ' + b"1" * 10_000 + b"}", "digits", id="digits"),
        pytest.param(b'{"prompt": "a", "temperature": 1e999}', "temperature", id="infinity"),
        pytest.param(b'{"prompt": "\\ud800"}', "", id="surrogate"),
        pytest.param(b'{"prompt": "a", "stop": "\\udfff"}', "", id="surrogate-in-stop"),
        pytest.param(b'{"prompt": "a", "\\ud800": 1}', "", id="surrogate-in-name"),
        pytest.param(b"[1]", "not a JSON object", id="list"),
        pytest.param(b'{"prompt": [' + b"1," * 1_000_001 + b"1]}", "values", id="values"),
        pytest.param(b'{"prompt": ["a", 1]}', "prompt", id="mixed"),
        pytest.param(b'{"prompt": [-1]}', "", id="negative-id"),
        pytest.param(b'{"prompt": [99999999999999999999]}', "", id="huge-id"),
        pytest.param(b'{"prompt": "a", "max_tokens": -99999999999999999999}', "max_tokens", id="huge-length"),
    ],
)
def test_bodies(small_server, body, message):
    body = body.replace(b'{"prompt"', b'{"max_tokens": 1, "prompt"')
    status, answer = small_server.post("/v1/completions", body)
    assert status == 400
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"prompt": ["a"] * (limits.MAX_PROMPTS + 1)}, "prompt", id="prompts"),
        pytest.param({"prompt": ["a"] * 100, "n": 100}, "n", id="choices"),
        pytest.param({"n": 129}, "n", id="n"),
        pytest.param({"stop": ["a"] * (limits.MAX_ITEMS + 1)}, "stop", id="stops"),
        pytest.param({"stop": "a" * (limits.MAX_STRING_CHARACTERS + 1)}, "stop", id="long-stop"),
        pytest.param({"logit_bias": {str(token): 1 for token in range(1100)}}, "logit_bias", id="biases"),
        pytest.param({"prompt": [1] * 5000}, "prompt", id="tokens"),
        pytest.param({"prompt": "a " * 5000}, "prompt", id="tokens-of-text"),
        pytest.param({"prompt": "a" * 3_000_000}, "prompt", id="long-text"),
        pytest.param({"logprobs": 1000, "max_tokens": 4000}, "logprobs", id="logprobs"),
        pytest.param({"chain": "top_k " * 2000}, "chain", id="chain"),
        pytest.param({"stop_sequence": MANY}, "stop_sequence", id="stops-of-kobold"),
        pytest.param({"set": {"stop": MANY}}, "set", id="stops-of-set"),
        pytest.param({"bans": MANY}, "bans", id="bans"),
        pytest.param({"bans": [{"text": LONG}]}, "bans", id="long-ban"),
        pytest.param({"bans": [{"regex": LONG}]}, "bans", id="long-regex"),
        pytest.param({"banned_regex": MANY}, "banned_regex", id="regexes"),
        pytest.param({"bans": MANY[:600], "banned_strings": MANY[:600]}, "bans", id="bans-of-two-fields"),
        pytest.param({"set": {"bans": MANY}}, "set", id="bans-of-set"),
        pytest.param({"set": [f"bans={json.dumps(MANY)}"]}, "set", id="bans-in-a-text"),
        pytest.param({"set": [f"bans={'a' * 200_000}"]}, "set", id="long-text"),
        pytest.param({"set": {"ban.strings": MANY}}, "set", id="strings-of-set"),
        pytest.param({"set": {"sequence_bias.bias": dict.fromkeys(MANY, 1)}}, "set", id="sequences-of-set"),
        pytest.param({"bad_words": [LONG]}, "bad_words", id="long-bad-word"),
        pytest.param({"logit_bias": json.dumps(dict.fromkeys(MANY, 1))}, "logit_bias", id="biases-in-a-text"),
        pytest.param({"logit_bias": {LONG: 1}}, "logit_bias", id="long-bias"),
        pytest.param({"banned_tokens": ",".join(map(str, range(1100)))}, "banned_tokens", id="ids-in-a-text"),
        pytest.param(
            {"dry_multiplier": 1, "dry_sequence_breakers": [LONG]}, "dry_sequence_breakers", id="long-breaker"
        ),
        pytest.param({"phases": [{"until": LONG, "chain": "temp1"}, {}]}, "phases", id="long-end-of-a-phase"),
    ],
)
def test_fields(small_server, fields, field):
    status, answer = small_server.post("/v1/completions", PROMPT | fields)
    assert (status, answer["error"]["param"]) == (400, field)
    assert answer["error"]["message"].startswith(field)


@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/api/v1/generate", "/gen/next"])
def test_fields_have_limits_on_every_route(small_server, path):
    body = {"prompt": "a", "stop": "a" * (limits.MAX_STRING_CHARACTERS + 1)}
    status, answer = small_server.post(path, body)
    assert (status, answer["error"]["param"]) == (400, "stop")


@pytest.mark.parametrize(
    "fields",
    [{"guided_choice": MANY}, {"structured_outputs": {"choice": MANY}}, {"allowed_token_ids": list(range(2000))}],
    ids=["choices", "choices-of-vllm", "vocabulary"],
)
def test_grammars_and_vocabularies_have_no_limit_of_items(small_server, fields):
    status, answer = small_server.post("/v1/completions", PROMPT | fields)
    assert status == 200, answer


def test_messages(small_server):
    body = {"messages": [{"role": "user", "content": "a"}] * (limits.MAX_MESSAGES + 1)}
    assert small_server.post("/v1/chat/completions", body)[1]["error"]["param"] == "messages"


def test_a_body_that_is_announced_to_be_too_large(small_server):
    """The answer comes before the body."""
    with small_server.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n")
        assert read_answer(client).startswith(b"HTTP/1.1 413")


def test_a_body_in_chunks_that_is_too_large(small_server):
    with small_server.connect() as client:
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


def test_a_body_that_is_longer_than_announced(small_server):
    data = post_bytes(PROMPT, **{"content-length": "10"})
    answer = small_server.send(data)
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
def test_bytes_that_are_not_a_request(small_server, data):
    answer = small_server.send(data)
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
        for _ in range(2):
            client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_answer(client).startswith(b"HTTP/1.1 200")
            time.sleep(0.9)  # longer than the limit for a request


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


def post_until_taken(server, body):
    """Return the status and the answer of a request, which is sent again while the server is full."""
    answers = []
    server.wait_until(lambda: answers.append(server.post("/v1/completions", body)) or answers[-1][0] != 503)
    return answers[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"guided_grammar": endless_lark(20)}, id="lark"),
        pytest.param({"guided_grammar": endless_lark(19), "n": 5}, id="choices"),
    ],
)
def test_a_grammar_that_does_not_compile_holds_up_no_other_request(strict, fields):
    with ThreadPoolExecutor(2) as pool:
        evil = pool.submit(post_until_taken, strict, PROMPT | fields)
        answered = 0
        while not evil.done():
            assert strict.post("/v1/completions", PROMPT)[0] == 200
            answered += 1
            time.sleep(0.05)  # a request for several texts begins only if no other one runs
        status, answer = evil.result()
    assert status == 400
    assert "processor time" in answer["error"]["message"]
    assert answered
    assert strict.post("/v1/completions", PROMPT | {"regex": "a+"})[0] == 200


@pytest.mark.slow
def test_a_grammar_that_does_not_compile_is_not_checked(strict):
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(strict.post, "/gen/grammars/check", {"grammar": endless_lark(18), "text": "a"})
        answered = 0
        while not checked.done():
            assert strict.post("/v1/completions", PROMPT)[0] == 200
            answered += 1
            time.sleep(0.05)  # a request for several texts begins only if no other one runs
        status, answer = checked.result()
    assert (status, answer["ok"]) == (200, False)
    assert "processor time" in answer["message"]
    assert answered


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
def test_templates(small_server, template):
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "chat_template": template}
    status, answer = small_server.post("/v1/chat/completions", body)
    assert status == 400, answer
    assert "root:" not in str(answer)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"preset": "../../etc/passwd"}, id="preset"),
        pytest.param({"preset": "missing"}, id="missing-preset"),
        pytest.param({"grammar": "/etc/passwd"}, id="grammar"),
        pytest.param({"grammar": {"file": "/etc/passwd"}}, id="grammar-file"),
        pytest.param({"set": {"grammar": {"file": "/etc/passwd"}}}, id="set-grammar"),
        pytest.param({"json_schema": {"$ref": "file:///etc/passwd"}}, id="schema"),
        pytest.param({"chat_template": "/etc/passwd"}, id="template"),
        pytest.param({"model": "/etc/passwd", "grammar": "missing"}, id="missing-grammar"),
    ],
)
def test_errors_name_no_folder(small_server, fields):
    status, answer = small_server.post("/v1/completions", PROMPT | fields)
    assert status == 400
    for folder in (Path.home(), Path.cwd(), Path(__file__).parents[2]):
        assert f"{folder}/" not in str(answer)
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


@pytest.fixture(scope="module", params=[True, False], ids=["guided by a flag", "guided by presets"])
def server_with_presets(request, private_folder, pruned_model):
    flags = ("--cfg-scale", "2", "--cfg-model", str(private_folder / "other.gguf")) if request.param else ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(private_folder))
        with GenServe(*flags, model=pruned_model) as server:
            yield server


@pytest.mark.parametrize("route", ["/v1/completions", "/gen/generate", "/gen/next", "/api/v1/generate"])
def test_no_answer_tells_a_folder(server_with_presets, private_folder, route):
    names = [path.stem for path in (private_folder / "logitsmith" / "presets").iterdir()]
    for fields in ({}, *({"preset": name} for name in names), {"against": names[:3]}):
        length = {} if route == "/gen/next" else {"max_tokens": 1}
        _, _, answer = server_with_presets.request("POST", route, PROMPT | length | fields)
        assert "a folder" not in str(answer), fields
        assert "not told" not in str(answer), fields
    _, _, listed = server_with_presets.request("GET", "/gen/presets")
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
    "json_schema": {"properties": {NEWLINE_KEY: {"type": "string", "not": {"const": "a"}}}},
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
    assert not any("/not" in str(line) and '"path"' not in str(line) for line in strict.lines)


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
