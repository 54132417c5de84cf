"""The compact notation of a chain: ``temp0.8 > typical0.19 > top-p(p=0.6, min_keep=2)``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .errors import SamplingError

_STEP = re.compile(
    # One space at most in a row: more, and the pattern would try every way to share them out.
    r"(?P<name>[A-Za-z][A-Za-z_\- ]*?(?:v\d+)?) ?"
    r"(?:\((?P<params>.*)\)|=? ?(?P<main>[-+]?(?:\d{1,40}\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))?",
    re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?\d{1,40}")
# What is not looked into: a quoted text, in which a backslash takes the next character with it.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}


def parse_notation(text: str) -> list[Any]:
    """Turn the notation that KoboldAI's users write into the steps of a preset's ``chain:``.

    Steps are joined by ``>``; a step is ``name``, ``name0.8`` or ``name=0.8`` (its main parameter), or
    ``name(k=v, …)``. A value is a number, true, false, a word, or as in JSON a "text" or a [list]. Raises
    ``SamplingError`` that names the step and its place.
    """
    steps: list[Any] = []
    for number, part in enumerate(_split(text, ">"), start=1):
        step = part.strip()
        match = _STEP.fullmatch(_single_spaced(step))
        if match is None or not _closed(match["params"] or ""):
            what = f"{step!r} is not a step" if step else "a step is missing"
            raise SamplingError(f"{_place(text, number)}: {what}; write name, name0.8 or name(key=value, …)")
        name = match["name"]
        if match["params"] is not None:
            pairs = list(_split(match["params"], ",")) if match["params"].strip() else []
            steps.append({name: _table([_pair(pair, text, number) for pair in pairs], text, number)})
        elif match["main"] is not None:
            steps.append({name: _number(match["main"])})
        else:
            steps.append(name)
    return steps


def _place(text: str, number: int) -> str:
    return f"chain {' '.join(text.split())!r}, step {number}"


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts between separators that stand neither in quotes nor in brackets."""
    start = place = depth = 0
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        if quoted:
            place = quoted.end()
            continue
        depth = max(depth + _BRACKETS.get(text[place], 0), 0)
        if text[place] == separator and not depth:
            yield text[start:place]
            start = place + 1
        place += 1
    yield text[start:]


def _closed(text: str) -> bool:
    """Does every bracket and quote that opens here close here too?"""
    rest = _QUOTED.sub("", text)
    return '"' not in rest and rest.count("(") == rest.count(")") and rest.count("[") == rest.count("]")


def _single_spaced(text: str) -> str:
    """The text with one space for any run of them, save in quotes."""
    pieces = re.split(f"({_QUOTED.pattern})", text, flags=re.DOTALL)
    return "".join(piece if number % 2 else re.sub(r"\s+", " ", piece) for number, piece in enumerate(pieces))


def _table(pairs: list[tuple[str | int, Any]], text: str, number: int) -> dict[str | int, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise SamplingError(f"{_place(text, number)}: a parameter is given twice")
    return table


def _pair(pair: str, text: str, number: int) -> tuple[str | int, Any]:
    quoted = _QUOTED.match(pair.strip())
    key, sign, value = pair.strip()[quoted.end() if quoted else 0 :].partition("=")
    key = quoted.group() if quoted else key.strip()
    if not sign or not key or not value.strip():
        raise SamplingError(f"{_place(text, number)}: {pair.strip()!r} is not key=value")
    try:
        return _key(key), _value(value.strip())
    except (ValueError, RecursionError):
        raise SamplingError(f"{_place(text, number)}: {value.strip()!r} is neither a text nor a list") from None


def _key(key: str) -> str | int:
    if key.startswith('"'):
        return str(json.loads(key, strict=False))
    name = key.replace("-", "_")
    return int(name) if name.isdecimal() else name  # a bare number is a token id


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text[0] in '"[':
        return json.loads(text, strict=False)
    try:
        return _number(text)
    except ValueError:
        return text


def _number(text: str) -> int | float:
    return int(text) if _NUMBER.fullmatch(text) else float(text)
