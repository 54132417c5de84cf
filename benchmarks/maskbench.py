"""JSON Schemas of MaskBench: which ones gen takes, whether its masks are right, and what they cost, beside llguidance.

python -m benchmarks.maskbench PATH [--only TEXT] [--limit N] [--jobs N] [--refusals] [--json FILE]

PATH is a folder of MaskBench's files, or a .jsonl.gz with an ``id``, a ``schema`` and ``tests`` in each line. A schema
passes if it compiles, all its valid instances are accepted, and no invalid one is. An instance is the text that
json.dumps writes. It goes through the masks token by token, and once more in the spelling of the grammar (`1e1` as
`10`) if it was not accepted. llguidance gets the same schema, tokens and style, with its own limits and slices, and is
asked for complete masks, without forced tokens, as gen asks.
Each schema is compiled and followed in another process, which has 60 s of processor time and 4 GB of memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import re
import resource
import signal
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from logitsmith.engine import Model, Vocabulary, locate
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.json_schema import ONE_LINE_STYLE
from logitsmith.grammars.json_text import read_json_text
from logitsmith.grammars.tokenizer import tokenizer_of
from numpy.typing import NDArray

VERDICTS = ("passes", "refused", "wrong acceptance", "wrong refusal", "too slow", "crash")
CPU_SECONDS = 60
MAX_WAIT_SECONDS = 10 * CPU_SECONDS  # on a machine so busy that the process gets no processor time
MAX_MEMORY_BYTES = 4 << 30


@dataclass(frozen=True)
class Result:
    """What became of a schema. ``message`` says why it does not pass."""

    verdict: str
    message: str = ""
    compile_seconds: float = 0.0
    mask_seconds: list[float] = field(default_factory=list)


class _State(Protocol):
    """The state of a text: a `GrammarState`, or `_PeerState`."""

    def mask(self) -> NDArray[np.bool_]: ...
    def accept_prefix(self, tokens: list[int]) -> int: ...
    @property
    def is_complete(self) -> bool: ...


class _PeerState:
    """A text that llguidance alone follows. Its masks are unpacked, like gen's."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size
        self._words = np.zeros((size + 31) // 32, dtype=np.uint32)

    def mask(self) -> NDArray[np.bool_]:
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())
        bits = np.unpackbits(self._words.view(np.uint8), count=self._size, bitorder="little")
        return bits.view(np.bool_)

    def accept_prefix(self, tokens: list[int]) -> int:
        return self._matcher.try_consume_tokens(tokens)

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_accepting()


Compile = Callable[[str], Callable[[], _State]]


def _compilers(vocabulary: Vocabulary) -> dict[str, Compile]:
    """Return a function for each side that compiles a schema, and returns what starts a text."""
    peer_tokenizer = tokenizer_of(vocabulary).with_slices(LLTokenizer.general_slices())

    def own(source: str) -> Callable[[], _State]:
        return compile_grammar(source, vocabulary, kind="json_schema").start

    def peer(source: str) -> Callable[[], _State]:
        schema = json.loads(source)
        keywords = schema if isinstance(schema, dict) else {"allOf": [schema]}
        styled = json.dumps({**keywords, "x-guidance": ONE_LINE_STYLE | keywords.get("x-guidance", {})})
        matcher = LLMatcher(
            peer_tokenizer, f'start: %json {styled}\n%llguidance {{"no_forcing": true}}\n', log_level=0
        )
        if matcher.is_error():
            raise GrammarError(matcher.get_error().split("\n")[0])
        return lambda: _PeerState(matcher.deep_copy(), vocabulary.size)

    return {"gen": own, "llguidance": peer}


def judge(compile_schema: Compile, tokenizer: LLTokenizer, case: dict[str, Any]) -> Result:
    """Compile a schema, and follow its instances."""
    began = perf_counter()
    try:
        start = compile_schema(json.dumps(case["schema"]))
    except GrammarError as error:
        is_slow = "takes more than" in str(error)
        return Result("too slow" if is_slow else "refused", str(error), perf_counter() - began)
    compile_seconds = perf_counter() - began
    times: list[float] = []
    faults = {}
    for test in case["tests"]:
        text = json.dumps(test["data"], ensure_ascii=False)
        texts = dict.fromkeys((text, read_json_text(text).text))
        try:
            is_accepted = any(_accepts(start(), tokenizer, spelling, times) for spelling in texts)
        except GrammarError as error:
            faults["too slow"] = str(error)
            continue
        if is_accepted != test["valid"]:
            faults["wrong acceptance" if is_accepted else "wrong refusal"] = text
    verdict = next((verdict for verdict in VERDICTS if verdict in faults), "passes")
    return Result(verdict, faults.get(verdict, ""), compile_seconds, times)


def _accepts(state: _State, tokenizer: LLTokenizer, text: str, times: list[float]) -> bool:
    """Return True if the masks allow each token of a text and its end. Adds the time of each mask."""
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    for token in tokenizer.tokenize_bytes(data):
        began = thread_time()
        mask = state.mask()
        times.append(thread_time() - began)
        if not mask[token] or not state.accept_prefix([token]):
            return False
    return state.is_complete


