"""The endpoint for OpenAI's API and compatible APIs: completions and chat completions.

These APIs name tokens by their text, so the tokenizer is needed to find the ids.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from ...common.files import file_problem, read_bounded
from ..errors import RecoverError, require_at_least
from .base import Bias, EndpointLimits, EndpointResponse, keep_top_logprobs
from .http import HttpEndpoint, HttpOptions

# the largest ``top_logprobs`` and ``logprobs`` that OpenAI's API reference allows
_CHAT_WINDOW = 20
_COMPLETION_WINDOW = 5
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
        options: HttpOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if window is None:
            window = _CHAT_WINDOW if uses_chat_completions else _COMPLETION_WINDOW
        require_at_least(0, window=window)
        super().__init__(url, options or HttpOptions(key_env="OPENAI_API_KEY"), transport)
        self._model = model
        self._uses_chat_completions = uses_chat_completions
        self._token_table = TokenTextTable(token_bytes)
        self.token_bytes = token_bytes
        self.vocab_size = len(token_bytes)
        self.unnameable_ids = self._token_table.unnameable_ids
        self.ids_that_need_bytes = self._token_table.ids_that_need_bytes
        self.limits = EndpointLimits(
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
        with self._http.expect_format("OpenAI's API"):
            return self._parse_choice(body["choices"][0])

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
        find_id = self._token_table.find_entry_id
        entries = [(find_id(top), float(top["logprob"])) for top in step["top_logprobs"]]
        return self._top_response(entries, find_id(step), float(step["logprob"]))

    def _parse_completion_logprobs(self, logprobs: Mapping[str, Any]) -> EndpointResponse:
        find_id = self._token_table.find_text_id
        top_logprobs = logprobs["top_logprobs"]
        shown_logprobs = top_logprobs[0] if top_logprobs else {}
        entries = [(find_id(text), float(value)) for text, value in shown_logprobs.items()]
        return self._top_response(entries, find_id(logprobs["tokens"][0]), float(logprobs["token_logprobs"][0]))

    def _top_response(
        self, entries: Sequence[tuple[int | None, float]], drawn_token: int | None, drawn_logprob: float
    ) -> EndpointResponse:
        """Return a response with the most likely entries, pairs of a token and its logprob."""
        logprobs = {token: logprob for token, logprob in entries if token is not None}
        unmatched_logprobs = tuple(logprob for token, logprob in entries if token is None)
        # The API also shows the drawn token, even if it is unlikely. Several tokens with one text share one entry.
        # So an unlikely drawn token may fill the place of an entry that is missing.
        lowest_logprob = min([*logprobs.values(), *unmatched_logprobs], default=0.0)
        may_be_extra = bool(unmatched_logprobs) and len(logprobs) > 1
        if may_be_extra and drawn_token in logprobs and logprobs[drawn_token] <= lowest_logprob:
            del logprobs[drawn_token]
        response = EndpointResponse(drawn_token, drawn_logprob, logprobs, unmatched_logprobs=unmatched_logprobs)
        return keep_top_logprobs(response, self.limits.window)


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
        unnameable_ids: ids without bytes, and ids that share their bytes with another id.
        ids_that_need_bytes: ids whose bytes are unique, but whose text is not, because U+FFFD replaces bytes
            that are not UTF-8.
    """

    def __init__(self, token_bytes: Sequence[bytes | None]) -> None:
        if not len(token_bytes):
            raise RecoverError("the tokenizer has no tokens")
        bytes_by_id = {token: data for token, data in enumerate(token_bytes) if data}
        text_by_id = {token: data.decode("utf-8", "replace") for token, data in bytes_by_id.items()}
        bytes_counts = Counter(bytes_by_id.values())
        text_counts = Counter(text_by_id.values())
        self._id_by_bytes = {data: token for token, data in bytes_by_id.items() if bytes_counts[data] == 1}
        self._id_by_text = {text: token for token, text in text_by_id.items() if text_counts[text] == 1}
        nameable_ids = frozenset(self._id_by_bytes.values())
        self.unnameable_ids = frozenset(range(len(token_bytes))) - nameable_ids
        self.ids_that_need_bytes = nameable_ids - frozenset(self._id_by_text.values())

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


# a ``.tiktoken`` file is not a vocabulary if its largest id is more than this many times its number of tokens
_MAX_ID_PER_TOKEN = 10


def read_tiktoken(path: Path) -> list[bytes | None]:
    """Return the bytes of each token of a ``.tiktoken`` file, whose lines are base64 and an id.

    Raises ``RecoverError``.
    """
    token_bytes: dict[int, bytes] = {}
    try:
        with path.open("rb") as file:
            lines = read_bounded(file).splitlines()
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path)}") from None
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            encoded_bytes, token = line.split()
            token_bytes[int(token)] = base64.b64decode(encoded_bytes, validate=True)
        except ValueError:
            raise RecoverError(
                f"{path}: line {line_number} is not base64 followed by an id, as in a .tiktoken file"
            ) from None
    largest_id = max(token_bytes, default=-1)
    smallest_id = min(token_bytes, default=-1)
    if smallest_id < 0 or largest_id > _MAX_ID_PER_TOKEN * len(token_bytes):
        raise RecoverError(f"{path}: the ids are not those of a vocabulary")
    return [token_bytes.get(token) for token in range(largest_id + 1)]
