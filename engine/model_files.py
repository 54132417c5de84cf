"""The files of a model before llama.cpp opens them: whether they fit the options, and the memory they need."""

from __future__ import annotations

from pathlib import Path

from ..models.errors import ModelError
from ..models.gguf import GgufHeader, check_is_adapter, check_is_model, iterate_fatal_values, read_header
from ..models.names import model_bytes
from .load_options import LoadOptions, MetadataOverrides

# Limit of an override's key and string. llama.cpp stores each in 128 bytes, with a zero at the end.
_MAX_OVERRIDE_BYTES = 127


def check_files(path: Path, options: LoadOptions) -> GgufHeader:
    """Check a model file, its adapters and the overrides, and return its header. Raises ``ModelError``."""
    header = check_is_model(path)
    check_overrides(options.overrides, header)
    for file, _ in options.lora:
        check_is_adapter(Path(file), header.values.get("general.architecture"))
    return header


def check_overrides(overrides: MetadataOverrides, header: GgufHeader) -> None:
    """Raise ``ModelError`` for an override that llama.cpp would ignore or truncate, or that would crash it."""
    # A key that is missing in the file's ``header`` may be overridden with any type.
    file_metadata = header.values
    encoded_overrides = {key: _encode_override(key, value) for key, value in overrides.items()}
    for key, value in encoded_overrides.items():
        is_key_short = 1 <= len(key.encode()) <= _MAX_OVERRIDE_BYTES
        if not is_key_short or (isinstance(value, bytes) and len(value) > _MAX_OVERRIDE_BYTES):
            raise ModelError(f"override of {key!r}: key and string must have at most {_MAX_OVERRIDE_BYTES} bytes")
        if key in file_metadata and type(file_metadata[key]) is not type(value):
            expected = _override_type_name(file_metadata[key])
            actual = _override_type_name(value)
            raise ModelError(f"override of {key}: expected {expected}, as in the file, but got {actual}")
    problems_of_file = set(iterate_fatal_values(file_metadata, header.list_keys))
    for problem in iterate_fatal_values({**file_metadata, **encoded_overrides}, header.list_keys):
        if problem not in problems_of_file:
            raise ModelError(problem, origin="override")


def _encode_override(key: str, value: int | float | bool | str) -> int | float | bool | bytes:
    """Return the value of an override, a string as UTF-8 bytes. Raises ``ModelError``."""
    try:
        key.encode()
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ModelError(f"override of {key!a}: key and string must be UTF-8") from None


def _override_type_name(value: int | float | bool | bytes) -> str:
    """Return the name of a value's type, as llama.cpp's flag spells it."""
    return {bool: "bool", int: "int", float: "float", bytes: "str"}[type(value)]


# memory for one number of a key and one of a value, 2 bytes each, which is llama.cpp's default
_BYTES_OF_KEY_AND_VALUE = 4
# a generous estimate of the memory for llama.cpp's buffers and Python, in addition to the weights and the cache
_BUFFERS_BYTES = 400_000_000


def cache_bytes_per_token(layer_count: int, embedding_size: int, head_count: int, kv_head_count: int) -> int:
    """Return the memory for the keys and values of one token."""
    return layer_count * (embedding_size // max(1, head_count)) * kv_head_count * _BYTES_OF_KEY_AND_VALUE


def estimate_memory(path: Path, sequence_count: int, options: LoadOptions) -> int:
    """Estimate the memory of a process that decodes several sequences together, in bytes."""
    # The sum counts the weights, the keys and values of all sequences, and buffers. Raises ``ModelError``.
    integer_metadata = {key: value for key, value in read_header(path).values.items() if isinstance(value, int)}

    def read_integer(name: str, default: int) -> int:
        return next((value for key, value in integer_metadata.items() if key.endswith(f".{name}")), default)

    head_count = read_integer("attention.head_count", 1)
    token_bytes = cache_bytes_per_token(
        read_integer("block_count", 0),
        read_integer("embedding_length", 0),
        head_count,
        read_integer("attention.head_count_kv", head_count),
    )
    context_tokens = options.context_length(read_integer("context_length", 0))
    return model_bytes(path) + sequence_count * context_tokens * token_bytes + _BUFFERS_BYTES
