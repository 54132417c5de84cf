"""A checkpoint file: each answer is on disk, in a line of its own, before it is used.

A restarted method asks the same questions in the same order; those with an answer in the journal are not sent.
Before that, a few answers are compared with new ones: does the endpoint still answer as it did?
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
    """Answers by question, kept in a file that only grows.

    A journal of another endpoint or prompt is refused, and so is any other file; both stay as they are.

    Args:
        path: the file.
        run_identity: identifies endpoint and prompt.
        resume: True to go on with an existing journal; else an existing one is refused.

    Attributes: ``resumed_response_count``: number of answers that the file held before. Raises ``RecoverError``.
    """

    def __init__(self, path: Path, run_identity: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._responses: dict[str, EndpointResponse] = {}
        self._run_header = json.loads(encode_json({"recover": _VERSION, **run_identity}))
        try:
            self._file = AppendOnlyFile(path)
        except OSError as error:
            raise RecoverError(f"{path}: the checkpoint cannot be written: {error.strerror}") from None
        try:
            if not self._file.is_regular:
                raise RecoverError(f"{path}: a checkpoint has to be a file, and no device or pipe")
            if not self._file.lock():  # also if another run removed the file before it was locked
                raise RecoverError(f"{path}: another run is writing this checkpoint")
            self._read(resume)
        except BaseException:
            self._file.close()
            raise
        self.resumed_response_count = len(self._responses)

    def __len__(self) -> int:
        return len(self._responses)

    def get(self, query_key: QueryKey) -> EndpointResponse | None:
        """Return the stored answer to a question; None if there is none."""
        return self._responses.get(query_key.digest)

    def add(self, query_key: QueryKey, response: EndpointResponse) -> None:
        """Store an answer; it is on disk when this returns. Raises ``RecoverError`` if the disk is full."""
        key = query_key.digest
        self._append(_record(key, response))
        self._responses[key] = response

    def close(self) -> None:
        """Close the file; it is removed if it holds no answer."""
        if not self._responses:  # the lock is still held: no other run writes the file
            with suppress(OSError):  # what is wrong with the file was said when it could not be written
                self.path.unlink(missing_ok=True)
        self._file.close()

    def _read(self, resume: bool) -> None:
        """Read the file. Nothing is cut off before it is certain that the file is a journal."""
        try:
            self._read_lines(self._file.lines(), resume)
        except InputTooLargeError as error:
            raise RecoverError(f"{self.path}: this is no checkpoint of a recovery: {error.strerror}") from None

    def _read_lines(self, lines: Iterator[bytes], resume: bool) -> None:
        run_header = next(lines, b"")
        if not run_header.endswith(b"\n") and _line(self._run_header).startswith(
            run_header
        ):  # empty, or an incomplete head
            self._file.truncate(0)
            self._append(self._run_header)
            return
        self._check_run_header(run_header, resume)
        length = len(run_header) if run_header.endswith(b"\n") else 0
        for number, line in enumerate(lines, 2):
            if not line.endswith(b"\n"):  # an incomplete last line
                break
            try:
                stored = _StoredResponse.model_validate(parse_strict_json(line))
                self._responses[stored.key] = stored.response()
            except ValueError as error:
                problem = f"line {number} is no answer ({_problem(error)}); the file is damaged"
                raise RecoverError(f"{self.path}: {problem}") from None
            length += len(line)
        self._file.truncate(length)

    def _check_run_header(self, line: bytes, resume: bool) -> None:
        try:
            run_header = parse_strict_json(line)
        except ValueError:
            run_header = None
        if not isinstance(run_header, dict) or run_header.get("recover") != _VERSION:
            raise RecoverError(f"{self.path}: this is no checkpoint of a recovery")
        if not resume:
            raise RecoverError(
                f"{self.path}: the checkpoint already exists", advice="continue it with resume=True, or delete it"
            )
        for name, value in self._run_header.items():
            if run_header.get(name) != value:
                raise RecoverError(
                    f"{self.path}: a checkpoint of another run: its {name} is "
                    f"{_short_json(run_header.get(name))}, "
                    f"not {_short_json(value)}",
                    advice="delete it, or give another checkpoint=…",
                )

    def _append(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.append(_line(record))
            self._file.sync()
        except OSError as error:
            raise RecoverError(f"{self.path}: the checkpoint cannot be written: {error.strerror}") from None


_VERSION = 1
_MAX_VALUE_CHARACTERS = 120
"""Characters of a value that a message quotes."""
_TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]


class _StoredResponse(BaseModel):
    """An answer as the JSON object that a line holds; see `EndpointResponse`. ``key``: the question's digest.

    ``ids``, ``logprobs`` and ``bytes`` (hexadecimal) are one list: entry i of each belongs to one token.
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
        """Return the answer. Raises ``ValueError`` for bytes that are not hexadecimal."""
        token_bytes = {
            token: bytes.fromhex(text)
            for token, text in zip(self.ids, self.bytes, strict=True)
            if text is not None
        }
        logprobs = dict(zip(self.ids, self.logprobs, strict=True))
        return EndpointResponse(self.token, self.logprob, logprobs, token_bytes, self.calls, tuple(self.unnamed))


