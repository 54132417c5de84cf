"""Writes strict JSON: no NaN, no Infinity; text as it is, not escaped to ASCII."""

from __future__ import annotations

import json

# One encoder for all calls: `json.dumps` would make a new one for each.
encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""A value as JSON on one line. Raises ``ValueError`` for a number that JSON does not have."""
