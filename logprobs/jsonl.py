"""The lines of the ``jsonl`` format: the events of a run, the results of a batch, and the output of ``gen next``.

A line is one object of strict JSON. In the line of an event, the field ``event`` is the kind of the event.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from ..common.strict_json import encode_json
from .events import Done, Event, PromptToken, Rewind, Start, Token, split_events
from .openai import usage
from .records import Distribution, TokenLogprob, TokenRecord, Trace, display_text, finite_or_none
from .text_tokens import HeldBackText


def format_start_line(content: Mapping[str, Any]) -> str:
    """Return the first line of a run, which has all that is needed to repeat the run."""
    return _event_line("start", content)


def format_prompt_line(token: TokenRecord) -> str:
    """Return the line of a token of the prompt. For the fields see `token_members`; the first logprob is null."""
    return f'{{"event": "prompt", {token_members(token)}}}\n'


def format_token_line(token: TokenRecord) -> str:
    """Return the line of a generated token. For the fields see `token_members`."""
    return f'{{"event": "token", {token_members(token)}}}\n'


def format_rewind_line(rewind: Rewind) -> str:
    """Return the line of a return to an earlier token."""
    return _event_line("rewind", asdict(rewind))


def format_done_line(content: Mapping[str, Any]) -> str:
    """Return the last line of a run, which has ``finish_reason, text, usage, timings``."""
    return _event_line("done", content)


def _event_line(event: str, content: Mapping[str, Any]) -> str:
    return encode_json({"event": event, **content}) + "\n"


def stream_lines(
    events: Iterable[Event],
    prompt: str,
    command: str,
    number: int | None = None,
    number_name: Literal["sample", "beam"] = "sample",
) -> Iterator[str]:
    """Yield the lines of a run, see `RunLines`.

    Args:
        events: the events of the run.
        prompt: the prompt, before a chat template is applied.
        command: the shell command that repeats the run.
        number: the number of the text among several of the same prompt, which each line has; None: there is one.
        number_name: the field of the number.
    """
    lines = RunLines()
    for event in events:
        made = [lines.start(event, prompt, command)] if isinstance(event, Start) else lines.push(event)
        for line in made:
            yield line if number is None else f'{{"{number_name}": {number}, {line[1:]}'


class RunLines:
    """The lines of a run, made from events that arrive one by one.

    The lines are ``start``, a ``prompt`` line for each echoed token, a ``token`` line for each generated token, a
    ``rewind`` line for each return to an earlier token, and ``done``. The joined texts of the ``token`` lines are
    the text of the run. So the line of a token whose text is held back waits for the next event.
    """

    def __init__(self) -> None:
        self._model = ""
        self._held_back_text = HeldBackText()
        self._held_back_token: Token | None = None

    def start(self, event: Start, prompt: str, command: str | None) -> str:
        """Return the first line.

        Args:
            event: the first event of the run.
            prompt: the prompt, before a chat template is applied.
            command: the shell command that repeats the run; None if there is none.
        """
        self._model = event.model
        return format_start_line({**_start_fields(event), "prompt": prompt, "command": command})

    def push(self, event: Event, more: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the lines that are complete after an event. ``more``: further fields of the last line."""
        if isinstance(event, Rewind):  # drops tokens that have no line yet
            yield format_rewind_line(event)
            return
        held_back_token = self._held_back_token
        if held_back_token is not None:
            # Text that is still held back at the end of the run is added to the last token.
            rest = event.rest if isinstance(event, Done) else ""
            yield format_token_line(
                replace(held_back_token, text=held_back_token.text + rest) if rest else held_back_token
            )
            self._held_back_token = None
        if isinstance(event, Token):
            if self._held_back_text.is_held_back(event):
                self._held_back_token = event
            else:
                yield format_token_line(event)
        elif isinstance(event, PromptToken):
            yield format_prompt_line(event)
        elif isinstance(event, Done):
            yield format_done_line({"model": self._model, **_done_fields(event), **(more or {})})


def _start_fields(event: Start) -> dict[str, Any]:
    fields = asdict(event)
    fields |= fields.pop("text_rules")
    del fields["prompt_ids"]  # `--echo` writes a line for each of them
    if event.batch_exactness is not None:
        fields["batch_exactness"] = str(event.batch_exactness)
    if event.draft_exactness is not None:
        fields["draft_exactness"] = event.draft_exactness.promise
    optional = ("grammar", "logprobs", "batch_exactness", "trace", "draft", "draft_exactness")
    return {name: value for name, value in fields.items() if value is not None or name not in optional}


def _done_fields(event: Done) -> dict[str, Any]:
    timings = event.timings
    grammar_fields = (
        {} if event.complete is None else {"complete": event.complete, "forced_tokens": event.forced_tokens}
    )
    return {
        "finish_reason": event.finish_reason,
        **grammar_fields,
        **({} if event.context_shifts is None else {"context_shifts": event.context_shifts}),
        "stop": event.stop,
        "text": event.text,
        **({} if event.score is None else {"score": event.score}),
        "usage": usage(event),
        "timings": {
            "prompt_ms": round(timings.prompt * 1e3, 3),
            "generation_ms": round(timings.generation * 1e3, 3),
            "chain_ms": round(timings.chain * 1e3, 3),
            **({} if event.complete is None else {"grammar_ms": round(timings.grammar * 1e3, 3)}),
        },
    }


