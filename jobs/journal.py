"""Results that outlive the process, and whether a batch may be resumed.

The settings that answers depend on in addition to their requests are in a file next to the results, so that
``--resume`` does not mix answers of two models or of other flags unnoticed.
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
"""The results from before the start: the ``request_id`` of each by its key, see `_AnsweredRequest`."""


class ResultSink(Protocol):
    """What takes results.

    Attributes: ``existing``: the results from before the start; ``is_file``: True if they can be read again.
    """

    existing: ExistingResults
    is_file: bool

    def add(self, line: str) -> None:
        """Keep a result, which is one line of JSON."""
        ...

    def close(self) -> None:
        """End: no result comes after this."""
        ...


@contextmanager
def closing_results(results: ResultSink) -> Iterator[None]:
    """Close the results behind the block. If the block fails, this failure is raised, and none of closing."""
    try:
        yield
    except BaseException:
        with suppress(JournalError):
            results.close()
        raise
    results.close()


_SYNC_EVERY_RESULTS, _SYNC_EVERY_SECONDS = 32, 1.0
"""Results are forced to the disk in groups: a sync after each would cost more than a short answer."""


class ResultJournal:
    """Results in a file: each line is written with one call, and forced to the disk in groups.

    With ``resume``, results that are there stay: ``existing`` holds what they belong to, and a torn last line is
    cut off. Raises ``JournalError`` if another run writes to the file, if it exists and ``resume`` is False, if
    it is not a file of results, and if the disk is full.
    """

    def __init__(self, path: Path, resume: bool, openai: bool) -> None:
        self._path, self._openai = path, openai
        self.existing: ExistingResults = {}
        try:
            self._file = AppendOnlyFile(path)
        except OSError as error:
            raise JournalError(f"{path}: {write_problem(error, path)}") from None
        self.is_file = self._file.is_regular
        try:
            if self.is_file:
                self._open(resume)
        except BaseException:
            self._file.close()
            raise
        self._unsynced_results, self._synced_at = 0, monotonic()

    def _open(self, resume: bool) -> None:
        if not self._file.lock():
            raise JournalError(f"{self._path}: another run is writing to it")
        if self._file.size and not resume:
            raise JournalError(
                f"{self._path} is there already; --resume goes on with it, or give another file with -o"
            )
        try:
            end = self._read_results()
        except InputTooLargeError as error:
            raise JournalError(f"{self._path}: {error.strerror}; it is left as it is") from None
        self._file.truncate(end)
        self._sync()
        self._file.sync_folder()

    def _read_results(self) -> int:
        """Collect the keys of the results that are there; return where the last whole line ends, in bytes."""
        end = 0
        for number, line in enumerate(self._file.lines(), 1):
            is_whole = line.endswith(b"\n")
            if not is_whole and _is_incomplete_result(line):
                break
            try:
                owner = _find_answered_request(parse_strict_json(line), self._openai)
            except ValueError as error:
                raise JournalError(
                    f"{self._path}: line {number} cannot be resumed: it is not a result: {_line_problem(error)}; "
                    f"remove this line, or give another file with -o"
                ) from None
            if is_whole:  # a result that lacks only its line end is cut off and made again
                self.existing[owner.key] = owner.request_id
                end += len(line)
        return end

    def add(self, line: str) -> None:
        """Append a result as one line."""
        try:
            self._file.append((line + "\n").encode())
            self._unsynced_results += 1
            if (
                self._unsynced_results >= _SYNC_EVERY_RESULTS
                or monotonic() - self._synced_at >= _SYNC_EVERY_SECONDS
            ):
                self._sync()
        except OSError as error:
            raise JournalError(
                f"{self._path}: {error.strerror}; all results before this one are kept, "
                f"and --resume goes on from there"
            ) from None

    def _sync(self) -> None:
        self._file.sync()
        self._unsynced_results, self._synced_at = 0, monotonic()

    def close(self) -> None:
        """Force the last results to the disk and close the file."""
        try:
            self._sync()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        finally:
            self._file.close()


def _line_problem(error: ValueError) -> str:
    """Return what is wrong with a line of results, without Python's own words."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}"
    return str(error)


_LINE_START = b'{"id": '
"""How each line of a journal begins."""


def _is_incomplete_result(line: bytes) -> bool:
    """True if a last line without a line end is the beginning of a result."""
    if not (line.startswith(_LINE_START) or _LINE_START.startswith(line)):
        return False
    try:
        parse_strict_json(line)
    except ValueError:
        return True
    return False


