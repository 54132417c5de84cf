"""How many requests are computed at a time, and the memory that they and the model take."""

from __future__ import annotations

from pathlib import Path

from ..models.gguf import read_header
from ..models.names import model_bytes

DEFAULT_CONTEXT_TOKENS = 4096
"""A compromise: room for long prompts, without the memory that the length a model was trained with may take."""
_SLOTS_PER_THREAD, _MAX_SLOTS = 4, 8
"""Enough requests to keep the threads busy; every slot takes memory. benchmarks/batch.py measures the speed."""
_BYTES_OF_KEY_AND_VALUE = 4
"""Two numbers of two bytes each, llama.cpp's default."""
_BUFFERS_BYTES = 400_000_000
"""What llama.cpp's buffers and Python take beside the weights and the cache, generously."""


def default_slots(threads: int) -> int:
    """Return how many requests keep so many threads busy: four per thread, at most 8."""
    return min(_MAX_SLOTS, _SLOTS_PER_THREAD * threads)


def cache_bytes_per_token(layers: int, embedding: int, heads: int, kv_heads: int) -> int:
    """Return the memory for the keys and values of one token.

    Args:
        layers: of the model.
        embedding: its width.
        heads: of attention.
        kv_heads: heads of keys and values.
    """
    return layers * (embedding // max(1, heads)) * kv_heads * _BYTES_OF_KEY_AND_VALUE


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

    trained = number("context_length", DEFAULT_CONTEXT_TOKENS)
    tokens = min(DEFAULT_CONTEXT_TOKENS, trained) if length is None else length or trained
    heads = number("attention.head_count", 1)
    cache = cache_bytes_per_token(
        number("block_count", 0), number("embedding_length", 0), heads, number("attention.head_count_kv", heads)
    )
    return model_bytes(path) + sequences * tokens * cache + _BUFFERS_BYTES
