"""Files of results that can be resumed after an interruption.

The settings that answers depend on, except those in the requests, are stored in a file next to the results. So
``--resume`` notices if the results were made with another model or other flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from ..common.errors import problem_message, problem_sentence
from ..common.files import read_bounded, write_file_atomically, write_problem
from ..common.journal import Journal, JournalError
from ..common.strict_json import parse_strict_json

# The results that existed before the run: the ``request_id`` of each by its key. `_AnsweredRequest` explains both.
ExistingResults = dict[Hashable, str | None]


class ResultSink(Protocol):
    existing_results: ExistingResults
    is_file: bool  # whether the results are in a file that can be read again

    def add(self, line: str) -> None:
        """Write a result, which is one line of JSON."""
        ...

    def close(self) -> None:
        """Close the destination after the last result."""
        ...


@contextmanager
def closing_results(results: ResultSink | LineJournal) -> Iterator[None]:
    """Close the results after the block. If the block raises, an error of closing is ignored."""
    try:
        yield
    except BaseException:
        with suppress(JournalError):
            results.close()
        raise
    results.close()


# Results are forced to disk after this many results or seconds. To force each result to disk would take longer
# than to compute a short answer.
_SYNC_EVERY_RESULTS = 32
_SYNC_EVERY_SECONDS = 1.0


class LineJournal:
    """A file of lines. Each line is written with one system call, and lines are forced to disk in groups."""

    # ``read``: reads the lines of an existing file, and removes what a crash left at its end. ``should_resume``:
    # whether an existing file is continued; otherwise it is an error. ``flag`` names the file in messages. Raises
    # ``JournalError`` also if another run writes to the file. ``header``: see `Journal`.

    def __init__(
        self,
        path: Path,
        should_resume: bool,
        read: Callable[[Journal], object],
        flag: str = "-o",
        header: str | None = None,
    ) -> None:
        self._path = path
        try:
            self._journal = Journal(path, header)
        except OSError as error:
            raise JournalError(f"{path}: {write_problem(error, path)}") from None
        # whether the path is a regular file; otherwise it is a device or a pipe
        self.is_file = self._journal.is_regular
        try:
            if not self.is_file and header is not None:
                self._journal.append(header)
            elif self.is_file and not self._journal.is_new:
                if not should_resume:
                    raise JournalError(
                        f"{path} already exists; continue it with --resume, or choose another file with {flag}"
                    )
                read(self._journal)
        except BaseException:
            self._journal.close()
            raise
        self._unsynced_count = 0
        self._sync_time = monotonic()

    def add(self, line: str) -> None:
        try:
            self._journal.append(line)
            self._unsynced_count += 1
            has_many_unsynced = self._unsynced_count >= _SYNC_EVERY_RESULTS
            if has_many_unsynced or monotonic() - self._sync_time >= _SYNC_EVERY_SECONDS:
                self._journal.sync()
                self._unsynced_count = 0
                self._sync_time = monotonic()
        except OSError as error:
            raise JournalError(
                f"{self._path}: {error.strerror}; all results before this one are saved, "
                f"and --resume continues after them"
            ) from None

    def close(self) -> None:
        try:
            self._journal.sync()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        finally:
            self._journal.close()


class ResultJournal(LineJournal):
    """A file of results of a batch. Raises ``JournalError`` also if it contains other lines than results."""

    def __init__(self, path: Path, should_resume: bool, is_openai: bool, flag: str = "-o") -> None:
        self.existing_results: ExistingResults = {}

        def read(journal: Journal) -> None:
            answered_requests = journal.records(
                partial(_find_answered_request, is_openai=is_openai),
                start=_RESULT_LINE_START,
                name="a result",
                advice=f"remove this line, or choose another file with {flag}",
            )
            self.existing_results = {answered.key: answered.request_id for answered in answered_requests}

        super().__init__(path, should_resume, read, flag)


_RESULT_LINE_START = '{"id": '  # beginning of each line that a run writes


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
    key: Hashable  # id of the request; for a failed line, its number and digest
    # digest of the text, the model and the flags that the result was made with, see `batch_id`. None if the result
    # has no such digest, because another program wrote it.
    request_id: str | None


_ANSWER_FIELDS = {"response", "text"}  # a result without an error has at least one of these fields
_REQUEST_ID_PATTERN = re.compile("[0-9a-f]{24}")


def _find_answered_request(record: Any, is_openai: bool) -> _AnsweredRequest:
    # Raises ``ValueError`` for a value that is not a result, and for a result in the other format.
    if not _is_result(record):
        raise ValueError("it has neither an answer nor an error")
    if ("response" in record) != is_openai:
        other_format = "jsonl" if is_openai else "openai"
        raise ValueError(f"it is in the other format; give --format {other_format}")
    try:
        result = _Result.model_validate(record)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ValueError(problem_sentence(problem["loc"], problem_message(problem))) from None
    if result.error is not None:
        return _AnsweredRequest(key=(result.error.line, result.error.digest), request_id=None)
    line_id = result.custom_id if is_openai else result.id
    if line_id is None:
        raise ValueError("it has no id")
    request_id = result.response.request_id if is_openai and result.response else result.request_id
    is_digest = request_id is not None and _REQUEST_ID_PATTERN.fullmatch(request_id) is not None
    return _AnsweredRequest(key=line_id, request_id=request_id if is_digest else None)


def _is_result(record: Any) -> bool:
    """Return whether a JSON value has the fields of a result: an error, or null as the error and an answer."""
    if not isinstance(record, dict) or "error" not in record:
        return False
    return bool(record["error"]) or not _ANSWER_FIELDS.isdisjoint(record)


_SETTINGS_SUFFIX = ".settings.json"
_NAME_KEY = "name"  # key of the model's name, which is shown in messages and not compared: a file may be renamed


def check_and_write_settings(
    results: Path,
    settings: Mapping[str, Any],
    *,
    has_results: bool,
    overwrite: bool = False,
    needs_old_settings: bool = False,
    way_out: str = "--force to keep the existing results and continue",
) -> None:
    """Write the settings of this run to a file next to the results."""
    # Raises ``JournalError`` if existing results were made with other settings, or if ``needs_old_settings`` and
    # there are none, unless ``overwrite`` is True. Results of a batch are also checked by their ``request_id``.
    # ``way_out``: what the user may do instead of using the same settings.
    path = settings_path(results)
    if has_results and not overwrite:
        old_settings = read_settings(path, way_out)
        if old_settings is None and needs_old_settings:
            raise JournalError(f"{path}, which says how {results} was made, is missing; {way_out}")
        differences = [] if old_settings is None else settings_differences(old_settings, settings)
        if differences:
            raise JournalError(
                f"{results} was made with {'; '.join(differences)}; use the same settings, or {way_out}"
            )
    _write_settings(path, settings)


def settings_path(results: Path) -> Path:
    return results.with_name(results.name + _SETTINGS_SUFFIX)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return SHA-256, in hexadecimal, of all settings except the model's name."""
    compared_settings = {key: value for key, value in settings.items() if key != _NAME_KEY}
    return sha256(json.dumps(compared_settings, sort_keys=True).encode()).hexdigest()


