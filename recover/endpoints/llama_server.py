"""The endpoint for llama.cpp's server. It uses the path ``/completion``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import log
from typing import Any

import httpx

from ..errors import RecoverError, require_at_least
from .base import MAX_VOCAB_SIZE, Bias, ClaimCall, EndpointLimits, EndpointResponse, QueryKind, claim_without_limit
from .http import HttpEndpoint, HttpOptions

# Maximum number of draws with different seeds, until a drawn token is complete UTF-8. More would be needed only if
# tokens that end inside a character were very likely.
_MAX_DRAWS = 20
_MODEL_FIELDS = ("id", "n_params", "size", "n_vocab", "n_embd")  # the fields of `/v1/models` that identify a model
_UNKNOWN_PATH_STATUSES = (404, 405, 501)
_RELATIVE_ERROR = 4e-6  # Measured relative error of probabilities after the biases, in float32
# Measured relative error of probabilities before the biases. It is larger, because the server sums 50,000 float32
# values one after the other.
_RELATIVE_ERROR_BEFORE_BIASES = 2e-4


class LlamaServerEndpoint(HttpEndpoint):
    """llama.cpp's server.

    It shows ``window`` logprobs per call (``n_probs``), computed in float32 after the biases.

    Args:
        url: the address of the server.
        window: number of shown logprobs per call; 0: only the most likely token is requested.
        post_sampling: whether logprobs are computed after the biases; without this, biases only choose the
            token.
        slot: the slot of the server that all calls use, so that it keeps the prompt and computes all calls
            in the same way; None: the server chooses a slot. This is faster for concurrent calls on a
            machine that computes them together, but responses then differ slightly.
        vocab_size: number of tokens; None: the server reports it.
        options: the options of the HTTP calls; None: the defaults.
        transport: replaces the transport of httpx, for tests; None: the usual one.
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
        require_at_least(0, window=window)
        super().__init__(url, options or HttpOptions(), transport)
        self._declared_vocab_size = vocab_size
        self._post_sampling = post_sampling
        self._slot = slot
        self._always_reads_prompt = False
        relative_error = _RELATIVE_ERROR if post_sampling else _RELATIVE_ERROR_BEFORE_BIASES
        self.limits = EndpointLimits(window, relative_error=relative_error)

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override] # a cached_property can be set
        """Number of tokens of the server's model."""
        if self._declared_vocab_size is not None:
            return self._declared_vocab_size
        size = self._model_facts.get("n_vocab")
        if not isinstance(size, int) or not 0 < size <= MAX_VOCAB_SIZE:
            raise RecoverError(
                f"{self._http.shown_url}: the server does not report the size of its vocabulary; give vocab_size"
            )
        return size

    @cached_property
    def identity(self) -> Mapping[str, Any]:  # type: ignore[override] # a cached_property can be set
        """The URL without secrets, the options that change responses, and facts about the model."""
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
        try:
            first_model = self._http.get("v1/models")["data"][0]
            model_fields = {**(first_model.get("meta") or {}), "id": first_model.get("id")}
        except RecoverError as error:
            if error.status not in _UNKNOWN_PATH_STATUSES:
                raise
            return {}
        except (KeyError, IndexError, TypeError, AttributeError):
            return {}
        return {name: model_fields[name] for name in _MODEL_FIELDS if model_fields.get(name) is not None}

    def count_tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt, as the server counts them."""
        body = self._http.post("tokenize", {"content": prompt, "add_special": True})
        tokens = body.get("tokens") if isinstance(body, dict) else None
        if not isinstance(tokens, list):
            raise RecoverError(f"{self._http.shown_url}: /tokenize did not return a list of tokens")
        return len(tokens)

    def query(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return one token after the prompt, with the shown logprobs."""
        return self.answer(prompt, logit_bias, QueryKind.NEXT_TOKEN, claim_without_limit)

    def query_top_token(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return the most likely token after the prompt, without logprobs."""
        return self.answer(prompt, logit_bias, QueryKind.TOP_TOKEN, claim_without_limit)

    def answer(self, prompt: str, logit_bias: Bias, kind: QueryKind, claim_call: ClaimCall) -> EndpointResponse:
        """Return the response to a query. Each request except the first is claimed.

        Args:
            prompt: the text before the token.
            logit_bias: token id -> number that is added to the logit, nats.
            kind: whether the next token or the most likely token is wanted.
            claim_call: called before each request except the first.
        """
        window = 0 if kind is QueryKind.TOP_TOKEN else self.limits.window
        request_body = self._request_body(prompt, logit_bias, window)
        body, calls = self._send_completion(request_body, claim_call)
        # With logprobs, the server draws the token; other seeds are tried until it shows them.
        for seed in range(2, _MAX_DRAWS + 1):
            if not self._hides_logprobs(body, window):
                break
            claim_call()
            body = self._http.post("completion", request_body | {"seed": seed})
            calls += 1
        if not logit_bias and self._hides_logprobs(body, window):
            raise RecoverError(
                f"{self._http.shown_url}: the server hides the logprobs if its token ends inside a character, "
                f"and it drew such a token {_MAX_DRAWS} times; set the number of logprobs "
                "per call to 0, which needs only the token"
            )
        advice = "check the address, and that the server's version supports post_sampling_probs"
        with self._http.expect_format("llama.cpp's server", advice):
            return _read_completion(body, calls, window)

    def _send_completion(self, request_body: Mapping[str, Any], claim_call: ClaimCall) -> tuple[Any, int]:
        """Send a request, twice if the server had to read the prompt for it; return body and number of calls."""
        # The server reads a prompt that is not in its slot in one batch. This gives slightly different logits than
        # reading only its last token. The second response is used, so that all responses are computed in the same
        # way.
        body = self._http.post("completion", request_body)
        if self._always_reads_prompt or _count_tokens_read(body) <= 1:
            return body, 1
        claim_call()
        body = self._http.post("completion", request_body)
        # A model whose state cannot be truncated reads every prompt.
        self._always_reads_prompt = _count_tokens_read(body) > 1
        return body, 2

    def _hides_logprobs(self, body: Any, window: int) -> bool:
        """Return whether the server hides the logprobs: it does if its token ends inside a character."""
        is_hidden = isinstance(body, dict) and "completion_probabilities" not in body and "tokens" in body
        return is_hidden and window > 0 and self._post_sampling

    def _request_body(self, prompt: str, bias: Bias, window: int) -> dict[str, Any]:
        computes_after_biases = self._post_sampling and window > 0
        request_body: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": window,
            "post_sampling_probs": computes_after_biases,
            "temperature": 1.0,
            "seed": 1,
            "logit_bias": [[token, value] for token, value in bias.items()],
            "cache_prompt": True,
            "return_tokens": True,
            # Without samplers, the probabilities are those of the biased logits. If they are not needed, top_k 1
            # makes the server choose the most likely token.
            "samplers": [] if computes_after_biases else ["top_k"],
            "top_k": 1,
        }
        if self._slot is not None:
            request_body["id_slot"] = self._slot
        return request_body


def _count_tokens_read(body: Any) -> int:
    """Return the number of prompt tokens that were computed for a response; 1 if the server does not report it."""
    try:
        return int(body["timings"]["prompt_n"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _read_completion(body: Any, calls: int, window: int) -> EndpointResponse:
    """Return the token with the shown logprobs, or only the token if ``window`` is 0."""
    # Raises ``RecoverError`` for a negative probability, and the exceptions of indexing for another format.
    if not window or "completion_probabilities" not in body:
        return EndpointResponse(int(body["tokens"][0]), calls=calls)
    token_step = body["completion_probabilities"][0]
    entries = token_step.get("top_probs", token_step.get("top_logprobs"))
    logprobs: dict[int, float] = {}
    token_bytes: dict[int, bytes] = {}
    for entry in entries:
        token = int(entry["id"])
        logprob = _logprob_of_entry(entry)
        if logprob is not None:
            logprobs[token] = logprob
        token_bytes[token] = bytes(list(entry["bytes"]))  # a list, because bytes(3) would be three zeros
    return EndpointResponse(int(token_step["id"]), _logprob_of_entry(token_step), logprobs, token_bytes, calls)


def _logprob_of_entry(entry: Mapping[str, Any]) -> float | None:
    """Return the logprob of an entry, computed from its probability if necessary; None for a probability of 0."""
    if "logprob" in entry:
        return float(entry["logprob"])
    probability = float(entry["prob"])
    if probability < 0:
        raise RecoverError(
            f"the endpoint returned {probability} for token {entry.get('id')}, which is not a probability"
        )
    return log(probability) if probability > 0 else None
