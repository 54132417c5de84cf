"""The lines of the ``jsonl`` format as JSON objects, and the output of ``gen next``.

In the line of an event, the field ``event`` is the kind of the event.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ..common.strict_json import json_line
from .events import Done, Event, PromptToken, Reading, Rewind, Start, Token
from .openai import Json, field_confidences, token_counts
from .records import Distribution, TokenRecord, Trace, display_text, finite_or_none
from .text_tokens import HeldBackText


def stream_lines(
    events: Iterable[Event],
    prompt: str,
    command: str,
    number: int | None = None,
    number_name: Literal["sample", "beam"] = "sample",
) -> Iterator[str]:
    """Yield the lines of a run, see `RunLines`."""
    # ``prompt``: the text before a chat template is applied. ``command``: the command that repeats the run.
    # ``number``: the number of the text, which each line has; None if the prompt has one text.
    run = RunLines()
    number_field = {} if number is None else {number_name: number}
    for event in events:
        if isinstance(event, Start):
            yield json_line(number_field | run.start(event, prompt, command))
        else:
            for line in run.push(event):
                yield json_line(number_field | line)


class RunLines:
    """The lines of a run as JSON objects, made from events that arrive one by one."""

    # The lines are ``start``, a ``prompt`` line for each echoed token, a ``token`` line for each generated token,
    # a ``rewind`` line for each return to an earlier token, and ``done``. The joined texts of the ``token`` lines
    # are the text of the run. So the line of a token whose text is held back waits for the next event.

    def __init__(self) -> None:
        self._start: Start | None = None
        self._held_back_text = HeldBackText()
        self._held_back_token: Token | None = None

    def start(self, event: Start, prompt: str, command: str | None) -> Json:
        """Return the first line. For ``prompt`` and ``command`` see `stream_lines`."""
        self._start = event
        return {"event": "start", **_start_fields(event), "prompt": prompt, "command": command}

    @staticmethod
    def reading(event: Reading) -> Json:
        """Return a line before the first one, which tells how far the prompt is read."""
        return {"event": "reading", **event._asdict()}

    def push(self, event: Event, more: Mapping[str, Any] | None = None) -> Iterator[Json]:
        """Yield the lines that are complete after an event. ``more``: further fields of the last line."""
        if isinstance(event, Rewind):  # drops tokens that have no line yet
            yield {"event": "rewind", **asdict(event)}
            return
        token = self._held_back_token
        if token is not None:
            # Text that is still held back at the end of the run is added to the last token.
            if isinstance(event, Done) and event.rest:
                token = replace(token, text=token.text + event.rest)
            yield _token_line(token)
            self._held_back_token = None
        if isinstance(event, Token):
            if self._held_back_text.is_held_back(event):
                self._held_back_token = event
            else:
                yield _token_line(event)
        elif isinstance(event, PromptToken):
            yield {"event": "prompt", **token_fields(event)}
        elif isinstance(event, Done) and self._start is not None:
            yield {"event": "done", "model": self._start.model, **_done_fields(self._start, event), **(more or {})}


def _token_line(token: Token) -> Json:
    return {"event": "token", **token_fields(token)}


def _start_fields(event: Start) -> dict[str, Any]:
    fields = asdict(event)
    fields |= fields.pop("text_rules")
    del fields["prompt_ids"]  # `--echo` writes a line for each of them
    if event.batch_exactness is not None:
        fields["batch_exactness"] = str(event.batch_exactness)
    if event.draft_exactness is not None:
        fields["draft_exactness"] = event.draft_exactness.promise
    optional_fields = (
        "grammar",
        "logprobs",
        "batch_exactness",
        "trace",
        "draft",
        "draft_exactness",
        "adapters",
        "device",
        "reasoning",
    )
    return {name: value for name, value in fields.items() if value is not None or name not in optional_fields}


def _done_fields(start: Start, event: Done) -> dict[str, Any]:
    has_grammar = event.complete is not None
    fields: dict[str, Any] = {"finish_reason": event.finish_reason}
    if has_grammar:
        fields |= {"complete": event.complete, "forced_tokens": event.forced_tokens}
    if event.context_shifts is not None:
        fields["context_shifts"] = event.context_shifts
    fields |= {"stop": event.stop, "text": event.text}
    if event.reasoning is not None:
        fields["reasoning"] = event.reasoning
    if event.score is not None:
        fields["score"] = event.score
    fields |= confidence_fields(start, event)
    timings = {
        "prompt_ms": _milliseconds(event.timings.prompt),
        "generation_ms": _milliseconds(event.timings.generation),
        "chain_ms": _milliseconds(event.timings.chain),
    }
    if has_grammar:
        timings["grammar_ms"] = _milliseconds(event.timings.grammar)
    return fields | {"usage": token_counts([event]), "timings": timings}


def confidence_fields(start: Start, done: Done) -> Json:
    """Return the field ``confidence``, which is null if no token of the answer was drawn, and ``fields``."""
    confidence = None if done.confidence is None else done.confidence.as_json()
    return {"confidence": confidence, **field_confidences(start, done)}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def token_fields(token: TokenRecord) -> Json:
    """Return the fields of the line of a token."""
    # ``logprobs_from`` is the source of the values ``logprob``, ``top_logprobs[]``, ``entropy`` and, if requested,
    # ``logprob_of[]`` and ``row``. If two sources were read, these values are the model's, and ``chain`` is an
    # object with the values of the chain. ``text`` is the text that can be shown after the token.
    fields: Json = {
        "index": token.index,
        "id": token.id,
        "token": display_text(token.data),
        "bytes": list(token.data),
    }
    if token.distributions:
        first_distribution = token.distributions[0]
        fields |= {"logprobs_from": first_distribution.source, **_distribution_fields(first_distribution)}
    else:
        fields |= {"logprob": None, "top_logprobs": []}
    fields["text"] = token.text
    if token.part is not None:
        fields["part"] = token.part
    if token.is_forced:
        fields["forced"] = True
    for distribution in token.distributions[1:]:
        fields[distribution.source] = _distribution_fields(distribution)
    if token.trace is not None:
        fields["trace"] = token.trace.as_json()
    return fields


def _distribution_fields(distribution: Distribution) -> Json:
    fields: Json = {
        "logprob": finite_or_none(distribution.logprob),
        "top_logprobs": [token.as_json() for token in distribution.top],
        "entropy": finite_or_none(distribution.entropy),
    }
    if distribution.kept is not None:
        fields["kept"] = distribution.kept
    if distribution.named:
        fields["logprob_of"] = [token.as_json() for token in distribution.named]
    if distribution.row is not None:
        fields["row"] = b64encode(distribution.row).decode()
    return fields


@dataclass(frozen=True)
class TracedChain:
    """A chain with a trace of the next token."""

    # As the user typed the chain: a preset's name or a compact notation.
    name: str
    # As in `Start.chain`.
    steps: Sequence[Mapping[str, Any]]
    trace: Trace


@dataclass(frozen=True)
class ChainDistance:
    """The distance between the distributions that two chains draw from: the first chain and a compared one.

    Attributes:
        total_variation: the total variation distance, from 0 (equal) to 1.
        divergence: KL(first || compared), nats; may be infinite.
        reverse_divergence: KL(compared || first), nats; may be infinite.
    """

    total_variation: float
    divergence: float
    reverse_divergence: float


def next_token_fields(
    run_fields: Mapping[str, Any],
    first_chain: TracedChain,
    forced_token: bytes | None = None,
    compared_chains: Sequence[tuple[TracedChain, ChainDistance]] = (),
) -> dict[str, Any]:
    """Return the JSON fields of the next token before it is drawn, as ``gen next`` writes them."""
    # ``forced`` is the only token that the grammar allows, and ``against[]`` has the compared chains. An infinite
    # divergence is null.
    fields = {**run_fields, "chain": list(first_chain.steps), **_trace_fields(first_chain.trace)}
    if forced_token is not None:
        fields["forced"] = {"token": display_text(forced_token), "bytes": list(forced_token)}
    if compared_chains:
        fields["against"] = [_comparison_fields(chain, distance) for chain, distance in compared_chains]
    return fields


def _comparison_fields(chain: TracedChain, distance: ChainDistance) -> dict[str, Any]:
    return {
        "name": chain.name,
        "chain": list(chain.steps),
        "total_variation": distance.total_variation,
        "kl": finite_or_none(distance.divergence),
        "reverse_kl": finite_or_none(distance.reverse_divergence),
        **_trace_fields(chain.trace),
    }


def _trace_fields(trace: Trace) -> dict[str, Any]:
    fields = trace.as_json()
    return {"stages": fields["stages"], "candidates": fields["candidates"]}
