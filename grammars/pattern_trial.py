"""A trial of the patterns of a JSON Schema whose strings are also limited in length.

For such a string, llguidance needs a state for each pair of a place in the pattern and a length, and gives up
in the middle of a text if they are too many. A short walk through the texts of the pattern shows this before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from .errors import GrammarError
from .json_schema import json_schema_to_lark
from .matcher import new_matcher
from .schema_parts import all_parts
from .schema_references import SchemaPart
from .tokenizer import BYTE_VOCABULARY

_MIN_LENGTH_LIMIT = 50  # Lengths below this one need few states
_MAX_TRIAL_BYTES = 300
_MAX_TRIAL_SECONDS = 1.0
_LETTERS_AND_SIGNS = (b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", b' .,-_/:@"')


def check_patterns(schema: dict[str, Any]) -> None:
    """Raise ``GrammarError``, with the path, for a pattern whose texts llguidance cannot follow."""
    start = time.process_time()
    for pointer, part in all_parts(SchemaPart("", schema)):
        if time.process_time() - start > _MAX_TRIAL_SECONDS:
            return  # an error in the middle of a text remains possible
        if isinstance(part.get("pattern"), str) and _has_long_limit(part) and not _can_follow(part):
            keyword = "maxLength" if "maxLength" in part else "minLength"
            raise GrammarError(
                f"{pointer}/pattern: together with {keyword}, this pattern needs too many states",
                advice=f"leave out {keyword}, or use a pattern with smaller counts",
            )


def _has_long_limit(part: Mapping[str, Any]) -> bool:
    limits = (part.get("minLength"), part.get("maxLength"))
    return any(isinstance(limit, int | float) and limit >= _MIN_LENGTH_LIMIT for limit in limits)


def _can_follow(part: Mapping[str, Any]) -> bool:
    """Return False if llguidance gives up in the middle of a text that begins to match."""
    keywords = {key: part[key] for key in ("pattern", "minLength", "maxLength") if key in part}
    matcher = new_matcher(BYTE_VOCABULARY, json_schema_to_lark({"type": "string", **keywords}, {}))
    words = np.zeros((BYTE_VOCABULARY.size + 31) // 32, dtype=np.uint32)
    start = time.process_time()
    # Words of growing length, with a sign after each.
    choices = cycle([0, 1, 0, 0, 1, 0, 0, 0, 0, 1])
    for _ in range(_MAX_TRIAL_BYTES):
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            return "lexer error" not in matcher.get_error()
        mask = np.unpackbits(words.view(np.uint8), count=256, bitorder="little")
        preferred = _LETTERS_AND_SIGNS[next(choices)]
        byte = next((byte for byte in (*preferred, *_LETTERS_AND_SIGNS[0], *range(128)) if mask[byte]), None)
        if byte is None or not matcher.try_consume_tokens([byte]) or matcher.is_accepting():
            return True
        if time.process_time() - start > _MAX_TRIAL_SECONDS:
            return False
    return True
