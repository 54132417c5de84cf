"""The lines of the `jsonl` format: one strict JSON object each, with its kind in ``event``."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from .json_encoder import encode_json
from .records import Distribution, TokenRecord, display_text, finite_or_none


def start_line(content: Mapping[str, Any]) -> str:
    """The first line: everything that is needed to repeat the run."""
    return _line("start", content)


def prompt_line(token: TokenRecord) -> str:
    """A token of the prompt, with the fields of `token_line`. The first token has no logprob."""
    return _line("prompt", token_fields(token))


def token_line(token: TokenRecord) -> str:
    """A token that was written; for the fields see `token_fields`."""
    return _line("token", token_fields(token))


def done_line(content: Mapping[str, Any]) -> str:
    """The last line: ``finish_reason, text, usage, timings``."""
    return _line("done", content)


def token_fields(token: TokenRecord) -> dict[str, Any]:
    """The fields of a token.

    ``index, id, token, bytes``; ``logprobs_from`` and, of that source, ``logprob, top_logprobs[], entropy`` and
    where requested ``logprob_of[]`` and ``row``; ``text``, the text that can be shown once the token is there.
    With two sources these fields are the model's, and ``chain`` holds the chain's. ``trace``, if the run is
    traced.
    """
    first: dict[str, Any] = {"logprob": None, "top_logprobs": []}
    if token.distributions:
        first = {
            "logprobs_from": token.distributions[0].source,
            **_distribution_fields(token.distributions[0]),
        }
    return {
        "index": token.index,
        "id": token.id,
        "token": display_text(token.data),
        "bytes": list(token.data),
        **first,
        "text": token.text,
        **{other.source: _distribution_fields(other) for other in token.distributions[1:]},
        **({} if token.trace is None else {"trace": token.trace.as_json()}),
    }


def _distribution_fields(distribution: Distribution) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "logprob": finite_or_none(distribution.logprob),
        "top_logprobs": [token.as_json() for token in distribution.top],
        "entropy": finite_or_none(distribution.entropy),
    }
    if distribution.named:
        fields["logprob_of"] = [token.as_json() for token in distribution.named]
    if distribution.row is not None:
        fields["row"] = b64encode(distribution.row).decode()
    return fields


def _line(event: str, content: Mapping[str, Any]) -> str:
    return encode_json({"event": event, **content}) + "\n"
