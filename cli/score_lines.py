"""`gen score --jsonl`: a file of prompts and texts in, their scores out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .errors import FAILED, fail, say
from .scoring import scored_choices, scored_text

if TYPE_CHECKING:
    from ..engine import Model


def score_lines(model: Model, path: Path, stride: int | None) -> None:
    """Score a file of prompts and texts; a line that is wrong is told of, and the others go on."""
    from ..engine import ModelError
    from ..logprobs import encode
    from .render.progress import counting

    name = "stdin" if str(path) == "-" else str(path)
    lines = _lines_of(path)
    wrong = 0
    with counting("Scoring", len(lines)) as step:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    print(encode(_scored(model, line, stride) | {"line": number}), flush=True)
                except (ModelError, _WrongLineError) as error:
                    wrong += 1
                    say(f"gen: {name}: line {number}: {error}")
            step()
    if wrong:
        raise typer.Exit(FAILED)


def _lines_of(path: Path) -> list[bytes]:
    if str(path) == "-":
        return sys.stdin.buffer.read().splitlines()
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        fail(f"{path}: {error.strerror}")


class _WrongLineError(Exception):
    """A line that cannot be scored, and why."""


def _scored(model: Model, line: bytes, stride: int | None) -> dict[str, Any]:
    """A line with its scores; what else stood in it stays."""
    from ..logprobs import text_score

    try:
        record = json.loads(line, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise _WrongLineError("it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise _WrongLineError(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise _WrongLineError("it is not an object")
    if "choices" not in record:
        text = _text_in(record, "text")
        return record | text_score(list(scored_text(model, text, stride)))
    prompt = _text_in(record, "prompt")
    choices = record["choices"]
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise _WrongLineError('"choices" is not a list of texts')
    if len(set(choices)) < len(choices):
        raise _WrongLineError('"choices" has a text twice')
    for choice in choices:
        _text_in({"choices": choice}, "choices")
    return record | {"logprobs_from": "model"} | scored_choices(model, prompt, choices)


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
