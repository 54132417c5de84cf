"""The compact notation of a chain: ``temp0.8 > typical0.19 > top-p(p=0.6, min_keep=2)``."""

from __future__ import annotations

import re
from typing import Any

from .errors import SamplingError

_STEP = re.compile(
    # One space at most in a row: more, and the pattern would try every way to share them out.
    r"(?P<name>[A-Za-z][A-Za-z_\- ]*?(?:v\d+)?) ?"
    r"(?:\((?P<params>[^()]*)\)|=? ?(?P<main>[-+]?(?:\d{1,40}\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))?"
)
_NUMBER = re.compile(r"[-+]?\d{1,40}")


def parse_notation(text: str) -> list[Any]:
    """Turn the notation that KoboldAI's users write into the steps of a preset's ``chain:``.

    Steps are joined by ``>``; a step is ``name``, ``name0.8`` or ``name=0.8`` (its main parameter), or
    ``name(k=v, …)``. Raises ``SamplingError`` that names the step and its place.
    """
    steps: list[Any] = []
    text = " ".join(text.split())
    for number, part in enumerate(text.split(">"), start=1):
        match = _STEP.fullmatch(part.strip())
        if match is None:
            what = f"{part.strip()!r} is not a step" if part.strip() else "a step is missing"
            raise SamplingError(
                f"chain {text!r}, step {number}: {what}; write name, name0.8 or name(key=value, …)"
            )
        name = match["name"]
        if match["params"] is not None:
            pairs = match["params"].split(",") if match["params"].strip() else []
            steps.append({name: _table([_pair(pair, text, number) for pair in pairs], text, number)})
        elif match["main"] is not None:
            steps.append({name: _number(match["main"])})
        else:
            steps.append(name)
    return steps


def _table(pairs: list[tuple[str | int, Any]], text: str, number: int) -> dict[str | int, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise SamplingError(f"chain {text!r}, step {number}: a parameter is given twice")
    return table


def _pair(pair: str, text: str, number: int) -> tuple[str | int, Any]:
    key, sign, value = pair.partition("=")
    if not sign or not key.strip() or not value.strip():
        raise SamplingError(f"chain {text!r}, step {number}: {pair.strip()!r} is not key=value")
    name = key.strip().replace("-", "_")
    return int(name) if name.isdecimal() else name, _value(value.strip())  # a bare number is a token id


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return _number(text)
    except ValueError:
        return text


def _number(text: str) -> int | float:
    return int(text) if _NUMBER.fullmatch(text) else float(text)
