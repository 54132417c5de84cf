"""The check of a GGUF file before llama.cpp opens it."""

import ctypes
import random
import re
import struct
from pathlib import Path

import pytest
from logitsmith.engine import LoadOptions, Model, ModelError, read_facts, read_metadata, resolve_model
from logitsmith.engine.model_files import check_files
from logitsmith.models.gguf import TENSOR_TYPES, check_gguf, check_is_model

from .folders import write_tiny


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value_type, payload):
    return string(key) + struct.pack("<I", value_type) + payload


def small_file(
    *,
    data=b"\0" * 128,
    name="w",
    shape=(4, 8),
    value_type=0,
    offset=0,
    pairs=(),
    version=3,
    tensors=1,
    tokenizer=True,
):
    """A GGUF with one tensor; 4 x 8 float32 are 128 bytes."""
    pairs = (*pairs, pair("tokenizer.ggml.model", 8, string("gpt2"))) if tokenizer else pairs
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + b"".join(pairs)
    if tensors:
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", value_type, offset)
    return head + b"\0" * (-len(head) % 32) + data


def llama_file(*pairs):
    return small_file(pairs=[pair("general.architecture", 8, string("llama")), *pairs])


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
    "four experts of which two are used": llama_file(
        pair("llama.expert_count", 4, struct.pack("<I", 4)),
        pair("llama.expert_used_count", 4, struct.pack("<I", 2)),
    ),
    "experts of which each layer uses another number": llama_file(
        pair("llama.expert_count", 4, struct.pack("<I", 4)),
        pair("llama.expert_used_count", 9, struct.pack("<IQ2i", 5, 2, 1, 2)),
    ),
    "two groups of experts": llama_file(
        pair("llama.expert_count", 4, struct.pack("<I", 4)),
        pair("llama.expert_used_count", 4, struct.pack("<I", 2)),
        pair("llama.expert_group_count", 4, struct.pack("<I", 2)),
        pair("llama.expert_group_used_count", 4, struct.pack("<I", 1)),
    ),
    "one expert that is none": small_file(
        pairs=[
            pair("general.architecture", 8, string("hunyuan-dense")),
            pair("hunyuan-dense.expert_count", 4, struct.pack("<I", 1)),
        ]
    ),
    "yarn": llama_file(pair("llama.rope.scaling.type", 8, string("yarn"))),
    "a norm in F32": small_file(name="blk.0.attn_norm.weight", shape=(32,)),
    "a second part": small_file(
        pairs=[pair("split.no", 2, b"\1\0"), pair("split.count", 2, b"\3\0")], tokenizer=False
    ),
    "a tensor type of the future": small_file(value_type=999, data=b""),
}

