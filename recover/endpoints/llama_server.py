"""llama.cpp's server, asked at ``/completion``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import log
from typing import Any

import httpx

from ..errors import RecoverError
from .base import MAX_VOCAB_SIZE, Bias, ClaimCall, EndpointLimits, EndpointResponse, QueryKind, claim_without_limit
from .http import HttpEndpoint, HttpOptions

_MAX_DRAWS = 20
"""Draws of one token, with as many seeds, until one is whole text: enough unless such a token is very likely."""
_MODEL_FIELDS = ("id", "n_params", "size", "n_vocab", "n_embd")
"""What of `/v1/models` identifies a model."""
_UNKNOWN_PATH_STATUS = (404, 405, 501)
_PRECISION = 4e-6
"""Relative error of probabilities after the biases: float32, as measured."""
_PRECISION_BEFORE_BIASES = 2e-4
"""The same before the biases: the server sums 50,000 float32 one after the other."""


class LlamaServerEndpoint(HttpEndpoint):
    """llama.cpp's server: ``n_probs`` = ``window`` logprobs per call, computed after the biases, float32.

    Args:
        url: the server's address.
        window: logprobs per call; 0: only the likeliest token is asked for.
        post_sampling: False for logprobs before the biases, which then only choose the token.
        slot: the server's slot that all calls use, so that they find the prompt read and are computed alike; None
            lets the server choose, which is faster with several calls at once on a machine that computes them
            together, and makes answers differ a little.
        vocab_size: number of tokens; None: the server is asked.
        options: how the server is called.
        transport: replaces httpx's own, for tests.
    """

    has_top_token_query = True

    def __init__(  # noqa: PLR0913 - each is set by name
        self,
        url: str,
        window: int = 20,
        *,
        post_sampling: bool = True,
        slot: int | None = 0,
        vocab_size: int | None = None,
        options: HttpOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if window < 0:
            raise RecoverError(f"window: {window} is not ≥ 0")
        super().__init__(url, options or HttpOptions(), transport)
        self._declared_vocab_size = vocab_size
        self._post_sampling = post_sampling
        self._slot = slot
        self._always_reads_prompt = False
        relative_error = _PRECISION if post_sampling else _PRECISION_BEFORE_BIASES
        self.limits = EndpointLimits(window, relative_error=relative_error)

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override] # a cached_property can be set
        """Number of tokens of the server's model."""
        if self._declared_vocab_size is not None:
            return self._declared_vocab_size
        size = self._model_facts.get("n_vocab")
        if not isinstance(size, int) or not 0 < size <= MAX_VOCAB_SIZE:
            raise RecoverError(f"{self._http.shown_url}: it does not say how many tokens it has; give vocab_size")
        return size

    @cached_property
    def identity(self) -> Mapping[str, Any]:  # type: ignore[override] # a cached_property can be set
        """The URL without secrets, how it is asked, and the model that the server names."""
        return {
            "api": "llama-server",
            "url": self._http.shown_url,
            "window": self.limits.window,
            "post_sampling": self._post_sampling,
            "slot": self._slot,
            "model": dict(self._model_facts),
        }

    @cached_property
    def _model_facts(self) -> Mapping[str, Any]:
        """What the server says about its model; empty if it does not know the path."""
        try:
            first = self._http.get("v1/models")["data"][0]
            model = {**(first.get("meta") or {}), "id": first.get("id")}
        except RecoverError as error:
            if error.status not in _UNKNOWN_PATH_STATUS:
                raise
            return {}
        except (KeyError, IndexError, TypeError, AttributeError):
            return {}
        return {name: model[name] for name in _MODEL_FIELDS if model.get(name) is not None}

    def count_tokens(self, prompt: str) -> int:
        """Ask the server for the number of tokens of a prompt."""
        body = self._http.post("tokenize", {"content": prompt, "add_special": True})
        tokens = body.get("tokens") if isinstance(body, dict) else None
        if not isinstance(tokens, list):
            raise RecoverError(f"{self._http.shown_url}: /tokenize does not answer with a list of tokens")
        return len(tokens)

    def query(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return one token after the prompt, and its window."""
        return self._query_window(prompt, logit_bias, claim_without_limit)

    def query_top_token(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return the likeliest token after the prompt, without logprobs."""
        return self._query_top_token(prompt, logit_bias, claim_without_limit)

    def answer(self, prompt: str, logit_bias: Bias, kind: QueryKind, claim_call: ClaimCall) -> EndpointResponse:
        """Answer a question; each request but the first is claimed.

        Args:
            prompt: the text before the token.
            logit_bias: what is added to the logits.
            kind: whether the likeliest token is asked for.
            claim_call: called before each request but the first.
        """
        send_query = self._query_top_token if kind is QueryKind.TOP_TOKEN else self._query_window
        return send_query(prompt, logit_bias, claim_call)

    def _query_window(self, prompt: str, bias: Bias, claim_call: ClaimCall) -> EndpointResponse:
        """Ask for a token and its window, with other seeds until the server shows logprobs."""
        request = self._request(prompt, bias, self.limits.window)
        body, calls = self._complete(request, claim_call)
        for seed in range(2, _MAX_DRAWS + 1):
            if not self._hides_logprobs(body):
                break
            claim_call()
            body = self._http.post("completion", request | {"seed": seed})
            calls += 1
        if not bias and self._hides_logprobs(body):
            raise RecoverError(
                f"{self._http.shown_url}: it hides logprobs behind a token that ends inside a character, and drew "
                f"one {_MAX_DRAWS} times: the next token is almost surely one; a window of 0 may help"
            )
        return self._parse_response(body, calls, self.limits.window)

    def _query_top_token(self, prompt: str, bias: Bias, claim_call: ClaimCall) -> EndpointResponse:
        return self._parse_response(*self._complete(self._request(prompt, bias, 0), claim_call), 0)

    def _complete(self, request: Mapping[str, Any], claim_call: ClaimCall) -> tuple[Any, int]:
        """Send a request, twice if the server had to read the prompt for it; return the body and the calls.

        A prompt that the slot does not hold yet is read in one batch. That gives slightly different logits than
        reading its last token alone, so the second answer is taken: then all answers are computed alike.
        """
        body = self._http.post("completion", request)
        if self._always_reads_prompt or _count_tokens_read(body) <= 1:
            return body, 1
        claim_call()
        body = self._http.post("completion", request)
        self._always_reads_prompt = _count_tokens_read(body) > 1  # a model whose state cannot be cut back
        return body, 2

    def _hides_logprobs(self, body: Any) -> bool:
        """True if the server drew a token that ends inside a character: it shows no logprobs then."""
        is_hidden = isinstance(body, dict) and "completion_probabilities" not in body and "tokens" in body
        return is_hidden and bool(self.limits.window) and self._post_sampling

    def _request(self, prompt: str, bias: Bias, window: int) -> dict[str, Any]:
        """Return the body of a request."""
        after_biases = self._post_sampling and window > 0
        request: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": window,
            "post_sampling_probs": after_biases,
            "temperature": 1.0,
            "seed": 1,
            "logit_bias": [[token, value] for token, value in bias.items()],
            "cache_prompt": True,
            "return_tokens": True,
            # Without samplers the probabilities are those of the biased logits; top_k 1 chooses the likeliest.
            "samplers": [] if after_biases else ["top_k"],
            "top_k": 1,
        }
        if self._slot is not None:
            request["id_slot"] = self._slot
        return request

    def _parse_response(self, body: Any, calls: int, window: int) -> EndpointResponse:
        try:
            return _read_completion(body, calls, window)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise RecoverError(
                f"{self._http.shown_url}: the answer has not the shape that llama.cpp's server gives it; "
                f"is this its address, and does its version know post_sampling_probs?"
            ) from None


def _count_tokens_read(body: Any) -> int:
    """Return how many tokens of the prompt were computed for an answer; 1 if the server does not say."""
    try:
        return int(body["timings"]["prompt_n"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _read_completion(body: Any, calls: int, window: int) -> EndpointResponse:
    """Return the answer: the token and its window, or without one only the token.

    Raises ``RecoverError`` for a negative probability, and whatever indexing raises for another shape.
    """
    if not window or "completion_probabilities" not in body:
        return EndpointResponse(int(body["tokens"][0]), calls=calls)
    step = body["completion_probabilities"][0]
    entries = step.get("top_probs", step.get("top_logprobs"))
    logprobs = {int(entry["id"]): value for entry in entries if (value := _logprob(entry)) is not None}
    token_bytes = {int(entry["id"]): bytes([*entry["bytes"]]) for entry in entries}
    return EndpointResponse(int(step["id"]), _logprob(step), logprobs, token_bytes, calls)


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
