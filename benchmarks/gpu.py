"""`gen` on a GPU, compared with llama.cpp's programs on the same GPU: one stream, a batch, and a server.

PYTHONPATH=.venv/gpu/python python -m benchmarks.gpu [--size 0.5B] [--model FILE] [--seconds 250] [--tokens 272]
[--clients 1 8 32 64] [FLAG …]

`python -m benchmarks.build_llama_cpp --gpu` writes the folder on PYTHONPATH: a llama.cpp for the GPU, beside its
llama-completion and llama-server. Without it, the programs are those for the CPU. Further flags, such as `-ngl 0`,
are given to all programs. The model has random weights and Qwen 2's 151,936 tokens. `0.5B` is as large as the
smallest Qwen 2; `small` is for trying this script, also without a GPU. --model measures a file.

All programs take turns, and the table has the medians of the rounds. A round of one stream runs each command with
16 tokens and with --tokens; the time of a token comes from the difference. In a round of the servers, each is
started alone, so that a small card holds it. Clients read streams of `/v1/completions`; prompts with a common
beginning are sent by the most clients at once, and `gen batch` gets as many requests. Another round begins only if
there is probably time for it, with half of --seconds for each part.

On CPUs with AMX, texts are equal only with LLAMA_ARG_REPACK=0: `gen` leaves AMX's kernels out.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import gguf
from logitsmith.common.machine import physical_cores

from tests.engine.big_model import write_model

from .build_llama_cpp import large_vocabulary, program
from .completion import timed_run
from .serve import request_body, running_serve, take_turn
from .server import running_batch, running_server
from .server_requests import make_requests
from .start import ENVIRONMENT, GEN

_SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 64, "heads": 2, "layers": 2},
    "0.5B": {"width": 896, "heads": 14, "kv_heads": 2, "layers": 24, "feed_forward": 4864},
}
_PROMPT = "The sea was calm and the ships lay in the harbour, when"
_COMMON = ("-s", "7", "-c", "2048")
_SHORT_TOKENS = 16
_GRAMMAR = ("--grammar", r'root ::= ("{\"name\": \"" [a-z]{3,12} "\", \"age\": " [0-9]{1,2} "},\n")+')


_RUN = ("run", _PROMPT, "-P", "llama-cpp", "--ignore-eos")
_TEXTS = 8
_ARMS = ("--arm", "a=ignore_eos > top_k40 > temp0.8", "--arm", "b=ignore_eos > min_p0.05 > temp0.8")
_COMPARE = ("compare", _PROMPT, *_ARMS, "--seeds", str(_TEXTS // 2), "--along", "none")


class Stream(NamedTuple):
    """A row of the table: further flags of llama-completion, and the words of `gen`, which writes some texts."""

    title: str
    peer: tuple[str, ...] = ()
    own: tuple[str, ...] = _RUN
    texts: int = 1


def _streams(model: str) -> tuple[Stream, ...]:
    return (
        Stream("text"),
        Stream("text, where llama.cpp samples on the GPU (`-bs`)", peer=("-bs",)),
        Stream("jsonl with 5 logprobs, against text", own=(*_RUN, "--format", "jsonl", "--logprobs", "5")),
        Stream("text under a grammar", _GRAMMAR, (*_RUN, *_GRAMMAR)),
        Stream("text under a grammar with `--no-jump`", _GRAMMAR, (*_RUN, *_GRAMMAR, "--no-jump")),
        Stream("text with the model as its own draft (`-md`), against text", own=(*_RUN, "-md", model)),
        Stream(f"`--samples {_TEXTS}`, against text", own=(*_RUN, "--samples", str(_TEXTS)), texts=_TEXTS),
        Stream(f"`gen compare`, {_TEXTS} texts, against text", own=_COMPARE, texts=_TEXTS),
    )


class Table:
    """Pairs of values of llama.cpp and `gen`, by row."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[float, float]]] = {}
        self._equal_texts: dict[str, list[bool]] = {}

    def add(self, row: str, peer: float, own: float) -> None:
        """Add the values of a round, and print them."""
        self._rows.setdefault(row, []).append((peer, own))
        print(f"{row}: {peer:.2f}, {own:.2f}", flush=True)

    def add_texts(self, peer: str, are_equal: Sequence[bool]) -> None:
        """Add which of `gen`'s texts are those of a program of llama.cpp."""
        self._equal_texts.setdefault(peer, []).extend(are_equal)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table of medians, and what was found about texts."""
        yield "| | llama.cpp | `gen` | `gen` / llama.cpp |"
        yield "|---|---:|---:|---:|"
        for row, pairs in self._rows.items():
            peer, own = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratio = statistics.median(own / peer for peer, own in pairs)
            yield f"| {row} | {_number(peer)} | {_number(own)} | {ratio:.2f} |"
        yield ""
        for peer, are_equal in self._equal_texts.items():
            yield f"{sum(are_equal)} of {len(are_equal)} texts are {peer}'s."


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="gen against llama.cpp on a GPU", allow_abbrev=False)
    parser.add_argument("--size", choices=_SIZES, default="0.5B")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=250)
    parser.add_argument("--tokens", type=int, default=272)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 64])
    options, further_flags = parser.parse_known_args()
    flags = ("-t", str(physical_cores()), *further_flags)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        model = str(options.model or _write_model(Path(folder), options.size))
        description = _describe(model, flags)
        failure = None
        try:
            _compare_streams(model, flags, options.tokens, options.seconds / 2, table)
            _compare_servers(model, flags, options.clients, options.seconds / 2, table)
        except subprocess.CalledProcessError as error:
            failure = f"{error}\n{(error.stderr or b'').decode(errors='replace')}"
        print("", description, "", *table.lines(), sep="\n")
        if failure is not None:
            sys.exit(failure)


def _write_model(folder: Path, size: str) -> Path:
    fields = gguf.GGUFReader(large_vocabulary()).fields

    def add_tokenizer(writer: gguf.GGUFWriter) -> None:
        for name, field in fields.items():
            if name.startswith("tokenizer."):
                writer.add_key_value(name, field.contents(), field.types[0], sub_type=field.types[-1])

    path, shape = folder / f"random-{size}.gguf", _SIZES[size]
    vocabulary = len(fields["tokenizer.ggml.tokens"].data)
    write_model(path, vocabulary, scale=2.8 * shape["width"] ** -0.5, add_tokenizer=add_tokenizer, **shape)
    return path


def _describe(model: str, flags: Sequence[str]) -> str:
    """Return what computes what: the GPUs of the loaded model, the model, and the versions."""
    start = json.loads(_gen("run", "Hi", "-m", model, "-n", "1", "--format", "jsonl", *flags).splitlines()[0])
    device, names = start["device"], {found["name"] for found in start["device"]["devices"]}
    listed = [line.strip() for line in _gen("--list-devices").splitlines()]
    gpus = [re.sub(r" \([^()]*\)$", "", line) for line in listed if line.partition(":")[0] in names]
    version = subprocess.run([program("llama-server"), "--version"], capture_output=True, text=True, check=True)
    versions = [f"{name} {number}" for name, number in start["versions"].items()]
    peer = (version.stderr + version.stdout).partition("version: ")[2].splitlines()[0]
    layers = f"{device['layers']} of {device['of']} layers of {Path(model).name} on {', '.join(gpus) or 'the CPU'}"
    return "; ".join([layers, *versions, f"llama.cpp {peer}"])


def _gen(*words: str) -> str:
    return subprocess.run([*GEN, *words], stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT).stdout


def _rounds(seconds: float) -> Iterator[int]:
    """Yield numbers, the first one always, until another round would probably end too late."""
    began = perf_counter()
    for number in count():
        yield number
        used = perf_counter() - began
        if used * (number + 2) / (number + 1) > seconds:
            return


class _Writing(NamedTuple):
    """The seconds of a start with its first tokens, the milliseconds of each later one, and the text."""

    start_seconds: float
    token_ms: float
    text: str


def _compare_streams(model: str, flags: Sequence[str], tokens: int, seconds: float, table: Table) -> None:
    llama_completion = (str(program("llama-completion")), "-p", _PROMPT, "-no-cnv", "--no-display-prompt")
    programs = {"peer": (*llama_completion, "--ignore-eos"), "own": GEN}
    streams = _streams(model)
    commands = dict.fromkeys((side, getattr(stream, side)) for stream in streams for side in programs)
    for number in _rounds(seconds):
        writings = {
            (side, words): _write((*programs[side], *words, "-m", model, *_COMMON, *flags), tokens)
            for side, words in list(commands)[:: -1 if number % 2 else 1]
        }
        peer, own = writings["peer", ()], writings["own", _RUN]
        table.add("start and 16 tokens, s", peer.start_seconds, own.start_seconds)
        for stream in streams:
            own_ms = writings["own", stream.own].token_ms / stream.texts
            table.add(f"{stream.title}, ms a token", writings["peer", stream.peer].token_ms, own_ms)
        table.add_texts("llama-completion", [peer.text == own.text])


def _write(command: Sequence[str], tokens: int) -> _Writing:
    short, long = (timed_run(command, length) for length in (_SHORT_TOKENS, tokens))
    token_ms = 1e3 * (long.seconds - short.seconds) / (tokens - _SHORT_TOKENS)
    return _Writing(short.seconds, token_ms, long.output.strip())


def _compare_servers(
    model: str, flags: Sequence[str], clients: Sequence[int], seconds: float, table: Table
) -> None:
    slots = max(clients)
    loads = [*(("short", count) for count in clients), ("shared beginning", slots)]
    programs = {"peer": running_server, "own": running_serve}
    for number in _rounds(seconds):
        first_number = number * (len(loads) + 2)
        requests = make_requests("short", first_number + len(loads), 2 * slots)
        turns, speeds = {}, {}
        for side in list(programs)[:: -1 if number % 2 else 1]:
            with programs[side](model, slots, *flags) as server:
                take_turn(server.port, _bodies("short", first_number + len(loads) + 1, slots), slots)
                for place, (kind, client_count) in enumerate(loads, first_number):
                    bodies = _bodies(kind, place, 2 * client_count)
                    turns[side, kind, client_count] = take_turn(server.port, bodies, client_count)
                if side == "peer":
                    speeds[side] = server.answer(requests).speed
        with running_batch(model, slots, *flags) as batch:
            batch.answer(make_requests("short", first_number + len(loads) + 1, slots))
            speeds["own"] = batch.answer(requests).speed
        for kind, client_count in loads:
            pair = [turns[side, kind, client_count] for side in programs]
            row = f"server, {client_count} clients{'' if kind == 'short' else ' with a ' + kind}"
            table.add(f"{row}, tokens/s", *(turn.speed for turn in pair))
            waits = [1e3 * turn.first_seconds(99) for turn in pair]
            table.add(f"{row}, 99 % of the first tokens within, ms", *waits)
            if client_count == 1 and kind == "short":
                texts = ([answer.text for answer in turn.answers] for turn in pair)
                table.add_texts("llama-server", [a == b for a, b in zip(*texts, strict=True)])
        table.add(f"`gen batch`, {slots} at a time, tokens/s", speeds["peer"], speeds["own"])


def _bodies(kind: str, number: int, requests: int) -> list[dict[str, Any]]:
    return [
        request_body(request, reuses_answers=True) for request in make_requests(kind, number, max(8, requests))
    ]


def _number(value: float) -> str:
    """Return a number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