def format_result_line(  # noqa: PLR0913 - the fields of a line
    events: Iterable[Event],
    name: str,
    line: int,
    *,
    answer_id: str,
    exactness: str,
    worker: Mapping[str, Any] | None = None,
) -> str:
    """Return the line of an answer in a batch's results.

    It has the fields ``id, line, request_id, model, seed, finish_reason, stop, text, usage, batch_exactness,
    error``. ``complete`` is added under a grammar, ``score`` by a beam search, ``tokens`` if they have logprobs or
    traces, and ``worker`` on a cluster. Each of ``tokens`` has the fields of `token_members`.

    Args:
        events: the events of the run.
        name: the request's id.
        line: number of the request's line in the input, counted from 1.
        answer_id: the answer's id, see `batch_id`.
        exactness: whether other requests can have changed the answer, as text.
        worker: description of the worker that computed the answer; None on one machine.
    """
    start_event, _, tokens, done_event = split_events(events)
    has_tokens = start_event.logprobs is not None or any(token.trace for token in tokens)
    fields = {
        "id": name,
        "line": line,
        "request_id": answer_id,
        "model": start_event.model,
        "seed": start_event.seed,
        "finish_reason": done_event.finish_reason,
        **({} if done_event.complete is None else {"complete": done_event.complete}),
        "stop": done_event.stop,
        "text": done_event.text,
        **({} if done_event.score is None else {"score": done_event.score}),
        "usage": usage(done_event),
        "batch_exactness": exactness,
    }
    token_objects = (
        [f"{{{token_members(token)}}}" for token in _add_rest_to_last(tokens, done_event)] if has_tokens else []
    )
    json_members = [
        encode_json(fields)[1:-1],
        *([f'"tokens": [{", ".join(token_objects)}]'] if has_tokens else []),
        '"error": null',
        *([] if worker is None else [f'"worker": {encode_json(worker)}']),
    ]
    return f"{{{', '.join(json_members)}}}"


def _add_rest_to_last(tokens: Sequence[Token], done_event: Done) -> list[Token]:
    """Return the tokens. The last one also gets the text that was held back until the end of the run."""
    completed_tokens = list(tokens)
    rest_of_text = done_event.text[sum(len(token.text) for token in completed_tokens) :]
    if completed_tokens and rest_of_text:
        completed_tokens[-1] = replace(completed_tokens[-1], text=completed_tokens[-1].text + rest_of_text)
    return completed_tokens


def format_failure_line(name: str, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a request without an answer in a batch's results.

    Args:
        name: the request's id.
        error: an object that `batch_error` returns.
    """
    return {"id": name, "line": error["line"], "error": error}


# A line is written between two tokens, when the processor's caches hold none of its data. So the numbers are
# formatted into a string, and the JSON of a token's bytes is cached. An encoder of objects takes twice as long.
def token_members(token: TokenRecord) -> str:
    """Return the JSON fields of a token, as the members of an object without its braces.

    The fields are ``index, id, token, bytes``, the source ``logprobs_from``, the values of this source ``logprob,
    top_logprobs[], entropy`` and if requested ``logprob_of[]`` and ``row``, and ``text``, the text that can be
    shown after the token. If two sources were read, these values are the model's, and ``chain`` is an object with
    the values of the chain. A token of a traced run also has ``trace``.
    """
    logprobs, second_logprobs = '"logprob": null, "top_logprobs": []', ""
    if token.distributions:
        first_distribution, *other_distributions = token.distributions
        logprobs = f'"logprobs_from": "{first_distribution.source}", {_distribution_members(first_distribution)}'
        second_logprobs = "".join(
            f', "{distribution.source}": {{{_distribution_members(distribution)}}}'
            for distribution in other_distributions
        )
    trace = "" if token.trace is None else f', "trace": {encode_json(token.trace.as_json())}'
    return (
        f'"index": {token.index}, "id": {token.id}, {_bytes_members(token.data)}, {logprobs}, '
        f'"text": {encode_json(token.text)}{second_logprobs}{trace}'
    )


def _distribution_members(distribution: Distribution) -> str:
    members = (
        f'"logprob": {_json_number(distribution.logprob)}, "top_logprobs": {_token_array(distribution.top)}, '
        f'"entropy": {_json_number(distribution.entropy)}'
    )
    if distribution.kept is not None:
        members += f', "kept": {distribution.kept}'
    if distribution.named:
        members += f', "logprob_of": {_token_array(distribution.named)}'
    if distribution.row is not None:
        members += f', "row": "{b64encode(distribution.row).decode()}"'
    return members


def _token_array(tokens: tuple[TokenLogprob, ...]) -> str:
    objects = [
        f'{{"id": {token.id}, {_bytes_members(token.data)}, "logprob": {_json_number(token.logprob)}}}'
        for token in tokens
    ]
    return f"[{', '.join(objects)}]"


@cache  # at most one entry for each token of the loaded vocabularies
def _bytes_members(data: bytes) -> str:
    return f'"token": {encode_json(display_text(data))}, "bytes": {list(data)}'


def _json_number(value: float | None) -> str:
    finite = finite_or_none(value)
    return "null" if finite is None else float.__repr__(float(finite))


@dataclass(frozen=True)
class TracedChain:
    """A chain with a trace of the next token.

    Attributes:
        name: the chain as the user typed it: a preset's name or a compact notation.
        steps: the steps with their parameters, as in `Start.chain`.
        trace: what the steps did to the candidates.
    """

    name: str
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
    """Return the JSON fields of the next token before it is drawn, as ``gen next`` writes them.

    The fields are those of the run and ``chain, stages[], candidates[]``, with ``forced`` and ``against[]`` unless
    they are empty. An entry of ``against`` has ``name, chain, total_variation, kl, reverse_kl, stages[],
    candidates[]``. An infinite divergence is null.

    Args:
        run_fields: fields of the model and the prompt, such as ``prompt_tokens``.
        first_chain: the chain of the command line.
        forced_token: bytes of the only token that the grammar allows; None if the grammar allows several tokens.
        compared_chains: the chains of ``--against``, with their distances from the first chain.
    """
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
