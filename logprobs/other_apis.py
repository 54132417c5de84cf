"""The completion formats of Together, of llama.cpp's server and of KoboldCpp.

Together's format has lists of tokens and logprobs, also for the prompt. The server's format has
``completion_probabilities``. KoboldCpp's format has results, and messages for single tokens.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp
from typing import Any

from ..common.strict_json import encode_json
from .events import Done, Event, Start, Token, read_start, split_events
from .openai import Json, LogprobShape, finish_reason, logprob_source, logprobs_by_text, text_logprobs, usage
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none
from .text_tokens import TextOffsets, TextTokenStream, tokens_of_text


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
    start, prompt_tokens, tokens, done = split_events(events)

    def logprobs(tokens: Sequence[TokenRecord]) -> Json | None:
        return None if start.logprobs is None else _logprob_lists(tokens, start.logprobs["top"])

    choice = {
        "finish_reason": finish_reason(done),
        "logprobs": logprobs(tokens_of_text(tokens, done.text, done.stop)),
        "index": 0,
        **({"message": {"role": "assistant", "content": done.text}} if chat else {"text": done.text}),
    }
    echoed = [token.without_added_bytes() for token in prompt_tokens]
    return {
        "id": answer_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()) if created is None else created,
        "model": start.model,
        "logprobs_from": logprob_source(start),
        "prompt": [{"text": prompt, "logprobs": logprobs(echoed)}] if echo else [],
        "choices": [choice],
        "usage": usage(done),
    }


def _logprob_lists(tokens: Sequence[TokenRecord], top: int) -> Json:
    lists: Json = {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
    }
    if top > 1:
        lists["top_logprobs"] = [logprobs_by_text(token) for token in tokens]
    return lists


_STOP_TYPES = {
    "grammar": "eos",
    "length": "limit",
    "context": "limit",
    "interrupted": "none",
    "banned": "none",
    "loop": "none",
}
"""The server's ``stop_type`` for a finish reason; ``word`` and ``eos`` for the reason ``stop``."""


def llama_server_completion(
    events: Iterable[Event], *, prompt: str = "", index: int = 0, has_token_ids: bool = True
) -> Json:
    """Return a run in the format of llama.cpp's server.

    If the logprobs are those of the chain, probabilities are written instead, as the server does with
    ``post_sampling_probs``. Logitsmith adds the field ``logprobs_from``. A missing logprob is null, where the
    server writes the lowest float32. ``completion_probabilities`` has the tokens of `tokens_of_text` and, as the
    server does, the end-of-generation token without text and bytes. ``tokens`` has the ids of all generated
    tokens.

    Args:
        events: the events of the run.
        prompt: the prompt.
        index: number of the answer among the answers of one request, counted from 0.
        has_token_ids: True to write ``tokens``; otherwise the list is empty.
    """
    start, _, tokens, done = split_events(events)
    token_ids = [token.id for token in tokens] if has_token_ids else []
    response = _record(start, done, prompt, index) | {"content": done.text, "tokens": token_ids}
    if start.logprobs is not None:
        text_tokens = tokens_of_text(tokens, done.text, done.stop, keeps_control_tokens=True)
        response["completion_probabilities"] = _probabilities(start, text_tokens)
    return response


class _TokenStream(ABC):
    """The JSON objects of a stream, made from events that arrive one by one.

    There is an object for each token of the text, which is returned once its text cannot change any more. The last
    object has the text that was held back.
    """

    def __init__(self, *, keeps_control_tokens: bool = False) -> None:
        self._start: Start | None = None
        self._text_tokens = TextTokenStream(keeps_control_tokens=keeps_control_tokens)

    def push(self, event: Event) -> Iterator[Json]:
        """Yield the objects that are complete after this event. The first event must be a `Start`."""
        start = self._start
        if start is None:
            self._start = read_start(iter([event]))
        elif isinstance(event, Token):
            yield from (self._token_json(start, token) for token in self._text_tokens.push(event))
        elif isinstance(event, Done):
            yield from (
                self._token_json(start, token) for token in self._text_tokens.finish(event.text, event.stop)
            )
            yield self._last_json(start, event, event.text[self._text_tokens.text_length :])

    @abstractmethod
    def _token_json(self, start: Start, token: TokenRecord) -> Json:
        """Return the object of a token."""

    @abstractmethod
    def _last_json(self, start: Start, done: Done, held_back: str) -> Json:
        """Return the last object."""


