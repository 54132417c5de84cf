"""OpenAI's API, and APIs of its shape: completions and chat completions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx

from ..errors import RecoverError
from ..transport.api_client import HttpOptions
from .answer_checks import cut_to_window
from .base import Bias, EndpointAnswer, EndpointLimits
from .http_endpoint import HttpEndpoint
from .token_texts import TokenTextTable

_CHAT_WINDOW, _COMPLETION_WINDOW = 20, 5
"""The largest ``top_logprobs`` and ``logprobs`` that OpenAI's API reference allows."""
_MAX_BIAS_NATS = 100.0
"""OpenAI's API reference: biases are from -100 to 100."""
_MOST_BIASES = 300
"""OpenAI's API refuses more tokens in ``logit_bias``."""
_PRECISION_NATS = 1e-5
"""The APIs show logprobs as decimals of float32."""
_LOWEST_LOGPROB_NATS = -200.0
"""Lower values, such as OpenAI's -9999, stand for a token without a logprob."""


@dataclass(frozen=True)
class _Entry:
    """An entry of a window: the token, None if the text is not that of exactly one, and its logprob in nats."""

    token: int | None
    logprob: float


class OpenAIEndpoint(HttpEndpoint):
    """An API of OpenAI's shape, asked for one token.

    Tokens that share their bytes with another token cannot be told apart (`collisions`); they stay NaN.

    Args:
        url: up to and with ``/v1``.
        model: the model's name.
        window: logprobs per call; None: the most that OpenAI allows, 20 for chat and 5 for completions; 0: only
            the likeliest token is asked for.
        pieces: the bytes of each token by id, from the model's tokenizer, since the API names tokens by text.
        chat: True for chat completions, with the prompt as the user's message; else completions.
        limits: replaces OpenAI's limits.
        options: how the API is called; the key comes from ``options.key_env``.
        transport: replaces httpx's own, for tests.
    """

    has_likeliest = True

    def __init__(  # noqa: PLR0913 - each is set by name
        self,
        url: str,
        model: str,
        window: int | None = None,
        *,
        pieces: Sequence[bytes | None],
        chat: bool = False,
        limits: EndpointLimits | None = None,
        options: HttpOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if window is None:
            window = _CHAT_WINDOW if chat else _COMPLETION_WINDOW
        if window < 0:
            raise RecoverError(f"window: {window} is not ≥ 0")
        super().__init__(url, options or HttpOptions(key_env="OPENAI_API_KEY"), transport)
        self._model = model
        self._chat = chat
        self._table = TokenTextTable(pieces)
        self.pieces = pieces
        self.vocab_size = len(self._table)
        self.collisions = self._table.ambiguous | self._table.without_bytes
        self.look_alikes = self._table.look_alikes
        self.limits = limits or EndpointLimits(
            window, _MAX_BIAS_NATS, _MOST_BIASES, _PRECISION_NATS, _LOWEST_LOGPROB_NATS
        )

    @cached_property
    def identity(self) -> Mapping[str, Any]:  # type: ignore[override] # a cached_property can be set
        """The URL without secrets, the model, how it is asked, and a hash of the tokenizer."""
        return {
            "api": "openai",
            "url": self._http.shown_url,
            "model": self._model,
            "kind": "chat" if self._chat else "completions",
            "window": self.limits.window,
            "tokens": self.vocab_size,
            "tokenizer": _tokenizer_hash(self.pieces),
        }

    def query(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """Return one token after the prompt, and its window."""
        # The drawn token does not matter beside logprobs, but temperature 0 changes the logprobs of some servers.
        return self._ask(prompt, logit_bias, temperature=1 if self.limits.window else 0)

    def likeliest(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """Return the likeliest token after the prompt, without logprobs."""
        return _token_only(self._ask(prompt, logit_bias, temperature=0).token)

    def _ask(self, prompt: str, bias: Bias, temperature: int) -> EndpointAnswer:
        path = "chat/completions" if self._chat else "completions"
        body = self._http.post(path, self._request(prompt, bias) | {"temperature": temperature})
        try:
            return self._answer(body["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise RecoverError(f"{self._http.shown_url}: the answer has not the shape of OpenAI's API") from None

    def _request(self, prompt: str, bias: Bias) -> dict[str, Any]:
        """Return the body of a request, without its temperature."""
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": 1,
            "logit_bias": {str(token): value for token, value in bias.items()},
        }
        if self._chat:
            request["messages"] = [{"role": "user", "content": prompt}]
            if self.limits.window:
                request |= {"logprobs": True, "top_logprobs": self.limits.window}
        else:
            request["prompt"] = prompt
            if self.limits.window:
                request["logprobs"] = self.limits.window
        return request

    def _answer(self, choice: Mapping[str, Any]) -> EndpointAnswer:
        logprobs = choice.get("logprobs")
        if not logprobs:
            text = choice["message"]["content"] if self._chat else choice["text"]
            return _token_only(self._table.of_text(text or ""))
        if "content" in logprobs:  # some servers give completions in the shape of chat
            return self._chat_answer(logprobs["content"][0])
        return self._completion_answer(logprobs)

    def _chat_answer(self, step: Mapping[str, Any]) -> EndpointAnswer:
        entries = [_Entry(self._table.of_entry(top), float(top["logprob"])) for top in step["top_logprobs"]]
        return self._window(entries, _Entry(self._table.of_entry(step), float(step["logprob"])))

    def _completion_answer(self, logprobs: Mapping[str, Any]) -> EndpointAnswer:
        top = logprobs["top_logprobs"]
        entries = [
            _Entry(self._table.of_text(text), float(value)) for text, value in (top[0] if top else {}).items()
        ]
        drawn = _Entry(self._table.of_text(logprobs["tokens"][0]), float(logprobs["token_logprobs"][0]))
        return self._window(entries, drawn)

    def _window(self, entries: Sequence[_Entry], drawn: _Entry) -> EndpointAnswer:
        """Return the likeliest entries. The API also shows the drawn token, even if it is not one of them."""
        named = {entry.token: entry.logprob for entry in entries if entry.token is not None}
        unnamed = [entry.logprob for entry in entries if entry.token is None]
        # Equal texts are one entry, so the window may look full although its last entry is only the drawn token.
        if (
            unnamed
            and drawn.token in named
            and len(named) > 1
            and named[drawn.token] <= min([*named.values(), *unnamed])
        ):
            del named[drawn.token]
        window = cut_to_window(named, unnamed, self.limits.window)
        return EndpointAnswer(drawn.token, drawn.logprob, window.logprobs, unnamed=window.unnamed)


def _token_only(token: int | None) -> EndpointAnswer:
    return EndpointAnswer(token, unnamed=(0.0,) if token is None else ())


def _tokenizer_hash(pieces: Sequence[bytes | None]) -> str:
    """Return 16 hexadecimal digits of SHA-256 over the bytes of all tokens."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(b"-" if piece is None else b"%d:%b" % (len(piece), piece))
    return digest.hexdigest()[:16]
