"""Files of results that can be resumed after an interruption.

The settings that answers depend on, except those in the requests, are stored in a file next to the results. So
``--resume`` notices if the results were made with another model or other flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from ..common.errors import problem_message, problem_sentence
from ..common.files import AppendOnlyFile, InputTooLargeError, read_bounded, write_file_atomically, write_problem
from ..common.strict_json import json_problem, parse_strict_json
from .errors import JournalError

ExistingResults = dict[Hashable, str | None]
"""The results that existed before the run: the ``request_id`` of each by its key, see `_AnsweredRequest`."""


class ResultSink(Protocol):
    """A destination of results.

    Attributes:
        existing_results: the results that existed before the run.
        is_file: whether the results are in a file that can be read again.
    """

    existing_results: ExistingResults
    is_file: bool

    def add(self, line: str) -> None:
        """Write a result, which is one line of JSON."""
        ...

    def close(self) -> None:
        """Close the destination after the last result."""
        ...


@contextmanager
def closing_results(results: ResultSink) -> Iterator[None]:
    """Close the results after the block. If the block raises, an error of closing is ignored."""
    try:
        yield
    except BaseException:
        with suppress(JournalError):
            results.close()
        raise
    results.close()


_SYNC_EVERY_RESULTS, _SYNC_EVERY_SECONDS = 32, 1.0
"""Results are forced to disk after this many results or seconds. To force each result to disk would take longer
than to compute a short answer."""


class ResultJournal:
    """A file of results. Each line is written with one system call, and lines are forced to disk in groups.

    Args:
        path: the file.
        should_resume: whether an existing file is continued. Otherwise it is an error. An incomplete last line,
            which a crash left, is removed.
        is_openai: whether results have OpenAI's batch format; otherwise they have logitsmith's.
        flag: the flag that names the file, for messages.

    Attributes:
        existing_results: the results that existed before the run.
        is_file: whether the path is a regular file; otherwise it is a device or a pipe.

    Raises ``JournalError`` if another run writes to the file, if it exists and ``should_resume`` is False, if it
    contains other lines than results, and if it cannot be written.
    """

    def __init__(self, path: Path, should_resume: bool, is_openai: bool, flag: str = "-o") -> None:
        self._path, self._is_openai, self._flag = path, is_openai, flag
        self.existing_results: ExistingResults = {}
        try:
            self._file = AppendOnlyFile(path)
        except OSError as error:
            raise JournalError(f"{path}: {write_problem(error, path)}") from None
        self.is_file = self._file.is_regular
        try:
            if self.is_file:
                self._lock_and_read(should_resume)
        except BaseException:
            self._file.close()
            raise
        self._unsynced_count, self._synced_at = 0, monotonic()

    def _lock_and_read(self, should_resume: bool) -> None:
        """Lock the file, read its results, and remove an incomplete last line."""
        if not self._file.lock():
            raise JournalError(f"{self._path}: another run is writing to it")
        if self._file.size and not should_resume:
            raise JournalError(
                f"{self._path} already exists; continue it with --resume, or choose another file with {self._flag}"
            )
        try:
            end_offset = self._read_results()
        except InputTooLargeError as error:
            raise JournalError(f"{self._path}: {error.strerror}; the file was not changed") from None
        self._file.truncate(end_offset)
        self._sync()
        self._file.sync_folder()

    def _read_results(self) -> int:
        """Read the existing results, and return the offset in bytes after the last complete line."""
        end_offset = 0
        for number, line in enumerate(self._file.lines(), 1):
            is_complete = line.endswith(b"\n")
            if not is_complete and _is_incomplete_result(line):
                break
            try:
                answered = _find_answered_request(parse_strict_json(line), self._is_openai)
            except ValueError as error:
                raise JournalError(
                    f"{self._path}: line {number} is not a result: {_line_problem(error)}; "
                    f"remove this line, or choose another file with {self._flag}"
                ) from None
            if is_complete:  # a result without its newline is removed, and its request is answered again
                self.existing_results[answered.key] = answered.request_id
                end_offset += len(line)
        return end_offset

    def add(self, line: str) -> None:
        """Append a result as one line."""
        try:
            self._file.append((line + "\n").encode())
            self._unsynced_count += 1
            has_many_unsynced = self._unsynced_count >= _SYNC_EVERY_RESULTS
            if has_many_unsynced or monotonic() - self._synced_at >= _SYNC_EVERY_SECONDS:
                self._sync()
        except OSError as error:
            raise JournalError(
                f"{self._path}: {error.strerror}; all results before this one are saved, "
                f"and --resume continues after them"
            ) from None

    def _sync(self) -> None:
        self._file.sync()
        self._unsynced_count, self._synced_at = 0, monotonic()

    def close(self) -> None:
        """Force the last results to disk and close the file."""
        try:
            self._sync()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        finally:
            self._file.close()


def _line_problem(error: ValueError) -> str:
    """Return why a line is not a result, in words that do not come from Python's exceptions."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}"
    return str(error)


_RESULT_LINE_START = b'{"id": '
"""Beginning of each line that a run writes."""


def _is_incomplete_result(line: bytes) -> bool:
    """Return whether a last line without a newline is the beginning of a result."""
    if not (line.startswith(_RESULT_LINE_START) or _RESULT_LINE_START.startswith(line)):
        return False
    try:
        parse_strict_json(line)
    except ValueError:
        return True
    return False


