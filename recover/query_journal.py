"""A checkpoint: every answer that was paid for, one a line, on disk before it is used.

Methods ask the same questions in the same order when they are started again, so that a run that was killed goes on
by asking its questions once more: those that are in the journal are not sent.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..logprobs import encode_json
from .endpoints.base import Bias, EndpointAnswer
from .errors import RecoverError

_VERSION = 1


def key_of(bias: Bias, turn: int) -> str:
    """The name of a question in the journal: its biases, and which repetition it is."""
    told = json.dumps([sorted((int(token), float(value)) for token, value in bias.items()), turn])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


class QueryJournal:
    """Answers by question, kept in a file that is only ever appended to.

    ``about`` names the run; a journal of another one is refused, and so is any file that is no journal: it stays
    as it is. ``resumed``: how many answers were there before. Raises ``RecoverError``.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self._answers: dict[str, EndpointAnswer] = {}
        self._head = json.loads(encode_json({"recover": _VERSION, **about}))
        try:
            self._file: BinaryIO = path.open("ab+")
        except OSError as error:
            raise RecoverError(f"{path}: the checkpoint cannot be written: {error.strerror}") from None
        try:
            self._lock()
            self._read(resume)
        except BaseException:
            self._file.close()
            raise
        self.resumed = len(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> EndpointAnswer | None:
        """The answer to a question, if it was given before."""
        return self._answers.get(key)

    def add(self, key: str, answer: EndpointAnswer) -> None:
        """Keep an answer; it is on disk when this returns. Raises ``RecoverError`` where the disk is full."""
        pieces = [answer.pieces.get(token) for token in answer.logprobs]
        self._write(
            {
                "key": key,
                "token": answer.token,
                "logprob": answer.logprob,
                "ids": list(answer.logprobs),
                "logprobs": list(answer.logprobs.values()),
                "bytes": [None if piece is None else piece.hex() for piece in pieces],
                "calls": answer.calls,
                "unnamed": list(answer.unnamed),
            }
        )
        self._answers[key] = answer

    def close(self) -> None:
        """Close the file, which stays if there is an answer in it."""
        if not self._answers:  # while the lock is held: nobody else writes it
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError:
            mine = False
        if not mine:  # also where another run removed the file before the lock was had
            raise RecoverError(f"{self.path}: another run is writing this checkpoint")

    def _read(self, resume: bool) -> None:
        """Read what is there. Nothing is cut off before the file is known to be a journal."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if not lines and self._line(self._head).startswith(
            data
        ):  # nothing, or a head that a killed run was writing
            self._file.truncate(0)
            self._write(self._head)
            return
        self._check(lines[0] if lines else data, resume)
        for number, line in enumerate(lines[1:], 2):
            try:
                record = json.loads(line)
                self._answers[record["key"]] = _answer(record)
            except (ValueError, KeyError, TypeError):
                raise RecoverError(f"{self.path}: line {number} is no answer; the file is damaged") from None
        if whole < len(data):  # the line that a killed run was writing
            self._file.truncate(whole)

    def _check(self, line: bytes, resume: bool) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("recover") != _VERSION:
            raise RecoverError(f"{self.path}: this is no checkpoint of a recovery")
        if not resume:
            raise RecoverError(f"{self.path}: there is a checkpoint already; go on with --resume, or delete it")
        for name, value in self._head.items():
            if found.get(name) != value:
                raise RecoverError(
                    f"{self.path}: a checkpoint of another run: its {name} is {_short(found.get(name))}, "
                    f"not {_short(value)}; delete it, or give another --checkpoint"
                )

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(self._line(record))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RecoverError(f"{self.path}: the checkpoint cannot be written: {error.strerror}") from None

    @staticmethod
    def _line(record: Mapping[str, Any]) -> bytes:
        return encode_json(record).encode() + b"\n"


def _answer(record: Mapping[str, Any]) -> EndpointAnswer:
    ids = [int(token) for token in record["ids"]]
    values = [float(value) for value in record["logprobs"]]
    pieces = {
        token: bytes.fromhex(text) for token, text in zip(ids, record["bytes"], strict=True) if text is not None
    }
    logprobs = dict(zip(ids, values, strict=True))
    nameless = tuple(float(value) for value in record.get("unnamed", ()))
    return EndpointAnswer(record["token"], record["logprob"], logprobs, pieces, int(record["calls"]), nameless)


def _short(value: object) -> str:
    text = encode_json(value)
    return text if len(text) <= 120 else text[:120] + "…"
