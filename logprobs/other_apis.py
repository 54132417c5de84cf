"""The completion formats of Together, of llama.cpp's server and of KoboldCpp.

Together's format has lists of tokens and logprobs, also for the prompt. The server's format has
``completion_probabilities``. KoboldCpp's format has results, and messages for single tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

from .chunks import Chunk, ChunkMaker, Prompt
from .events import Done, Event, Start, events_by_kind
from .openai import (
    Json,
    LogprobShape,
    echoed_prompt,
    field_confidences,
    finish_reason,
    logprob_source,
    logprobs_by_text,
    server_sent,
    text_logprobs,
    total_usage,
)
from .records import TokenLogprob, display_text, finite_or_none
from .text_tokens import TextOffsets, TextToken, tokens_of_text


def together_completion(  # noqa: PLR0913 - the format depends on all of them
    runs: Sequence[Iterable[Event]],
    answer_id: str,
    *,
    prompt: str = "",
    echo: bool = False,
    chat: bool = False,
    created: int | None = None,
) -> Json:
    """Return the runs of a prompt in Together's format, each as a choice."""
    # The tokens are those of `echoed_prompt` and `tokens_of_text`, also those that are not part of the text.
    # Logitsmith adds two fields: ``logprobs_from``, and ``top_logprobs`` if the logprobs of more than one token
    # are requested.
    complete_runs = [events_by_kind(events) for events in runs]
    first_run = complete_runs[0]
    start = first_run.start
    top_count = 0 if start.logprobs is None else start.logprobs["top"]

    def make_lists(tokens: Sequence[TextToken]) -> Json:
        return _logprob_lists(tokens, top_count)

    choices = []
    for index, run in enumerate(complete_runs):
        done = run.done
        choice: Json = {"finish_reason": finish_reason(done), "logprobs": None, "index": index}
        choice |= field_confidences(start, done)
        if start.logprobs is not None:
            choice["logprobs"] = make_lists(tokens_of_text(run.tokens, done.complete_text, done.stop))
        if chat:
            reasoning = {"reasoning": done.reasoning} if done.reasoning else {}
            choice["message"] = {"role": "assistant", "content": done.text, **reasoning}
        else:
            choice["text"] = done.complete_text
        choices.append(choice)
    is_healed = bool(first_run.tokens) and first_run.tokens[0].healed_bytes > 0
    read_prompt = Prompt(prompt, first_run.prompt_tokens, is_healed)
    return {
        "id": answer_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()) if created is None else created,
        "model": start.model,
        "logprobs_from": logprob_source(start),
        "prompt": [echoed_prompt(start, read_prompt, make_lists)] if echo else [],
        "choices": choices,
        "usage": total_usage([run.done for run in complete_runs]),
    }


def _logprob_lists(tokens: Sequence[TextToken], top_count: int) -> Json:
    lists: Json = {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.record.chosen.logprob) for token in tokens],
    }
    if top_count > 1:
        lists["top_logprobs"] = [logprobs_by_text(token.record) for token in tokens]
    return lists


# The server's `stop_type` for a finish reason. A text that a stop string ended has `word` in place of `eos`.
_STOP_TYPES = {
    "stop": "eos",
    "grammar": "eos",
    "length": "limit",
    "context": "limit",
    "interrupted": "none",
    "banned": "none",
    "loop": "none",
}


def llama_server_completion(
    events: Iterable[Event], *, prompt: str = "", index: int = 0, has_token_ids: bool = True
) -> Json:
    """Return a run in the format of llama.cpp's server. ``index``: the number of the answer in its request."""
    # Logprobs of the chain are written as probabilities, as the server does with ``post_sampling_probs``.
    # Logitsmith adds the field ``logprobs_from``. For a missing logprob, the server writes the lowest float32, and
    # logitsmith null. ``completion_probabilities`` has the tokens that are part of the text, and the
    # end-of-generation token without text and bytes, as in the server. ``tokens`` has the ids of all generated
    # tokens, unless ``has_token_ids`` is false.
    run = events_by_kind(events)
    start, tokens, done = run.start, run.tokens, run.done
    token_ids = [token.id for token in tokens] if has_token_ids else []
    response = _record(start, done, prompt, index) | {"content": done.complete_text, "tokens": token_ids}
    if start.logprobs is not None:
        text_tokens = tokens_of_text(tokens, done.complete_text, done.stop)
        listed_tokens = [token for token in text_tokens if _is_listed_by_server(token)]
        response["completion_probabilities"] = _probabilities(start, listed_tokens)
    return response


def _is_listed_by_server(token: TextToken) -> bool:
    """Return whether llama.cpp's server lists a token: it is part of the text, or a control token."""
    return token.is_in_text or token.record.is_control


