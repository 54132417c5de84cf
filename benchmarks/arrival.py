"""The time from the last byte of a request until the engine gets it, in `gen serve` and in a bare application.

python -m benchmarks.arrival [--requests 100] [--variant NAME ...]

Requests are sent one after the other over one connection, and each asks for one token. The peer is a bare
application of Starlette on the same HTTP server, uvicorn: it parses the JSON and tokenizes the texts with
llama-cpp-python. Both take turns. Medians and quartiles are printed in milliseconds, of the clock and of processor
time. The ratio is of processor time, which depends less on other programs. The model is the bundled one with a
single layer, because the time before the model is measured.

- `chat`: a question in `/v1/chat/completions`.
- `sillytavern koboldcpp`, `sillytavern llamacpp`: what SillyTavern sends to these programs, almost 70 fields.
- `long prompt`: 2,000 tokens in `/v1/completions`.
- `schema`: a JSON Schema in `/v1/chat/completions`, the same in each request.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

import llama_cpp
import uvicorn
from logitsmith.cli import main as run_gen
from logitsmith.engine import BatchEngine, GenerationRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.engine.pruned_model import write_pruned_model
from tests.serve.sillytavern_bodies import recorded_bodies

from .quartiles import quartiles
from .server import free_port, wait_for
from .server_requests import SCHEMA
from .start import ENVIRONMENT

_CONTEXT = 4096
_WARM_UP_REQUESTS = 20
# 2,000 tokens of the bundled model.
_LONG_TEXT = "The old keeper of the lighthouse wrote of the weather. " * 181


class Body(NamedTuple):
    """The path and the fields of a request; the text that differs in each request is added to ``prompt``."""

    path: str
    fields: dict[str, Any]

    def numbered(self, number: int) -> bytes:
        """Return the JSON of one request."""
        text = f" Question {number}: what is salt?"
        if "messages" in self.fields:
            return json.dumps(self.fields | {"messages": [{"role": "user", "content": text}]}).encode()
        return json.dumps(self.fields | {"prompt": self.fields["prompt"] + text}).encode()


def make_bodies() -> dict[str, Body]:
    """Return a request for each variant."""
    bodies = recorded_bodies()
    length = {"max_tokens": 1, "seed": 1}
    format_ = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    chat, text = "/v1/chat/completions", "/v1/completions"
    return {
        "chat": Body(chat, {"messages": [], "temperature": 0.7, **length}),
        "sillytavern koboldcpp": Body(text, _one_token(bodies["koboldcpp", "usual"])),
        "sillytavern llamacpp": Body("/completion", _one_token(bodies["llamacpp", "usual"])),
        "long prompt": Body(text, {"prompt": _LONG_TEXT, "temperature": 0.7, **length}),
        "schema": Body(chat, {"messages": [], "response_format": format_, **length}),
    }


def _one_token(fields: dict[str, Any]) -> dict[str, Any]:
    names = ("max_tokens", "max_new_tokens", "max_length", "n_predict", "num_predict")
    return fields | {name: 1 for name in names if name in fields}


class Times(NamedTuple):
    """Milliseconds of the clock, and of the processors for this process."""

    clock: float
    processor: float

    @classmethod
    def now(cls) -> Times:
        return cls(1e3 * perf_counter(), 1e3 * process_time())


def write_times() -> Callable[[], None]:
    """Return a function to be called when a request reaches the engine; it writes the times to stdout."""
    began = Times(0, 0)
    receive = H11Protocol.data_received

    def data_received(self: H11Protocol, data: bytes) -> None:
        nonlocal began
        began = Times.now()
        receive(self, data)

    H11Protocol.data_received = data_received  # type: ignore[method-assign]

    def write() -> None:
        print(*(end - start for start, end in zip(began, Times.now(), strict=True)), flush=True)

    return write


def run_gen_serve(model: str, port: int) -> None:
    """Run `gen serve`."""
    write, add = write_times(), BatchEngine.add

    def timed_add(self: BatchEngine, request: GenerationRequest) -> None:
        write()
        add(self, request)

    BatchEngine.add = timed_add  # type: ignore[method-assign]
    sys.argv = ["gen", "serve", "-m", model, "--port", str(port), "-c", str(_CONTEXT), "-t", "1"]
    run_gen()


def run_peer(model: str, port: int) -> None:
    """Run an application that parses the JSON of a request and tokenizes its texts."""
    write, vocabulary = write_times(), llama_cpp.Llama(model, vocab_only=True, verbose=False)

    async def answer(request: Request) -> Response:
        fields = json.loads(await request.body())
        texts = [fields["prompt"]] if "prompt" in fields else [each["content"] for each in fields["messages"]]
        ids = [vocabulary.tokenize(text.encode()) for text in texts]
        write()
        return JSONResponse({"tokens": sum(map(len, ids))})

    async def health(_: Request) -> Response:
        return JSONResponse({})

    paths = {body.path for body in make_bodies().values()}
    routes = [Route("/health", health), *(Route(path, answer, methods=["POST"]) for path in paths)]
    uvicorn.run(
        Starlette(routes=routes), port=port, http=H11Protocol, timeout_keep_alive=600, log_level="critical"
    )


SIDES = {"gen": run_gen_serve, "peer": run_peer}


class Server:
    """A server whose process writes a line with the times of each request."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process, self._connection = process, HTTPConnection("127.0.0.1", port)

    def ask(self, path: str, body: bytes) -> Times:
        """Send a request, and read the answer; return the times until the engine got the request."""
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(answer.decode())
        assert self._process.stdout is not None
        return Times(*map(float, self._process.stdout.readline().split()))


@contextmanager
def running(side: str, model: str) -> Iterator[Server]:
    """Run one of the servers while inside."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.arrival", "--serve", side, model, str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        try:
            wait_for(port, process)
            yield Server(process, port)
        finally:
            process.terminate()


def main() -> None:
    """Measure, and print the table."""
    bodies = make_bodies()
    parser = argparse.ArgumentParser(description="the time until the engine gets a request")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--variant", nargs="*", choices=bodies, default=list(bodies))
    parser.add_argument("--serve", nargs=3, metavar=("SIDE", "MODEL", "PORT"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.serve:
        side, model, port = options.serve
        SIDES[side](model, int(port))
        return
    times = "median  quartiles     peer"
    print(f"{'variant':22} {'ms: ' + times:>30}   {'processor ms: ' + times:>40} {'ratio':>6}")
    with TemporaryDirectory() as folder:
        model = Path(folder, "small.gguf")
        write_pruned_model(model, layers=[0], tokens=None)
        with running("gen", str(model)) as gen, running("peer", str(model)) as peer:
            for variant in options.variant:
                compare(variant, bodies[variant], gen, peer, options.requests)


def compare(variant: str, body: Body, gen: Server, peer: Server, request_count: int) -> None:
    """Print the times of a variant."""
    times = []
    for number in range(_WARM_UP_REQUESTS + request_count):
        data = body.numbered(number)
        times.append((gen.ask(body.path, data), peer.ask(body.path, data)))
    line = f"{variant:22}"
    for name in Times._fields:
        pairs = [(getattr(own, name), getattr(other, name)) for own, other in times[_WARM_UP_REQUESTS:]]
        low, median, high = quartiles([own for own, _ in pairs])
        peers_median = statistics.median(other for _, other in pairs)
        line += f"{median:{8 if name == 'clock' else 20}.2f} {low:7.2f} - {high:5.2f} {peers_median:6.2f}"
    print(line, f"{statistics.median(own / other for own, other in pairs):6.1f}", flush=True)


if __name__ == "__main__":
    main()
