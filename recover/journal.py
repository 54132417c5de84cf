"""A checkpoint file: each response is on disk, as one line, before it is used.

A restarted method sends the same queries in the same order, and those with a saved response are not sent again.
Before that, a few saved responses are compared with new ones, to see whether the endpoint still responds in the
same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..common.errors import problem_message, problem_sentence
from ..common.files import AppendOnlyFile, InputTooLargeError
from ..common.machine import INT32_MAX
from ..common.strict_json import encode_json, parse_strict_json
from .endpoints.base import Bias, EndpointResponse, QueryKind
from .errors import RecoverError


class QueryJournal:
    """The saved responses by query, in a file to which lines are appended.

    A file that is not a journal, or the journal of another endpoint or prompt, is rejected and left
    unchanged. Raises ``RecoverError``.

    Args:
        path: the file.
        run_identity: the fields that identify endpoint and prompt.
        resume: whether to continue an existing journal; without it an existing journal is rejected.

    Attributes:
        path: the file.
        restored_response_count: number of responses that the file held when it was opened.
    """

    def __init__(self, path: Path, run_identity: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._responses: dict[str, EndpointResponse] = {}
        self._run_header = json.loads(encode_json({"recover": _FORMAT_VERSION, **run_identity}))
        try:
            self._file = AppendOnlyFile(path)
        except OSError as error:
            raise RecoverError(f"{path}: the checkpoint cannot be written: {error.strerror}") from None
        try:
            if not self._file.is_regular:
                raise RecoverError(f"{path}: a checkpoint must be a regular file, not a device or a pipe")
            if not self._file.lock():  # the lock also fails if another run removed the file meanwhile
                raise RecoverError(f"{path}: another run is writing this checkpoint")
            self._read_file(resume)
        except BaseException:
            self._file.close()
            raise
        self.restored_response_count = len(self._responses)

    def __len__(self) -> int:
        return len(self._responses)

    def get(self, query_key: QueryKey) -> EndpointResponse | None:
        """Return the saved response to a query; None if there is none."""
        return self._responses.get(query_key.digest)

    def add(self, query_key: QueryKey, response: EndpointResponse) -> None:
        """Save a response; it is on disk when this returns.

        Raises ``RecoverError`` if it cannot be written.
        """
        key = query_key.digest
        self._append_record(_response_record(key, response))
        self._responses[key] = response

    def close(self) -> None:
        """Close the file. A file without responses is removed."""
        if not self._responses:  # safe, because the lock keeps other runs from writing the file
            with suppress(OSError):  # a write error has already been reported
                self.path.unlink(missing_ok=True)
        self._file.close()

    def _read_file(self, resume: bool) -> None:
        """Read the file.

        An incomplete last line is removed, but only from a file that proves to be a journal.
        """
        try:
            self._read_lines(self._file.lines(), resume)
        except InputTooLargeError as error:
            raise RecoverError(f"{self.path}: this is not a checkpoint of gen recover: {error.strerror}") from None

    def _read_lines(self, lines: Iterator[bytes], resume: bool) -> None:
        run_header = next(lines, b"")
        is_incomplete = not run_header.endswith(b"\n") and _json_line(self._run_header).startswith(run_header)
        if is_incomplete:  # an empty file, or a run that was killed while it wrote its first line
            self._file.truncate(0)
            self._append_record(self._run_header)
            return
        self._check_run_header(run_header, resume)
        valid_bytes = len(run_header) if run_header.endswith(b"\n") else 0
        for line_number, line in enumerate(lines, 2):
            if not line.endswith(b"\n"):  # the run was killed while it wrote its last line
                break
            try:
                stored_response = _StoredResponse.model_validate(parse_strict_json(line))
                self._responses[stored_response.key] = stored_response.response()
            except ValueError as error:
                problem = (
                    f"line {line_number} is not a response ({_validation_problem(error)}); the file is damaged"
                )
                raise RecoverError(f"{self.path}: {problem}") from None
            valid_bytes += len(line)
        self._file.truncate(valid_bytes)

    def _check_run_header(self, line: bytes, resume: bool) -> None:
        try:
            run_header = parse_strict_json(line)
        except ValueError:
            run_header = None
        if not isinstance(run_header, dict) or run_header.get("recover") != _FORMAT_VERSION:
            raise RecoverError(f"{self.path}: this is not a checkpoint of gen recover")
        if not resume:
            raise RecoverError(
                f"{self.path}: the checkpoint already exists", advice="continue it with resume=True, or delete it"
            )
        for name, value in self._run_header.items():
            if run_header.get(name) != value:
                raise RecoverError(
                    f"{self.path}: the checkpoint belongs to another run; {name} is "
                    f"{_short_json(run_header.get(name))}, not {_short_json(value)}",
                    advice="delete the file, or give another checkpoint=…",
                )

    def _append_record(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.append(_json_line(record))
            self._file.sync()
        except OSError as error:
            raise RecoverError(f"{self.path}: the checkpoint cannot be written: {error.strerror}") from None


_FORMAT_VERSION = 1
_MAX_VALUE_CHARACTERS = 120
"""Maximum number of characters of a value that a message quotes."""
_TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]


class _StoredResponse(BaseModel):
    """A response as the JSON object of one line, see `EndpointResponse`.

    ``key`` is the digest of the query. ``ids``, ``logprobs`` and ``bytes`` (hexadecimal) are parallel lists
    with one entry for each shown token.
    """

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


def _json_line(record: Mapping[str, Any]) -> bytes:
    return encode_json(record).encode() + b"\n"


def _validation_problem(error: ValueError) -> str:
    """Return the error of a line as one sentence."""
    if not isinstance(error, ValidationError):
        return str(error)
    first_error = error.errors(include_url=False)[0]
    return problem_sentence(first_error["loc"], problem_message(first_error))


def _short_json(value: object) -> str:
    # The value comes from a file, so it may contain characters that UTF-8 cannot encode.
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[:_MAX_VALUE_CHARACTERS] + "…"


_FIRST_DRIFT_CHECK = 1 << 20
"""In a checkpoint file, drift checks are numbered from here. No query is repeated this often."""


@dataclass(frozen=True, slots=True)
class QueryKey:
    """The identifier of one call of a query about a prompt.

    Args:
        biases: pairs of token id and bias, sorted by id.
        kind: whether the next token or the most likely token is wanted.
        repetition: number of earlier calls of the same query.
        drift_check: number of the drift check that sends the query, counted from 1; 0 outside of drift
            checks.
    """

    biases: tuple[tuple[int, float], ...]
    kind: QueryKind = QueryKind.NEXT_TOKEN
    repetition: int = 0
    drift_check: int = 0

    @classmethod
    def of(
        cls,
        bias: Bias,
        kind: QueryKind = QueryKind.NEXT_TOKEN,
        repetition: int = 0,
        drift_check: int = 0,
    ) -> QueryKey:
        """Return the key of a query. The order of the biases does not matter.

        Args:
            bias: token id -> bias.
            kind: whether the next token or the most likely token is wanted.
            repetition: number of earlier calls of the same query.
            drift_check: number of the drift check that sends the query, counted from 1; 0 outside of
                drift checks.
        """
        return cls(
            tuple(sorted((int(token), float(value)) for token, value in bias.items())),
            kind,
            repetition,
            drift_check,
        )

    @property
    def digest(self) -> str:
        """The identifier of the query in a checkpoint file of version 1: 32 hexadecimal digits.

        They are the beginning of a SHA-256 of JSON, which holds the biases and one number. For queries
        for the most likely token the number counts down from -1, so that different queries have
        different digests.
        """
        number = _FIRST_DRIFT_CHECK + self.drift_check if self.drift_check else self.repetition
        if self.kind is QueryKind.TOP_TOKEN:
            number = -1 - number
        return hashlib.sha256(json.dumps([self.biases, number]).encode()).hexdigest()[:32]


MAX_STORED_REPETITIONS = 4
"""Maximum number of saved responses without a bias: the first query is sent up to this many times."""
_NEW_CALL_COUNTS = (1, 2)
"""Number of new calls in each round of the comparison. The second round runs concurrently, because a server that
computes calls together may respond differently then."""
_ROUNDING_FACTOR = 20
"""Rounding explains differences of up to this many times the declared relative error."""
_SPREAD_FACTOR = 10
"""Noise explains differences of up to this many times the spread within the old or within the new responses."""
_EQUAL_NATS = 1e-5
"""Smaller differences are ignored for every declared relative error, because float32 sums may differ by this much.
"""


def response_change(
    stored_responses: Sequence[EndpointResponse],
    query_again: Callable[[int], Sequence[EndpointResponse]],
    relative_error: float,
) -> float | None:
    """Compare saved responses to the query without a bias with new ones.

    Return the difference, in nats, that rounding and noise do not explain; inf if other tokens are shown;
    None if rounding and noise explain the difference.

    Args:
        stored_responses: the responses in the journal.
        query_again: returns the given number of new responses, from concurrent calls.
        relative_error: relative error of a shown probability.
    """
    new_responses: list[EndpointResponse] = []
    change_nats: float | None = None
    for count in _NEW_CALL_COUNTS if stored_responses else ():
        new_responses += query_again(count)
        change_nats = _unexplained_difference_nats(stored_responses, new_responses, relative_error)
        if change_nats is None:
            return None
    return change_nats


def _unexplained_difference_nats(
    stored_responses: Sequence[EndpointResponse], new_responses: Sequence[EndpointResponse], relative_error: float
) -> float | None:
    """Return the smallest difference of a saved and a new response, nats.

    Return None if rounding or spread explains the difference.

    Args:
        stored_responses: the responses in the journal.
        new_responses: the new responses.
        relative_error: relative error of a shown probability.
    """
    spread_nats = max(
        (
            _difference_nats(*pair)
            for responses in (stored_responses, new_responses)
            for pair in combinations(responses, 2)
        ),
        default=0.0,
    )
    min_difference_nats = min(_difference_nats(*pair) for pair in product(stored_responses, new_responses))
    max_explained_nats = max(_EQUAL_NATS, _ROUNDING_FACTOR * relative_error, _SPREAD_FACTOR * spread_nats)
    return min_difference_nats if min_difference_nats > max_explained_nats else None


def _difference_nats(first_response: EndpointResponse, second_response: EndpointResponse) -> float:
    """Return the largest difference of a logprob that both responses show, nats.

    Return inf if the responses show mostly different tokens.
    """
    shown_count = max(len(first_response.logprobs), len(second_response.logprobs))
    if not shown_count:
        return 0.0 if first_response.token == second_response.token else inf
    common_tokens = first_response.logprobs.keys() & second_response.logprobs.keys()
    if 2 * len(common_tokens) < shown_count:
        return inf
    return max(abs(first_response.logprobs[token] - second_response.logprobs[token]) for token in common_tokens)


def reject_change(path: Path, change_nats: float | None) -> None:
    """Raise ``RecoverError`` if responses have changed by ``change_nats``, see `response_change`."""
    if change_nats is not None:
        raise RecoverError(
            f"{path}: responses differ by {change_nats:.1g} nats from those in the checkpoint; the endpoint may "
            "now serve another model",
            advice="delete the checkpoint, or give another checkpoint=…",
        )