class LlamaServerChunks:
    """The chunks of an answer of llama.cpp's server, made from events that arrive one by one."""

    # There is a chunk for each token of ``completion_probabilities``. The last chunk is the answer of
    # `llama_server_completion` without ``tokens`` and logprobs; its ``content`` is the text that was held back.

    def __init__(self, *, prompt: str = "", index: int = 0) -> None:
        self._prompt = prompt
        self._index = index
        self._chunks = ChunkMaker(lambda _, token: _is_listed_by_server(token))
        self._token_count = 0

    def push(self, event: Event) -> Iterator[Json]:
        """Yield the chunks that are complete after this event. The first event must be a `Start`."""
        for chunk in self._chunks.push(event):
            if chunk.done is None:
                yield self._token_chunk(chunk)
            else:
                yield _record(chunk.start, chunk.done, self._prompt, self._index) | {"content": chunk.text}

    def _token_chunk(self, chunk: Chunk) -> Json:
        tokens = chunk.tokens or ()
        self._token_count += len(tokens)
        fields: Json = {
            "index": self._index,
            "content": chunk.text,
            "tokens": [token.id for token in tokens],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._token_count,
            "tokens_evaluated": chunk.start.prompt_tokens,
        }
        if chunk.start.logprobs is not None:
            fields["completion_probabilities"] = _probabilities(chunk.start, tokens)
        return fields


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
        "has_new_line": "\n" in done.complete_text,
        "truncated": done.finish_reason == "context",
        "stop_type": _STOP_TYPES[done.finish_reason] if done.stop is None else "word",
        "stopping_word": done.stop or "",
        "tokens_cached": start.cached_tokens,
        "timings": _timings(start, done),
        "logprobs_from": logprob_source(start),
        **({} if done.confidence is None else {"confidence": done.confidence.as_json()}),
        **field_confidences(start, done),
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


class _ServerSetting(NamedTuple):
    """A setting of the server that is a parameter of a sampler here."""

    sampler: str
    parameter: str
    default: object  # the value if the chain does not have the sampler


_SAMPLER_SETTINGS: Mapping[str, _ServerSetting] = {
    "temperature": _ServerSetting("temperature", "t", default=1.0),
    "dynatemp_range": _ServerSetting("dynatemp", "range", default=0.0),
    "dynatemp_exponent": _ServerSetting("dynatemp", "exponent", default=1.0),
    "top_k": _ServerSetting("top_k", "k", default=0),
    "top_p": _ServerSetting("top_p", "p", default=1.0),
    "min_p": _ServerSetting("min_p", "p", default=0.0),
    "top_n_sigma": _ServerSetting("top_n_sigma", "n", default=-1.0),
    "xtc_probability": _ServerSetting("xtc", "probability", default=0.0),
    "xtc_threshold": _ServerSetting("xtc", "threshold", default=0.1),
    "typical_p": _ServerSetting("typical", "p", default=1.0),
    "repeat_last_n": _ServerSetting("penalties", "last_n", default=64),
    "repeat_penalty": _ServerSetting("penalties", "repeat", default=1.0),
    "presence_penalty": _ServerSetting("penalties", "presence", default=0.0),
    "frequency_penalty": _ServerSetting("penalties", "frequency", default=0.0),
    "dry_multiplier": _ServerSetting("dry", "multiplier", default=0.0),
    "dry_base": _ServerSetting("dry", "base", default=1.75),
    "dry_allowed_length": _ServerSetting("dry", "allowed_length", default=2),
    "dry_penalty_last_n": _ServerSetting("dry", "last_n", default=-1),
    "dry_sequence_breakers": _ServerSetting("dry", "breakers", default=["\n", ":", '"', "*"]),
    "adaptive_target": _ServerSetting("adaptive_p", "target", default=-1.0),
    "adaptive_decay": _ServerSetting("adaptive_p", "decay", default=0.9),
}


def llama_server_samplers(chain: Sequence[Mapping[str, Mapping[str, Any]]]) -> Json:
    """Return the settings of a chain under the names of llama.cpp's server, with ``samplers`` and ``chain``."""
    # Samplers that the server does not have are only in ``samplers`` and ``chain``.
    steps: dict[str, Mapping[str, Any]] = {}
    for step in chain:
        steps |= step
    settings: Json = {}
    for name, setting in _SAMPLER_SETTINGS.items():
        settings[name] = steps.get(setting.sampler, {}).get(setting.parameter, setting.default)
    if "greedy" in steps:
        settings["temperature"] = 0.0
    elif "dynatemp" in steps:
        settings["temperature"] = steps["dynatemp"]["temperature"]
    mirostat: Mapping[str, Any] = {}
    mirostat_version = 0
    if "mirostat_v2" in steps:
        mirostat = steps["mirostat_v2"]
        mirostat_version = 2
    elif "mirostat" in steps:
        mirostat = steps["mirostat"]
        mirostat_version = 1
    biases = steps.get("logit_bias", {}).get("bias", {})
    return settings | {
        "mirostat": mirostat_version,
        "mirostat_tau": mirostat.get("tau", 5.0),
        "mirostat_eta": mirostat.get("eta", 0.1),
        "ignore_eos": "ignore_eos" in steps,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in biases.items()],
        "samplers": [name for step in chain for name in step],
        "chain": list(chain),
    }


