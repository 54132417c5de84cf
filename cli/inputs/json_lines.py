"""Lines of JSON that a person or a program wrote: an object each."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

from ...common.errors import LogitsmithError
from ...common.files import bounded_lines
from ...common.strict_json import json_problem, parse_strict_json


class InvalidLineError(LogitsmithError):
    """A line that cannot be used. The message says what is wrong with it."""


def number_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Number the lines from 1, without spaces around them and a byte order mark; empty lines are left out.

    Raises ``InputTooLargeError``.
    """
    for number, line in enumerate(bounded_lines(file), 1):
        text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()
        if text:
            yield number, text


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises ``InvalidLineError``."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidLineError("it is UTF-16; save the file as UTF-8")
    try:
        value = parse_strict_json(line)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise InvalidLineError("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise InvalidLineError("it holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise InvalidLineError(f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidLineError(f"it is not JSON that can be read: {str(error).split(';')[0]}") from None
    if not isinstance(value, dict):
        raise InvalidLineError("it is not an object")
    return value
