"""`gen serve` as a process, and requests to it, as bytes if a client of HTTP would not send them."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

SECONDS_TO_WAIT = 300
"""Time after which a test fails instead of waiting for a server that hangs."""

START = """
import sys
from importlib import import_module
for name, value in {constants!r}.items():
    module, _, constant = name.rpartition(".")
    setattr(import_module("logitsmith." + module), constant, value)
sys.argv = ["gen", *{arguments!r}]
from logitsmith.cli import main
main()
"""


class GenServe:
    """A server on a free port; a context manager that ends it.

    Args:
        arguments: more flags.
        model: the model; None for the bundled one.
        constants: values of constants of modules, such as shorter limits of time.
        waits: False to return while the model is loaded.
    """

    def __init__(self, *arguments, model=None, constants=None, waits=True):
        words = ["serve", "--port", "0", "-t", "1", *arguments]
        if model is not None:
            words += ["-m", str(model)]
        kept = {key: value for key, value in os.environ.items() if key not in ("GEN_MODEL", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", START.format(constants=constants or {}, arguments=words)],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**kept, "NO_COLOR": "1", "COLUMNS": "200"},
            text=True,
        )
        self.lines = []
        self._is_reading = True
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            first = self.wait_for(r"http://\S+:(\d+)")
            self.port = int(first[1])
            if waits:
                self.wait_for("is served at")
        except BaseException:
            self.process.kill()
            raise

    @property
    def address(self):
        """The beginning of the addresses of its routes."""
        return f"http://127.0.0.1:{self.port}"

    def pause_reading(self):
        """Read no more lines from stderr."""
        self._is_reading = False

    def _read(self):
        for line in self.process.stderr:
            if not self._is_reading:
                return
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self.lines.append(None)
            self._news.notify_all()

    def wait_for(self, pattern, start=0):
        """Wait for a line on stderr that matches. Returns the match."""
        with self._news:
            while True:
                for line in self.lines[start:]:
                    assert line is not None, self.lines
                    if match := re.search(pattern, line):
                        return match
                start = len(self.lines)
                assert self._news.wait(SECONDS_TO_WAIT), f"no line matches {pattern!r}: {self.lines}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGTERM)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stderr.close()

    def wait(self):
        """Wait for the end of the server. Returns its exit code."""
        return self.process.wait(SECONDS_TO_WAIT)

    def stop(self, number=signal.SIGTERM):
        """Send a signal."""
        self.process.send_signal(number)

    def connect(self):
        """Return a connected socket."""
        return socket.create_connection(("127.0.0.1", self.port), SECONDS_TO_WAIT)

    def send(self, data):
        """Send bytes on a new connection. Returns all bytes of the answer, until the server closes it."""
        with self.connect() as client:
            client.sendall(data)
            return read_all(client)

    def request(self, method, path, body=None, **headers):
        """Send a request. Returns the status, the headers, and the body, as JSON if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_TO_WAIT)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.status, answer.headers, json.loads(content) if is_json else content.decode()

    def post(self, path, body, **headers):
        """Send a body. Returns the status and the answer."""
        status, _, answer = self.request("POST", path, body, **headers)
        return status, answer

    def start_stream(self, **fields):
        """Send a request for a long text. Returns the socket, after the first bytes of the answer."""
        client = self.connect()
        client.sendall(
            post_bytes({"prompt": "Once", "max_tokens": 3000, "stream": True, "ignore_eos": True} | fields)
        )
        assert client.recv(1)
        return client

    def counts_of_texts(self):
        """Return how many texts are generated now, and how many wait for a slot."""
        _, _, text = self.request("GET", "/metrics")
        running, waiting = (
            re.search(rf"^gen_texts_{name} (\S+)", text, re.M)[1] for name in ("running", "waiting")
        )
        return int(float(running)), int(float(waiting))

    def wait_until_no_text_runs(self):
        """Wait until requests of earlier tests, whose clients have left, have ended."""
        self.wait_until(lambda: self.counts_of_texts() == (0, 0))

    def wait_until_idle(self):
        """Wait until a request gets a slot immediately, so that earlier requests have left theirs."""
        self.wait_until(lambda: self.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200)

    def assert_all_slots_are_free(self, count):
        """Check that the engine, too, computes no text of earlier requests. ``count``: number of slots."""
        self.wait_until_no_text_runs()
        body = {"prompt": "The sea", "n": count, "max_tokens": 200, "ignore_eos": True, "stream": True}
        status, content = self.post("/v1/completions", body)
        assert status == 200
        assert_texts_run_together(content, count)

    @staticmethod
    def wait_until(is_true):
        """Call a function until it returns true."""
        end = time.monotonic() + SECONDS_TO_WAIT
        while not is_true():
            assert time.monotonic() < end, "what the test waits for does not happen"
            time.sleep(0.05)


def parts_of_stream(text):
    """Return the JSON of each part of a stream of events."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def run_async(coroutine):
    """Return the result of a coroutine. It gets a thread, because Playwright may have a loop in that of tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def post_bytes(body, path="/v1/completions", **headers):
    """Return the bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = {"host": "127.0.0.1", "content-length": str(len(data))} | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + data


def assert_texts_run_together(content, count):
    """Check a stream of ``count`` texts: each begins before another one ends, so that all have slots."""
    choices = [part["choices"][0] for part in parts_of_stream(content)]
    first_end = next(place for place, choice in enumerate(choices) if choice["finish_reason"] is not None)
    assert {choice["index"] for choice in choices[:first_end]} == set(range(count))


def read_answer(client):
    """Return the bytes of one answer with a content-length, on a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    while len(body) < length:
        body += _receive(client)
    return head + b"\r\n\r\n" + body


def read_stream(client):
    """Return the bytes of one answer in chunks, on a connection that stays open."""
    data = b""
    while not data.endswith(b"\r\n0\r\n\r\n"):
        data += _receive(client)
    return data


def _receive(client):
    part = client.recv(65_536)
    assert part, "the server closed the connection"
    return part


def read_all(client):
    """Return all bytes until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
