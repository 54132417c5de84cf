"""Readers of the values of flags: numbers, choices, paths and escapes; and what a shell completes for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from ..common.flags import Flag
from .completion.values import completer

EMPTY_NAME = "'' is empty, where a name is needed; is a variable of the shell not set?"


def element_type(annotation: Any) -> Any:
    """Return the type of one value of a flag: ``int`` for ``int | None`` and for ``list[int] | None``."""
    types = [each for each in get_args(annotation) if each is not NoneType] or [annotation]
    return element_type(types[0]) if get_origin(annotation) is not None else types[0]


def completer_of(flag: Flag, annotation: Any) -> Callable[[str], list[tuple[str, str]]] | None:
    """Return a function that Typer calls with a typed value; None where shells offer files."""
    choices = _choices(element_type(annotation))
    if flag.completion_kind is not None or not choices:
        return completer(flag.completion_kind)

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(choice, "") for choice in choices if choice.startswith(incomplete)]

    return complete


def _choices(value_type: Any) -> list[str]:
    """Return the words of an enumeration; no words for other types."""
    is_enumeration = isinstance(value_type, type) and issubclass(value_type, Enum)
    return [member.value for member in value_type] if is_enumeration else []


def reader_of(value_type: Any) -> tuple[Callable[[str], Any] | None, str | None]:
    """Return the function that reads a value of this type, and the value's name in the help; None for text."""
    # Typer reads these types as well, but its errors are sentences about types of Python.
    if value_type is int:
        return _read_integer, "<int>"
    if value_type is float:
        return _read_number, "<float>"
    choices = _choices(value_type)
    if choices:
        return partial(_read_choice, value_type), f"<{'|'.join(choices)}>"
    return None, None


def _read_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _read_choice(choices: type[Enum], text: str) -> Enum:
    try:
        return choices(text)
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(_choices(choices))}") from None


def read_path(text: str) -> Path:
    if not text:
        raise ValueError(EMPTY_NAME)
    return Path(text)


_ESCAPE_REGEX = re.compile(rb"""\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<letter>[nrt'"\\]))""")
_CHARACTER_BY_LETTER = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def process_escapes(text: str) -> str:
    r"""Return the text with its escapes replaced: ``\n \r \t \' \" \\`` and ``\xHH``, a byte of UTF-8."""
    # Like llama.cpp's ``string_process_escapes``, which leaves other backslashes unchanged. Bytes that are not
    # UTF-8 become surrogates, as Python does for arguments of the command line.
    if "\\" not in text:
        return text
    data = text.encode(errors="surrogateescape")
    return _ESCAPE_REGEX.sub(_unescape_match, data).decode(errors="surrogateescape")


def _unescape_match(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"].decode())
    letter = match["letter"]
    return _CHARACTER_BY_LETTER.get(letter, letter)
