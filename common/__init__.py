"""What several rooms need: errors, text, strict JSON, and files. Knows nothing of tokens or models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .append_only_file import AppendOnlyFile
    from .bounded_reading import (
        MAX_LINE_BYTES,
        MAX_TEXT_BYTES,
        InputTooLargeError,
        bounded_lines,
        read_bounded,
    )
    from .errors import LogitsmithError
    from .named_files import SearchFolder, find_named_files, search_path
    from .strict_json import NonFiniteNumberError, json_problem, parse_strict_json
    from .text import (
        NotUTF8Error,
        count_noun,
        decode_utf8,
        is_utf8,
        nearest_name,
        one_of,
        replace_surrogates,
        shorten,
    )
    from .text_files import TextFileError, decode_text_file, file_problem, read_text_file, write_problem
    from .validation import problem_message, problem_sentence
    from .whole_file import write_whole_file

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_TEXT_BYTES",
    "AppendOnlyFile",
    "InputTooLargeError",
    "LogitsmithError",
    "NonFiniteNumberError",
    "NotUTF8Error",
    "SearchFolder",
    "TextFileError",
    "bounded_lines",
    "count_noun",
    "decode_text_file",
    "decode_utf8",
    "file_problem",
    "find_named_files",
    "is_utf8",
    "json_problem",
    "nearest_name",
    "one_of",
    "parse_strict_json",
    "problem_message",
    "problem_sentence",
    "read_bounded",
    "read_text_file",
    "replace_surrogates",
    "search_path",
    "shorten",
    "write_problem",
    "write_whole_file",
]

# A run needs few of these names, and importing all of them takes some 10 ms.
__getattr__ = lazy_exports(__name__)
