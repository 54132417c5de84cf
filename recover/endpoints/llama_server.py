"""llama.cpp's server, `/completion`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import log
from typing import Any

import httpx

from ..errors import RecoverError
from ..further import further
from ..transport.api_client import ApiClient, HttpOptions
from .base import Bias, EndpointAnswer, EndpointLimits

_DRAWS = 20
_NAMED = ("id", "n_params", "size", "n_vocab", "n_embd")
_UNKNOWN = (404, 405, 501)
_PRECISION = 4e-6
_PRECISION_BEFORE = 2e-4
"""Of logprobs before the biases: the server adds up 50,000 float32 one after the other."""
_MOST_TOKENS = 1 << 24


class LlamaServerEndpoint:
    """llama.cpp's server: ``n_probs`` = ``window`` logprobs a call, computed after the biases.

    ``window`` 0: only the likeliest token is asked for. ``post_sampling`` False: logprobs as they are before the
    biases, which then only choose the token. ``slot``: the server's slot that all calls use, so that they find the
    prompt read and are computed alike; None lets the server choose, which is faster with several calls in flight
    on a machine that computes them together, and makes answers differ a little. ``vocab_size``: asked of the
    server if not given. Probabilities are float32.
    """

    def __init__(  # noqa: PLR0913 - each is one thing to be said by name
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
        self._http = ApiClient(url, options or HttpOptions(), transport)
        self._size = vocab_size
        self._post_sampling = post_sampling
        self._slot = slot
        self._reads_anew = False
        self.limits = EndpointLimits(
            window, precision=_PRECISION if post_sampling else _PRECISION_BEFORE, spend=False
        )

    @cached_property
    def vocab_size(self) -> int:
        """How many tokens the server's model has."""
        if self._size is not None:
            return self._size
        size = self._model.get("n_vocab")
        if not isinstance(size, int) or not 0 < size <= _MOST_TOKENS:
            raise RecoverError(f"{self._http.shown}: it does not say how many tokens it has; give vocab_size")
        return size

    @property
    def identity(self) -> Mapping[str, Any]:
        """The URL without secrets, how it is asked, and which model the server says it has."""
        return {
            "api": "llama-server",
            "url": self._http.shown,
            "window": self.limits.window,
            "post_sampling": self._post_sampling,
            "slot": self._slot,
            "model": dict(self._model),
        }

    @cached_property
    def _model(self) -> Mapping[str, Any]:
        """What the server says of its model; nothing, if it does not know the question."""
        try:
            first = self._http.get("v1/models")["data"][0]
            said = {**(first.get("meta") or {}), "id": first.get("id")}
        except RecoverError as error:
            if error.status not in _UNKNOWN:
                raise
            return {}
        except (KeyError, IndexError, TypeError, AttributeError):
            return {}
        return {name: said[name] for name in _NAMED if said.get(name) is not None}

    def count_tokens(self, prompt: str) -> int:
        """How many tokens a prompt has, as the server says."""
        said = self._http.post("tokenize", {"content": prompt, "add_special": True})
        tokens = said.get("tokens") if isinstance(said, dict) else None
        if not isinstance(tokens, list):
            raise RecoverError(f"{self._http.shown}: /tokenize does not answer with a list of tokens")
        return len(tokens)

    def query(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """One token behind the prompt, and its window.

        A prompt that is not in the slot yet is read in one piece, which gives slightly other logits than its last
        token alone, behind what is there; then it is asked for once more, so that all answers are computed alike.
        """
        body = self._body(prompt, logit_bias, self.limits.window)
        said, calls = self._read_before(body)
        for seed in range(2, _DRAWS + 1):
            if not self._hides(said):
                break
            further()
            said = self._http.post("completion", body | {"seed": seed})
            calls += 1
        if not logit_bias and self._hides(said):
            raise RecoverError(
                f"{self._http.shown}: it hides logprobs behind a token that ends inside a character, and drew one "
                f"{_DRAWS} times: the next token is almost surely one; a window of 0 may help"
            )
        return self._answer(said, calls, self.limits.window)

    def likeliest(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """The likeliest token behind the prompt, and no logprobs."""
        said, calls = self._read_before(self._body(prompt, logit_bias, 0))
        return self._answer(said, calls, 0)

    def _read_before(self, body: Mapping[str, Any]) -> tuple[Any, int]:
        """What the server says once it has read the prompt before, and the calls that this took."""
        said = self._http.post("completion", body)
        if self._reads_anew or _tokens_read(said) <= 1:
            return said, 1
        further()
        said = self._http.post("completion", body)
        self._reads_anew = _tokens_read(said) > 1  # a model whose state cannot be cut back
        return said, 2

    def _hides(self, said: Any) -> bool:
        """The server tells nothing where it drew a token that ends inside a character; another draw may help."""
        hidden = isinstance(said, dict) and "completion_probabilities" not in said and "tokens" in said
        return hidden and bool(self.limits.window) and self._post_sampling

    def start(self) -> None:
        """Try again, from now on."""
        self._http.start()

    def stop(self) -> None:
        """Try nothing again from now on."""
        self._http.stop()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _body(self, prompt: str, bias: Bias, window: int) -> dict[str, Any]:
        after = self._post_sampling and window > 0
        body: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": window,
            "post_sampling_probs": after,
            "temperature": 1.0,
            "seed": 1,
            "logit_bias": [[token, value] for token, value in bias.items()],
            "cache_prompt": True,
            "return_tokens": True,
            # With none the probabilities are those of the biased logits; else the likeliest token is to be chosen.
            "samplers": [] if after else ["top_k"],
            "top_k": 1,
        }
        if self._slot is not None:
            body["id_slot"] = self._slot
        return body

    def _answer(self, said: Any, calls: int, window: int) -> EndpointAnswer:
        try:
            if not window or "completion_probabilities" not in said:
                return EndpointAnswer(int(said["tokens"][0]), calls=calls)
            step = said["completion_probabilities"][0]
            shown = step.get("top_probs", step.get("top_logprobs"))
            told = {int(entry["id"]): value for entry in shown if (value := _logprob(entry)) is not None}
            pieces = {int(entry["id"]): bytes([*entry["bytes"]]) for entry in shown}
            return EndpointAnswer(int(step["id"]), _logprob(step), told, pieces, calls)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise RecoverError(
                f"{self._http.shown}: the answer has not the shape that llama.cpp's server gives it; "
                f"is this its address, and does its version know post_sampling_probs?"
            ) from None


def _tokens_read(said: Any) -> int:
    """How many tokens of the prompt were computed for an answer."""
    try:
        return int(said["timings"]["prompt_n"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _logprob(entry: Mapping[str, Any]) -> float | None:
    """A logprob, out of one or of a probability; None for a probability that float32 rounded to 0."""
    if "logprob" in entry:
        return float(entry["logprob"])
    probability = float(entry["prob"])
    if probability < 0:
        raise RecoverError(
            f"the endpoint gives token {entry.get('id')} the probability {probability}, which is none"
        )
    return log(probability) if probability > 0 else None
