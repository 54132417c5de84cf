"""The lines of the ``jsonl`` format, of runs and of a batch's results, and the next token before it is drawn.

A line is one strict JSON object; that of a run has its kind in ``event``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from ..common.strict_json import encode_json
from .events import Done, Event, PromptToken, Start, Token, split_events, take_start
from .openai import usage
from .records import Distribution, TokenLogprob, TokenRecord, Trace, display_text, finite_or_none
from .text_tokens import HeldBackText


def start_line(content: Mapping[str, Any]) -> str:
    """Return the first line: everything that is needed to repeat the run."""
    return _line("start", content)


def prompt_line(token: TokenRecord) -> str:
    """Return a token of the prompt, with the fields of `token_line`. The first token has no logprob."""
    return f'{{"event": "prompt", {token_members(token)}}}\n'


def token_line(token: TokenRecord) -> str:
    """Return a token that was written; for the fields see `token_members`."""
    return f'{{"event": "token", {token_members(token)}}}\n'


def done_line(content: Mapping[str, Any]) -> str:
    """Return the last line: ``finish_reason, text, usage, timings``."""
    return _line("done", content)


def _line(event: str, content: Mapping[str, Any]) -> str:
    return encode_json({"event": event, **content}) + "\n"


def stream_lines(events: Iterable[Event], prompt: str, command: str) -> Iterator[str]:
    """Yield ``start``, a ``prompt`` line for each echoed token, a ``token`` line for each new one, and ``done``.

    The texts of the ``token`` lines joined are the text of the run: the line of a token whose text is held back
    waits for the next event.

    Args:
        events: the events of the run.
        prompt: the text before its chat template.
        command: what makes the run again.
    """
    events = iter(events)
    start = take_start(events)
    yield start_line({**_start_fields(start), "prompt": prompt, "command": command})
    held_back = HeldBackText()
    waiting: Token | None = None
    for event in events:
        if waiting is not None:
            # At the end of the run the text that was held back is the last token's.
            rest = event.rest if isinstance(event, Done) else ""
            yield token_line(replace(waiting, text=waiting.text + rest) if rest else waiting)
            waiting = None
        if isinstance(event, Token):
            if held_back.is_held_back(event):
                waiting = event
            else:
                yield token_line(event)
        elif isinstance(event, PromptToken):
            yield prompt_line(event)
        elif isinstance(event, Done):
            yield done_line({"model": start.model, **_done_fields(event)})


def _start_fields(event: Start) -> dict[str, Any]:
    fields = asdict(event)
    del fields["prompt_ids"]  # `--echo` writes a line for each of them
    if event.batch_exactness is not None:
        fields["batch_exactness"] = str(event.batch_exactness)
    optional = ("grammar", "logprobs", "batch_exactness", "trace")
    return {name: value for name, value in fields.items() if value is not None or name not in optional}


def _done_fields(event: Done) -> dict[str, Any]:
    times = event.timings
    lookup = {"drafted": event.drafted_tokens, "accepted": event.accepted_tokens}
    grammar = {} if event.complete is None else {"complete": event.complete, "forced_tokens": event.forced_tokens}
    return {
        "finish_reason": event.finish_reason,
        **grammar,
        **({} if event.drafted_tokens is None else {"lookup": lookup}),
        **({} if event.context_shifts is None else {"context_shifts": event.context_shifts}),
        "stop": event.stop,
        "text": event.text,
        "usage": usage(event),
        "timings": {
            "prompt_ms": round(times.prompt * 1e3, 3),
            "generation_ms": round(times.generation * 1e3, 3),
            "chain_ms": round(times.chain * 1e3, 3),
            **({} if event.complete is None else {"grammar_ms": round(times.grammar * 1e3, 3)}),
        },
    }


def result_line(  # noqa: PLR0913 - the fields of a line
    events: Iterable[Event],
    name: str,
    line: int,
    *,
    answer_id: str,
    exactness: str,
    worker: Mapping[str, Any] | None = None,
) -> str:
    """Return our line of a batch's answer.

    It has ``id, line, request_id, model, seed, finish_reason, stop, text, usage, batch_exactness, error``, and
    ``complete``, ``tokens`` and ``worker`` where there are any. ``tokens`` have the fields of the stream's
    tokens; they are left out if they have neither logprobs nor a trace.

    Args:
        events: the run.
        name: the request's id.
        line: the line of the request, from 1.
        answer_id: the answer's id, see `batch_id`.
        exactness: whether other requests can have changed the answer.
        worker: what computed the answer; None on one machine.
    """
    start, _, tokens, done = split_events(events)
    has_tokens = start.logprobs is not None or any(token.trace for token in tokens)
    fields = {
        "id": name,
        "line": line,
        "request_id": answer_id,
        "model": start.model,
        "seed": start.seed,
        "finish_reason": done.finish_reason,
        **({} if done.complete is None else {"complete": done.complete}),
        "stop": done.stop,
        "text": done.text,
        "usage": usage(done),
        "batch_exactness": exactness,
    }
    objects = [f"{{{token_members(token)}}}" for token in _whole_texts(tokens, done)] if has_tokens else []
    members = [
        encode_json(fields)[1:-1],
        *([f'"tokens": [{", ".join(objects)}]'] if has_tokens else []),
        '"error": null',
        *([] if worker is None else [f'"worker": {encode_json(worker)}']),
    ]
    return f"{{{', '.join(members)}}}"


def _whole_texts(tokens: Sequence[Token], done: Done) -> list[Token]:
    """Return the tokens; what was held back until the end of the run is added to the text of the last one."""
    whole = list(tokens)
    rest = done.text[sum(len(token.text) for token in whole) :]
    if whole and rest:
        whole[-1] = replace(whole[-1], text=whole[-1].text + rest)
    return whole


def failure_line(name: str, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return our line of a request without an answer; ``error`` is made by `batch_error`."""
    return {"id": name, "line": error["line"], "error": error}


