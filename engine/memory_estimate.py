"""How much memory a model takes, before it is loaded."""

from __future__ import annotations

from pathlib import Path

from .gguf import read_header
from .model_files.parts import part_paths

_DEFAULT_CONTEXT = 4096
_BYTES_OF_KEY_AND_VALUE = 4
"""Two numbers of two bytes each, llama.cpp's default."""
_BUFFERS_BYTES = 400_000_000
"""What llama.cpp's buffers and Python take beside the weights and the cache, generously."""


def estimate_memory(path: Path, sequences: int, length: int | None) -> int:
    """Return about how many bytes a process takes that decodes so many sequences at once.

    The weights, the keys and values of all sequences, and buffers. Raises ``ModelError``.

    Args:
        path: the GGUF file; of a split model, any part.
        sequences: how many there are.
        length: the context of each, tokens; None: as `Model.load` chooses it; 0: as the model was trained.
    """
    numbers = {key: value for key, value in read_header(path).values.items() if isinstance(value, int)}

    def number(name: str, default: int) -> int:
        return next((value for key, value in numbers.items() if key.endswith(f".{name}")), default)

    trained = number("context_length", _DEFAULT_CONTEXT)
    tokens = min(_DEFAULT_CONTEXT, trained) if length is None else length or trained
    heads = number("attention.head_count", 1)
    width = number("embedding_length", 0) // max(1, heads) * number("attention.head_count_kv", heads)
    cache = sequences * tokens * number("block_count", 0) * width * _BYTES_OF_KEY_AND_VALUE
    return sum(part.stat().st_size for part in part_paths(path)) + cache + _BUFFERS_BYTES
