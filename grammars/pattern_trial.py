"""A trial of the patterns of a JSON Schema whose strings are also limited in length.

For such a string, llguidance needs a state for each pair of a place in the pattern and a length. If the states are
too many, llguidance gives up in the middle of a text. The trial writes a short text to find this out earlier.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle, islice
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
_LETTERS_AND_DIGITS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SIGNS = b' .,-_/:@"'
# Words of growing length, with a sign after each
_PREFERRED_BYTES = (
    *(_LETTERS_AND_DIGITS, _SIGNS),
    *(_LETTERS_AND_DIGITS, _LETTERS_AND_DIGITS, _SIGNS),
    *(_LETTERS_AND_DIGITS, _LETTERS_AND_DIGITS, _LETTERS_AND_DIGITS, _LETTERS_AND_DIGITS, _SIGNS),
)


def check_patterns(schema: dict[str, Any]) -> None:
    """Raise ``GrammarError``, with the path, for a pattern whose texts llguidance cannot follow."""
    start = time.process_time()
    for pointer, part in all_parts(SchemaPart("", schema)):
        if time.process_time() - start > _MAX_TRIAL_SECONDS:
            return  # an error in the middle of a text remains possible
        is_limited_pattern = isinstance(part.get("pattern"), str) and _has_long_limit(part)
        if is_limited_pattern and not _can_follow(part):
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
    mask_words = np.zeros((BYTE_VOCABULARY.size + 31) // 32, dtype=np.uint32)
    start = time.process_time()
    for preferred_bytes in islice(cycle(_PREFERRED_BYTES), _MAX_TRIAL_BYTES):
        matcher.unsafe_compute_mask_ptr(mask_words.ctypes.data, mask_words.nbytes)
        if matcher.is_error():
            return "lexer error" not in matcher.get_error()
        mask = np.unpackbits(mask_words.view(np.uint8), count=256, bitorder="little")
        candidates = (*preferred_bytes, *_LETTERS_AND_DIGITS, *range(128))
        byte = next((byte for byte in candidates if mask[byte]), None)
        if byte is None or not matcher.try_consume_tokens([byte]) or matcher.is_accepting():
            return True
        if time.process_time() - start > _MAX_TRIAL_SECONDS:
            return False
    return True