def _serve(connection: Connection) -> None:
    """Judge the cases that arrive, in the other process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Model.load(locate()[0], n_ctx=64) as model:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        compilers = _compilers(model.vocabulary)
        tokenizer = tokenizer_of(model.vocabulary)
        with suppress(EOFError):
            while True:
                side, case = connection.recv()
                _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
                resource.setrlimit(resource.RLIMIT_CPU, (ceil(process_time()) + CPU_SECONDS, hard_limit))
                connection.send(judge(compilers[side], tokenizer, case))


class _Worker:
    """A process that judges one case at a time, and is started anew after a case that ended it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end,), daemon=True)
        self._process.start()
        other_end.close()

    def judge(self, side: str, case: dict[str, Any]) -> Result:
        self._connection.send((side, case))
        with suppress(EOFError, ConnectionResetError):
            if self._connection.poll(MAX_WAIT_SECONDS):
                return self._connection.recv()
            self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self.__init__()  # type: ignore[misc]
        if -code in {signal.SIGXCPU, signal.SIGKILL}:
            return Result("too slow", f"takes more than {CPU_SECONDS} s of processor time")
        return Result("crash", signal.Signals(-code).name if code < 0 else f"exit code {code}")


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="JSON Schemas of MaskBench")
    parser.add_argument("path", type=Path, help="a folder of .json files, or a .jsonl.gz")
    parser.add_argument("--only", default="", help="the cases whose id contains this text")
    parser.add_argument("--limit", type=int, help="number of cases")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes [1]")
    parser.add_argument("--refusals", action="store_true", help="print what gen refuses, and why")
    parser.add_argument("--json", type=Path, help="file for the results of each schema")
    options = parser.parse_args()
    cases = list(islice((case for case in _cases(options.path) if options.only in case["id"]), options.limit))
    results = _judge_all(cases, options.jobs)
    if options.json:
        options.json.write_text(json.dumps(results, default=_summary, indent=1, ensure_ascii=False))
    _print_verdicts(results)
    _print_times(results)
    _print_faults(results)
    if options.refusals:
        _print_refusals(results)


def _cases(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield {"id": file.stem, **json.loads(file.read_text(encoding="utf-8"))}
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


Results = dict[str, dict[str, Result]]  # by the id of a case, then by side


def _judge_all(cases: Sequence[dict[str, Any]], jobs: int) -> Results:
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for _ in range(jobs):
        idle.put(_Worker())

    def judge_case(index: int) -> dict[str, Result]:
        worker = idle.get()
        sides = ("gen", "llguidance") if index % 2 else ("llguidance", "gen")
        results = {side: worker.judge(side, cases[index]) for side in sides}
        idle.put(worker)
        return results

    results: Results = {}
    with ThreadPoolExecutor(jobs) as pool:
        for case, result in zip(cases, pool.map(judge_case, range(len(cases))), strict=True):
            results[case["id"]] = result
            if sys.stderr.isatty():
                print(f"\r{len(results)} of {len(cases)}", end="", file=sys.stderr, flush=True)
    return results


def _summary(result: Result) -> dict[str, Any]:
    return asdict(result) | {"masks": len(result.mask_seconds), "mask_seconds": sum(result.mask_seconds)}


def _group(identifier: str) -> str:
    return next((name for name in ("Handwritten", "Synthesized") if identifier.startswith(name)), "people")


def _print_verdicts(results: Results) -> None:
    print(f"{'group':12} {'engine':11} {'schemas':>7} " + " ".join(f"{verdict:>8}" for verdict in VERDICTS))
    for group in ("people", "Handwritten", "Synthesized"):
        for side in ("gen", "llguidance"):
            counts = Counter(by_side[side].verdict for key, by_side in results.items() if _group(key) == group)
            columns = " ".join(f"{counts[verdict]:{max(8, len(verdict))}}" for verdict in VERDICTS)
            print(f"{group:12} {side:11} {counts.total():7} {columns}")


def _print_times(results: Results) -> None:
    both_pass = [
        by_side for by_side in results.values() if {result.verdict for result in by_side.values()} == {"passes"}
    ]
    print(f"\n{'':24} {'mean':>8} {'median':>8} {'99 %':>8}")
    means = {}
    for side in ("gen", "llguidance"):
        compiles = [by_side[side].compile_seconds for by_side in results.values()]
        masks = [seconds for by_side in results.values() for seconds in by_side[side].mask_seconds]
        shared = [seconds for by_side in both_pass for seconds in by_side[side].mask_seconds]
        _print_line(f"{side}: compile, ms", compiles, 1e3)
        _print_line(f"{side}: mask, µs", masks, 1e6)
        _print_line("  where both pass, µs", shared, 1e6)
        means[side] = statistics.fmean(shared) if shared else float("nan")
    ratio = means["gen"] / means["llguidance"]
    print(f"ratio of the means of a mask over the {len(both_pass)} schemas that both pass: {ratio:.3f}")


def _print_line(title: str, seconds: Sequence[float], factor: float) -> None:
    values = np.asarray(seconds or [float("nan")]) * factor
    print(f"{title:24} {values.mean():8.2f} {np.median(values):8.2f} {np.percentile(values, 99):8.2f}")


def _print_faults(results: Results) -> None:
    for key, by_side in results.items():
        if by_side["gen"].verdict not in {"passes", "refused"}:
            print(f"{by_side['gen'].verdict}: {key}: {by_side['gen'].message[:200]}")


_DETAIL = re.compile(r"^/.*?: |\(here .*|'.*?'(?= is not a)|, such as /.*|[0-9]+")


def _print_refusals(results: Results) -> None:
    refused = [
        (_DETAIL.sub("", by_side["gen"].message), key, by_side["gen"].message)
        for key, by_side in results.items()
        if by_side["gen"].verdict == "refused"
    ]
    for kind, entries in groupby(sorted(refused), key=lambda entry: entry[0]):
        lines = [f"  {key}: {message}" for _, key, message in entries]
        print(f"\n{len(lines)} × {kind}", *lines, sep="\n")


if __name__ == "__main__":
    main()
