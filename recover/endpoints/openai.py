"""OpenAI's API, and APIs of its shape: completions and chat completions.

They name tokens only by their text, so that the texts of the tokenizer are needed to find the ids.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx

from ...common.files import file_problem, read_bounded
from ..errors import RecoverError
from .base import Bias, EndpointAnswer, EndpointLimits, cut_to_window
from .http import HttpEndpoint, HttpOptions

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


@dataclass(frozen=True)
class _Entry:
    """An entry of a window: the token, None if the text is not that of exactly one, and its logprob in nats."""

    token: int | None
    logprob: float


def _token_only(token: int | None) -> EndpointAnswer:
    return EndpointAnswer(token, unnamed=(0.0,) if token is None else ())


def _tokenizer_hash(pieces: Sequence[bytes | None]) -> str:
    """Return 16 hexadecimal digits of SHA-256 over the bytes of all tokens."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(b"-" if piece is None else b"%d:%b" % (len(piece), piece))
    return digest.hexdigest()[:16]


class TokenTextTable:
    """The ids of a vocabulary by their bytes.

    Args:
        pieces: the bytes of each token, by id; None or empty: the id is unused or has no text.

    Attributes:
        ambiguous: ids that share their bytes with another id.
        look_alikes: ids whose bytes are unique, but become the same text as others' where U+FFFD replaces bytes
            that are not UTF-8.
        without_bytes: ids without bytes.
    """

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        if not len(pieces):
            raise RecoverError("the tokenizer has no tokens")
        self.pieces = pieces
        with_bytes = {token: piece for token, piece in enumerate(pieces) if piece}
        by_bytes = _grouped(with_bytes)
        by_text = _grouped({token: piece.decode("utf-8", "replace") for token, piece in with_bytes.items()})
        self._id_of_bytes = {piece: ids[0] for piece, ids in by_bytes.items() if len(ids) == 1}
        self._id_of_text = {text: ids[0] for text, ids in by_text.items() if len(ids) == 1}
        self.ambiguous = frozenset(token for ids in by_bytes.values() if len(ids) > 1 for token in ids)
        same_text = frozenset(token for ids in by_text.values() if len(ids) > 1 for token in ids)
        self.look_alikes = same_text - self.ambiguous
        self.without_bytes = frozenset(range(len(pieces))) - with_bytes.keys()

    def __len__(self) -> int:
        return len(self.pieces)

    def of_entry(self, entry: Mapping[str, Any]) -> int | None:
        """Return the id of an entry of chat logprobs, by ``bytes``, else by ``token``; None if no id has it."""
        data = entry.get("bytes")
        if isinstance(data, list) and data:
            return self._id_of_bytes.get(bytes(data))
        return self.of_text(str(entry["token"]))

    def of_text(self, text: str) -> int | None:
        """Return the id of a token's text, or of ``bytes:`` and hexadecimal escapes, as OpenAI's API writes it."""
        if text in self._id_of_text:
            return self._id_of_text[text]
        if text.startswith("bytes:"):
            escaped = text.removeprefix("bytes:")
            try:
                piece = escaped.encode("latin-1").decode("unicode_escape").encode("latin-1")
            except (UnicodeError, ValueError):
                return None
            return self._id_of_bytes.get(piece)
        return None


_T = TypeVar("_T", bytes, str)


def _grouped(names: Mapping[int, _T]) -> dict[_T, list[int]]:
    """Return the ids of each name."""
    groups: dict[_T, list[int]] = {}
    for token, name in names.items():
        groups.setdefault(name, []).append(token)
    return groups


_MOST_UNUSED = 10
"""A ``.tiktoken`` file whose largest id is over so many times the number of its tokens is not a vocabulary."""


def read_tiktoken(path: Path) -> list[bytes | None]:
    """Return the bytes of each token of a ``.tiktoken`` file: lines of base64 and id. Raises ``RecoverError``."""
    pieces: dict[int, bytes] = {}
    number = 0
    try:
        with path.open("rb") as file:
            data = read_bounded(file)
        for line in data.splitlines():
            number += 1
            if line.strip():
                text, token = line.split()
                pieces[int(token)] = base64.b64decode(text, validate=True)
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path)}") from None
    except ValueError:
        raise RecoverError(f"{path}: line {number} is not base64 and an id, as in a .tiktoken file") from None
    if not pieces or min(pieces) < 0 or max(pieces) > _MOST_UNUSED * len(pieces):
        raise RecoverError(f"{path}: its ids are not those of a vocabulary")
    return [pieces.get(token) for token in range(max(pieces) + 1)]
