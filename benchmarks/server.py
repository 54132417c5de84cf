"""`gen batch` compared with llama-server: many concurrent requests, with the same slots, chain, seeds and threads.

python -m benchmarks.server [--rounds 3] [--requests 32] [--slots 8] [--variant NAME ...]

Both are started once. The server answers requests to `/completion` from as many clients as it has slots; `gen
batch` reads lines from a pipe, and gets the lines of a turn when the turn begins. A turn is timed from the first
request to the last answer. Both take turns in each round, and the medians of the rounds' ratios are compared. Each
round has other prompts, so that neither a prompt nor a common beginning is kept from an earlier round.

Then each side gets as many requests as it has slots, and the same prompts again. The second time is measured: both
may keep what they have read.

The processor time of each process is compared, too, per token. It includes no clients, whose processor time is
printed, because they share the cores. Texts do not end by themselves, so both sides generate the same number of
tokens. Under a JSON Schema, texts end when they are complete, and the generated tokens are counted. A side with
shorter answers needs more of its time for prompts, and generates fewer tokens per second, so requests per second
are compared as well. Build the peer with `python -m benchmarks.build_llama_cpp`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter, process_time, sleep
from typing import Any, NamedTuple

from logitsmith.engine import locate

from .build_llama_cpp import program
from .quartiles import quartiles
from .server_requests import VARIANTS, Request, batch_line, make_requests, server_body
from .start import ENVIRONMENT

_CONTEXT, _BATCH, _THREADS = 1024, 512, 2
_START_SECONDS = 60


class Turn(NamedTuple):
    """The outcome of a turn: the token count of each request, the seconds, and the processor times in seconds."""

    tokens: dict[str, int]
    seconds: float
    client_seconds: float
    process_seconds: float

    @property
    def processor_ms(self) -> float:
        """Processor milliseconds per token."""
        return 1e3 * self.process_seconds / sum(self.tokens.values())

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return sum(self.tokens.values()) / self.seconds


class Server:
    """llama-server, and the clients that send requests to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, slots: int) -> None:
        self.process, self.port, self._slots = process, port, slots

    def answer(self, requests: Sequence[Request]) -> Turn:
        """Send all requests, as many at a time as there are slots."""
        waiting: SimpleQueue[Request] = SimpleQueue()
        for request in requests:
            waiting.put(request)
        tokens: dict[str, int] = {}
        began, client_began, process_began = perf_counter(), process_time(), processor_seconds(self.process)
        with ThreadPoolExecutor(self._slots) as clients:
            for client in [clients.submit(self._ask, waiting, tokens) for _ in range(self._slots)]:
                client.result()
        seconds, client_seconds = perf_counter() - began, process_time() - client_began
        return Turn(tokens, seconds, client_seconds, processor_seconds(self.process) - process_began)

    def _ask(self, waiting: SimpleQueue[Request], tokens: dict[str, int]) -> None:
        """Send one request after another over one connection."""
        connection = HTTPConnection("127.0.0.1", self.port)
        try:
            while True:
                request = waiting.get_nowait()
                connection.request(
                    "POST", "/completion", server_body(request), {"Content-Type": "application/json"}
                )
                answer = json.loads(connection.getresponse().read())
                tokens[request.id] = answer["tokens_predicted"]
        except Empty:
            pass
        finally:
            connection.close()


