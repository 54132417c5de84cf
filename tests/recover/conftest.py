"""Fixtures: a loaded model, a real server, and an API in a thread whose responses a test chooses."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from logitsmith.engine import Model, locate
from logitsmith.recover import LlamaServerEndpoint

from .serving import start, stop


@pytest.fixture(scope="session")
def model():
    with Model.load(locate()[0], n_ctx=1024) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def server():
    """The URL of llama.cpp's server."""
    process, url = start()
    yield url
    stop(process)


@pytest.fixture
def llama(server):
    made = []

    def build(window=20, **rest):
        made.append(LlamaServerEndpoint(server, window, **rest))
        return made[-1]

    yield build
    for endpoint in made:
        endpoint.close()


@contextmanager
def api(answer):
    """An API at a URL; ``answer(path, body, headers)`` returns status, body (an object, or bytes) and headers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the body is a second write, which would wait 40 ms for an answer

        def do_POST(self):
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body, headers = answer(self.path, json.loads(data) if data else None, self.headers)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(content)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass

    with Quiet(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()
