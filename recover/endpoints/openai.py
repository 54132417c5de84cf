"""OpenAI's API, and those that have its shape: completions, and chat completions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import httpx

from ..errors import RecoverError
from ..transport.api_client import ApiClient, HttpOptions
from .base import Bias, EndpointAnswer, EndpointLimits, window_of
from .token_texts import TokenTextTable

_MOST_CHAT, _MOST_COMPLETIONS = 20, 5
_MAX_BIAS = 100.0
_MOST_BIASES = 300
_LOWEST = -200.0


class OpenAIEndpoint:
    """An API of OpenAI's shape, asked for one token.

    ``url``: up to and with ``/v1``. ``pieces``: the bytes of each token by id, out of the model's tokenizer, since
    the API names tokens by text. ``chat``: chat completions, with the prompt as the user's message; else
    completions. ``window``: if not given the most that OpenAI allows, 20 for chat and 5 for completions; 0: only
    the likeliest token is asked for. The key comes from ``options.key_env``.
    Tokens whose bytes another one has too are told apart by nothing here (`collisions`); they stay NaN.
    """

    def __init__(  # noqa: PLR0913 - each is one thing to be said by name
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
            window = _MOST_CHAT if chat else _MOST_COMPLETIONS
        if window < 0:
            raise RecoverError(f"window: {window} is not ≥ 0")
        self._http = ApiClient(url, options or HttpOptions(key_env="OPENAI_API_KEY"), transport)
        self._model = model
        self._chat = chat
        self._table = TokenTextTable(pieces)
        self.pieces = pieces
        self.limits = limits or EndpointLimits(window, _MAX_BIAS, _MOST_BIASES, precision=1e-5, lowest=_LOWEST)

    @property
    def vocab_size(self) -> int:
        """How many tokens the tokenizer has."""
        return len(self._table)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The URL without secrets, the model, how it is asked, and a hash of the tokenizer."""
        kind = "chat" if self._chat else "completions"
        named = {"api": "openai", "url": self._http.shown, "model": self._model, "kind": kind}
        return named | {"window": self.limits.window, "tokens": self.vocab_size, "tokenizer": self._tokenizer}

    @cached_property
    def _tokenizer(self) -> str:
        digest = hashlib.sha256()
        for piece in self.pieces:
            digest.update(b"-" if piece is None else b"%d:%b" % (len(piece), piece))
        return digest.hexdigest()[:16]

    @property
    def collisions(self) -> frozenset[int]:
        """Ids of the tokens that share their bytes with others, and of those that have none."""
        return self._table.ambiguous | self._table.silent

    @property
    def look_alikes(self) -> frozenset[int]:
        """Ids of the tokens that are one text with others, unless the API names them by their bytes."""
        return self._table.look_alikes

    def query(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """One token behind the prompt, and its window."""
        # What is drawn does not matter beside logprobs, but temperature 0 would bend those of some servers.
        return self._asked(prompt, logit_bias, 1 if self.limits.window else 0)

    def likeliest(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """The likeliest token behind the prompt, and no logprobs."""
        said = self._asked(prompt, logit_bias, 0)
        return EndpointAnswer(said.token, unnamed=(0.0,) if said.token is None else ())

    def _asked(self, prompt: str, bias: Bias, temperature: int) -> EndpointAnswer:
        path = "chat/completions" if self._chat else "completions"
        said = self._http.post(path, self._body(prompt, bias) | {"temperature": temperature})
        try:
            return self._answer(said["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise RecoverError(f"{self._http.shown}: the answer has not the shape of OpenAI's API") from None

    def start(self) -> None:
        """Try again, from now on."""
        self._http.start()

    def stop(self) -> None:
        """Try nothing again from now on."""
        self._http.stop()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _body(self, prompt: str, bias: Bias) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": 1,
            "logit_bias": {str(token): value for token, value in bias.items()},
        }
        if self._chat:
            body["messages"] = [{"role": "user", "content": prompt}]
            if self.limits.window:
                body |= {"logprobs": True, "top_logprobs": self.limits.window}
        else:
            body["prompt"] = prompt
            if self.limits.window:
                body["logprobs"] = self.limits.window
        return body

    def _answer(self, choice: Mapping[str, Any]) -> EndpointAnswer:
        told = choice.get("logprobs")
        if not told:
            text = choice["message"]["content"] if self._chat else choice["text"]
            token = self._table.of_text(text or "")
            return EndpointAnswer(token, unnamed=(0.0,) if token is None else ())
        # Some servers give completions in the shape of chat.
        if "content" in told:
            return self._of_chat(told["content"][0])
        return self._of_completion(told)

    def _of_chat(self, step: Mapping[str, Any]) -> EndpointAnswer:
        shown = [(self._table.of_entry(entry), float(entry["logprob"])) for entry in step["top_logprobs"]]
        return self._window(shown, self._table.of_entry(step), float(step["logprob"]))

    def _of_completion(self, told: Mapping[str, Any]) -> EndpointAnswer:
        top = told["top_logprobs"]
        shown = [(self._table.of_text(text), float(value)) for text, value in (top[0] if top else {}).items()]
        return self._window(shown, self._table.of_text(told["tokens"][0]), float(told["token_logprobs"][0]))

    def _window(self, shown: Sequence[tuple[int | None, float]], token: int | None, own: float) -> EndpointAnswer:
        """The likeliest entries. The token that was drawn is shown beside them, also where it is none of them."""
        named = {known: value for known, value in shown if known is not None}
        nameless = [value for known, value in shown if known is None]
        # Texts that coincide are one entry, so that the window may look full with the one that was drawn.
        if nameless and token in named and len(named) > 1 and named[token] <= min([*named.values(), *nameless]):
            del named[token]
        kept, rest = window_of(named, nameless, self.limits.window)
        return EndpointAnswer(token, own, kept, unnamed=rest)
