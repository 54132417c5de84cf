"""The check of a GGUF file before llama.cpp opens it."""

import ctypes
import random
import struct

import pytest
from logitsmith.engine import ModelError, check_gguf, locate
from logitsmith.engine.gguf import TENSOR_TYPES


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value_type, payload):
    return string(key) + struct.pack("<I", value_type) + payload


def small_file(
    *, data=b"\0" * 128, shape=(4, 8), value_type=0, offset=0, pairs=(), version=3, tensors=1, tokenizer=True
):
    """A GGUF with one tensor; 4 x 8 float32 are 128 bytes."""
    pairs = (*pairs, pair("tokenizer.ggml.model", 8, string("gpt2"))) if tokenizer else pairs
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + b"".join(pairs)
    if tensors:
        head += string("w") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", value_type, offset)
    return head + b"\0" * (-len(head) % 32) + data


STRINGS = struct.pack("<IQ", 8, 2) + string("a") + string("bc")

GOOD = {
    "one tensor": small_file(),
    "version 2": small_file(version=2),
    "no tensors": small_file(tensors=0, data=b""),
    "metadata of every kind": small_file(
        pairs=[
            pair("u8", 0, b"\1"),
            pair("f64", 12, b"\0" * 8),
            pair("text", 8, string("hé")),
            pair("strings", 9, STRINGS),
            pair("ints", 9, struct.pack("<IQ3i", 5, 3, 1, 2, 3)),
        ]
    ),
    "an alignment of 64": small_file(pairs=[pair("general.alignment", 4, struct.pack("<I", 64))]) + b"\0" * 64,
    "a tensor type of the future": small_file(value_type=999, data=b""),
}

BAD = {
    "empty": (b"", "the file is empty"),
    "not gguf": (b"hello, this is a text", "not a GGUF file"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "html": (b"<!DOCTYPE html><html>", "a web page"),
    "only the magic": (b"GGUF", "damaged GGUF file"),
    "version 1": (small_file(version=1), "version 1 is not 2 or 3"),
    "big-endian": (small_file(version=3 << 24), "it is big-endian"),
    "data cut by one byte": (small_file()[:-1], "truncated: its tensors need 256 bytes, the file has 255"),
    "offset past the end": (small_file(offset=64), "truncated"),
    "a key past the end": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40),
        "key is 1,099,511,627,776 bytes long",
    ),
    "a count of pairs that cannot be": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "damaged"),
    "an unknown type of value": (small_file(pairs=[pair("x", 77, b"")]), "'x' has the unknown type 77"),
    "a list past the end": (
        small_file(pairs=[pair("x", 9, struct.pack("<IQ", 4, 1 << 62))]),
        "the list 'x' runs",
    ),
    "strings past the end": (
        small_file(pairs=[pair("x", 9, struct.pack("<IQ", 8, 1 << 62))]),
        "the list 'x' runs",
    ),
    "nested lists": (small_file(pairs=[pair("x", 9, struct.pack("<IQ", 9, 1))]), "unknown type 9"),
    "alignment 3": (
        small_file(pairs=[pair("general.alignment", 4, struct.pack("<I", 3))]),
        "general.alignment is 3, not a power of two",
    ),
    "no layers": (small_file(pairs=[pair("x.block_count", 4, struct.pack("<I", 0))]), "is 0, not within 1..512"),
    "too many layers": (small_file(pairs=[pair("x.block_count", 4, b"\xff" * 4)]), "not within 1..512"),
    "a negative epsilon": (
        small_file(pairs=[pair("x.layer_norm_rms_epsilon", 6, struct.pack("<f", -1))]),
        "x.layer_norm_rms_epsilon is -1.0, not a finite number",
    ),
    "an epsilon of NaN": (
        small_file(pairs=[pair("x.epsilon", 6, struct.pack("<f", float("nan")))]),
        "is nan, not",
    ),
    "no tokenizer": (small_file(tokenizer=False), "it holds no tokenizer"),
    "a key beyond reason": (small_file(pairs=[pair("x" * 300, 0, b"\1")]), "a metadata key is 300 bytes long"),
    "five dimensions": (small_file(shape=(1, 1, 1, 1, 1)), "has 5 dimensions"),
    "a shape beyond all memory": (small_file(shape=(1 << 62, 1 << 62)), "truncated"),
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_good_file_passes(tmp_path, data):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    check_gguf(path)


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_file_is_named(tmp_path, data, message):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        check_gguf(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        check_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="this is a folder"):
        check_gguf(tmp_path)


def test_bundled_model_passes_whole_and_fails_one_byte_short(tmp_path):
    path, _ = locate()
    check_gguf(path)
    cut = tmp_path / "cut.gguf"
    with path.open("rb") as whole, cut.open("wb") as part:
        part.write(whole.read(2_000_000))
        part.truncate(path.stat().st_size - 1)
    with pytest.raises(ModelError, match="truncated"):
        check_gguf(cut)


def test_random_damage_to_a_header_never_escapes(tmp_path):
    rng = random.Random(5)
    whole = GOOD["metadata of every kind"]
    path = tmp_path / "m.gguf"
    outcomes = {"passed": 0, "refused": 0}
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data) - 128)] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.3 else len(data)])
        try:
            check_gguf(path)
            outcomes["passed"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100


def test_tensor_sizes_are_those_of_ggml():
    from llama_cpp._ggml import libggml

    libggml.ggml_blck_size.restype = ctypes.c_int64
    libggml.ggml_type_size.restype = ctypes.c_size_t
    sizes = {
        value_type: (libggml.ggml_blck_size(value_type), libggml.ggml_type_size(value_type))
        for value_type in TENSOR_TYPES
    }
    assert sizes == TENSOR_TYPES
