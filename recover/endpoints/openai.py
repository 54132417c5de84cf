"""The endpoint for OpenAI's API and compatible APIs: completions and chat completions.

These APIs name tokens by their text, so the tokenizer is needed to find the ids.
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
from .base import Bias, EndpointLimits, EndpointResponse, keep_top_entries
from .http import HttpEndpoint, HttpOptions

# the largest ``top_logprobs`` and ``logprobs`` that OpenAI's API reference allows
_CHAT_WINDOW, _COMPLETION_WINDOW = 20, 5
_MAX_BIAS_NATS = 100.0  # According to OpenAI's API reference, biases are from -100 to 100
_MAX_BIASES_PER_CALL = 300  # OpenAI's API rejects more tokens in ``logit_bias``
_RELATIVE_ERROR = 1e-5  # the APIs show logprobs as decimals of float32
_MIN_LOGPROB_NATS = -200.0  # Lower values, such as OpenAI's -9999, stand for a token without a logprob


class OpenAIEndpoint(HttpEndpoint):
    """OpenAI's API or a compatible API, which is queried for one token.

    Tokens that share their bytes with another token cannot be distinguished (``unnameable_ids``); they stay
    NaN.

    Args:
        url: the address, including ``/v1``.
        model: the name of the model.
        window: number of shown logprobs per call; None: the maximum that OpenAI allows, 20 for chat and 5
            for completions; 0: only the most likely token is requested.
        token_bytes: the bytes of each token by id, from the model's tokenizer; None or empty for a token
            without text.
        uses_chat_completions: whether to use chat completions, with the prompt as the user's message;
            without this, completions are used.
        limits: replaces OpenAI's limits; None: OpenAI's.
        options: the options of the HTTP calls; None: the defaults, with the key in ``$OPENAI_API_KEY``.
        transport: replaces the transport of httpx, for tests; None: the usual one.
    """

    has_top_token_query = True

    def __init__(  # noqa: PLR0913 - each is set by name
        self,
        url: str,
        model: str,
        window: int | None = None,
        *,
        token_bytes: Sequence[bytes | None],
        uses_chat_completions: bool = False,
        limits: EndpointLimits | None = None,
        options: HttpOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if window is None:
            window = _CHAT_WINDOW if uses_chat_completions else _COMPLETION_WINDOW
        if window < 0:
            raise RecoverError(f"window: {window} is not ≥ 0")
        super().__init__(url, options or HttpOptions(key_env="OPENAI_API_KEY"), transport)
        self._model = model
        self._uses_chat_completions = uses_chat_completions
        self._token_table = TokenTextTable(token_bytes)
        self.token_bytes = token_bytes
        self.vocab_size = len(self._token_table)
        self.unnameable_ids = self._token_table.ambiguous_ids | self._token_table.ids_without_bytes
        self.ids_that_need_bytes = self._token_table.ids_that_need_bytes
        self.limits = limits or EndpointLimits(
            window, _MAX_BIAS_NATS, _MAX_BIASES_PER_CALL, _RELATIVE_ERROR, _MIN_LOGPROB_NATS
        )

    @cached_property
    def identity(self) -> Mapping[str, Any]:  # type: ignore[override] # a cached_property can be set
        """The URL without secrets, the model, the options that change responses, and a tokenizer hash."""
        return {
            "api": "openai",
            "url": self._http.shown_url,
            "model": self._model,
            "kind": "chat" if self._uses_chat_completions else "completions",
            "window": self.limits.window,
            "tokens": self.vocab_size,
            "tokenizer": _tokenizer_hash(self.token_bytes),
        }

    def query(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return one token after the prompt, with the shown logprobs."""
        # Only the logprobs matter here, and a temperature of 0 would change them on some servers.
        return self._query_once(prompt, logit_bias, temperature=1 if self.limits.window else 0)

    def query_top_token(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return the most likely token after the prompt, without logprobs."""
        return _token_only_response(self._query_once(prompt, logit_bias, temperature=0).token)

    def _query_once(self, prompt: str, bias: Bias, temperature: int) -> EndpointResponse:
        path = "chat/completions" if self._uses_chat_completions else "completions"
        body = self._http.post(path, self._request_body(prompt, bias) | {"temperature": temperature})
        try:
            return self._parse_choice(body["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            raise RecoverError(
                f"{self._http.shown_url}: the response does not have the format of OpenAI's API"
            ) from None

    def _request_body(self, prompt: str, bias: Bias) -> dict[str, Any]:
        request_body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": 1,
            "logit_bias": {str(token): value for token, value in bias.items()},
        }
        if self._uses_chat_completions:
            request_body["messages"] = [{"role": "user", "content": prompt}]
            if self.limits.window:
                request_body |= {"logprobs": True, "top_logprobs": self.limits.window}
        else:
            request_body["prompt"] = prompt
            if self.limits.window:
                request_body["logprobs"] = self.limits.window
        return request_body

    def _parse_choice(self, choice: Mapping[str, Any]) -> EndpointResponse:
        logprobs = choice.get("logprobs")
        if not logprobs:
            text = choice["message"]["content"] if self._uses_chat_completions else choice["text"]
            return _token_only_response(self._token_table.find_text_id(text or ""))
        if "content" in logprobs:  # some servers return completions in the format of chat
            return self._parse_chat_logprobs(logprobs["content"][0])
        return self._parse_completion_logprobs(logprobs)

    def _parse_chat_logprobs(self, step: Mapping[str, Any]) -> EndpointResponse:
        entries = [
            _ShownToken(self._token_table.find_entry_id(top), float(top["logprob"]))
            for top in step["top_logprobs"]
        ]
        return self._top_response(
            entries, _ShownToken(self._token_table.find_entry_id(step), float(step["logprob"]))
        )

    def _parse_completion_logprobs(self, logprobs: Mapping[str, Any]) -> EndpointResponse:
        top_logprobs = logprobs["top_logprobs"]
        entries = [
            _ShownToken(self._token_table.find_text_id(text), float(value))
            for text, value in (top_logprobs[0] if top_logprobs else {}).items()
        ]
        drawn_entry = _ShownToken(
            self._token_table.find_text_id(logprobs["tokens"][0]), float(logprobs["token_logprobs"][0])
        )
        return self._top_response(entries, drawn_entry)

    def _top_response(self, entries: Sequence[_ShownToken], drawn_entry: _ShownToken) -> EndpointResponse:
        """Return a response with the most likely entries."""
        # The API also shows the drawn token, even if it is unlikely.
        logprob_by_token = {entry.token: entry.logprob for entry in entries if entry.token is not None}
        unmatched_logprobs = [entry.logprob for entry in entries if entry.token is None]
        # Equal texts share one entry, so the drawn token may fill the place of an entry that is missing.
        if (
            unmatched_logprobs
            and drawn_entry.token in logprob_by_token
            and len(logprob_by_token) > 1
            and logprob_by_token[drawn_entry.token] <= min([*logprob_by_token.values(), *unmatched_logprobs])
        ):
            del logprob_by_token[drawn_entry.token]
        shown_logprobs = keep_top_entries(logprob_by_token, unmatched_logprobs, self.limits.window)
        return EndpointResponse(
            drawn_entry.token,
            drawn_entry.logprob,
            shown_logprobs.logprobs,
            unmatched_logprobs=shown_logprobs.unmatched_logprobs,
        )


@dataclass(frozen=True)
class _ShownToken:
    """A token of a response, with its shown logprob."""

    token: int | None  # the token id; None if the text is not the text of exactly one token
    logprob: float  # the logprob, nats


def _token_only_response(token: int | None) -> EndpointResponse:
    return EndpointResponse(token, unmatched_logprobs=(0.0,) if token is None else ())


def _tokenizer_hash(token_bytes: Sequence[bytes | None]) -> str:
    """Return 16 hexadecimal digits of SHA-256 over the bytes of all tokens."""
    digest = hashlib.sha256()
    for data in token_bytes:
        digest.update(b"-" if data is None else b"%d:%b" % (len(data), data))
    return digest.hexdigest()[:16]


class TokenTextTable:
    """The ids of a vocabulary by their bytes and by their text.

    Args:
        token_bytes: the bytes of each token by id; None or empty: the id is unused or has no text.

    Attributes:
        token_bytes: the bytes of each token by id.
        ambiguous_ids: ids that share their bytes with another id.
        ids_that_need_bytes: ids whose bytes are unique, but whose text is not, because U+FFFD replaces bytes
            that are not UTF-8.
        ids_without_bytes: ids without bytes.
    """

    def __init__(self, token_bytes: Sequence[bytes | None]) -> None:
        if not len(token_bytes):
            raise RecoverError("the tokenizer has no tokens")
        self.token_bytes = token_bytes
        bytes_by_id = {token: data for token, data in enumerate(token_bytes) if data}
        ids_by_bytes = _ids_by_value(bytes_by_id)
        ids_by_text = _ids_by_value(
            {token: data.decode("utf-8", "replace") for token, data in bytes_by_id.items()}
        )
        self._id_by_bytes = {data: ids[0] for data, ids in ids_by_bytes.items() if len(ids) == 1}
        self._id_by_text = {text: ids[0] for text, ids in ids_by_text.items() if len(ids) == 1}
        self.ambiguous_ids = frozenset(token for ids in ids_by_bytes.values() if len(ids) > 1 for token in ids)
        ids_with_shared_text = frozenset(token for ids in ids_by_text.values() if len(ids) > 1 for token in ids)
        self.ids_that_need_bytes = ids_with_shared_text - self.ambiguous_ids
        self.ids_without_bytes = frozenset(range(len(token_bytes))) - bytes_by_id.keys()

    def __len__(self) -> int:
        return len(self.token_bytes)

    def find_entry_id(self, entry: Mapping[str, Any]) -> int | None:
        """Return the id of an entry of chat logprobs, by its ``bytes`` or its ``token``.

        Return None if no id matches.
        """
        data = entry.get("bytes")
        if isinstance(data, list) and data:
            return self._id_by_bytes.get(bytes(data))
        return self.find_text_id(str(entry["token"]))

    def find_text_id(self, text: str) -> int | None:
        """Return the id of a token's text; None if no id matches.

        The text may also be ``bytes:`` with hexadecimal escapes, which OpenAI's API writes.
        """
        if text in self._id_by_text:
            return self._id_by_text[text]
        if text.startswith("bytes:"):
            escaped_bytes = text.removeprefix("bytes:")
            try:
                data = escaped_bytes.encode("latin-1").decode("unicode_escape").encode("latin-1")
            except (UnicodeError, ValueError):
                return None
            return self._id_by_bytes.get(data)
        return None


_T = TypeVar("_T", bytes, str)


def _ids_by_value(values: Mapping[int, _T]) -> dict[_T, list[int]]:
    ids_by_value: dict[_T, list[int]] = {}
    for token, value in values.items():
        ids_by_value.setdefault(value, []).append(token)
    return ids_by_value


# a ``.tiktoken`` file is not a vocabulary if its largest id is more than this many times its number of tokens
_MAX_ID_PER_TOKEN = 10


def read_tiktoken(path: Path) -> list[bytes | None]:
    """Return the bytes of each token of a ``.tiktoken`` file, whose lines are base64 and an id.

    Raises ``RecoverError``.
    """
    token_bytes: dict[int, bytes] = {}
    line_number = 0
    try:
        with path.open("rb") as file:
            data = read_bounded(file)
        for line in data.splitlines():
            line_number += 1
            if line.strip():
                encoded_bytes, id_text = line.split()
                token_bytes[int(id_text)] = base64.b64decode(encoded_bytes, validate=True)
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path)}") from None
    except ValueError:
        raise RecoverError(
            f"{path}: line {line_number} is not base64 followed by an id, as in a .tiktoken file"
        ) from None
    if not token_bytes or min(token_bytes) < 0 or max(token_bytes) > _MAX_ID_PER_TOKEN * len(token_bytes):
        raise RecoverError(f"{path}: the ids are not those of a vocabulary")
    return [token_bytes.get(id_text) for id_text in range(max(token_bytes) + 1)]
