"""What llama.cpp's server answers at `/completion`."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

from ..errors import RecoverError
from .base import EndpointAnswer


def read_completion(body: Any, calls: int, window: int) -> EndpointAnswer:
    """Return the answer: the token and its window, or without one only the token.

    Raises ``RecoverError`` for a negative probability, and whatever indexing raises for another shape.
    """
    if not window or "completion_probabilities" not in body:
        return EndpointAnswer(int(body["tokens"][0]), calls=calls)
    step = body["completion_probabilities"][0]
    entries = step.get("top_probs", step.get("top_logprobs"))
    logprobs = {int(entry["id"]): value for entry in entries if (value := _logprob(entry)) is not None}
    pieces = {int(entry["id"]): bytes([*entry["bytes"]]) for entry in entries}
    return EndpointAnswer(int(step["id"]), _logprob(step), logprobs, pieces, calls)


def count_tokens_read(body: Any) -> int:
    """Return how many tokens of the prompt were computed for an answer; 1 if the server does not say."""
    try:
        return int(body["timings"]["prompt_n"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _logprob(entry: Mapping[str, Any]) -> float | None:
    """Return the logprob of an entry, also from a probability; None for one that float32 rounded to 0."""
    if "logprob" in entry:
        return float(entry["logprob"])
    probability = float(entry["prob"])
    if probability < 0:
        raise RecoverError(
            f"the endpoint gives token {entry.get('id')} the probability {probability}, which is none"
        )
    return log(probability) if probability > 0 else None
