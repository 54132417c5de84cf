"""Numbers about requests for Prometheus, at `/metrics`.

Some numbers are also there under llama-server's names, for dashboards that are made for llama-server.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .engine_thread import EngineThread
from .request_log import RequestRecord

# The label of all paths that do not belong to a route. A label per path would let clients fill the memory.
_UNKNOWN_ROUTE = "other"
_FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of requests and tokens per route. An observer of `RequestRecord`."""

    def __init__(self, engine: EngineThread) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        route = ["route"]
        self._requests = Counter("gen_requests", "Ended requests.", [*route, "status"], registry=registry)
        self._prompt = Counter("gen_prompt_tokens", "Tokens of prompts.", route, registry=registry)
        self._cached = Counter(
            "gen_cached_prompt_tokens", "Tokens of prompts that were not read again.", route, registry=registry
        )
        self._completion = Counter("gen_completion_tokens", "Generated tokens.", route, registry=registry)
        self._first = Histogram(
            "gen_first_token_seconds",
            "Time from a request to its first token.",
            route,
            registry=registry,
            buckets=_FIRST_TOKEN_SECONDS,
        )
        self._total = Histogram(
            "gen_request_seconds",
            "Time from a request to the end of its response.",
            route,
            registry=registry,
            buckets=_REQUEST_SECONDS,
        )
        gauges = {
            "gen_slots": ("Number of texts that can be generated at a time.", lambda: engine.counts.slots),
            "gen_texts_running": ("Texts that are generated now.", lambda: engine.counts.running),
            "gen_texts_waiting": ("Texts that wait for a slot.", lambda: engine.counts.waiting),
            "llamacpp:requests_processing": ("As in llama-server.", lambda: engine.counts.running),
            "llamacpp:requests_deferred": ("As in llama-server.", lambda: engine.counts.waiting),
        }
        for name, (description, read) in gauges.items():
            Gauge(name, description, registry=registry).set_function(read)
        self._llama_server = {
            name: Counter(f"llamacpp:{name}", "As in llama-server.", registry=registry)
            for name in ("prompt_tokens", "tokens_predicted")
        }

    def __call__(self, record: RequestRecord) -> None:
        route = record.route or _UNKNOWN_ROUTE
        self._requests.labels(route, str(record.status)).inc()
        self._total.labels(route).observe(record.seconds)
        if record.prompt_tokens:
            self._prompt.labels(route).inc(record.prompt_tokens)
            self._cached.labels(route).inc(record.cached_tokens)
            self._llama_server["prompt_tokens"].inc(record.prompt_tokens - record.cached_tokens)
        if record.first_token_seconds is not None:
            self._completion.labels(route).inc(record.completion_tokens)
            self._llama_server["tokens_predicted"].inc(record.completion_tokens)
            self._first.labels(route).observe(record.first_token_seconds)

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        return generate_latest(self._registry)
