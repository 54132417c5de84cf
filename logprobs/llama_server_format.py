"""The completion of llama.cpp's server, with its completion_probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from .completion import Completion
from .records import TokenLogprob, TokenRecord, finite_or_none

Json = dict[str, Any]

_STOPS = {"grammar": "eos", "length": "limit", "context": "limit", "interrupted": "none"}


def llama_server_completion(run: Completion, settings: Json, timings: Json, cached: int) -> Json:
    """The whole run. ``settings``: what it was made with; ``timings``: as the server names them.

    From the chain, probabilities stand in place of logprobs, as the server has it with ``post_sampling_probs``.
    One field is ours: ``logprobs_from``. Null stands for no logprob, where the server writes float32's lowest.
    """
    head, finish = run.head, run.finish
    after = head.source == "chain"
    found: Json = {
        "index": 0,
        "content": finish.text,
        "tokens": [step.id for step in run.steps],
        "id_slot": 0,
        "stop": True,
        "model": head.model,
        "tokens_predicted": finish.completion_tokens,
        "tokens_evaluated": head.prompt_tokens,
        "generation_settings": {**settings, "n_probs": head.top, "post_sampling_probs": after},
        "prompt": head.prompt,
        "has_new_line": "\n" in finish.text,
        "truncated": finish.truncated,
        "stop_type": "word" if finish.stop is not None else _STOPS.get(finish.reason, "eos"),
        "stopping_word": finish.stop or "",
        "tokens_cached": cached,
        "timings": timings,
        "logprobs_from": head.source,
    }
    if head.source is not None:
        found["completion_probabilities"] = _probabilities(run.steps, after)
    return found


def _probabilities(steps: Sequence[TokenRecord], after: bool) -> list[Json]:
    name, top = ("prob", "top_probs") if after else ("logprob", "top_logprobs")
    return [_token(step.chosen, name) | {top: [_token(other, name) for other in step.top]} for step in steps]


def _token(token: TokenLogprob, name: str) -> Json:
    value = finite_or_none(token.logprob)
    if name == "prob":
        value = 0.0 if value is None else exp(value)
    text = token.data.decode("utf-8", "ignore")  # the server cuts off what is no text
    return {"id": token.id, "token": text, "bytes": list(token.data), name: value}
