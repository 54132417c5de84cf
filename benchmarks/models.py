"""The time of `gen models` with thousands of files with small headers, and hundreds with complete vocabularies.

python -m benchmarks.models [--files 3000] [--vocabularies 300]

The files are in folders as LM Studio writes them. Their metadata and tensor descriptions are those of real models
with 12 to 32 layers; the data of the tensors are holes in the files. `--vocabularies` of the files have 32,000 to
152,000 tokens with merges, which takes 1 GB of disk. The processor seconds for finding files and for reading
headers are printed, and the time that the ``gguf`` package takes for one header of each kind.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import gguf
from logitsmith.engine import list_models, read_summaries

VOCABULARIES = (32_000, 49_152, 128_256, 151_936)
SMALL_VOCABULARY = 300
LAYERS = (12, 24, 32)
WIDTH = 4096
ALIGNMENT = 32
UINT32, STRING, ARRAY, INT32 = 4, 8, 9, 5
F32, Q4_K = 0, 12


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="the time of a list of models")
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--vocabularies", type=int, default=300)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.files):
            has_vocabulary = number < options.vocabularies
            tokens = VOCABULARIES[number % len(VOCABULARIES)] if has_vocabulary else SMALL_VOCABULARY
            _write(_path(folder, number), tokens, LAYERS[number % len(LAYERS)])
        print(f"{options.files:,} files, {options.vocabularies:,} with a whole vocabulary")
        for turn in ("first time", "again"):
            began = process_time()
            entries = [entry for entry in list_models([folder]) if folder in entry.path.parents]
            found = process_time()
            readable = sum(summary.problem is None for summary in read_summaries(entries))
            read = process_time()
            times = f"found in {found - began:.2f} s, headers read in {read - found:.2f} s"
            print(f"{turn}: {times}, {readable:,} right")
        for number, kind in ((options.files - 1, "small"), (0, "whole vocabulary")):
            began = process_time()
            gguf.GGUFReader(_path(folder, number))
            print(f"gguf's GGUFReader, one header, {kind}: {process_time() - began:.3f} s")


def _path(folder: Path, number: int) -> Path:
    return folder / f"Model-{number}" / f"Model-{number}-Q4_K_M.gguf"


def _write(path: Path, tokens: int, layers: int) -> None:
    """Write a header, followed by a hole in place of the tensors' data."""
    texts = [f"t{number * 2654435761 % 2**32:x}"[: 3 + number % 6].encode() for number in range(tokens)]
    pairs = [
        _pair("general.architecture", STRING, _string(b"llama")),
        _pair("general.file_type", UINT32, struct.pack("<I", 15)),
        _pair("llama.context_length", UINT32, struct.pack("<I", 131_072)),
        _pair("llama.block_count", UINT32, struct.pack("<I", layers)),
        _pair("llama.embedding_length", UINT32, struct.pack("<I", WIDTH)),
        _pair("tokenizer.ggml.model", STRING, _string(b"gpt2")),
        _pair("tokenizer.ggml.tokens", ARRAY, _list(STRING, map(_string, texts), tokens)),
        _pair("tokenizer.ggml.token_type", ARRAY, _list(INT32, [b"\1\0\0\0"] * tokens, tokens)),
        _pair("tokenizer.ggml.merges", ARRAY, _list(STRING, (_string(t + b" " + t[:2]) for t in texts), tokens)),
        _pair("tokenizer.chat_template", STRING, _string(b"{{ messages }}" + b" " * 4000)),
    ]
    matrices = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    tensors: list[tuple[str, tuple[int, ...], int]] = [("token_embd", (WIDTH, tokens), Q4_K)]
    for layer in range(layers):
        tensors += [(f"blk.{layer}.{name}", (WIDTH, WIDTH), Q4_K) for name in matrices]
        tensors += [(f"blk.{layer}.{name}", (WIDTH,), F32) for name in ("attn_norm", "ffn_norm")]
    descriptions, end = [], 0
    for name, shape, kind in tensors:
        extents = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        descriptions.append(_string(f"{name}.weight".encode()) + extents + struct.pack("<IQ", kind, end))
        elements = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data_bytes = elements * 4 if kind == F32 else elements // 256 * 144
        end += -(-data_bytes // ALIGNMENT) * ALIGNMENT
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join([*pairs, *descriptions])
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // ALIGNMENT) * ALIGNMENT + end)


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _string(key.encode()) + struct.pack("<I", kind) + value


def _list(kind: int, items: Iterable[bytes], count: int) -> bytes:
    return struct.pack("<IQ", kind, count) + b"".join(items)


if __name__ == "__main__":
    main()
