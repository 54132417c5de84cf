"""llama.cpp's words for on, off and auto."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

EnumT = TypeVar("EnumT", bound=Enum)
_WORDS = {"enabled": "on", "true": "on", "1": "on", "disabled": "off", "false": "off", "0": "off", "-1": "auto"}


def switch_parser(enum: type[EnumT], choices: str) -> Callable[[str], EnumT]:
    """Return what reads a value of the enumeration, which has ``on``, ``off`` and ``auto``, by any of these words.

    ``choices``: the values, as the message on another word names them.
    """

    def parse(text: str) -> EnumT:
        try:
            return enum(_WORDS.get(text, text))
        except ValueError:
            raise ValueError(f"{text!r} is not {choices}") from None

    return parse
