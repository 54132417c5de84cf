"""The lines of the ``jsonl`` format, and the next token before it is drawn, as JSON.

A line is one strict JSON object with its kind in ``event``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..common.strict_json import encode_json
from .records import Distribution, TokenLogprob, TokenRecord, Trace, display_text, finite_or_none


def start_line(content: Mapping[str, Any]) -> str:
    """The first line: everything that is needed to repeat the run."""
    return _line("start", content)


def prompt_line(token: TokenRecord) -> str:
    """A token of the prompt, with the fields of `token_line`. The first token has no logprob."""
    return f'{{"event": "prompt", {token_members(token)}}}\n'


def token_line(token: TokenRecord) -> str:
    """A token that was written; for the fields see `token_members`."""
    return f'{{"event": "token", {token_members(token)}}}\n'


def done_line(content: Mapping[str, Any]) -> str:
    """The last line: ``finish_reason, text, usage, timings``."""
    return _line("done", content)


def _line(event: str, content: Mapping[str, Any]) -> str:
    return encode_json({"event": event, **content}) + "\n"


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
