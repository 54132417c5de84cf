"""The cost of each recovery method on llama.cpp's real server: calls, seconds and error; with openlogprobs'
counts.

python -m benchmarks.recover [--tokens 300] [--whole]

openlogprobs (PyPI 0.0.1; Finlayson, "Obtaining logprobs from an LLM API") needs v calls with one token per call,
and v/k calls with k tokens per call, for a vocabulary of v tokens and k shown logprobs. Logitsmith's counts are
for the entire vocabulary: measured if a method is run for all tokens, and otherwise computed from the calls for
--tokens random tokens. The error is the largest difference to the server's row. Concurrent calls: the same tokens
with 1, 4 and 8 concurrent calls, in one slot and in any of 8 slots.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log
from time import perf_counter

import httpx
import numpy as np
from logitsmith.engine import locate
from logitsmith.recover import (
    Basis,
    HttpOptions,
    LlamaServerEndpoint,
    Recovery,
    RecoverySettings,
    output_matrix,
    recover,
)
from numpy.typing import NDArray

from tests.recover.serving import start, stop

PROMPT = "The sea was"
WINDOW = 20
EPS = 1e-3


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="calls and seconds of each method")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--whole", action="store_true", help="run parallel over the whole vocabulary")
    options = parser.parse_args()
    basis = Basis.of_matrix(output_matrix(locate()[0]), "the output matrix")
    with served(1) as url:
        _methods(url, basis, options.tokens, options.whole)
    with served(8) as url:
        _in_flight(url, options.tokens)


@contextmanager
def served(slots: int) -> Iterator[str]:
    """Run llama.cpp's server with the bundled model, and yield its address."""
    process, url = start(slots=slots)
    try:
        yield url
    finally:
        stop(process)


@dataclass(frozen=True)
class _Line:
    """A line of the table: a method's result, its seconds, its calls for all tokens, and the peer's calls."""

    name: str
    recovery: Recovery
    seconds: float
    needed: int
    peer: int

    def show(self, row: NDArray[np.float64]) -> None:
        off = self.recovery.logprobs - (row if self.recovery.is_normalized else row - row.max())
        known = int(np.isfinite(self.recovery.logprobs).sum())
        worst = np.nanmax(np.abs(off))
        print(
            f"{self.name:22} {known:11,} {self.recovery.total_calls:6,} {self.seconds:8.1f} {worst:8.0e} "
            f"{self.needed:11,} {self.peer:8,} {self.peer / self.needed:6.2f}",
            flush=True,
        )


def _methods(url: str, basis: Basis, count: int, all_tokens: bool) -> None:
    size = LlamaServerEndpoint(url).vocab_size
    some = np.random.default_rng(0).choice(size, count, replace=False).tolist()
    few = some[: max(5, count // 15)]
    many = ceil(size / WINDOW)
    row = _server_row(url, size, True)

    def run(window: int, post: bool = True, **asked: object) -> tuple[Recovery, float]:
        endpoint = LlamaServerEndpoint(url, window, post_sampling=post)
        began = perf_counter()
        recovery = recover(endpoint, PROMPT, **asked)  # type: ignore[arg-type]
        seconds = perf_counter() - began
        endpoint.close()
        return recovery, seconds

    def scaled(recovery: Recovery, tokens: int) -> int:
        return ceil(recovery.total_calls / tokens * size)

    print(f"{size:,} tokens, window {WINDOW}, prompt {PROMPT!r}")
    heads = f"{'calls':>6} {'seconds':>8} {'error':>8} {'all tokens':>11} {'peer':>8} {'ratio':>6}"
    print(f"{'method':22} {'measured on':>11} {heads}")
    recovery, seconds = run(WINDOW, settings=RecoverySettings(basis=basis))
    _Line("basis", recovery, seconds, recovery.total_calls, many).show(row)
    recovery, seconds = run(WINDOW, method="parallel", tokens=None if all_tokens else some)
    needed = recovery.total_calls if all_tokens else 3 + ceil((size - WINDOW) / (WINDOW - 1))
    _Line("parallel", recovery, seconds, needed, many).show(row)
    recovery, seconds = run(WINDOW, method="single", tokens=some)
    _Line("single", recovery, seconds, scaled(recovery, count), size).show(row)
    recovery, seconds = run(1, method="single", tokens=some)
    _Line("single, window of 1", recovery, seconds, scaled(recovery, count), size).show(row)
    recovery, seconds = run(WINDOW, post=False, method="forced", tokens=some)
    _Line("forced", recovery, seconds, scaled(recovery, count), size).show(_server_row(url, size, False))
    recovery, seconds = run(0, tokens=few, settings=RecoverySettings(bisection_error_nats=EPS))
    # openlogprobs bisects [0, 32] for each token, after one call without a bias and one with a bias of 32.
    peer = size * (2 + ceil(log(32 / EPS, 2)))
    _Line(f"bisection to {EPS:g}", recovery, seconds, scaled(recovery, len(few)), peer).show(row)
    recovery, seconds = run(WINDOW, top_count=100)
    _Line("top_n, 100 tokens", recovery, seconds, recovery.total_calls, ceil(100 / WINDOW)).show(row)
    print("peer: openlogprobs, v/k calls for k tokens a call, v for one, 2 + log2(32/eps) a token to bisect")


def _in_flight(url: str, count: int) -> None:
    size = LlamaServerEndpoint(url).vocab_size
    row = _server_row(url, size, True)
    tokens = np.random.default_rng(1).choice(size, 4 * count, replace=False).tolist()
    print(f"\n{'in flight':>9} {'slot':>5} {'calls':>6} {'seconds':>8} {'calls/s':>8} {'ratio':>6} {'error':>8}")
    base: dict[str, float] = {}
    for slot in (0, None):
        for flying in (1, 4, 8):
            endpoint = LlamaServerEndpoint(url, WINDOW, slot=slot, options=HttpOptions(timeout_seconds=300))
            for _ in range(3):
                endpoint.query(PROMPT, {})
            began = perf_counter()
            settings = RecoverySettings(max_concurrent_calls=flying, calls_per_query=1)
            recovery = recover(endpoint, PROMPT, "parallel", tokens=tokens, settings=settings)
            seconds = perf_counter() - began
            name = "any" if slot is None else str(slot)
            speed = recovery.total_calls / seconds
            base.setdefault(name, speed)
            worst = np.nanmax(np.abs(recovery.logprobs - row))
            line = f"{flying:9} {name:>5} {recovery.total_calls:6,} {seconds:8.1f} {speed:8.1f}"
            print(f"{line} {speed / base[name]:6.2f} {worst:8.0e}", flush=True)
            endpoint.close()


def _server_row(url: str, size: int, post: bool) -> NDArray[np.float64]:
    """Return the logprobs of all tokens that the server itself reports."""
    body = {"prompt": PROMPT, "n_predict": 1, "n_probs": size, "post_sampling_probs": post, "samplers": []}
    for _ in range(2):  # the second call reuses the prompt's beginning, as every later call does
        answer = httpx.post(f"{url}/completion", json={**body, "temperature": 1, "id_slot": 0}, timeout=300).json()
    step = answer["completion_probabilities"][0]
    row = np.full(size, np.nan)
    for entry in step["top_probs" if post else "top_logprobs"]:
        row[entry["id"]] = (log(entry["prob"]) if entry["prob"] else -np.inf) if post else entry["logprob"]
    return row


if __name__ == "__main__":
    main()
