"""Values that stand in for those of a GGUF's metadata."""

from __future__ import annotations

from collections.abc import Mapping

from ..models.errors import ModelError
from ..models.gguf import Values, faults

MetadataOverrides = Mapping[str, int | float | bool | str]
"""By key of the metadata."""

_MAX_BYTES = 127
"""llama.cpp keeps keys and texts in 128 bytes, with a zero at the end."""


def check_overrides(overrides: MetadataOverrides, values: Values) -> None:
    """Raise ``ModelError`` for an override that llama.cpp would ignore, cut off, or end the process on.

    ``values``: the GGUF's own. A key that it lacks may be overridden with any type.
    """
    encoded = {key: _encoded(key, value) for key, value in overrides.items()}
    for key, value in encoded.items():
        if not 1 <= len(key.encode()) <= _MAX_BYTES or (isinstance(value, bytes) and len(value) > _MAX_BYTES):
            raise ModelError(f"override of {key!r}: key and text have at most {_MAX_BYTES} bytes")
        if key in values and type(values[key]) is not type(value):
            expected, given = _type_name(values[key]), _type_name(value)
            raise ModelError(f"override of {key}: the file holds {expected}, not {given}")
    faults_without = set(faults(values))
    for fault in faults({**values, **encoded}):
        if fault not in faults_without:
            raise ModelError(f"override: {fault}")


def _encoded(key: str, value: int | float | bool | str) -> int | float | bool | bytes:
    """The value; a text in UTF-8, as llama.cpp takes it and the key."""
    try:
        key.encode()
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ModelError(f"override of {key!a}: key and text must be UTF-8") from None


def _type_name(value: int | float | bool | bytes) -> str:
    """The type, as llama.cpp's flag names it."""
    return {bool: "bool", int: "int", float: "float", bytes: "str"}[type(value)]