def _record(key: str, response: EndpointResponse) -> dict[str, Any]:
    """Return an answer as the JSON object that a line holds."""
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


def _line(record: Mapping[str, Any]) -> bytes:
    return encode_json(record).encode() + b"\n"


def _problem(error: ValueError) -> str:
    """Return what is wrong with a line, in one sentence."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return problem_sentence(first["loc"], problem_message(first))


def _short_json(value: object) -> str:
    # The value is from a file: it may hold what strict JSON and UTF-8 cannot write.
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[:_MAX_VALUE_CHARACTERS] + "…"


_FIRST_DRIFT_CHECK = 1 << 20
"""In a checkpoint file drift checks are numbered from here on: more than any question is repeated."""


@dataclass(frozen=True, slots=True)
class QueryKey:
    """Identifies a question to one endpoint about one prompt.

    Args:
        biases: pairs of token id and bias, by id.
        kind: what is asked for.
        repetition: how many times the same question was asked before.
        drift_check: number of the drift check that asks it, from 1; 0: none.
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
        """Return the key of the question with these biases, in any order.

        Args:
            bias: token id -> bias.
            kind: what is asked for.
            repetition: how many times the same question was asked before.
            drift_check: number of the drift check that asks it, from 1; 0: none.
        """
        return cls(
            tuple(sorted((int(token), float(value)) for token, value in bias.items())),
            kind,
            repetition,
            drift_check,
        )

    @property
    def digest(self) -> str:
        """The question's name in a checkpoint file, version 1: 32 hexadecimal digits of SHA-256 of a JSON text.

        The JSON holds the biases and one number. Questions for the likeliest token count it down from -1, so that
        all questions have different names.
        """
        number = _FIRST_DRIFT_CHECK + self.drift_check if self.drift_check else self.repetition
        if self.kind is QueryKind.TOP_TOKEN:
            number = -1 - number
        return hashlib.sha256(json.dumps([self.biases, number]).encode()).hexdigest()[:32]


MAX_STORED_REPETITIONS = 4
"""Answers without a bias that a journal holds at most: the probe repeats its first question that often."""
_NEW_CALL_COUNTS = (1, 2)
"""Answers asked for, and then, if the first differs, at once: a server may compute questions together."""
_ROUNDING_FACTOR = 20
"""Rounding explains differences of up to so many times the declared precision."""
_SPREAD_FACTOR = 10
"""Noise explains differences of up to so many times the spread within the old or the new answers."""
_EQUAL_NATS = 1e-5
"""Smaller differences mean nothing, whatever precision is declared: float32 sums may differ by as much."""


def response_change(
    stored: Sequence[EndpointResponse],
    query_again: Callable[[int], Sequence[EndpointResponse]],
    relative_error: float,
) -> float | None:
    """Compare stored answers to the question without a bias with new ones.

    Returns the difference in nats (inf: other tokens) that precision and noise do not explain; None if they do.

    Args:
        stored: the journal's answers.
        query_again: asks for so many new answers, all at once.
        relative_error: relative error of an answered probability.
    """
    new: list[EndpointResponse] = []
    change_nats: float | None = None
    for count in _NEW_CALL_COUNTS if stored else ():
        new += query_again(count)
        change_nats = _unexplained_difference_nats(stored, new, relative_error)
        if change_nats is None:
            return None
    return change_nats


def _unexplained_difference_nats(
    stored: Sequence[EndpointResponse], new: Sequence[EndpointResponse], relative_error: float
) -> float | None:
    """Return the smallest difference of old and new answers, nats, if rounding and spread do not explain it.

    None: the answers agree. inf: they show other tokens.
    """
    spread_nats = max(
        (_difference_nats(*pair) for responses in (stored, new) for pair in combinations(responses, 2)),
        default=0.0,
    )
    min_difference_nats = min(_difference_nats(*pair) for pair in product(stored, new))
    max_explained_nats = max(_EQUAL_NATS, _ROUNDING_FACTOR * relative_error, _SPREAD_FACTOR * spread_nats)
    return min_difference_nats if min_difference_nats > max_explained_nats else None


def _difference_nats(first: EndpointResponse, second: EndpointResponse) -> float:
    """Return the largest difference of a logprob that both show; inf if they show other tokens."""
    shown = max(len(first.logprobs), len(second.logprobs))
    if not shown:
        return 0.0 if first.token == second.token else inf
    common = first.logprobs.keys() & second.logprobs.keys()
    if 2 * len(common) < shown:
        return inf
    return max(abs(first.logprobs[token] - second.logprobs[token]) for token in common)


def reject_change(path: Path, change_nats: float | None) -> None:
    """Raise ``RecoverError`` if the answers changed (see `response_change`)."""
    if change_nats is not None:
        raise RecoverError(
            f"{path}: the endpoint answers otherwise than when this checkpoint was written, by {change_nats:.1g} "
            f"nats: is it another model?",
            advice="delete the checkpoint, or give another checkpoint=…",
        )
