"""The start and the end of `gen serve`: signals, ports, streams that end properly."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from logitsmith.cli.commands.serve import _wait as wait_for_signal
from logitsmith.engine import GenerationRequest, Model
from logitsmith.requests.resolve import RequestDefaults
from logitsmith.serve.engine_thread import EngineStoppedError, EngineThread
from logitsmith.serve.server import HttpServer, open_socket
from logitsmith.serve.state import ServerState

from .gen_serve import SECONDS_TO_WAIT, GenServe, post_bytes, read_all, read_answer, read_stream, run_async

LONG = {"prompt": "Once", "max_tokens": 3000, "ignore_eos": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_idle_server_ends_immediately(pruned_model, number):
    with GenServe("--slots", "1", "--grace", "1000", model=pruned_model, waits=False) as server:
        assert server.request("GET", "/health")[0] in (200, 503)  # before the model is loaded
        server.wait_for("is served at")
        kept = server.connect()
        kept.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_answer(kept).startswith(b"HTTP/1.1 200")
        server.stop(number)
        assert server.wait() == 0
        assert read_all(kept) == b""
        kept.close()


def connect_until_refused(server):
    end = time.monotonic() + SECONDS_TO_WAIT
    while time.monotonic() < end:
        server.connect().close()
        time.sleep(0.01)  # the server accepts all connections that wait before it handles anything else


def test_running_requests_end_and_no_others_begin(pruned_model):
    with GenServe("--slots", "2", "--grace", "1000", model=pruned_model) as server:
        kept = server.connect()
        running = server.start_stream(max_tokens=400)
        server.stop()
        server.wait_for("running requests get 1000 s")
        with pytest.raises(ConnectionRefusedError):
            connect_until_refused(server)  # the socket is closed a moment after the message
        for data in (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", post_bytes(LONG)):
            kept.sendall(data)
            answer = read_answer(kept)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"stopping" in answer
        text = read_all(running)
        assert text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b'"finish_reason":"length"' in text.replace(b": ", b":")
        kept.close()
        running.close()
        assert server.wait() == 0


@pytest.mark.slow
def test_requests_that_do_not_end_are_canceled(pruned_model):
    """A stream ends with an error and its last chunk; other answers are errors; the queue, too."""
    with GenServe("--slots", "2", "--grace", "0.2", model=pruned_model) as server:
        stream = server.start_stream()
        whole = [server.connect() for _ in range(2)]
        for client in whole:
            client.sendall(post_bytes(LONG))
        queued = server.connect()
        queued.sendall(post_bytes(LONG | {"stream": True}))
        server.wait_until(lambda: server.counts_of_texts() == (2, 2))
        server.stop()
        text = read_all(stream)
        assert text.endswith(b"\r\n0\r\n\r\n")
        assert b"the server is stopping" in text
        for client in (*whole, queued):
            answer = read_all(client)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1" in answer
            client.close()
        stream.close()
        assert server.wait() == 0


def test_the_second_signal_ends_the_server_now(pruned_model):
    with GenServe("--slots", "1", "--grace", "1000", model=pruned_model) as server:
        stream = server.start_stream()
        server.stop()
        server.wait_for("running requests")
        server.stop()
        assert server.wait() == 128 + signal.SIGTERM
        assert b"the server is stopping" in read_all(stream)
        stream.close()


def test_a_stop_between_two_steps_ends_the_answers(pruned_model):
    """The second signal may arrive while llama.cpp computes nothing that could be aborted."""

    async def error_of_stopped_answer(model):
        engine = EngineThread(1, max_waiting=1)
        await asyncio.to_thread(engine.start, model, asyncio.get_running_loop())
        stream = engine.submit([GenerationRequest("Once", "greedy", max_tokens=10_000, ends_at_eog=False)])
        events = await stream.take()
        await asyncio.to_thread(engine.stop)
        async with asyncio.timeout(SECONDS_TO_WAIT):
            while taken := await stream.take():
                events = taken
        return events[-1][1].error

    with Model.load(pruned_model, n_ctx=16_384, threads=1) as model:
        assert isinstance(run_async(error_of_stopped_answer(model)), EngineStoppedError)


@pytest.mark.slow
def test_a_request_that_takes_too_long(pruned_model):
    with GenServe("--slots", "1", "--timeout", "0.3", model=pruned_model) as server:
        status, answer = server.post("/v1/completions", LONG)
        assert (status, answer["error"]["code"]) == (503, "timeout")
        stream = server.start_stream()
        assert b'"code": "timeout"' in read_stream(stream)
        stream.close()
        server.wait_for(r"POST /v1/completions 503 1\+\d+ tokens")  # not 200, with which the stream began
        server.wait_until_idle()


def refused(gen_server, *flags):
    """Start a server that ends at once. Returns what it says."""
    words, environment = ["serve", *flags], {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    _, err, code = gen_server.run(words, stdin=b"", cwd=Path.cwd(), env=environment, timeout=SECONDS_TO_WAIT)
    assert code == 2, err
    assert b"Traceback" not in err
    return err.decode()


def test_a_port_that_is_taken(gen_server, pruned_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port}: " in refused(gen_server, "-m", str(pruned_model), "--port", port)


WRONG_FLAGS = {
    "open": (("--host", "0.0.0.0"), "--api-key-file"),
    "a name": (("--host", "no.such.name.invalid", "--no-auth"), "--host no.such.name.invalid"),
    "an address of another machine": (("--host", "203.0.113.5", "--no-auth"), "--host 203.0.113.5"),
    "keys": (("--api-key-file", "/nowhere/keys"), "no such file"),
    "a format": (("--log-format", "xml"), "--log-format"),
}


@pytest.mark.parametrize(("flags", "named"), WRONG_FLAGS.values(), ids=WRONG_FLAGS)
def test_flags_that_are_wrong(gen_server, flags, named):
    assert named in refused(gen_server, "--port", "0", *flags)


def test_the_extra_is_missing():
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['gen', 'serve']; "
        "from logitsmith.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(r"the extra serve, .*pip install \S*.*\[serve\]", done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_server_whose_http_thread_ends_is_noticed():
    state = ServerState(EngineThread(1, max_waiting=1), RequestDefaults(), print)
    server = HttpServer(state, open_socket("127.0.0.1", 0))
    loop = server.start()
    loop.call_soon_threadsafe(loop.stop)
    try:
        with pytest.raises(RuntimeError, match="the HTTP server has ended"):
            wait_for_signal(SimpleNamespace(requested=False), state.engine, server)
    finally:
        server.stop()
        state.close()


def test_a_server_that_is_stopped_has_no_failure():
    state = ServerState(EngineThread(1, max_waiting=1), RequestDefaults(), print)
    server = HttpServer(state, open_socket("127.0.0.1", 0))
    server.start()
    server.stop()
    state.close()
    assert server.failure is None
