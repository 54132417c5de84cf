"""The lines of a batch: JSON objects, or rows of a CSV file that fill a template."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .ask import WrongLineError

# Characters of a field; csv's own limit is 131,072.
_LONGEST = 2**31 - 1
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Line:
    """A line by its number, counted from 1, and what stands in it: an object, or what is wrong."""

    number: int
    content: dict[str, Any] | WrongLineError


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, or stdin for ``-``. Raises ``OSError``."""
    if str(path) == "-":
        yield sys.stdin.buffer
    else:
        with path.open("rb") as file:
            yield file


def read_lines(file: BinaryIO, template: Template | None) -> Iterator[Line]:
    """The lines of JSONL, or with a template the rows of CSV, whose columns it names."""
    return json_lines(file) if template is None else csv_lines(file, template)


def json_lines(file: Iterable[bytes]) -> Iterator[Line]:
    """One object a line; empty lines are passed over."""
    for number, data in enumerate(file, 1):
        text = data.removeprefix(codecs.BOM_UTF8) if number == 1 else data
        if text.strip():
            yield Line(number, _object(text))


def _object(data: bytes) -> dict[str, Any] | WrongLineError:
    try:
        found = json.loads(data, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return WrongLineError("it is not UTF-8")
    except UnicodeEncodeError:
        return WrongLineError("it holds half of a surrogate pair")
    except (ValueError, RecursionError) as error:
        return WrongLineError(f"it is not JSON: {error}")
    return found if isinstance(found, dict) else WrongLineError("it is not an object")


def _no_number(name: str) -> float:
    raise ValueError(f"there is no number {name}")


def csv_lines(file: BinaryIO, template: Template) -> Iterator[Line]:
    """The short form of each row: its ``id``, if there is such a column, and the prompt that the row makes.

    Raises ``WrongLineError`` where the first row does not name the template's columns.
    """
    csv.field_size_limit(_LONGEST)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        rows = csv.reader(text, strict=True)
        names = next(rows, [])
        template.check(names)
        yield from _rows(rows, names, template)
    finally:
        text.detach()


def _rows(rows: Iterator[list[str]], names: list[str], template: Template) -> Iterator[Line]:
    number = 0
    while True:
        number += 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Line(number, WrongLineError(f"it is not CSV: {error}"))
            continue
        if row is None:
            return
        if row:
            yield Line(number, _filled(row, names, template))
        else:
            number -= 1  # an empty line is no row


def _filled(row: list[str], names: list[str], template: Template) -> dict[str, Any] | WrongLineError:
    if len(row) != len(names):
        return WrongLineError(f"it has {len(row)} fields, and the first row names {len(names)}")
    values = dict(zip(names, row, strict=True))
    try:
        prompt = template.fill(values)
        prompt.encode()
    except UnicodeEncodeError:
        return WrongLineError("it is not UTF-8")
    named = next((values[name] for name in ("custom_id", "id") if values.get(name)), None)
    return {"prompt": prompt} if named is None else {"id": named, "prompt": prompt}


class Template:
    """A text with ``{column}`` in it; ``{{`` and ``}}`` are braces. Raises ``WrongLineError`` for other braces."""

    def __init__(self, text: str) -> None:
        self._text = text
        marks = [mark for mark in _FIELD.finditer(text) if mark[0] not in ("{{", "}}")]
        if any(mark[1] is None for mark in marks):
            raise WrongLineError(f"{text!r} has a lone brace; write {{{{ or }}}} for one")
        self.columns = [mark[1] for mark in marks]
        if not self.columns:
            raise WrongLineError(f"{text!r} names no column, such as {{text}}")

    def check(self, names: list[str]) -> None:
        """Raise ``WrongLineError`` unless all its columns are there, once."""
        missing = [column for column in self.columns if column not in names]
        if missing:
            raise WrongLineError(f"there is no column {missing[0]!r}; the first row has: {', '.join(names)}")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise WrongLineError(f"two columns are named {twice[0]!r}")

    def fill(self, values: dict[str, str]) -> str:
        """The text of a row."""
        return _FIELD.sub(lambda mark: mark[0][0] if mark[1] is None else values[mark[1]], self._text)