def read_settings(path: Path, way_out: str = "") -> dict[str, Any] | None:
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
        raise JournalError(f"{path}: this file does not contain settings of results", advice=way_out)
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
    if old_settings.get("chain") != new_settings.get(
        "chain"
    ):  # the parameters of different chains cannot be compared
        old_settings = _without_parameters(old_settings)
        new_settings = _without_parameters(new_settings)
    all_names = {**old_settings, **new_settings}
    different_names = [
        name for name in all_names if name != _NAME_KEY and old_settings.get(name) != new_settings.get(name)
    ]
    return [_describe_difference(name, old_settings, new_settings) for name in different_names]


def _without_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those of samplers, whose names have a dot, such as ``top_k.k``."""
    return {name: value for name, value in settings.items() if "." not in name}


_MAX_SHOWN_CHARACTERS = 40  # longer values are not shown in a message


def _describe_difference(name: str, old_settings: Mapping[str, Any], new_settings: Mapping[str, Any]) -> str:
    key = name
    if name == "model" and old_settings.get(_NAME_KEY) != new_settings.get(_NAME_KEY):
        key = _NAME_KEY  # show the names of the models, which differ, instead of their fingerprints
    old_text = _value_text(old_settings.get(key))
    new_text = _value_text(new_settings.get(key))
    if max(len(old_text), len(new_text)) > _MAX_SHOWN_CHARACTERS:
        return f"another {name}"
    return f"{name} {old_text}, now {new_text}"


def _value_text(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