# A line is written between two tokens, when the processor's caches are empty. So the numbers are put into a text,
# and the JSON of a token's bytes is made once: an encoder that walks over objects takes more than twice as long.
def token_members(token: TokenRecord) -> str:
    """The fields of a token, as the members of a JSON object without its braces.

    ``index, id, token, bytes``; ``logprobs_from`` and, of that source, ``logprob, top_logprobs[], entropy`` and
    where requested ``logprob_of[]`` and ``row``; ``text``, the text that can be shown once the token is there.
    With two sources these fields are the model's, and ``chain`` holds the chain's. ``trace``, if the run is
    traced.
    """
    first, others = '"logprob": null, "top_logprobs": []', ""
    if token.distributions:
        main, *rest = token.distributions
        first = f'"logprobs_from": "{main.source}", {_distribution_members(main)}'
        others = "".join(f', "{other.source}": {{{_distribution_members(other)}}}' for other in rest)
    if token.trace is not None:
        others += f', "trace": {encode_json(token.trace.as_json())}'
    text = encode_json(token.text)
    return (
        f'"index": {token.index}, "id": {token.id}, {_piece_members(token.data)}, {first}, "text": {text}{others}'
    )


def _distribution_members(distribution: Distribution) -> str:
    members = (
        f'"logprob": {_number(distribution.logprob)}, "top_logprobs": {_token_array(distribution.top)}, '
        f'"entropy": {_number(distribution.entropy)}'
    )
    if distribution.named:
        members += f', "logprob_of": {_token_array(distribution.named)}'
    if distribution.row is not None:
        members += f', "row": "{b64encode(distribution.row).decode()}"'
    return members


def _token_array(tokens: tuple[TokenLogprob, ...]) -> str:
    objects = [
        f'{{"id": {token.id}, {_piece_members(token.data)}, "logprob": {_number(token.logprob)}}}'
        for token in tokens
    ]
    return f"[{', '.join(objects)}]"


@cache  # as many as the vocabularies have pieces
def _piece_members(data: bytes) -> str:
    return f'"token": {encode_json(display_text(data))}, "bytes": {list(data)}'


def _number(value: float | None) -> str:
    finite = finite_or_none(value)
    return "null" if finite is None else float.__repr__(float(finite))


@dataclass(frozen=True)
class TracedChain:
    """A chain under the name that the user gave it, with its trace; ``steps``: as in `Start.chain`."""

    name: str
    steps: Sequence[Mapping[str, Any]]
    trace: Trace


@dataclass(frozen=True)
class ChainDistance:
    """How far what a chain leaves is from what the first chain leaves.

    Attributes:
        total_variation: within 0..1.
        divergence: KL(first || this) in nats; may be infinite.
        reverse_divergence: KL(this || first), likewise.
    """

    total_variation: float
    divergence: float
    reverse_divergence: float


def next_token_fields(
    head: Mapping[str, Any],
    first: TracedChain,
    forced: bytes | None = None,
    against: Sequence[tuple[TracedChain, ChainDistance]] = (),
) -> dict[str, Any]:
    """One object: the head, ``chain, stages[], candidates[]``; ``forced`` and ``against[]`` if there are any.

    A chain of ``against`` has ``name, chain, total_variation, kl, reverse_kl, stages[], candidates[]``; a
    divergence that is infinite is null.

    Args:
        head: what is known of the model and the prompt, ``prompt_tokens`` among it.
        first: the chain of the command line.
        forced: the bytes of the token that the grammar leaves no choice about; None if there is a choice.
        against: the other chains.
    """
    return {
        **head,
        "chain": list(first.steps),
        **_trace_fields(first.trace),
        **({} if forced is None else {"forced": {"token": display_text(forced), "bytes": list(forced)}}),
        **({"against": [_against_fields(chain, distance) for chain, distance in against]} if against else {}),
    }


def _against_fields(chain: TracedChain, distance: ChainDistance) -> dict[str, Any]:
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
