"""Lines of a batch's input: JSON objects, or rows of a CSV file that are inserted into a prompt template.

A pipe may deliver its lines slowly, so a thread reads the lines in advance.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any, BinaryIO, Generic, NamedTuple, TypeVar

from ..common.files import MAX_LINE_BYTES, InputTooLargeError, bounded_lines, open_as_utf8, read_bounded
from ..common.strict_json import json_problem, parse_strict_json
from ..common.text import count_noun
from ..requests.errors import InvalidLineError


@dataclass(frozen=True)
class InputLine:
    number: int  # number of the line, counted from 1
    # the line's JSON object, or the error of a line that cannot be read
    content: dict[str, Any] | InvalidLineError
    digest: str


def read_input_lines(
    file: BinaryIO, template: PromptTemplate | None, delimiter: str | None = None
) -> Iterator[InputLine]:
    """Yield the lines of a JSONL file, or, with a template, the rows of a CSV file; see `read_csv_lines`."""
    return read_json_lines(file) if template is None else read_csv_lines(file, template, delimiter)


def count_input_lines(file: BinaryIO, template: PromptTemplate | None, delimiter: str | None = None) -> int:
    """Return how many lines `read_input_lines` would yield."""
    lines: Iterator[object] = number_lines(file) if template is None else read_csv_lines(file, template, delimiter)
    return sum(1 for _ in lines)


def read_json_lines(file: BinaryIO) -> Iterator[InputLine]:
    """Yield the lines of `number_lines`, parsed."""
    for number, text in number_lines(file):
        yield InputLine(number, _parse_or_error(text), line_digest(text))


def number_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, counted from 1; empty lines are skipped."""
    # gzip and UTF-16 are decoded, and spaces around a line are removed. The items of a JSON array, and objects
    # over several lines, count as lines, too; such a file is read completely before the first line. Raises
    # ``InputTooLargeError`` and ``DamagedInputError``.
    file = open_as_utf8(file)
    is_first = True
    for number, line in enumerate(bounded_lines(file), 1):
        stripped_line = line.strip()
        if is_first and _begins_several_lines(stripped_line):
            whole_file = line + _read_rest(file)
            yield from enumerate(_json_values(whole_file), 1)
            return
        if stripped_line:
            is_first = False
            yield number, stripped_line


def _begins_several_lines(line: bytes) -> bool:
    """Return whether a stripped line begins an array, or an object that later lines continue."""
    if line.startswith(b"["):
        return True
    return line.startswith(b"{") and line.endswith((b"{", b"[", b",", b":"))


def _read_rest(file: IO[bytes]) -> bytes:
    try:
        return read_bounded(file, MAX_LINE_BYTES)
    except InputTooLargeError:
        raise InputTooLargeError(
            f"it is one JSON value of more than {MAX_LINE_BYTES // 1_000_000} MB; write a line for each object, as"
            " `jq -c '.[]'` does"
        ) from None


_SPACES_AND_COMMAS = re.compile(r"[\s,]*")


def _json_values(data: bytes) -> Iterator[bytes]:
    """Yield the text of each JSON value of a file. Of an array, yield each item."""
    # If a value is not JSON, the text from there to the end of the file is yielded, so that its error is reported
    # with its place.
    text = data.decode("utf-8", "surrogateescape")
    decoder = json.JSONDecoder()
    position = len(text) - len(text.lstrip())
    is_in_array = False
    while position < len(text):
        next_bracket = "]" if is_in_array else "["
        if text[position] == next_bracket:
            is_in_array = not is_in_array
            end = position + 1
        else:
            try:
                _, end = decoder.raw_decode(text, position)
            except (ValueError, RecursionError):
                yield text[position:].strip().encode("utf-8", "surrogateescape")
                return
            yield text[position:end].encode("utf-8", "surrogateescape")
        separator = _SPACES_AND_COMMAS.match(text, end)
        position = end if separator is None else separator.end()


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises ``InvalidLineError``."""
    try:
        value = parse_strict_json(line)
        json.dumps(value, ensure_ascii=False).encode()  # raises ``UnicodeEncodeError`` for half a surrogate pair
    except UnicodeDecodeError:
        raise InvalidLineError("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise InvalidLineError("it holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise InvalidLineError(f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        reason, _, _ = str(error).partition(";")  # Python's advice after the semicolon is for programmers
        raise InvalidLineError(f"it is not JSON that can be read: {reason}") from None
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


DELIMITERS = (",", ";", "\t", "|")  # the delimiters that `read_csv_lines` tries, the most usual one first

# Excel's first line, such as ``sep=;``, which may follow a byte-order mark and stand in quotes
_SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=([^"\r\n])"?[\r\n]*')


def read_csv_lines(file: BinaryIO, template: PromptTemplate, delimiter: str | None = None) -> Iterator[InputLine]:
    """Yield each row of a CSV file as a request in the short form, with the template's prompt."""
    # The column ``custom_id`` or ``id`` is the request's id.
    with open_csv(file, template.has_columns, delimiter) as table:
        template.check(table.columns)
        for row in table.rows:
            content = row.error or _fill_template(row.fields, table.columns, template)
            yield InputLine(row.number, content, row.digest)


