"""Grammar files: their kinds, and reading them."""

from __future__ import annotations

from pathlib import Path

from ..common.text import NotUTF8Error, decode_utf8
from .errors import GrammarError
from .limits import MAX_SOURCE_CHARACTERS

KIND_OF_SUFFIX = {".gbnf": "gbnf", ".json": "json_schema", ".regex": "regex", ".lark": "lark"}
"""The kind of a grammar file, by the end of its name."""

_MAX_FILE_BYTES = 4 * MAX_SOURCE_CHARACTERS  # a character has at most 4 bytes in UTF-8


def read_grammar_file(path: Path) -> str:
    """Return the text of a grammar file. Raises ``GrammarError``."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = "it is a folder" if path.is_dir() else getattr(error, "strerror", None) or str(error)
        raise GrammarError(f"{path}: cannot be read ({problem})") from None
    if len(data) > _MAX_FILE_BYTES:
        raise GrammarError(f"{path}: the file is larger than {_MAX_FILE_BYTES // 1_000_000} MB")
    try:
        return decode_utf8(data)
    except NotUTF8Error as error:
        raise GrammarError(f"{path}: line {error.line}: the file is not UTF-8") from None
