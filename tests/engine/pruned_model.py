"""The bundled model with few of its layers and tokens: it is soon loaded, and quick.

It writes nonsense. The template is the bundled model's, and so are the ids of the tokens that remain: many short
English texts have the same tokens in both.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from logitsmith.engine import locate
from logitsmith.models.gguf import HeaderReader

LAYERS = 2
TOKENS = 8192
_STRING = 8
_ALIGNMENT_BYTES = 32


class _Parts(HeaderReader):
    """The parts of a GGUF file as bytes: metadata by key, the description and the data of each tensor by name."""

    def __init__(self, data: mmap.mmap) -> None:
        super().__init__(data)
        self.metadata: dict[str, bytes] = {}
        self._read_counts_and_metadata()
        descriptions = [self._passed(self._read_tensor) for _ in range(self.tensor_count)]
        first = len(_padded(data[: self._offset]))
        self.data_of_tensors: dict[str, tuple[bytes, bytes]] = {}
        for description, tensor in descriptions:
            (start,) = struct.unpack("<Q", description[-8:])
            self.data_of_tensors[_name(description)] = (description, data[first + start : first + tensor.end])

    def _read_metadata_entry(self) -> None:
        entry, _ = self._passed(super()._read_metadata_entry)
        self.metadata[_name(entry)] = entry

    def _passed(self, read):
        """Return what a method reads, as bytes, and what it returns."""
        start = self._offset
        result = read()
        return self._data[start : self._offset], result


def write_pruned_model(path: Path, layers: Sequence[int] = range(LAYERS), tokens: int | None = TOKENS) -> None:
    """Write the model, atomically.

    Args:
        path: The GGUF file.
        layers: The layers that are kept.
        tokens: The number of tokens that are kept, the first ones. None: all, so that it can draft for the bundled
            model.
    """
    with locate()[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        parts = _Parts(data)
        magic_and_version = data[:8]
    metadata = b"".join(_pruned_metadata(parts.metadata, len(layers), tokens).values())
    tensors = [
        _pruned(new_name, _renamed(description, new_name), weights, tokens)
        for name, (description, weights) in parts.data_of_tensors.items()
        if (new_name := _new_name(name, layers)) is not None
    ]
    descriptions = weights_of_all = b""
    for description, weights in tensors:
        descriptions += description[:-8] + struct.pack("<Q", len(weights_of_all))
        weights_of_all += _padded(weights)
    header = magic_and_version + struct.pack("<QQ", len(tensors), len(parts.metadata)) + metadata + descriptions
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(_padded(header) + weights_of_all)
    unfinished.replace(path)


def _pruned_metadata(metadata: dict[str, bytes], layer_count: int, tokens: int | None) -> dict[str, bytes]:
    changed = dict(metadata)
    changed["llama.block_count"] = metadata["llama.block_count"][:-4] + struct.pack("<I", layer_count)
    if tokens is None:
        return changed
    changed["llama.vocab_size"] = metadata["llama.vocab_size"][:-4] + struct.pack("<I", tokens)
    lists = [f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges")]
    all_tokens, _, merges = (_count(key, metadata[key]) for key in lists)
    # Each merge makes the next token: those of the tokens that are left out go with them.
    for key, count in zip(lists, (tokens, tokens, tokens - (all_tokens - merges)), strict=True):
        changed[key] = _first_items(key, metadata[key], count)
    return changed


def _count(key: str, entry: bytes) -> int:
    """Return the number of items in a list, which is after the key and two types: the value's and the items'."""
    (count,) = struct.unpack_from("<Q", entry, 8 + len(key) + 8)
    return int(count)


def _first_items(key: str, entry: bytes, count: int) -> bytes:
    of_items = 8 + len(key) + 4
    start = end = of_items + 12
    if struct.unpack_from("<I", entry, of_items)[0] == _STRING:
        for _ in range(count):
            end += 8 + struct.unpack_from("<Q", entry, end)[0]
    else:
        end += 4 * count
    return entry[: start - 8] + struct.pack("<Q", count) + entry[start:end]


def _new_name(tensor: str, layers: Sequence[int]) -> str | None:
    """Return the name of a tensor in the pruned model; None if its layer is left out."""
    if not tensor.startswith("blk."):
        return tensor
    _, layer, rest = tensor.split(".", 2)
    return f"blk.{layers.index(int(layer))}.{rest}" if int(layer) in layers else None


def _renamed(description: bytes, name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + description[8 + len(_name(description)) :]


def _pruned(name: str, description: bytes, weights: bytes, tokens: int | None) -> tuple[bytes, bytes]:
    """A tensor as it is, or of the embeddings the rows of the tokens that are kept."""
    if name != "token_embd.weight" or tokens is None:
        return description, weights
    # At its end: the width, the rows, the type and the place.
    width, rows = struct.unpack("<QQ", description[-28:-12])
    shape = struct.pack("<QQ", width, tokens)
    return description[:-28] + shape + description[-12:], weights[: len(weights) // rows * tokens]


def _name(entry: bytes) -> str:
    return entry[8 : 8 + struct.unpack_from("<Q", entry)[0]].decode()


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT_BYTES)
