"""The completion of llama.cpp's server, with its completion_probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from .completion import Completion, tokens_of_text
from .records import TokenLogprob, TokenRecord, finite_or_none

Json = dict[str, Any]

_STOP_TYPES = {"grammar": "eos", "length": "limit", "context": "limit", "interrupted": "none"}


def llama_server_completion(completion: Completion, settings: Json, timings: Json, cached: int) -> Json:
    """A whole run.

    From the chain, probabilities take the place of logprobs, as the server writes them with
    ``post_sampling_probs``. One field is ours: ``logprobs_from``. A missing logprob is null, where the server
    writes the lowest float32. The tokens are those of the text, see `tokens_of_text`. As with the server, the
    token that ended the text is one of them, without text and bytes; a stop text is not. ``tokens`` has all ids.

    Args:
        completion: the run.
        settings: the settings of the run.
        timings: the timings, as the server names them.
        cached: how many tokens of the prompt were in the cache.
    """
    head, finish = completion.head, completion.finish
    is_post_sampling = head.source == "chain"
    response: Json = {
        "index": 0,
        "content": finish.text,
        "tokens": [token.id for token in completion.tokens],
        "id_slot": 0,
        "stop": True,
        "model": head.model,
        "tokens_predicted": finish.completion_tokens,
        "tokens_evaluated": head.prompt_tokens,
        "generation_settings": {**settings, "n_probs": head.top, "post_sampling_probs": is_post_sampling},
        "prompt": head.prompt,
        "has_new_line": "\n" in finish.text,
        "truncated": finish.truncated,
        "stop_type": "word" if finish.stop is not None else _STOP_TYPES.get(finish.reason, "eos"),
        "stopping_word": finish.stop or "",
        "tokens_cached": cached,
        "timings": timings,
        "logprobs_from": head.source,
    }
    if head.source is not None:
        tokens = tokens_of_text(completion.tokens, finish.text, finish.stop, keeps_control_tokens=True)
        response["completion_probabilities"] = _probabilities(tokens, is_post_sampling)
    return response


def _probabilities(tokens: Sequence[TokenRecord], is_post_sampling: bool) -> list[Json]:
    value, top = ("prob", "top_probs") if is_post_sampling else ("logprob", "top_logprobs")
    return [
        _token(token.chosen, value) | {top: [_token(candidate, value) for candidate in token.top]}
        for token in tokens
    ]


def _token(token: TokenLogprob, value_name: str) -> Json:
    value = finite_or_none(token.logprob)
    if value_name == "prob":
        value = 0.0 if value is None else exp(value)
    text = token.data.decode("utf-8", "ignore")  # the server leaves out bytes that are not text
    return {"id": token.id, "token": text, "bytes": list(token.data), value_name: value}
