"""Lines of a batch's input: JSON objects, or rows of a CSV file that are inserted into a prompt template.

A pipe may deliver its lines slowly, so a thread reads the lines in advance.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any, BinaryIO, Generic, TypeVar

from ..common.files import MAX_LINE_BYTES, bounded_lines
from ..common.strict_json import json_problem, parse_strict_json
from .errors import InvalidLineError


@dataclass(frozen=True)
class InputLine:
    """A line of the input.

    Attributes:
        number: number of the line, counted from 1.
        content: the line's JSON object, or the error of a line that cannot be read.
        digest: digest of the line's text.
    """

    number: int
    content: dict[str, Any] | InvalidLineError
    digest: str


def read_input_lines(file: BinaryIO, template: PromptTemplate | None) -> Iterator[InputLine]:
    """Yield the lines of a JSONL file, or, with a template, the rows of a CSV file."""
    return read_json_lines(file) if template is None else read_csv_lines(file, template)


def count_input_lines(file: BinaryIO, template: PromptTemplate | None) -> int:
    """Return how many lines `read_input_lines` would yield."""
    lines: Iterator[object] = number_lines(file) if template is None else read_csv_lines(file, template)
    return sum(1 for _ in lines)


def read_json_lines(file: BinaryIO) -> Iterator[InputLine]:
    """Yield each line of a JSONL file; empty lines are skipped."""
    for number, text in number_lines(file):
        yield InputLine(number, _parse_or_error(text), line_digest(text))


def number_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, counted from 1; empty lines are skipped.

    Spaces around a line and a byte order mark are removed. Raises ``InputTooLargeError``.
    """
    for number, line in enumerate(bounded_lines(file), 1):
        stripped_line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()
        if stripped_line:
            yield number, stripped_line


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises ``InvalidLineError``."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidLineError("it is UTF-16; save the file as UTF-8")
    try:
        value = parse_strict_json(line)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise InvalidLineError("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise InvalidLineError("it holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise InvalidLineError(f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidLineError(f"it is not JSON that can be read: {str(error).split(';')[0]}") from None
    if not isinstance(value, dict):
        raise InvalidLineError("it is not an object")
    return value


def _parse_or_error(text: bytes) -> dict[str, Any] | InvalidLineError:
    try:
        return parse_object(text)
    except InvalidLineError as error:
        return error


def line_digest(data: bytes) -> str:
    """Return the digest of a line's text, 16 hexadecimal digits."""
    return sha256(data).hexdigest()[:16]


def read_csv_lines(file: BinaryIO, template: PromptTemplate) -> Iterator[InputLine]:
    """Yield each row of a CSV file as a request in the short form, with the prompt that the template makes of it.

    The column ``custom_id`` or ``id`` is the request's id. The number of a row is the number of its first line.
    Raises ``InvalidLineError`` if the first row does not have the template's columns.
    """
    csv.field_size_limit(MAX_LINE_BYTES)  # in characters; a field may contain several lines
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        rows = csv.reader(bounded_lines(text), strict=True)
        try:
            columns = next(rows, [])
        except csv.Error as error:
            raise InvalidLineError(f"the first row is not CSV: {error}") from None
        template.check(columns)
        yield from _read_rows(rows, columns, template)
    finally:
        if not text.closed:  # if a batch ends early, its caller closes the file before this generator ends
            text.detach()


def _read_rows(rows: Any, columns: list[str], template: PromptTemplate) -> Iterator[InputLine]:
    while True:
        line_number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = f"the row that begins here is not CSV: {error}"
            yield InputLine(line_number, InvalidLineError(reason), line_digest(reason.encode()))
            continue
        if row is None:
            return
        if row:
            digest = line_digest(repr(row).encode(errors="surrogateescape"))
            yield InputLine(line_number, _fill_template(row, columns, template), digest)


def _fill_template(
    row: list[str], columns: list[str], template: PromptTemplate
) -> dict[str, Any] | InvalidLineError:
    if len(row) != len(columns):
        return InvalidLineError(f"it has {len(row)} fields, and the first row names {len(columns)}")
    field_by_column = dict(zip(columns, row, strict=True))
    try:
        prompt = template.fill(field_by_column)
        "".join(row).encode()
    except UnicodeEncodeError:
        return InvalidLineError("it is not UTF-8")
    request_id = next((field_by_column[name] for name in ("custom_id", "id") if field_by_column.get(name)), None)
    return {"prompt": prompt} if request_id is None else {"id": request_id, "prompt": prompt}


_BRACES_PATTERN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class PromptTemplate:
    """A prompt with ``{column}`` in it, which is replaced for each row. ``{{`` and ``}}`` stand for braces.

    Raises ``InvalidLineError`` for a single brace, and for a text without a column.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        brace_matches = [match for match in _BRACES_PATTERN.finditer(text) if match[0] not in ("{{", "}}")]
        if any(match[1] is None for match in brace_matches):
            raise InvalidLineError(f"{text!r} has a single brace; write {{{{ or }}}} for a brace in the prompt")
        self.columns = [match[1] for match in brace_matches]
        if not self.columns:
            raise InvalidLineError(f"{text!r} names no column, such as {{text}}")

    def check(self, header: list[str]) -> None:
        """Raise ``InvalidLineError`` unless the first row names each column of the template exactly once."""
        if not header:
            raise InvalidLineError("the file is empty; its first row names the columns")
        missing_columns = [column for column in self.columns if column not in header]
        if missing_columns:
            column_list = ", ".join(map(repr, header))
            raise InvalidLineError(
                f"there is no column {missing_columns[0]!r}; the first row names the columns {column_list}"
            )
        duplicates = [name for name in header if header.count(name) > 1]
        if duplicates:
            raise InvalidLineError(f"two columns are named {duplicates[0]!r}")

    def fill(self, field_by_column: dict[str, str]) -> str:
        """Return the prompt of a row; ``field_by_column``: the row's fields by their columns."""
        return _BRACES_PATTERN.sub(
            lambda match: match[0][0] if match[1] is None else field_by_column[match[1]], self._text
        )


_Item = TypeVar("_Item")


def iterate_available(
    items: Iterable[_Item] | BackgroundReader[_Item], is_idle: Callable[[], bool]
) -> Iterator[_Item | None]:
    """Yield items, and None whenever the next item of a `BackgroundReader` has not arrived yet.

    Args:
        items: the items.
        is_idle: returns whether the caller has no other work, so that waiting for an item delays nothing.
    """
    if not isinstance(items, BackgroundReader):
        yield from items
        return
    while True:
        try:
            item = items.next(should_wait=is_idle())
        except StopIteration:
            return
        yield item


_MAX_LINE_WAIT_SECONDS = 0.1
"""Maximum time that an idle batch waits for a line; short, so that Ctrl-C is noticed soon."""
_MAX_BUFFERED_LINES = 1024
"""Maximum number of lines that are read in advance. Then the sender waits, so that memory use is limited."""


class BackgroundReader(Generic[_Item]):
    """A thread that reads items, for input that may arrive slowly. What reading raises, `next` raises."""

    def __init__(self, items: Iterator[_Item]) -> None:
        self._queue: Queue[_Item | _InputEnd] = Queue(_MAX_BUFFERED_LINES)
        Thread(target=self._read, args=(items,), daemon=True).start()

    def _read(self, items: Iterator[_Item]) -> None:
        try:
            for item in items:
                self._queue.put(item)
            self._queue.put(_InputEnd(None))
        except BaseException as error:
            self._queue.put(_InputEnd(error))

    def next(self, should_wait: bool) -> _Item | None:
        """Return the next item; None if it has not arrived yet.

        Args:
            should_wait: whether to wait briefly for an item that has not arrived yet.

        Raises ``StopIteration`` at the end of the input.
        """
        try:
            item = self._queue.get(timeout=_MAX_LINE_WAIT_SECONDS) if should_wait else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(item, _InputEnd):
            raise item.error or StopIteration
        return item


@dataclass(frozen=True)
class _InputEnd:
    """The end of the input; ``error``: the exception that ended the input early, None if it was read entirely."""

    error: BaseException | None
