"""Strict JSON: no NaN, no Infinity; text as it is, not escaped to ASCII."""

from __future__ import annotations

import json

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""One object as JSON on one line. Raises ``ValueError`` for a number that JSON does not have."""
# One encoder for all: `json.dumps` would make a new one for each call.
