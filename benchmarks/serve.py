"""`gen serve` compared with llama-server: clients that read streams, with equal slots, chains, seeds and threads.

python -m benchmarks.serve [--rounds 3] [--slots 8] [--variant NAME ...]

Both servers run at the same time, and take turns in each round. As many clients as the variant says send requests
to `/v1/completions`, each one after the other, and read the streams. Each request has a connection of its own,
since llama-server ends the connection with the stream. Texts do not end by themselves, so both sides generate the
same number of tokens. The table has medians of the rounds: tokens per second, processor time of the server per
token (the clients share the cores, but are not counted), and the time to the first token (median and 99th
percentile).

- `1`, `8`, `32`: this many clients with short prompts. As llama-server does, `gen serve` continues after all
  tokens that its slots hold (`cache_prompt`).
- `conversation`: eight turns of a conversation, each prompt with all texts before it; `4 conversations`: four side
  by side.
- `exact 1` and so on: the same with the defaults of `gen serve`, which gives the tokens of `gen batch`: answers
  are read again as parts of the next prompt, and a beginning of less than 64 tokens is not reused.
- `vocabulary`: 32 clients and slots on a model of random weights with 151,936 tokens, whose layers are narrow.
  Much of the time is what a GPU does not do either.
- `http`: requests per second against `gen batch` for the same requests, which needs no llama-server. Answers come
  whole, as those of `gen batch` do.

Build the peer with `python -m benchmarks.build_llama_cpp`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from logitsmith.engine import locate

from tests.engine.big_model import write_model

from .server import Server, free_port, processor_seconds, running_batch, running_server, wait_for
from .server_requests import SERVERS_CHAIN, Request, make_requests
from .start import ENVIRONMENT

_CONTEXT, _BATCH, _THREADS = 1024, 512, 2
_LOADS = ("1", "8", "32", "conversation", "4 conversations", "vocabulary")
_VARIANTS = (*_LOADS, *(f"exact {load}" for load in _LOADS), "http")
_TURNS = 8


class Answer(NamedTuple):
    """One streamed answer: its text, the number of its tokens, and the seconds to the first one."""

    text: str
    tokens: int
    first_seconds: float


class Turn(NamedTuple):
    """The outcome of the requests of one turn."""

    seconds: float
    answers: list[Answer]
    processor_seconds: float = 0.0  # of the server

    @property
    def processor_ms(self) -> float:
        """Processor milliseconds of the server per token."""
        return 1e3 * self.processor_seconds / sum(answer.tokens for answer in self.answers)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return sum(answer.tokens for answer in self.answers) / self.seconds

    def first_seconds(self, percent: int) -> float:
        """Return a percentile of the time to the first token."""
        ordered = sorted(answer.first_seconds for answer in self.answers)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


@contextmanager
def running_serve(model: str, slots: int, *flags: str) -> Iterator[Server]:
    """Run `gen serve` while inside."""
    port = free_port()
    sizes = ("--slots", slots, "-c", _CONTEXT, "-b", _BATCH, "-t", _THREADS, "--port", port)
    command = (sys.executable, "-m", "logitsmith.cli", "serve", "-m", model, *sizes, *flags)
    with subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            yield Server(process, port, slots)
        finally:
            process.terminate()


def ask(port: int, body: dict[str, Any], *, has_stream: bool = True) -> Answer:
    """Send a request, and read its answer."""
    began = perf_counter()
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": has_stream}).encode(), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(response.read().decode())
    if not has_stream:
        text = json.load(response)["choices"][0]["text"]
        connection.close()
        return Answer(text, body["max_tokens"], perf_counter() - began)
    first, parts = 0.0, []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        for choice in chunk.get("choices", ()):
            if choice.get("text"):
                first = first or perf_counter() - began
                parts.append(choice["text"])
    connection.close()
    return Answer("".join(parts), body["max_tokens"], first)


def take_turn(port: int, bodies: Sequence[dict[str, Any]], clients: int, *, has_streams: bool = True) -> Turn:
    """Send all requests, from as many clients at a time."""
    waiting: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for body in bodies:
        waiting.put(body)
    answers: list[Answer] = []

    def run() -> None:
        with suppress(Empty):
            while True:
                answers.append(ask(port, waiting.get_nowait(), has_stream=has_streams))

    began = perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        for client in [pool.submit(run) for _ in range(clients)]:
            client.result()
    return Turn(perf_counter() - began, answers)


def converse(port: int, number: int, conversations: int, reuses_answers: bool) -> Turn:
    """Hold conversations side by side: each prompt has all the texts before it."""
    answers: list[Answer] = []

    def talk(index: int) -> None:
        text = f"Conversation {number}.{index} between a keeper of a lighthouse and a guest.\n"
        for turn in range(_TURNS):
            text += f"Guest: What about the {('sea', 'ship', 'storm', 'light')[turn % 4]}?\nKeeper:"
            body = request_body(Request("", text, turn, 24, False), reuses_answers)
            answer = ask(port, body)
            answers.append(answer)
            text += answer.text + "\n"

    began = perf_counter()
    with ThreadPoolExecutor(conversations) as pool:
        for conversation in [pool.submit(talk, index) for index in range(conversations)]:
            conversation.result()
    return Turn(perf_counter() - began, answers)


def request_body(request: Request, reuses_answers: bool) -> dict[str, Any]:
    """Return the body of a request to either server."""
    return {
        "cache_prompt": reuses_answers,
        "prompt": request.prompt,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "ignore_eos": True,
        **SERVERS_CHAIN,
    }


def _requests(clients: int, number: int, *, has_words: bool) -> list[Request]:
    requests = make_requests("short", number, max(8, 2 * clients))
    if has_words:
        return requests
    return [
        request._replace(prompt=[(7919 * number + 31 * index + 977 * place) % 30_000 for place in range(20)])
        for index, request in enumerate(requests)
    ]


def compare(variant: str, model: str, slots: int, rounds: int) -> None:
    """Print how a variant compares."""
    is_exact, load = variant.startswith("exact "), variant.removeprefix("exact ")
    pairs: list[tuple[Turn, Turn]] = []
    with running_server(model, slots) as server, running_serve(model, slots) as serve:
        for number in range(rounds + 1):  # the first round warms up
            turns = {
                name: _run(load, side, number, reuses_answers=name == "peer" or not is_exact)
                for name, side in _in_turn(number, server, serve)
            }
            pairs.append((turns["own"], turns["peer"]))
    pairs = pairs[1:]
    speed = statistics.median(own.speed / peer.speed for own, peer in pairs)
    speeds = [statistics.median(turn.speed for turn in side) for side in zip(*pairs, strict=True)]
    firsts = [
        f"{statistics.median(1e3 * own.first_seconds(percent) for own, _ in pairs):5.0f} /"
        f"{statistics.median(1e3 * peer.first_seconds(percent) for _, peer in pairs):5.0f}"
        for percent in (50, 99)
    ]
    processor = [statistics.median(turn.processor_ms for turn in side) for side in zip(*pairs, strict=True)]
    tokens = [sum(answer.tokens for answer in turn.answers) for turn in pairs[0]]
    print(
        f"{variant:22} {speeds[0]:7.0f} /{speeds[1]:6.0f} {speed:8.3f}   {processor[0]:6.2f} /{processor[1]:5.2f}"
        f"   {firsts[0]}   {firsts[1]}   {tokens[0]} /{tokens[1]}",
        flush=True,
    )


def _run(load: str, server: Server, number: int, reuses_answers: bool) -> Turn:
    before = processor_seconds(server.process)
    if "conversation" in load:
        conversations = int(load.partition(" ")[0]) if load[0].isdigit() else 1
        turn = converse(server.port, number, conversations, reuses_answers)
    else:
        clients = 32 if load == "vocabulary" else int(load)
        requests = _requests(clients, number, has_words=load != "vocabulary")
        turn = take_turn(server.port, [request_body(request, reuses_answers) for request in requests], clients)
    return turn._replace(processor_seconds=processor_seconds(server.process) - before)


def _in_turn(number: int, peer: Server, own: Server) -> list[tuple[str, Server]]:
    return [("peer", peer), ("own", own)][:: 1 if number % 2 else -1]


def compare_with_batch(model: str, slots: int, rounds: int) -> None:
    """Print the requests per second of `gen serve`, divided by those of `gen batch` for the same requests."""
    ratios = []
    with running_batch(model, slots) as batch, running_serve(model, slots) as serve:
        for number in range(rounds + 1):
            requests = make_requests("short", number, 4 * slots)
            seconds = {}
            for name in ("batch", "serve")[:: 1 if number % 2 else -1]:
                if name == "batch":
                    seconds[name] = batch.answer(requests).seconds
                else:
                    bodies = [request_body(request, False) for request in requests]
                    seconds[name] = take_turn(serve.port, bodies, slots, has_streams=False).seconds
            ratios.append(seconds["batch"] / seconds["serve"])
    print(f"http: {statistics.median(ratios[1:]):.3f} of gen batch's requests per second", flush=True)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="gen serve against llama-server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--variant", nargs="*", choices=_VARIANTS, default=_VARIANTS)
    options = parser.parse_args()
    columns = (
        f"{'tokens/s':>15} {'ratio':>8} {'processor ms':>15} {'first ms, median':>15} {'99 %':>10} {'tokens':>12}"
    )
    print(f"{'variant':22} {columns}")
    with tempfile.TemporaryDirectory() as folder:
        for variant in options.variant:
            if variant == "http":
                compare_with_batch(str(locate()[0]), options.slots, options.rounds)
            elif variant.endswith("vocabulary"):
                path = Path(folder, "random.gguf")
                write_model(path, 151_936, 32, 2, 2, False, 32**-0.5, 0)
                compare(variant, str(path), 32, options.rounds)
            else:
                compare(variant, str(locate()[0]), options.slots, options.rounds)


if __name__ == "__main__":
    main()
