"""The completions of Together and of llama.cpp's server.

Together's has plain lists of tokens and logprobs, also for the prompt. The server's has
``completion_probabilities``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from .openai import Completion, Json, finish_reason, logprobs_by_text, tokens_of_text, usage
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none


def together_completion(completion: Completion, chat: bool) -> dict[str, Any]:
    """A whole run. With ``echo``, ``prompt`` holds the prompt with its logprobs; otherwise it is empty.

    The tokens are those of the text, see `tokens_of_text`. Tokens of the prompt lack the space of the tokenizer.
    ``chat``: the text stands in a message. Two fields are ours: ``logprobs_from``, and ``top_logprobs`` where more
    than the chosen token's logprobs are requested.
    """
    head, text = completion.head, completion.finish.text

    def logprobs(tokens: Sequence[TokenRecord]) -> dict[str, Any] | None:
        return None if head.source is None else _logprob_lists(tokens, head.top)

    choice = {
        "finish_reason": finish_reason(completion.finish),
        "logprobs": logprobs(tokens_of_text(completion.tokens, text, completion.finish.stop)),
        "index": 0,
        **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
    }
    echo = completion.echo
    prompt_tokens = [token.without_added_bytes() for token in echo or ()]
    return {
        "id": head.id,
        "object": "chat.completion" if chat else "text_completion",
        "created": head.created,
        "model": head.model,
        "logprobs_from": head.source,
        "prompt": [] if echo is None else [{"text": head.prompt, "logprobs": logprobs(prompt_tokens)}],
        "choices": [choice],
        "usage": usage(head, completion.finish.completion_tokens),
    }


def _logprob_lists(tokens: Sequence[TokenRecord], top: int) -> dict[str, Any]:
    lists: dict[str, Any] = {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
    }
    if top > 1:
        lists["top_logprobs"] = [logprobs_by_text(token) for token in tokens]
    return lists


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
