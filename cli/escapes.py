"""The escapes of llama.cpp's command line, by which a text names characters that are hard to type."""

import re

_ESCAPE = re.compile(rb"""\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<letter>[nrt'"\\]))""")
_CHARACTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def process_escapes(text: str) -> str:
    r"""Return the text with its escapes replaced: ``\n \r \t \' \" \\`` and ``\xHH``, a byte of UTF-8.

    As llama.cpp's ``string_process_escapes``: any other backslash stays. Bytes that are not UTF-8 become
    surrogates, as those of an argument do.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_replacement, text.encode(errors="surrogateescape")).decode(errors="surrogateescape")


def _replacement(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"].decode())
    letter = match["letter"]
    return _CHARACTERS.get(letter, letter)