class LlamaServerChunks(_TokenStream):
    """The chunks of an answer of llama.cpp's server, made from events that arrive one by one.

    There is a chunk for each token of ``completion_probabilities``. The last chunk is the answer of
    `llama_server_completion` without ``tokens`` and logprobs; its ``content`` is the text that was held back.

    Args:
        prompt: the prompt.
        index: number of the answer among the answers of one request, counted from 0.
    """

    def __init__(self, *, prompt: str = "", index: int = 0) -> None:
        super().__init__(keeps_control_tokens=True)
        self._prompt, self._index = prompt, index
        self._count = 0

    def _token_json(self, start: Start, token: TokenRecord) -> Json:
        self._count += 1
        chunk: Json = {
            "index": self._index,
            "content": token.text,
            "tokens": [token.id],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._count,
            "tokens_evaluated": start.prompt_tokens,
        }
        if start.logprobs is not None:
            chunk["completion_probabilities"] = _probabilities(start, [token])
        return chunk

    def _last_json(self, start: Start, done: Done, held_back: str) -> Json:
        return _record(start, done, self._prompt, self._index) | {"content": held_back}


def _record(start: Start, done: Done, prompt: str, index: int) -> Json:
    """Return the fields of an answer that is complete, without its text and tokens."""
    return {
        "index": index,
        "content": "",
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": start.model,
        "tokens_predicted": done.completion_tokens,
        "tokens_evaluated": done.prompt_tokens,
        "generation_settings": {
            **_settings(start),
            "n_probs": 0 if start.logprobs is None else start.logprobs["top"],
            "post_sampling_probs": logprob_source(start) == "chain",
        },
        "prompt": prompt,
        "has_new_line": "\n" in done.text,
        "truncated": done.finish_reason == "context",
        "stop_type": "word" if done.stop is not None else _STOP_TYPES.get(done.finish_reason, "eos"),
        "stopping_word": done.stop or "",
        "tokens_cached": start.cached_tokens,
        "timings": _timings(start, done),
        "logprobs_from": logprob_source(start),
    }


def _settings(start: Start) -> Json:
    """Return the settings of the run. Settings that the server has, too, have the server's names."""
    limit = -1 if start.max_tokens is None else start.max_tokens
    return {
        "seed": start.seed,
        **llama_server_samplers(start.chain),
        "max_tokens": limit,
        "n_predict": limit,
        "n_ctx": start.context,
        "stop": list(start.stop),
        "grammar": "" if start.grammar is None else start.grammar["source"],
    }


_SAMPLER_SETTINGS: Mapping[str, tuple[str, str, object]] = {
    "temperature": ("temperature", "t", 1.0),
    "dynatemp_range": ("dynatemp", "range", 0.0),
    "dynatemp_exponent": ("dynatemp", "exponent", 1.0),
    "top_k": ("top_k", "k", 0),
    "top_p": ("top_p", "p", 1.0),
    "min_p": ("min_p", "p", 0.0),
    "top_n_sigma": ("top_n_sigma", "n", -1.0),
    "xtc_probability": ("xtc", "probability", 0.0),
    "xtc_threshold": ("xtc", "threshold", 0.1),
    "typical_p": ("typical", "p", 1.0),
    "repeat_last_n": ("penalties", "last_n", 64),
    "repeat_penalty": ("penalties", "repeat", 1.0),
    "presence_penalty": ("penalties", "presence", 0.0),
    "frequency_penalty": ("penalties", "frequency", 0.0),
    "dry_multiplier": ("dry", "multiplier", 0.0),
    "dry_base": ("dry", "base", 1.75),
    "dry_allowed_length": ("dry", "allowed_length", 2),
    "dry_penalty_last_n": ("dry", "last_n", -1),
    "dry_sequence_breakers": ("dry", "breakers", ["\n", ":", '"', "*"]),
    "adaptive_target": ("adaptive_p", "target", -1.0),
    "adaptive_decay": ("adaptive_p", "decay", 0.9),
}
"""The server's settings of samplers: our sampler, its parameter, and the value without this sampler."""


def llama_server_samplers(chain: Sequence[Mapping[str, Mapping[str, Any]]]) -> Json:
    """Return the settings of a chain under the names of llama.cpp's server, with ``samplers`` and ``chain``.

    Samplers that the server does not have are only in ``samplers`` and ``chain``.

    Args:
        chain: the steps of the chain with their parameters.
    """
    steps = {name: parameters for step in chain for name, parameters in step.items()}
    settings: Json = {
        name: steps.get(sampler, {}).get(parameter, default)
        for name, (sampler, parameter, default) in _SAMPLER_SETTINGS.items()
    }
    if "greedy" in steps:
        settings["temperature"] = 0.0
    elif "dynatemp" in steps:
        settings["temperature"] = steps["dynatemp"]["temperature"]
    mirostat = steps.get("mirostat_v2", steps.get("mirostat", {}))
    biases = steps.get("logit_bias", {}).get("bias", {})
    return settings | {
        "mirostat": 2 if "mirostat_v2" in steps else int("mirostat" in steps),
        "mirostat_tau": mirostat.get("tau", 5.0),
        "mirostat_eta": mirostat.get("eta", 0.1),
        "ignore_eos": "ignore_eos" in steps,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in biases.items()],
        "samplers": [name for step in chain for name in step],
        "chain": list(chain),
    }


