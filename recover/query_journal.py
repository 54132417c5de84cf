"""A checkpoint file: each answer is on disk, in a line of its own, before it is used.

A restarted method asks the same questions in the same order; those with an answer in the journal are not sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..common.errors import problem_message, problem_sentence
from ..common.files import AppendOnlyFile, InputTooLargeError
from ..common.machine import INT32_MAX
from ..common.strict_json import encode_json, parse_strict_json
from .endpoints.base import EndpointAnswer
from .errors import RecoverError
from .question import QuestionKey

_VERSION = 1
_TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
_LONGEST_VALUE = 120
"""Characters of a value that a message quotes."""


class _StoredAnswer(BaseModel):
    """An answer as the JSON object that a line holds; see `EndpointAnswer`. ``key``: the question's digest.

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
    def _check_lengths(self) -> _StoredAnswer:
        if not len(self.ids) == len(self.logprobs) == len(self.bytes):
            raise ValueError("ids, logprobs and bytes are not of one length")
        return self

    def answer(self) -> EndpointAnswer:
        """Return the answer. Raises ``ValueError`` for bytes that are not hexadecimal."""
        pieces = {
            token: bytes.fromhex(text)
            for token, text in zip(self.ids, self.bytes, strict=True)
            if text is not None
        }
        logprobs = dict(zip(self.ids, self.logprobs, strict=True))
        return EndpointAnswer(self.token, self.logprob, logprobs, pieces, self.calls, tuple(self.unnamed))


class QueryJournal:
    """Answers by question, kept in a file that only grows.

    A journal of another endpoint or prompt is refused, and so is any other file; both stay as they are.

    Args:
        path: the file.
        run: identifies endpoint and prompt.
        resume: True to go on with an existing journal; else an existing one is refused.

    Attributes: ``resumed``: number of answers that the file held before. Raises ``RecoverError``.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._answers: dict[str, EndpointAnswer] = {}
        self._head = json.loads(encode_json({"recover": _VERSION, **run}))
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
        self.resumed = len(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: QuestionKey) -> EndpointAnswer | None:
        """Return the stored answer to a question; None if there is none."""
        return self._answers.get(question.digest)

    def add(self, question: QuestionKey, answer: EndpointAnswer) -> None:
        """Store an answer; it is on disk when this returns. Raises ``RecoverError`` if the disk is full."""
        key = question.digest
        self._append(_record(key, answer))
        self._answers[key] = answer

    def close(self) -> None:
        """Close the file; it is removed if it holds no answer."""
        if not self._answers:  # the lock is still held: no other run writes the file
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
        head = next(lines, b"")
        if not head.endswith(b"\n") and _line(self._head).startswith(head):  # empty, or an incomplete head
            self._file.truncate(0)
            self._append(self._head)
            return
        self._check_head(head, resume)
        length = len(head) if head.endswith(b"\n") else 0
        for number, line in enumerate(lines, 2):
            if not line.endswith(b"\n"):  # an incomplete last line
                break
            try:
                stored = _StoredAnswer.model_validate(parse_strict_json(line))
                self._answers[stored.key] = stored.answer()
            except ValueError as error:
                problem = f"line {number} is no answer ({_problem(error)}); the file is damaged"
                raise RecoverError(f"{self.path}: {problem}") from None
            length += len(line)
        self._file.truncate(length)

    def _check_head(self, line: bytes, resume: bool) -> None:
        try:
            head = parse_strict_json(line)
        except ValueError:
            head = None
        if not isinstance(head, dict) or head.get("recover") != _VERSION:
            raise RecoverError(f"{self.path}: this is no checkpoint of a recovery")
        if not resume:
            raise RecoverError(
                f"{self.path}: the checkpoint already exists", advice="continue it with resume=True, or delete it"
            )
        for name, value in self._head.items():
            if head.get(name) != value:
                raise RecoverError(
                    f"{self.path}: a checkpoint of another run: its {name} is {_shortened(head.get(name))}, "
                    f"not {_shortened(value)}",
                    advice="delete it, or give another checkpoint=…",
                )

    def _append(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.append(_line(record))
            self._file.sync()
        except OSError as error:
            raise RecoverError(f"{self.path}: the checkpoint cannot be written: {error.strerror}") from None


def _line(record: Mapping[str, Any]) -> bytes:
    return encode_json(record).encode() + b"\n"


def _record(key: str, answer: EndpointAnswer) -> dict[str, Any]:
    """Return an answer as the JSON object that a line holds."""
    pieces = [answer.pieces.get(token) for token in answer.logprobs]
    return {
        "key": key,
        "token": answer.token,
        "logprob": answer.logprob,
        "ids": list(answer.logprobs),
        "logprobs": list(answer.logprobs.values()),
        "bytes": [None if piece is None else piece.hex() for piece in pieces],
        "calls": answer.calls,
        "unnamed": list(answer.unnamed),
    }


def _problem(error: ValueError) -> str:
    """Return what is wrong with a line, in one sentence."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return problem_sentence(first["loc"], problem_message(first))


def _shortened(value: object) -> str:
    # The value is from a file: it may hold what strict JSON and UTF-8 cannot write.
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"