class CsvRow(NamedTuple):
    """A row of a CSV file after the first one."""

    number: int  # of its first line, counted from 1
    fields: list[str]  # empty if the row is not CSV
    digest: str
    error: InvalidLineError | None  # of a row that cannot be read


class CsvTable(NamedTuple):
    """An open CSV file."""

    columns: list[str]  # the fields of the first row
    delimiter: str
    rows: Iterator[CsvRow]


@contextmanager
def open_csv(
    file: BinaryIO, has_columns: Callable[[list[str]], bool], delimiter: str | None = None
) -> Iterator[CsvTable]:
    """Yield the rows of a CSV file. Raises ``InvalidLineError`` if the first row is not CSV."""
    # gzip and UTF-16 are decoded. The delimiter is ``delimiter``, or that of Excel's line ``sep=;`` before the
    # first row, or the first of `DELIMITERS` with which the first row has the columns that are needed.
    csv.field_size_limit(MAX_LINE_BYTES)  # in characters; a field may contain several lines
    text = io.TextIOWrapper(open_as_utf8(file), encoding="utf-8", errors="surrogateescape", newline="")
    try:
        lines = bounded_lines(text)
        first_line = next(lines, "")
        separator_line = _SEPARATOR_LINE.fullmatch(first_line)
        if separator_line:
            delimiter = delimiter or separator_line[1]
            first_line = next(lines, "")
        used_delimiter = delimiter or _find_delimiter(first_line, has_columns)
        rows = csv.reader(itertools.chain([first_line], lines), strict=True, delimiter=used_delimiter)
        try:
            columns = next(rows, [])
        except csv.Error as error:
            raise InvalidLineError(f"the first row is not CSV: {error}") from None
        lines_before = 1 if separator_line else 0
        yield CsvTable(columns, used_delimiter, _read_rows(rows, len(columns), lines_before))
    finally:
        if not text.closed:  # if a batch ends early, its caller closes the file before this generator ends
            text.detach()


def _find_delimiter(first_line: str, has_columns: Callable[[list[str]], bool]) -> str:
    """Return the first delimiter with which a line has the columns that are needed, or else has several."""
    for is_right in (has_columns, lambda fields: len(fields) > 1):
        for delimiter in DELIMITERS:
            if is_right(_fields(first_line, delimiter)):
                return delimiter
    return DELIMITERS[0]