class _Failure(BaseModel):
    """Why a line has no answer: what names the line."""

    model_config = ConfigDict(strict=True)

    line: int
    digest: str


class _Response(BaseModel):
    """The field of OpenAI's response that tells the request."""

    model_config = ConfigDict(strict=True)

    request_id: str | None = None


class _Result(BaseModel):
    """The fields of a result that say what it belongs to, in either format."""

    model_config = ConfigDict(strict=True)

    error: _Failure | None
    id: str | None = None
    custom_id: str | None = None
    request_id: str | None = None
    response: _Response | None = None


class _AnsweredRequest(NamedTuple):
    """What a result belongs to.

    Attributes:
        key: the request's id; for a failed line its number and digest.
        request_id: what the result says of the text, the model and the flags that it was made with, see
            `batch_id`; None: nothing, such as a result that another program wrote.
    """

    key: Hashable
    request_id: str | None


_ANSWER_FIELDS = {"response", "text"}
_REQUEST_ID = re.compile("[0-9a-f]{24}")


def _find_answered_request(record: Any, openai: bool) -> _AnsweredRequest:
    """Return what a result belongs to.

    Raises ``ValueError`` for what is not a result, and for a result in the other format.
    """
    if (
        not isinstance(record, dict)
        or "error" not in record
        or not (record["error"] or _ANSWER_FIELDS & record.keys())
    ):
        raise ValueError("it has neither an answer nor an error")
    if ("response" in record) != openai:
        raise ValueError(f"it is in the other format; give --format {'jsonl' if openai else 'openai'}")
    try:
        result = _Result.model_validate(record)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = problem_message(problem).removesuffix(" or instance of _Failure")
        raise ValueError(problem_sentence(problem["loc"], message)) from None
    if result.error is not None:
        return _AnsweredRequest((result.error.line, result.error.digest), None)
    name = result.custom_id if openai else result.id
    if name is None:
        raise ValueError("it names no request")
    request_id = result.response.request_id if openai and result.response else result.request_id
    return _AnsweredRequest(name, request_id if request_id and _REQUEST_ID.fullmatch(request_id) else None)


_SUFFIX = ".settings.json"
_NAME = "name"
"""The key under which the name of the model stands: only for people, a file may be moved."""


def check_and_write_settings(
    results: Path, settings: Mapping[str, Any], *, has_results: bool, overwrite: bool
) -> None:
    """Write the settings beside the results, unless results are there that were made with others.

    Args:
        results: the file of results.
        settings: those of this run.
        has_results: True if the file holds results of an earlier run.
        overwrite: write them all the same.

    Raises ``JournalError``. Results without such a file are told apart by their own ``request_id``.
    """
    path = settings_path(results)
    before = read_settings(path) if has_results and not overwrite else None
    changed = [] if before is None else settings_differences(before, settings)
    if changed:
        raise JournalError(
            f"{results} was made with {'; '.join(changed)}; give the same, or --force to go on with both"
        )
    _write_settings(path, settings)


def settings_path(results: Path) -> Path:
    """Return the file for the settings of these results."""
    return results.with_name(results.name + _SUFFIX)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return SHA-256, in hexadecimal, of all settings but the model's name."""
    values = {key: value for key, value in settings.items() if key != _NAME}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings that a file holds; None if there is no file. Raises ``JournalError``."""
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
        raise JournalError(f"{path}: it holds no settings of a batch; --force writes it anew")
    return settings


def _write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings, whole or not at all. Raises ``JournalError``."""
    text = json.dumps(settings, ensure_ascii=False, indent=1) + "\n"
    try:
        write_file_atomically(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None


def settings_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what has changed, a few words for each, such as ``seed 0, now 7``."""
    if before.get("chain") != now["chain"]:  # then its parameters say no more
        before, now = _without_parameters(before), _without_parameters(now)
    names = [name for name in {**before, **now} if name != _NAME and before.get(name) != now.get(name)]
    return [_difference(name, before, now) for name in names]


def _without_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if "." not in name}


_SHOWN_CHARACTERS = 40
"""Longer values are not shown in a message."""


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if name == "model":
        name = _NAME if before.get(_NAME) != now.get(_NAME) else name
    values = [before.get(name), now.get(name)]
    shown = ["none" if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    if max(map(len, shown)) > _SHOWN_CHARACTERS:
        return f"another {'model' if name == _NAME else name}"
    return f"{'model' if name == _NAME else name} {shown[0]}, now {shown[1]}"