def free_port() -> int:
    """Return a port that no program listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def running_server(model: str, slots: int, *flags: str) -> Iterator[Server]:
    """Run llama-server while inside. ``flags``: further flags, also in place of those that are set here."""
    port = free_port()
    sizes = ("-np", slots, "-c", slots * _CONTEXT, "-b", _BATCH, "-ub", _BATCH, "-t", _THREADS)
    place = ("--host", "127.0.0.1", "--port", port, "--no-ui")
    command = (program("llama-server"), "-m", model, *place, *sizes, *flags)
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(port, process)
            yield Server(process, port, slots)
        finally:
            process.terminate()


def wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    """Wait until a server is ready. Ends the process with a message if the server ends."""
    for _ in range(10 * _START_SECONDS):
        connection = HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        if process.poll() is not None:
            break
        sleep(0.1)
    raise SystemExit("the server did not start")


class Batch:
    """`gen batch`, which reads requests from one pipe and writes results to another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def answer(self, requests: Sequence[Request]) -> Turn:
        """Send all lines, and wait for as many results."""
        lines = b"".join(map(batch_line, requests))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        began, client_began, process_began = perf_counter(), process_time(), processor_seconds(self._process)
        self._process.stdin.write(lines)
        self._process.stdin.flush()
        results = [json.loads(self._process.stdout.readline()) for _ in requests]
        seconds, client_seconds = perf_counter() - began, process_time() - client_began
        tokens = {}
        for result in results:
            if result["error"]:
                raise SystemExit(f"gen batch: {result['error']['message']}")
            tokens[result["custom_id"]] = result["response"]["body"]["usage"]["completion_tokens"]
        return Turn(tokens, seconds, client_seconds, processor_seconds(self._process) - process_began)


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time that a process has used so far, with all its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_batch(model: str, slots: int, *flags: str) -> Iterator[Batch]:
    """Run `gen batch` while inside."""
    sizes = ("-np", slots, "-c", _CONTEXT, "-b", _BATCH, "-t", _THREADS)
    command = (sys.executable, "-m", "logitsmith.cli", "batch", "-", "-m", model, *sizes, *flags)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, **pipes) as process:
        yield Batch(process)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="gen batch against llama-server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--variant", nargs="*", choices=VARIANTS, default=VARIANTS)
    options = parser.parse_args()
    model = str(locate()[0])
    numbers = count()
    with running_server(model, options.slots) as server, running_batch(model, options.slots) as batch:
        print(f"{options.slots} slots, {options.requests} requests, {options.rounds} rounds, {_THREADS} threads")
        print(
            f"{'':32} {'tokens/s':>16} {'against llama-server':>22} {'requests/s ratio':>17}"
            f" {'tokens':>13} {'clients, % of a core':>21} {'processor ms a token':>21}"
        )
        for runner in (server, batch):
            runner.answer(make_requests("short", next(numbers), options.slots))
        for variant in options.variant:
            cold: dict[str, list[Turn]] = {"server": [], "batch": []}
            warm: dict[str, list[Turn]] = {"server": [], "batch": []}
            for number in (next(numbers) for _ in range(options.rounds)):
                requests = make_requests(variant, number, options.requests)
                first = make_requests(variant, next(numbers), 2 * options.slots)[: options.slots]
                again = [request._replace(id=f"{request.id} again") for request in first]
                for name in list(cold)[:: 1 if number % 2 else -1]:
                    runner = server if name == "server" else batch
                    cold[name].append(runner.answer(requests))
                    runner.answer(first)
                    warm[name].append(runner.answer(again))
            _print(variant, cold["server"], cold["batch"])
            _print(f"{variant}, warm", warm["server"], warm["batch"])


def _print(variant: str, server: Sequence[Turn], batch: Sequence[Turn]) -> None:
    if "schema" not in variant and any(a.tokens != b.tokens for a, b in zip(server, batch, strict=True)):
        raise SystemExit(f"{variant}: the answers have not the same lengths")
    ratios = [own.speed / peer.speed for own, peer in zip(batch, server, strict=True)]
    low, middle, high = quartiles(ratios)
    request_ratio = statistics.median(peer.seconds / own.seconds for own, peer in zip(batch, server, strict=True))
    speeds, made, clients, processor = (
        [statistics.median(values) for values in zip(*map(measure, zip(server, batch, strict=True)), strict=True)]
        for measure in (
            lambda pair: [turn.speed for turn in pair],
            lambda pair: [sum(turn.tokens.values()) for turn in pair],
            lambda pair: [100 * turn.client_seconds / turn.seconds for turn in pair],
            lambda pair: [turn.processor_ms for turn in pair],
        )
    )
    print(
        f"{variant:32} {speeds[1]:7.0f} / {speeds[0]:6.0f} {middle:7.3f} ({low:.3f}, {high:.3f})"
        f" {request_ratio:17.3f} {made[1]:6.0f}/{made[0]:6.0f} {clients[1]:10.1f} / {clients[0]:.1f}"
        f" {processor[1]:14.2f} / {processor[0]:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