def _fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line; an empty list if it is not CSV."""
    try:
        return next(csv.reader([line], strict=True, delimiter=delimiter), [])
    except csv.Error:
        return []


def _read_rows(rows: Any, column_count: int, lines_before: int) -> Iterator[CsvRow]:
    while True:
        line_number = lines_before + rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = f"the row that begins here is not CSV: {error}"
            yield CsvRow(line_number, [], line_digest(reason.encode()), InvalidLineError(reason))
            continue
        if row is None:
            return
        if row:
            digest = line_digest(repr(row).encode(errors="surrogateescape"))
            yield CsvRow(line_number, row, digest, _row_error(row, column_count))


def _row_error(row: list[str], column_count: int) -> InvalidLineError | None:
    if len(row) != column_count:
        return InvalidLineError(f"it has {count_noun(len(row), 'field')}, and the first row names {column_count}")
    try:
        "".join(row).encode()  # raises if the row has bytes that are not UTF-8
    except UnicodeEncodeError:
        return InvalidLineError("it is not UTF-8")
    return None


def _fill_template(row: list[str], columns: list[str], template: PromptTemplate) -> dict[str, Any]:
    field_by_column = dict(zip(columns, row, strict=True))
    prompt = template.fill(field_by_column)
    request_id = field_by_column.get("custom_id") or field_by_column.get("id")
    return {"id": request_id, "prompt": prompt} if request_id else {"prompt": prompt}


_BRACES_PATTERN = re.compile(
    r"""
      \{\{ | \}\}      # a doubled brace, which stands for one brace
    | \{ ([^{}]*) \}   # the name of a column in braces
    | [{}]             # a single brace, which is an error
    """,
    re.VERBOSE,
)


class PromptTemplate:
    """A prompt with ``{column}`` in it, which is replaced for each row; ``{{`` and ``}}`` stand for braces."""

    # Raises ``InvalidLineError`` for a single brace, and for a text without a column.

    def __init__(self, text: str) -> None:
        self._text = text
        matches = list(_BRACES_PATTERN.finditer(text))
        if any(match[0] in ("{", "}") for match in matches):
            raise InvalidLineError(f"{text!r} has a single brace; write {{{{ or }}}} for a brace in the prompt")
        self.columns = [match[1] for match in matches if match[1] is not None]
        if not self.columns:
            raise InvalidLineError(f"{text!r} names no column, such as {{text}}")

    def has_columns(self, header: list[str]) -> bool:
        return set(self.columns) <= set(header)

    def check(self, header: list[str]) -> None:
        """Raise ``InvalidLineError`` unless the first row names each column of the template exactly once."""
        if not header:
            raise InvalidLineError("the file is empty; its first row names the columns")
        missing_columns = [column for column in self.columns if column not in header]
        if missing_columns:
            column_list = ", ".join(map(repr, header))
            hint = "; is another character between the fields? --delimiter names it" if len(header) == 1 else ""
            raise InvalidLineError(
                f"there is no column {missing_columns[0]!r}; the first row names the columns {column_list}{hint}"
            )
        duplicates = [name for name in header if header.count(name) > 1]
        if duplicates:
            raise InvalidLineError(f"two columns are named {duplicates[0]!r}")

    def fill(self, field_by_column: dict[str, str]) -> str:
        """Return the prompt of a row; ``field_by_column``: the row's fields by their columns."""

        def replacement(match: re.Match[str]) -> str:
            is_doubled_brace = match[1] is None
            return match[0][0] if is_doubled_brace else field_by_column[match[1]]

        return _BRACES_PATTERN.sub(replacement, self._text)


_Item = TypeVar("_Item")


def iterate_available(
    items: Iterable[_Item | None] | BackgroundReader[_Item], is_idle: Callable[[], bool]
) -> Iterator[_Item | None]:
    """Yield items, and None whenever the next item of a `BackgroundReader` has not arrived yet."""
    # ``is_idle`` returns True if the caller has no other work. Only then may this function wait for an item.
    if not isinstance(items, BackgroundReader):
        yield from items
        return
    while True:
        try:
            item = items.next(should_wait=is_idle())
        except StopIteration:
            return
        yield item


# maximum time that an idle batch waits for a line; short, so that Ctrl-C is noticed soon
_MAX_LINE_WAIT_SECONDS = 0.1
# Maximum number of lines that are read in advance. Then the sender waits, so that memory use is limited.
_MAX_BUFFERED_LINES = 1024


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
        """Return the next item; None if it has not arrived yet."""
        # Raises ``StopIteration`` at the end of the input.
        try:
            item = self._queue.get(timeout=_MAX_LINE_WAIT_SECONDS) if should_wait else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(item, _InputEnd):
            raise item.error or StopIteration
        return item


@dataclass(frozen=True)
class _InputEnd:
    """The end of the input, which follows the last item in the queue."""

    error: BaseException | None  # the exception that ended the input early; None if the input was read entirely