class _Failure(BaseModel):
    """The fields of an error that identify the failed line."""

    model_config = ConfigDict(strict=True)

    line: int
    digest: str


class _Response(BaseModel):
    """The field of a response in OpenAI's format that identifies the request."""

    model_config = ConfigDict(strict=True)

    request_id: str | None = None


class _Result(BaseModel):
    """The fields of a result, in either format, that identify the request or the failed line."""

    model_config = ConfigDict(strict=True)

    error: _Failure | None
    id: str | None = None
    custom_id: str | None = None
    request_id: str | None = None
    response: _Response | None = None


class _AnsweredRequest(NamedTuple):
    """The request that a result belongs to.

    Attributes:
        key: id of the request; for a failed line, its number and digest.
        request_id: digest of the text, the model and the flags that the result was made with, see `batch_id`. None
            if the result has no such digest, because another program wrote it.
    """

    key: Hashable
    request_id: str | None


_ANSWER_FIELDS = {"response", "text"}
"""A result without an error has at least one of these fields."""
_REQUEST_ID_PATTERN = re.compile("[0-9a-f]{24}")


def _find_answered_request(record: Any, is_openai: bool) -> _AnsweredRequest:
    """Return the request that a result belongs to.

    Raises ``ValueError`` for a value that is not a result, and for a result in the other format.
    """
    if (
        not isinstance(record, dict)
        or "error" not in record
        or not (record["error"] or _ANSWER_FIELDS & record.keys())
    ):
        raise ValueError("it has neither an answer nor an error")
    if ("response" in record) != is_openai:
        raise ValueError(f"it is in the other format; give --format {'jsonl' if is_openai else 'openai'}")
    try:
        result = _Result.model_validate(record)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = problem_message(problem).removesuffix(" or instance of _Failure")
        raise ValueError(problem_sentence(problem["loc"], message)) from None
    if result.error is not None:
        return _AnsweredRequest((result.error.line, result.error.digest), None)
    line_id = result.custom_id if is_openai else result.id
    if line_id is None:
        raise ValueError("it has no id")
    request_id = result.response.request_id if is_openai and result.response else result.request_id
    has_digest = request_id is not None and _REQUEST_ID_PATTERN.fullmatch(request_id) is not None
    return _AnsweredRequest(line_id, request_id if has_digest else None)


_SETTINGS_SUFFIX = ".settings.json"
_NAME_KEY = "name"
"""Key of the model's name, which is shown in messages and not compared: a file may be renamed."""


def check_and_write_settings(
    results: Path, settings: Mapping[str, Any], *, has_results: bool, overwrite: bool
) -> None:
    """Write the settings of this run to a file next to the results. Existing results must have the same settings.

    Results without a file of settings are checked later, by their ``request_id``.

    Args:
        results: the file of results.
        settings: settings of this run.
        has_results: whether the file contains results of an earlier run.
        overwrite: whether the settings are written even if those of the existing results differ.

    Raises ``JournalError``.
    """
    path = settings_path(results)
    old_settings = read_settings(path) if has_results and not overwrite else None
    differences = [] if old_settings is None else settings_differences(old_settings, settings)
    if differences:
        raise JournalError(
            f"{results} was made with {'; '.join(differences)}; use the same settings, "
            "or --force to keep the existing results and continue"
        )
    _write_settings(path, settings)


def settings_path(results: Path) -> Path:
    """Return the path of the settings of a file of results."""
    return results.with_name(results.name + _SETTINGS_SUFFIX)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return SHA-256, in hexadecimal, of all settings except the model's name."""
    compared_settings = {key: value for key, value in settings.items() if key != _NAME_KEY}
    return sha256(json.dumps(compared_settings, sort_keys=True).encode()).hexdigest()


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings in a file; None if the file does not exist. Raises ``JournalError``."""
    try:
        with path.open("rb") as file:
            data = read_bounded(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    try:
        settings = parse_strict_json(data)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise JournalError(f"{path}: this file does not contain the settings of a batch; --force overwrites it")
    return settings


def _write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings atomically. Raises ``JournalError``."""
    text = json.dumps(settings, ensure_ascii=False, indent=1) + "\n"
    try:
        write_file_atomically(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None


def settings_differences(old_settings: Mapping[str, Any], new_settings: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each setting that differs, such as ``seed 0, now 7``."""
    if old_settings.get("chain") != new_settings["chain"]:  # the parameters of different chains cannot be compared
        old_settings, new_settings = _without_parameters(old_settings), _without_parameters(new_settings)
    names = [
        name
        for name in {**old_settings, **new_settings}
        if name != _NAME_KEY and old_settings.get(name) != new_settings.get(name)
    ]
    return [_describe_difference(name, old_settings, new_settings) for name in names]


def _without_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if "." not in name}


_MAX_SHOWN_CHARACTERS = 40
"""Longer values are not shown in a message."""


def _describe_difference(name: str, old_settings: Mapping[str, Any], new_settings: Mapping[str, Any]) -> str:
    if name == "model":  # show the models' names, not their fingerprints, if the names differ
        name = _NAME_KEY if old_settings.get(_NAME_KEY) != new_settings.get(_NAME_KEY) else name
    values = [old_settings.get(name), new_settings.get(name)]
    shown_values = ["none" if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    label = "model" if name == _NAME_KEY else name
    if max(map(len, shown_values)) > _MAX_SHOWN_CHARACTERS:
        return f"another {label}"
    return f"{label} {shown_values[0]}, now {shown_values[1]}"