def _timings(start: Start, done: Done) -> Json:
    """Return the server's ``timings``: numbers of tokens, milliseconds, and tokens per second."""
    fields: dict[str, float] = {
        "cache_n": start.cached_tokens,
        **_timing_fields("prompt", done.prompt_tokens - start.cached_tokens, done.timings.prompt),
        **_timing_fields("predicted", done.completion_tokens, done.timings.generation),
    }
    if done.drafted_tokens is not None and done.accepted_tokens is not None:
        fields |= {"draft_n": done.drafted_tokens, "draft_n_accepted": done.accepted_tokens}
    return fields


def _timing_fields(name: str, token_count: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": token_count,
        f"{name}_ms": round(seconds * 1e3, 3),
        f"{name}_per_token_ms": round(seconds * 1e3 / token_count, 3) if token_count else 0.0,
        f"{name}_per_second": round(token_count / seconds, 3) if seconds > 0 else 0.0,
    }


def _probabilities(start: Start, tokens: Iterable[TextToken]) -> list[Json]:
    """Return the server's ``completion_probabilities``."""
    has_probabilities = logprob_source(start) == "chain"
    top_name = "top_probs" if has_probabilities else "top_logprobs"
    entries = []
    for token in tokens:
        chosen = replace(token.record.chosen, data=token.data)
        entry = _token_fields(chosen, has_probability=has_probabilities)
        entry[top_name] = [_token_fields(top, has_probability=has_probabilities) for top in token.record.top]
        entries.append(entry)
    return entries


def _token_fields(token: TokenLogprob, *, has_probability: bool) -> Json:
    """Return a token with its logprob, or with its probability."""
    text = token.data.decode("utf-8", "ignore")  # the server leaves out bytes that are not UTF-8
    fields: Json = {"id": token.id, "token": text, "bytes": list(token.data)}
    logprob = finite_or_none(token.logprob)
    if has_probability:
        fields["prob"] = 0.0 if logprob is None else exp(logprob)
    else:
        fields["logprob"] = logprob
    return fields


# The chosen token is always among the alternatives, since a client searches for the token there.
_KOBOLD_SHAPE = LogprobShape(has_both_forms=True, has_all_requested=True, adds_chosen=True)


def kobold_result(events: Iterable[Event], *, keeps_stop: bool = False) -> Json:
    """Return a run as one of KoboldCpp's ``results``, with the tokens that are part of the text."""
    # ``keeps_stop``: whether the stop string that ended the text is returned, too.
    run = events_by_kind(events)
    start, tokens, done = run.start, run.tokens, run.done
    return {
        "text": done.complete_text + _kept_stop(done, keeps_stop),
        "finish_reason": finish_reason(done),
        "tool_calls": [],
        "logprobs": kobold_logprobs(start, tokens_of_text(tokens, done.complete_text, done.stop)),
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
    }


def kobold_logprobs(start: Start, tokens: Iterable[TextToken]) -> Json | None:
    """Return the logprobs of the tokens that are part of the text; None if the run has no logprobs."""
    text_tokens = [token for token in tokens if token.is_in_text]
    offsets = TextOffsets().advance(text_tokens)
    logprobs = text_logprobs(start, text_tokens, offsets, _KOBOLD_SHAPE)
    if logprobs is None:
        return None
    return logprobs | {"token_ids": [token.id for token in text_tokens]}


def _kept_stop(done: Done, keeps_stop: bool) -> str:
    return (done.stop or "") if keeps_stop else ""


class KoboldMessages:
    """KoboldCpp's messages of a stream, made from events that arrive one by one."""

    # There is a message for each token of `kobold_result`. The last message has text that was held back, and the
    # finish reason. ``keeps_stop``: whether the stop string that ended the text is returned, too.

    def __init__(self, *, keeps_stop: bool = False) -> None:
        self._keeps_stop = keeps_stop
        self._chunks = ChunkMaker(lambda _, token: token.is_in_text)

    def push(self, event: Event) -> Iterator[Json]:
        """Yield the messages that are complete after this event. The first event must be a `Start`."""
        for chunk in self._chunks.push(event):
            if chunk.done is None:
                logprobs = kobold_logprobs(chunk.start, chunk.tokens or ())
                fields = {} if logprobs is None else logprobs["content"][0]
                yield fields | {"token": chunk.text, "finish_reason": None}
            else:
                text = chunk.text + _kept_stop(chunk.done, self._keeps_stop)
                yield {"token": text, "finish_reason": finish_reason(chunk.done)}


def kobold_server_sent(message: Mapping[str, object]) -> str:
    """Return a server-sent event of KoboldCpp."""
    return server_sent(message, "message")
