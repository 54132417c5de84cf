"""Reads the usual values of options as typer does, but without pydantic.

typer makes a validator for each option, given or not, and imports pydantic for the first one: some 50 ms. A run
has seventy options. What is read here needs no validator; all else, and each wrong value, goes to typer, which has
the words for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

import typer

from ..startup import false_if_absent

_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)


def read_plain_values(command: Any) -> None:
    """Let a command, and the commands of a group, read their options without pydantic where that is possible."""
    for subcommand in getattr(command, "commands", {}).values():
        read_plain_values(subcommand)
    for parameter in command.params:
        if not parameter.callback:
            _read_plain_value(parameter)
    make_help_option = command.get_help_option
    command.get_help_option = lambda context: false_if_absent(make_help_option(context))


def _read_plain_value(parameter: Any) -> None:
    process, default, required = parameter.process_value, parameter.default, parameter.required
    annotation, info = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    read = None if _is_checked(info) else _reader(annotation, info.parser)
    has_ready_default = isinstance(annotation, type) and isinstance(default, annotation)
    absent = () if parameter.multiple else None

    def process_value(context: Any, value: Any) -> Any:
        if value is None and not required and parameter.nargs == 1:
            return absent
        if has_ready_default and value is default:
            return value
        if read is not None and value is not None:
            try:
                return read(value)
            except (ValueError, TypeError, typer.BadParameter):
                pass
        return process(context, value)

    parameter.process_value = process_value


def _is_checked(info: Any) -> bool:
    """True for an option whose values typer compares with limits, or looks up on the disk."""
    return info.min is not None or info.max is not None or info.exists or info.resolve_path


def _reader(annotation: Any, parser: Callable[[str], Any] | None) -> Callable[[Any], Any] | None:
    """What makes a value of a text, or a list of several; it raises what typer has the words for."""
    if get_origin(annotation) is list:
        read = _reader(get_args(annotation)[0], parser)
        return None if read is None else lambda texts: [read(text) for text in texts]
    if parser is not None:
        return parser
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotation
    return _READERS.get(annotation)


def _read_text(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(text)
    return text


def _read_integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _read_number(text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


_READERS: dict[Any, Callable[[str], Any]] = {str: _read_text, int: _read_integer, float: _read_number}
