"""The completion formats of Together and of llama.cpp's server.

Together's format has lists of tokens and logprobs, also for the prompt. The server's format has
``completion_probabilities``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from math import exp

from .events import Done, Event, Start, split_events
from .openai import Json, finish_reason, logprob_source, logprobs_by_text, usage
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none
from .text_tokens import tokens_of_text


def together_completion(  # noqa: PLR0913 - the format depends on all of them
    events: Iterable[Event],
    answer_id: str,
    *,
    prompt: str = "",
    echo: bool = False,
    chat: bool = False,
    created: int | None = None,
) -> Json:
    """Return a run in Together's format.

    The tokens are those of `tokens_of_text`. Tokens of the prompt lack the space that the tokenizer adds.
    Logitsmith adds two fields: ``logprobs_from``, and ``top_logprobs`` if the logprobs of more than one token are
    requested.

    Args:
        events: the events of the run.
        answer_id: the answer's id.
        prompt: the prompt.
        echo: True to return the prompt with its logprobs in the field ``prompt``, which is empty otherwise.
        chat: True to return the text as a message.
        created: the answer's time in seconds since 1970; None = now.
    """
    start_event, prompt_tokens, tokens, done_event = split_events(events)

    def logprobs(tokens: Sequence[TokenRecord]) -> Json | None:
        return None if start_event.logprobs is None else _logprob_lists(tokens, start_event.logprobs["top"])

    choice = {
        "finish_reason": finish_reason(done_event),
        "logprobs": logprobs(tokens_of_text(tokens, done_event.text, done_event.stop)),
        "index": 0,
        **({"message": {"role": "assistant", "content": done_event.text}} if chat else {"text": done_event.text}),
    }
    echoed = [token.without_added_bytes() for token in prompt_tokens]
    return {
        "id": answer_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()) if created is None else created,
        "model": start_event.model,
        "logprobs_from": logprob_source(start_event),
        "prompt": [{"text": prompt, "logprobs": logprobs(echoed)}] if echo else [],
        "choices": [choice],
        "usage": usage(done_event),
    }


def _logprob_lists(tokens: Sequence[TokenRecord], top_count: int) -> Json:
    lists: Json = {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
    }
    if top_count > 1:
        lists["top_logprobs"] = [logprobs_by_text(token) for token in tokens]
    return lists


_STOP_TYPES = {"grammar": "eos", "length": "limit", "context": "limit", "interrupted": "none"}
"""The server's ``stop_type`` for a finish reason; ``word`` and ``eos`` for the reason ``stop``."""


def llama_server_completion(events: Iterable[Event], *, prompt: str = "") -> Json:
    """Return a run in the format of llama.cpp's server.

    If the logprobs are those of the chain, probabilities are written instead, as the server does with
    ``post_sampling_probs``. Logitsmith adds the field ``logprobs_from``. A missing logprob is null, where the
    server writes the lowest float32. ``completion_probabilities`` has the tokens of `tokens_of_text` and, as the
    server does, the end-of-generation token without text and bytes. ``tokens`` has the ids of all generated
    tokens.

    Args:
        events: the events of the run.
        prompt: the prompt.
    """
    start_event, _, tokens, done_event = split_events(events)
    is_post_sampling = logprob_source(start_event) == "chain"
    response: Json = {
        "index": 0,
        "content": done_event.text,
        "tokens": [token.id for token in tokens],
        "id_slot": 0,
        "stop": True,
        "model": start_event.model,
        "tokens_predicted": done_event.completion_tokens,
        "tokens_evaluated": done_event.prompt_tokens,
        "generation_settings": {
            **_generation_settings(start_event),
            "n_probs": 0 if start_event.logprobs is None else start_event.logprobs["top"],
            "post_sampling_probs": is_post_sampling,
        },
        "prompt": prompt,
        "has_new_line": "\n" in done_event.text,
        "truncated": done_event.finish_reason == "context",
        "stop_type": "word" if done_event.stop is not None else _STOP_TYPES.get(done_event.finish_reason, "eos"),
        "stopping_word": done_event.stop or "",
        "tokens_cached": start_event.cached_tokens,
        "timings": _timings(done_event),
        "logprobs_from": logprob_source(start_event),
    }
    if start_event.logprobs is not None:
        text_tokens = tokens_of_text(tokens, done_event.text, done_event.stop, keeps_control_tokens=True)
        response["completion_probabilities"] = _probability_fields(text_tokens, is_post_sampling)
    return response


def _generation_settings(start_event: Start) -> Json:
    """Return the settings of the run. Settings that the server has, too, have the server's names."""
    return {
        "seed": start_event.seed,
        "n_predict": -1 if start_event.max_tokens is None else start_event.max_tokens,
        "n_ctx": start_event.context,
        "stop": list(start_event.stop),
        "samplers": [name for step in start_event.chain for name in step],
        "chain": start_event.chain,
        "grammar": "" if start_event.grammar is None else start_event.grammar["source"],
    }


def _timings(done_event: Done) -> Json:
    """Return the server's ``timings``: numbers of tokens, milliseconds, and tokens per second."""
    timings = done_event.timings
    fields: dict[str, float] = {}
    for name, count, seconds in (
        ("prompt", done_event.prompt_tokens, timings.prompt),
        ("predicted", done_event.completion_tokens, timings.generation),
    ):
        fields |= {
            f"{name}_n": count,
            f"{name}_ms": round(seconds * 1e3, 3),
            f"{name}_per_token_ms": round(seconds * 1e3 / count, 3) if count else 0.0,
            f"{name}_per_second": round(count / seconds, 3) if seconds > 0 else 0.0,
        }
    return fields


def _probability_fields(tokens: Sequence[TokenRecord], is_post_sampling: bool) -> list[Json]:
    value_name, top_name = ("prob", "top_probs") if is_post_sampling else ("logprob", "top_logprobs")
    return [
        _token_fields(token.chosen, value_name)
        | {top_name: [_token_fields(candidate, value_name) for candidate in token.top]}
        for token in tokens
    ]


def _token_fields(token: TokenLogprob, value_name: str) -> Json:
    value = finite_or_none(token.logprob)
    if value_name == "prob":
        value = 0.0 if value is None else exp(value)
    text = token.data.decode("utf-8", "ignore")  # the server leaves out bytes that are not UTF-8
    return {"id": token.id, "token": text, "bytes": list(token.data), value_name: value}
