"""The `jsonl` format: one strict JSON object a line, named by ``event``."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from .json_encoder import encode_json
from .records import Distribution, TokenRecord, display_text, finite_or_none


def start_line(content: Mapping[str, Any]) -> str:
    """The first line: everything that is needed to repeat the run."""
    return _line("start", content)


def prompt_line(step: TokenRecord) -> str:
    """A token of the prompt; the fields of `token_line`. The first one has no logprob: nothing is before it."""
    return _line("prompt", fields(step))


def token_line(step: TokenRecord) -> str:
    """A token that was written.

    ``index, id, token, bytes``; ``logprobs_from`` and, of that source, ``logprob, top_logprobs[], entropy`` and
    where asked for ``logprob_of[]`` and ``row``; ``text`` (what the token lets be shown). With both sources these
    are the model's, and ``chain`` holds the same of the chain.
    """
    return _line("token", fields(step))


def done_line(content: Mapping[str, Any]) -> str:
    """The last line: ``finish_reason, text, usage, timings``."""
    return _line("done", content)


def fields(step: TokenRecord) -> dict[str, Any]:
    """What a line says of a token."""
    known: dict[str, Any] = {"logprob": None, "top_logprobs": []}
    if step.distributions:
        known = {"logprobs_from": step.distributions[0].source, **_known(step.distributions[0])}
    return {
        "index": step.index,
        "id": step.id,
        "token": display_text(step.data),
        "bytes": list(step.data),
        **known,
        "text": step.text,
        **{other.source: _known(other) for other in step.distributions[1:]},
    }


def _known(found: Distribution) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "logprob": finite_or_none(found.logprob),
        "top_logprobs": [token.as_json() for token in found.top],
        "entropy": finite_or_none(found.entropy),
    }
    if found.named:
        fields["logprob_of"] = [token.as_json() for token in found.named]
    if found.row is not None:
        fields["row"] = b64encode(found.row).decode()
    return fields


def _line(event: str, content: Mapping[str, Any]) -> str:
    return encode_json({"event": event, **content}) + "\n"
