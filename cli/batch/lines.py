"""The lines of a batch: JSON objects, or rows of a CSV file that fill a template."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, BinaryIO

from .ask import WrongLineError
from .template import Template

# Characters of a field; csv's own limit is 131,072.
_LONGEST = 2**31 - 1
# Seconds to wait for a line when nothing else is to be done.
_PATIENCE = 0.1
# Lines that are read ahead of the work; a pipe of more waits, so that memory does not grow with it.
_AHEAD = 1024


@dataclass(frozen=True)
class Line:
    """What stands at a line, counted from 1: an object, or what is wrong; ``digest`` changes when it does."""

    number: int
    content: dict[str, Any] | WrongLineError
    digest: str


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, or stdin for ``-``. Raises ``OSError``."""
    if path.is_file():
        with path.open("rb") as file:
            yield file
    elif str(path) != "-":
        yield path.open("rb")
    elif sys.stdin is None:
        raise OSError(None, "it is closed", "stdin")
    else:
        # Not closed, nor Python's own stdin: at the end a thread may still wait for more of it.
        yield os.fdopen(os.dup(sys.stdin.fileno()), "rb")


def read_lines(file: BinaryIO, template: Template | None) -> Iterator[Line]:
    """The lines of JSONL, or with a template the rows of CSV, whose columns it names."""
    return json_lines(file) if template is None else csv_lines(file, template)


class Arriving:
    """Lines that come when they come, read in a thread; what reading raises is raised here."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._queue: Queue[Line | BaseException | None] = Queue(_AHEAD)
        Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterator[Line]) -> None:
        try:
            for line in lines:
                self._queue.put(line)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def next(self, wait: bool) -> Line | None:
        """The next line, or None if there is none yet; ``wait``: a moment, for it. Raises ``StopIteration``."""
        try:
            found = self._queue.get(timeout=_PATIENCE) if wait else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(found, Line):
            return found
        raise StopIteration if found is None else found


def json_lines(file: Iterable[bytes]) -> Iterator[Line]:
    """One object a line; empty lines are passed over."""
    for number, data in enumerate(file, 1):
        text = (data.removeprefix(codecs.BOM_UTF8) if number == 1 else data).strip()
        if text:
            yield Line(number, _object(text), _digest(text))


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def _object(data: bytes) -> dict[str, Any] | WrongLineError:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return WrongLineError("it is UTF-16; save the file as UTF-8")
    try:
        found = json.loads(data, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return WrongLineError("it is not UTF-8")
    except UnicodeEncodeError:
        return WrongLineError("it holds half of a surrogate pair")
    except json.JSONDecodeError as error:
        return WrongLineError(f"it is not JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return WrongLineError(f"it is not JSON that can be read: {str(error).split(';')[0]}")
    return found if isinstance(found, dict) else WrongLineError("it is not an object")


def _no_number(name: str) -> float:
    raise ValueError(f"there is no number {name}")


def csv_lines(file: BinaryIO, template: Template) -> Iterator[Line]:
    """The short form of each row: its ``id``, if there is such a column, and the prompt that the row makes.

    A row's number is that of the line in which it begins. Raises ``WrongLineError`` where the first row does not
    name the template's columns.
    """
    csv.field_size_limit(_LONGEST)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        rows = csv.reader(text, strict=True)
        try:
            names = next(rows, [])
        except csv.Error as error:
            raise WrongLineError(f"the first row is not CSV: {error}") from None
        template.check(names)
        yield from _rows(rows, names, template)
    finally:
        text.detach()


def _rows(rows: Any, names: list[str], template: Template) -> Iterator[Line]:
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            why = f"the row that begins here is not CSV: {error}"
            yield Line(number, WrongLineError(why), _digest(why.encode()))
            continue
        if row is None:
            return
        if row:
            digest = _digest(repr(row).encode(errors="surrogateescape"))
            yield Line(number, _filled(row, names, template), digest)


def _filled(row: list[str], names: list[str], template: Template) -> dict[str, Any] | WrongLineError:
    if len(row) != len(names):
        return WrongLineError(f"it has {len(row)} fields, and the first row names {len(names)}")
    values = dict(zip(names, row, strict=True))
    try:
        prompt = template.fill(values)
        "".join(row).encode()
    except UnicodeEncodeError:
        return WrongLineError("it is not UTF-8")
    named = next((values[name] for name in ("custom_id", "id") if values.get(name)), None)
    return {"prompt": prompt} if named is None else {"id": named, "prompt": prompt}
