"""`gen score --jsonl`: a file of prompts and texts in, their scores out."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from ..errors import FAILED, fail, say
from ..interrupt import Interrupt
from .scoring import scored_choices, scored_text

if TYPE_CHECKING:
    from ...engine import Model


class _WrongLineError(Exception):
    """A line that cannot be scored, and why."""


def score_lines(model: Model, path: Path, stride: int | None, interrupt: Interrupt) -> None:
    """Score a file of prompts and texts; a line that is wrong is told of, and the others go on.

    Ends once ``interrupt`` is requested.
    """
    from ...engine import ModelError
    from ..render.progress import counting

    name = "stdin" if str(path) == "-" else str(path)
    wrong = 0
    with _opened(path) as (lines, count), counting("Scoring", count) as step:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if text.strip():
                try:
                    print(_scored_line(model, text, number, stride), flush=True)
                except (ModelError, _WrongLineError) as error:
                    wrong += 1
                    say(f"gen: {name}: line {number}: {error}")
            step()
            if interrupt.requested:
                return
    if wrong:
        raise typer.Exit(FAILED)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """The lines, and how many there are if that can be known."""
    if str(path) == "-":
        yield sys.stdin.buffer, None
        return
    try:
        with path.open("rb") as file:
            count = sum(1 for _ in file)
            file.seek(0)
            yield file, count
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def _scored_line(model: Model, line: bytes, number: int, stride: int | None) -> str:
    """A line with its scores, as JSON; what else stood in it stays."""
    from ...logprobs import encode_json

    record = _record(line)
    made = _scored(model, record, stride) | {"line": number}
    taken = [name for name in made if name in record and name != "choices"]
    if taken:
        raise _WrongLineError(f'"{taken[0]}" is a name of the result, and cannot stand in the line too')
    try:
        text = encode_json(record | made)
        text.encode()
    except UnicodeEncodeError:
        raise _WrongLineError("it holds half of a surrogate pair") from None
    except (ValueError, RecursionError):
        raise _WrongLineError("it holds a number that JSON has not, or is nested too deeply") from None
    return text


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise _WrongLineError("it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise _WrongLineError(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise _WrongLineError("it is not an object")
    return record


def _scored(model: Model, record: dict[str, Any], stride: int | None) -> dict[str, Any]:
    from ...logprobs import text_score

    if "choices" not in record:
        return text_score(list(scored_text(model, _text_in(record, "text"), stride)))
    prompt = _text_in(record, "prompt")
    choices = record["choices"]
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise _WrongLineError('"choices" is not a list of texts')
    if len(set(choices)) < len(choices):
        raise _WrongLineError('"choices" has a text twice')
    for choice in choices:
        _text_in({"choices": choice}, "choices")
    return {"logprobs_from": "model"} | scored_choices(model, prompt, choices)


def _text_in(record: dict[str, Any], key: str) -> str:
    text = record.get(key)
    if not isinstance(text, str):
        raise _WrongLineError(f'there is no "{key}"' if text is None else f'"{key}" is not a text')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _WrongLineError(f'"{key}" holds half of a surrogate pair') from None
    return text


def _no_number(name: str) -> float:
    raise ValueError(f"there is no number {name}")
