"""The `jsonl` format: one strict JSON object a line, named by ``event``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .records import TokenLogprob

# One encoder for all lines: `json.dumps` would make a new one for each.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def start_line(fields: Mapping[str, Any]) -> str:
    """The first line: everything that is needed to repeat the run."""
    return _line("start", fields)


def prompt_line(index: int, token: TokenLogprob) -> str:
    """A token of the prompt."""
    return _line("prompt", {"index": index, "id": token.id, "token": token.text, "bytes": list(token.data)})


def token_line(index: int, chosen: TokenLogprob, top: Iterable[TokenLogprob], text: str) -> str:
    """A token: ``index, id, token, bytes, logprob, top_logprobs[], text`` (what it lets be shown)."""
    alternatives = [other.as_json() for other in top]
    return _line("token", {"index": index, **chosen.as_json(), "top_logprobs": alternatives, "text": text})


def done_line(fields: Mapping[str, Any]) -> str:
    """The last line: ``finish_reason, text, usage, timings``."""
    return _line("done", fields)


def _line(event: str, fields: Mapping[str, Any]) -> str:
    return _encode({"event": event, **fields}) + "\n"
