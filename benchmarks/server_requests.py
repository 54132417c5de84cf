"""The requests of `benchmarks.server`, and their form for each side."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

VARIANTS = tuple(f"{kind}{end}" for end in ("", " + schema") for kind in ("short", "shared beginning", "long"))
_RULE = "Answer the question below in one short and friendly sentence, and say so if you do not know. "
_ASKED = ("the sea", "a lighthouse", "the weather at noon", "an old ship", "salt", "the keeper", "storms", "birds")
SCHEMA = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "maxLength": 40},
        "answer": {"type": "string", "maxLength": 120},
        "certainty": {"type": "integer", "minimum": 0, "maximum": 100},
        "sources": {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 1, "maxItems": 3},
    },
    "required": ["topic", "answer", "certainty", "sources"],
    "additionalProperties": False,
}
_SCHEMA_TOKENS = 96
"""Maximum tokens of an answer under a schema; most answers end before."""
CHAIN = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
SERVERS_CHAIN = {
    "samplers": ["top_k", "top_p", "min_p", "temperature"],
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "temperature": 0.8,
}


class Request(NamedTuple):
    """A request, for both sides."""

    id: str
    prompt: str | list[int]
    seed: int
    max_tokens: int
    has_schema: bool


def make_requests(variant: str, number: int, total: int) -> list[Request]:
    """Return the requests of round ``number``; half as many with long prompts.

    The prompts of different rounds differ from their first token on.
    """
    kind, _, schema = variant.partition(" + ")
    requests = []
    for index in range(total // 2 if kind == "long" else total):
        begin = {
            "short": "",
            "shared beginning": f"Round {number}. " + _RULE * 15,
            "long": f"Case {number}.{index}. " + _RULE * 30,
        }[kind]
        prompt = f"{begin}Question {number}.{index}: what about {_ASKED[index % len(_ASKED)]}?\nAnswer:"
        length = _SCHEMA_TOKENS if schema else 32 + index * 7 % 32
        requests.append(Request(f"{variant} {number}.{index}", prompt, index, length, bool(schema)))
    return requests


def server_body(request: Request) -> bytes:
    """Return the body of a request to llama-server."""
    body: dict[str, Any] = {
        "prompt": request.prompt,
        "seed": request.seed,
        "n_predict": request.max_tokens,
        "ignore_eos": not request.has_schema,
        **SERVERS_CHAIN,
    }
    if request.has_schema:
        body["json_schema"] = SCHEMA
    return json.dumps(body).encode()


def batch_line(request: Request) -> bytes:
    """Return the line of a request to `gen batch`."""
    line: dict[str, Any] = {
        "id": request.id,
        "prompt": request.prompt,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "chain": CHAIN,
    }
    if request.has_schema:
        line["json_schema"] = SCHEMA
    else:
        line["set"] = {"ignore_eos": True}
    return json.dumps(line).encode() + b"\n"