def _timings(start: Start, done: Done) -> Json:
    """Return the server's ``timings``: numbers of tokens, milliseconds, and tokens per second."""
    times = done.timings
    fields: dict[str, float] = {"cache_n": start.cached_tokens}
    for name, count, seconds in (
        ("prompt", done.prompt_tokens - start.cached_tokens, times.prompt),
        ("predicted", done.completion_tokens, times.generation),
    ):
        fields |= {
            f"{name}_n": count,
            f"{name}_ms": round(seconds * 1e3, 3),
            f"{name}_per_token_ms": round(seconds * 1e3 / count, 3) if count else 0.0,
            f"{name}_per_second": round(count / seconds, 3) if seconds > 0 else 0.0,
        }
    if done.drafted_tokens is not None and done.accepted_tokens is not None:
        fields |= {"draft_n": done.drafted_tokens, "draft_n_accepted": done.accepted_tokens}
    return fields


def _probabilities(start: Start, tokens: Iterable[TokenRecord]) -> list[Json]:
    value, top = ("prob", "top_probs") if logprob_source(start) == "chain" else ("logprob", "top_logprobs")
    return [
        _token(token.chosen, value) | {top: [_token(candidate, value) for candidate in token.top]}
        for token in tokens
    ]


def _token(token: TokenLogprob, value_name: str) -> Json:
    value = finite_or_none(token.logprob)
    if value_name == "prob":
        value = 0.0 if value is None else exp(value)
    text = token.data.decode("utf-8", "ignore")  # the server leaves out bytes that are not UTF-8
    return {"id": token.id, "token": text, "bytes": list(token.data), value_name: value}


_KOBOLD_SHAPE = LogprobShape(has_both_forms=True, has_all_requested=True)
"""The chosen token is always among the alternatives, since a client searches for the token there."""


def kobold_result(events: Iterable[Event], *, keeps_stop: bool = False) -> Json:
    """Return a run as one of KoboldCpp's ``results``, with the tokens of `tokens_of_text`.

    Args:
        events: the events of the run.
        keeps_stop: True to return the stop string that ended the text, too.
    """
    start, _, tokens, done = split_events(events)
    return {
        "text": done.text + _kept_stop(done, keeps_stop),
        "finish_reason": finish_reason(done),
        "tool_calls": [],
        "logprobs": kobold_logprobs(start, tokens_of_text(tokens, done.text, done.stop)),
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
    }


def kobold_logprobs(start: Start, tokens: Sequence[TokenRecord]) -> Json | None:
    """Return the logprobs of tokens in KoboldCpp's format; None if the run has no logprobs."""
    logprobs = text_logprobs(start, tokens, TextOffsets().advance(tokens), _KOBOLD_SHAPE)
    return None if logprobs is None else logprobs | {"token_ids": [token.id for token in tokens]}


def _kept_stop(done: Done, keeps_stop: bool) -> str:
    return (done.stop or "") if keeps_stop else ""


class KoboldMessages(_TokenStream):
    """KoboldCpp's messages of a stream, made from events that arrive one by one.

    There is a message for each token of `kobold_result`. The last message has text that was held back, and the
    finish reason.

    Args:
        keeps_stop: True to return the stop string that ended the text, too.
    """

    def __init__(self, *, keeps_stop: bool = False) -> None:
        super().__init__()
        self._keeps_stop = keeps_stop

    def _token_json(self, start: Start, token: TokenRecord) -> Json:
        logprobs = kobold_logprobs(start, [token])
        fields = {} if logprobs is None else logprobs["content"][0]
        return fields | {"token": token.text, "finish_reason": None}

    def _last_json(self, start: Start, done: Done, held_back: str) -> Json:
        return {"token": held_back + _kept_stop(done, self._keeps_stop), "finish_reason": finish_reason(done)}


def kobold_server_sent(message: Mapping[str, object]) -> str:
    """Return a server-sent event of KoboldCpp."""
    return f"event: message\ndata: {encode_json(message)}\n\n"
