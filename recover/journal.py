"""A checkpoint file: each response is on disk, as one line, before it is used.

A restarted method sends the same queries in the same order, and those with a saved response are not sent again.
Before that, a few saved responses are compared with new ones, to see whether the endpoint still responds in the
same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations, product
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..common.errors import Word, problem_message, problem_sentence
from ..common.journal import Journal, JournalError
from ..common.llama_cpp_limits import INT32_MAX
from ..common.strict_json import encode_json
from .endpoints.base import Bias, EndpointResponse, QueryKind
from .errors import RecoverError


class QueryJournal:
    """The saved responses by query, in a file to which lines are appended. Raises ``RecoverError``."""

    # A file that is not a journal, or the journal of another endpoint or prompt, is rejected and left unchanged.
    # ``run_identity``: the fields that identify endpoint and prompt. Without ``resume``, an existing journal is
    # rejected, too.

    def __init__(self, path: Path, run_identity: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._run_header = encode_json({"recover": _FORMAT_VERSION, **run_identity})
        self._responses: dict[str, EndpointResponse] = {}
        with self._recover_errors():
            self._journal = Journal(path, self._run_header)
            try:
                self._responses = self._read_responses(resume)
            except BaseException:
                self._journal.close()
                raise
        # number of responses that the file held when it was opened
        self.restored_response_count = len(self._responses)

    @contextmanager
    def _recover_errors(self) -> Iterator[None]:
        try:
            yield
        except JournalError as error:
            raise RecoverError.of(error) from None
        except OSError as error:
            raise RecoverError(f"{self.path}: the checkpoint cannot be written: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._responses)

    def get(self, key: str) -> EndpointResponse | None:
        """Return the saved response to the query with this `query_key`."""
        return self._responses.get(key)

    def add(self, key: str, response: EndpointResponse) -> None:
        """Save a response; it is on disk when this returns. Raises ``RecoverError``."""
        with self._recover_errors():
            self._journal.append(encode_json(_response_record(key, response)))
            self._journal.sync()
        self._responses[key] = response

    def close(self) -> None:
        """Close the file. A file without responses is removed."""
        if not self._responses:  # safe, because the lock keeps other runs from writing the file
            with suppress(OSError):  # a write error has already been reported
                self.path.unlink(missing_ok=True)
        self._journal.close()

    def _read_responses(self, resume: bool) -> dict[str, EndpointResponse]:
        if not self._journal.is_regular:
            raise RecoverError(f"{self.path}: a checkpoint must be a regular file, not a device or a pipe")
        if self._journal.is_new:
            return {}
        self._check_run_header(resume)
        return dict(
            self._journal.records(
                _read_response, start='{"key": ', name="a response", advice="the file is damaged"
            )
        )

    def _check_run_header(self, resume: bool) -> None:
        run_header = self._journal.header()
        if not isinstance(run_header, dict) or run_header.get("recover") != _FORMAT_VERSION:
            raise RecoverError(f"{self.path}: this is not a checkpoint of gen recover")
        if not resume:
            raise RecoverError(
                "the checkpoint already exists",
                origin=str(self.path),
                advice=("continue it with ", Word.RESUME, ", or delete it"),
            )
        for name, value in json.loads(self._run_header).items():
            if run_header.get(name) != value:
                raise RecoverError(
                    f"{self.path}: the checkpoint belongs to another run; {name} is "
                    f"{_short_json(run_header.get(name))}, not {_short_json(value)}",
                    advice=("delete the file, or give another ", Word.CHECKPOINT),
                )


_FORMAT_VERSION = 1
_MAX_VALUE_CHARACTERS = 120  # maximum number of characters of a value that a message quotes
_TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]


class _StoredResponse(BaseModel):
    """A response as the JSON object of one line, see `EndpointResponse`."""

    # ``key`` is the digest of the query. ``ids``, ``logprobs`` and ``bytes`` (hexadecimal) are parallel lists with
    # one entry for each shown token.

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    key: str
    token: _TokenId | None
    logprob: float | None
    ids: list[_TokenId]
    logprobs: list[float]
    bytes: list[str | None]
    calls: int = Field(ge=0, le=INT32_MAX)
    unnamed: list[float] = []

    @model_validator(mode="after")
    def _check_lengths(self) -> _StoredResponse:
        if not len(self.ids) == len(self.logprobs) == len(self.bytes):
            raise ValueError("ids, logprobs and bytes are not of one length")
        return self

    def response(self) -> EndpointResponse:
        """Return the response. Raises ``ValueError`` for bytes that are not hexadecimal."""
        token_bytes = {
            token: bytes.fromhex(text)
            for token, text in zip(self.ids, self.bytes, strict=True)
            if text is not None
        }
        logprobs = dict(zip(self.ids, self.logprobs, strict=True))
        return EndpointResponse(self.token, self.logprob, logprobs, token_bytes, self.calls, tuple(self.unnamed))


def _response_record(key: str, response: EndpointResponse) -> dict[str, Any]:
    """Return a response as the JSON object of one line."""
    token_bytes = [response.token_bytes.get(token) for token in response.logprobs]
    return {
        "key": key,
        "token": response.token,
        "logprob": response.logprob,
        "ids": list(response.logprobs),
        "logprobs": list(response.logprobs.values()),
        "bytes": [None if data is None else data.hex() for data in token_bytes],
        "calls": response.calls,
        "unnamed": list(response.unmatched_logprobs),
    }


def _read_response(record: Any) -> tuple[str, EndpointResponse]:
    """Return the key and the response in the JSON value of a line. Raises ``ValueError``."""
    try:
        stored_response = _StoredResponse.model_validate(record)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ValueError(problem_sentence(problem["loc"], problem_message(problem))) from None
    return stored_response.key, stored_response.response()


def _short_json(value: object) -> str:
    # The value comes from a file, so it may contain characters that UTF-8 cannot encode.
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[:_MAX_VALUE_CHARACTERS] + "…"


# In a checkpoint file, drift checks are numbered from here. No query is repeated this often.
_FIRST_DRIFT_CHECK = 1 << 20


def query_key(
    bias: Bias, kind: QueryKind = QueryKind.NEXT_TOKEN, repetition: int = 0, drift_check: int = 0
) -> str:
    """Return the identifier of one call of a query in a checkpoint file of version 1: 32 hexadecimal digits."""
    # They are the beginning of a SHA-256 of JSON, which holds the biases, sorted by id, and one number. For
    # queries for the most likely token the number counts down from -1, so that different queries have different
    # keys. ``repetition``: number of earlier calls of the same query. ``drift_check``: number of the drift check
    # that sends the query, counted from 1; 0 outside of drift checks.
    biases = sorted((int(token), float(value)) for token, value in bias.items())
    number = _FIRST_DRIFT_CHECK + drift_check if drift_check else repetition
    if kind is QueryKind.TOP_TOKEN:
        number = -1 - number
    return hashlib.sha256(json.dumps([biases, number]).encode()).hexdigest()[:32]


# Number of new calls in each round of the comparison. The second round runs concurrently, because a server that
# computes calls together may respond differently then.
_NEW_CALL_COUNTS = (1, 2)
_ROUNDING_FACTOR = 20  # rounding explains differences of up to this many times the declared relative error
# Noise explains differences of up to this many times the spread within the old or within the new responses
_SPREAD_FACTOR = 10
# Smaller differences are ignored for every declared relative error, because float32 sums may differ by this much
_EQUAL_NATS = 1e-5


def check_unchanged(
    path: Path,
    stored_responses: Sequence[EndpointResponse],
    query_again: Callable[[int], Sequence[EndpointResponse]],
    relative_error: float,
) -> None:
    """Raise ``RecoverError`` if new responses to a query differ more from the saved ones than noise explains."""
    # ``query_again``: returns the given number of new responses, from concurrent calls. ``relative_error``: of a
    # shown probability.
    if not stored_responses:
        return
    new_responses: list[EndpointResponse] = []
    for count in _NEW_CALL_COUNTS:
        new_responses += query_again(count)
        spreads_nats = [
            _difference_nats(*pair)
            for responses in (stored_responses, new_responses)
            for pair in combinations(responses, 2)
        ]
        min_difference_nats = min(_difference_nats(*pair) for pair in product(stored_responses, new_responses))
        max_spread_nats = max(spreads_nats, default=0.0)
        if min_difference_nats <= max(
            _EQUAL_NATS, _ROUNDING_FACTOR * relative_error, _SPREAD_FACTOR * max_spread_nats
        ):
            return
    raise RecoverError(
        f"{path}: responses differ by {min_difference_nats:.1g} nats from those in the checkpoint; the endpoint "
        "may now serve another model",
        advice=("delete the checkpoint, or give another ", Word.CHECKPOINT),
    )


def _difference_nats(first_response: EndpointResponse, second_response: EndpointResponse) -> float:
    """Return the largest difference of a logprob that both responses show, nats."""
    # inf: the responses show mostly different tokens.
    shown_count = max(len(first_response.logprobs), len(second_response.logprobs))
    if not shown_count:
        return 0.0 if first_response.token == second_response.token else inf
    common_tokens = first_response.logprobs.keys() & second_response.logprobs.keys()
    if 2 * len(common_tokens) < shown_count:
        return inf
    return max(abs(first_response.logprobs[token] - second_response.logprobs[token]) for token in common_tokens)
