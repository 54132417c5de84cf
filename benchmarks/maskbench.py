"""JSON Schemas of MaskBench, beside llguidance: which are taken, whether masks are right, and what they cost.

python -m benchmarks.maskbench PATH [--only TEXT] [--limit N] [--jobs N] [--refusals] [--json FILE]

PATH is a folder of MaskBench's files, or a .jsonl.gz with an ``id``, a ``schema`` and ``tests`` in each line. A
schema passes if it compiles, all its valid instances are accepted, and no invalid one is. An instance is what
json.dumps writes, or that in the spelling of grammars (``10`` for ``1e1``), or with its keys in the order of the
schema. Its tokens go through the masks.

llguidance alone gets the same schemas, tokens and style, with its own limits and slices. Its masks are complete,
as gen's are, and become an array of booleans, too. Other processes compile and follow the schemas, with 60 s of
processor time for each, and 4 GB of memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import re
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from logitsmith.engine import Model, Vocabulary, locate
from logitsmith.grammars import GrammarError, GrammarState, compile_grammar
from logitsmith.grammars.json_schema import ONE_LINE_STYLE
from logitsmith.grammars.json_text import read_json_text
from logitsmith.grammars.key_order import KeyOrder, ranks_of_keys
from logitsmith.grammars.tokenizer import tokenizer_of
from numpy.typing import NDArray

SIDES = ("gen", "llguidance")
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


State = GrammarState | _PeerState
Start = Callable[[], State]
Compile = Callable[[str], Start]


def _compilers(vocabulary: Vocabulary) -> dict[str, Compile]:
    """Return each side's function that compiles a schema."""
    style = {"x-guidance": ONE_LINE_STYLE}
    peer_tokenizer = tokenizer_of(vocabulary).with_slices(LLTokenizer.general_slices())

    def own(source: str) -> Start:
        return compile_grammar(source, vocabulary, kind="json_schema").start

    def peer(source: str) -> Start:
        schema = json.loads(source)
        styled = json.dumps({**(schema if isinstance(schema, dict) else {"allOf": [schema]}), **style})
        lark = f'start: %json {styled}\n%llguidance {{"no_forcing": true}}\n'
        matcher = LLMatcher(peer_tokenizer, lark, log_level=0)
        if matcher.is_error():
            raise GrammarError(matcher.get_error().split("\n")[0])
        return lambda: _PeerState(matcher.deep_copy(), vocabulary.size)

    return {"gen": own, "llguidance": peer}


@dataclass(frozen=True)
class _OrderedText:
    """A text whose keys are being ordered."""

    start: Start
    tokenizer: LLTokenizer
    text: str = ""

    def after(self, text: str) -> _OrderedText | None:
        whole_text = self.text + text
        tokens = self.tokenizer.tokenize_bytes(whole_text.encode("utf-8", "replace"))
        is_allowed = self.start().accept_prefix(tokens) == len(tokens)
        return _OrderedText(self.start, self.tokenizer, whole_text) if is_allowed else None

    @property
    def is_complete(self) -> bool:
        state = self.start()
        state.accept_prefix(self.tokenizer.tokenize_bytes(self.text.encode("utf-8", "replace")))
        return state.is_complete


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
            places = [_refusal_place(start(), tokenizer, spelling, times) for spelling in texts]
        except GrammarError as error:
            faults["too slow"] = str(error)
            continue
        if None not in places and test["valid"]:
            ordered = KeyOrder(ranks_of_keys(case["schema"])).find(text, _OrderedText(start, tokenizer))
            places += [] if ordered is None else [None]
        if None in places and not test["valid"]:
            faults["wrong acceptance"] = text
        elif None not in places and test["valid"]:
            faults["wrong refusal"] = next(filter(None, places))
    verdict = next((verdict for verdict in VERDICTS if verdict in faults), "passes")
    return Result(verdict, faults.get(verdict, ""), compile_seconds, times)


def _refusal_place(state: State, tokenizer: LLTokenizer, text: str, times: list[float]) -> str | None:
    """Return the text around the first token that a mask does not allow; None if the text is a sentence.

    Adds the time of each mask.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return repr(text)
    tokens = tokenizer.tokenize_bytes(data)
    for index, token in enumerate(tokens):
        began = thread_time()
        mask = state.mask()
        times.append(thread_time() - began)
        if not mask[token] or not state.accept_prefix([token]):
            before, after = tokenizer.decode_str(tokens[:index]), tokenizer.decode_str(tokens[index:])
            return f"{before[-80:]} ⟦here⟧ {after[:80]}"
    return None if state.is_complete else f"{text[-80:]} ⟦here⟧"


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
        self._start()

    def _start(self) -> None:
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
        self._start()
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
        sides = SIDES if index % 2 else reversed(SIDES)
        results = {side: worker.judge(side, cases[index]) for side in sides}
        idle.put(worker)
        return results

    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(judge_case, range(len(cases)))
        return {case["id"]: result for case, result in zip(cases, results, strict=True)}


def _summary(result: Result) -> dict[str, Any]:
    return asdict(result) | {"masks": len(result.mask_seconds), "mask_seconds": sum(result.mask_seconds)}


def _group(identifier: str) -> str:
    return next((name for name in ("Handwritten", "Synthesized") if identifier.startswith(name)), "people")


def _print_verdicts(results: Results) -> None:
    print(f"{'group':12} {'engine':11} {'schemas':>7} " + " ".join(f"{verdict:>9}" for verdict in VERDICTS))
    for group in ("people", "Handwritten", "Synthesized"):
        for side in SIDES:
            counts = Counter(by_side[side].verdict for key, by_side in results.items() if _group(key) == group)
            columns = " ".join(f"{counts[verdict]:{max(9, len(verdict))}}" for verdict in VERDICTS)
            print(f"{group:12} {side:11} {counts.total():7} {columns}")


def _print_times(results: Results) -> None:
    both_pass = [by_side for by_side in results.values() if {r.verdict for r in by_side.values()} == {"passes"}]
    print(f"\n{'':26} {'mean':>8} {'median':>8} {'99 %':>8}")
    means = {}
    for side in SIDES:
        compiles = [by_side[side].compile_seconds * 1e3 for by_side in results.values()]
        masks = _mask_times(results.values(), side)
        shared_masks = _mask_times(both_pass, side)
        means[side] = np.mean(shared_masks)
        for title, values in (("compile, ms", compiles), ("mask, µs", masks), ("  both pass", shared_masks)):
            figures = (np.mean(values), np.median(values), np.percentile(values, 99))
            print(f"{side:11} {title:14}", *(f"{figure:8.2f}" for figure in figures))
    ratio = means["gen"] / means["llguidance"]
    print(f"ratio of the means of a mask over the {len(both_pass)} schemas that both pass: {ratio:.3f}")


def _mask_times(results: Iterable[dict[str, Result]], side: str) -> list[float]:
    return [seconds * 1e6 for by_side in results for seconds in by_side[side].mask_seconds] or [float("nan")]


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
        print(f"\n{len(lines)} schemas: {kind}", *lines, sep="\n")


if __name__ == "__main__":
    main()
