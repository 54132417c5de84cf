"""Grammar files: their kinds, and reading them."""

from __future__ import annotations

from pathlib import Path

from ..common.files import TextFileError, read_text_file
from .errors import GrammarError
from .limits import MAX_SOURCE_CHARACTERS

KIND_OF_SUFFIX = {".gbnf": "gbnf", ".json": "json_schema", ".regex": "regex", ".lark": "lark"}
"""The kind of a grammar file, by the end of its name."""

_MAX_FILE_BYTES = 4 * MAX_SOURCE_CHARACTERS  # a character has at most 4 bytes in UTF-8


def read_grammar_file(path: Path) -> str:
    """Return the text of a grammar file. Raises ``GrammarError``."""
    try:
        return read_text_file(path, _MAX_FILE_BYTES)
    except TextFileError as error:
        raise GrammarError(f"{path}: {error}") from None