BAD = {
    "empty": (b"", "the file is empty"),
    "not gguf": (b"hello, this is a text", "not a GGUF file"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "html": (b"<!DOCTYPE html><html>", "a web page"),
    "only the magic": (b"GGUF", "damaged GGUF file"),
    "version 1": (small_file(version=1), "version 1 is not 2 or 3; convert the model again"),
    "version 4": (small_file(version=4), "version 4 is not 2 or 3; another version of llama.cpp wrote it"),
    "big-endian": (small_file(version=3 << 24), "it is big-endian; convert it with `gguf-convert-endian"),
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
    "too many experts": (
        llama_file(pair("llama.expert_count", 4, struct.pack("<I", 2**31))),
        "llama.expert_count is 2147483648, not within 0..1024",
    ),
    "more experts used than there are": (
        llama_file(pair("llama.expert_used_count", 4, struct.pack("<I", 65))),
        "llama.expert_used_count is 65, and llama.expert_count only 0",
    ),
    "more layers that predict than layers": (
        llama_file(
            pair("llama.block_count", 4, struct.pack("<I", 2)),
            pair("llama.nextn_predict_layers", 4, struct.pack("<I", 7)),
        ),
        "llama.nextn_predict_layers is 7, and llama.block_count only 2",
    ),
    "an unknown rope scaling": (
        llama_file(pair("llama.rope.scaling.type", 8, string("x"))),
        "llama.rope.scaling.type is 'x', not one of none, linear, yarn, longrope",
    ),
    "a norm in F16": (
        small_file(name="blk.0.attn_norm.weight", shape=(32,), value_type=1),
        "the tensor 'blk.0.attn_norm.weight' has the type 1, not 0 (F32); convert the model again",
    ),
    "a quantized bias": (
        small_file(name="blk.0.attn_q.bias", shape=(32,), value_type=8),
        "the tensor 'blk.0.attn_q.bias' has the type 8, not 0 (F32)",
    ),
    "a vocabulary that is not RWKV's": (
        small_file(
            pairs=[pair("tokenizer.ggml.model", 8, string("rwkv")), pair("tokenizer.ggml.tokens", 9, STRINGS)],
            tokenizer=False,
        ),
        "'rwkv', but the vocabulary is not RWKV's: it has no token for the byte 0x00",
    ),
    "no tokenizer": (small_file(tokenizer=False), "it has no tokenizer"),
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


def test_random_damage_to_a_header_never_escapes(tmp_path):
    rng = random.Random(5)
    whole = GOOD["metadata of every kind"]
    path = tmp_path / "m.gguf"
    outcomes = {"passed": 0, "refused": 0}
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data) - 128)] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.3 else len(data)])
        try:
            check_gguf(path)
            outcomes["passed"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 30


def test_tensor_sizes_are_those_of_ggml():
    from llama_cpp._ggml import libggml

    libggml.ggml_blck_size.restype = ctypes.c_int64
    libggml.ggml_type_size.restype = ctypes.c_size_t
    sizes = {
        value_type: (libggml.ggml_blck_size(value_type), libggml.ggml_type_size(value_type))
        for value_type in TENSOR_TYPES
    }
    assert sizes == TENSOR_TYPES


READERS = {
    "check_gguf": check_gguf,
    "read_metadata": read_metadata,
    "read_facts": read_facts,
    "check_files": lambda path: check_files(Path(path), LoadOptions()),
    "Model.load": lambda path: Model.load(path, n_ctx=16).close(),
}
NO_FILES = {"missing": "none.gguf", "folder": ".", "a name with a NUL": "a\0b.gguf", "too long": "x" * 5000}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_is_a_path_or_its_name(pruned_model, read):
    assert read(str(pruned_model)) == read(pruned_model)
    assert resolve_model(pruned_model) == resolve_model(str(pruned_model)) == pruned_model


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", NO_FILES.values(), ids=NO_FILES)
def test_a_file_that_cannot_be_read_is_a_model_error(name, read, kind):
    with pytest.raises(ModelError) as caught:
        read(kind(name))
    assert name not in ("none.gguf", ".") or re.search("there is no such file|this is a folder", str(caught.value))


KINDS = {
    "safetensors": (b'\x40\x01\0\0\0\0\0\0{"__metadata__":{}}', "safetensors"),
    "a page in lower case": (b"\n<!doctype html><html>", "web page"),
    "JSON": (b'{"error": "not found"}', "JSON"),
    "gzip": (b"\x1f\x8b\x08", "gunzip"),
    "PyTorch": (b"\x80\x02ctorch", "PyTorch"),
    "a sentence": (b"Entry not found", "no such file"),
    "XML": (b'<?xml version="1.0"?><Error>', "error page"),
}


@pytest.mark.parametrize(("data", "words"), KINDS.values(), ids=KINDS)
def test_files_that_are_no_models(tmp_path, data, words):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=words):
        check_is_model(path)


@pytest.mark.parametrize("name", ["x.gguf", "x-00002-of-00003.gguf", "x-00001-of-00002.gguf"])
def test_the_first_part_under_another_name(tmp_path, name):
    path = write_tiny(tmp_path / name, split__no=0, split__count=3)
    with pytest.raises(ModelError, match=r"00001-of-00003\.gguf"):
        check_is_model(path)


def test_another_part_under_another_name(tmp_path):
    with pytest.raises(ModelError, match="part 2 of 3"):
        check_is_model(write_tiny(tmp_path / "x.gguf", split__no=1, split__count=3))
