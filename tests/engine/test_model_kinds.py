"""GGUF files that are not a decoder-only model: each is refused with a sentence. And files in several parts."""

import re
import struct

import gguf
import numpy as np
import pytest
from logitsmith.cli.messages import FLAGS
from logitsmith.engine import Model, ModelError, generate
from logitsmith.samplers import build

from .models_page import SENTENCES
from .small_models import make_metadata, make_vocabulary, random_tensors, tensor_shapes, write_file, write_model

EMBEDDING = "this model does not write text (an embedding or encoder model)"
OTHER_MODELS = {
    "BERT": ("bert", "bert", {"bert.attention.causal": False, "tokenizer.ggml.token_type_count": 2}, EMBEDDING),
    "ModernBERT": ("modern-bert", "gpt2", {"modern-bert.attention.causal": False}, EMBEDDING),
    "an embedding model of Gemma": (
        "gemma-embedding",
        "llama",
        {"gemma-embedding.attention.causal": False},
        EMBEDDING,
    ),
    "encoder of T5": ("t5encoder", "t5", {}, EMBEDDING),
    "T5": (
        "t5",
        "t5",
        {},
        "this is an encoder-decoder model, whose encoder gen cannot run; give a decoder-only model",
    ),
    "a diffusion model": (
        "dream",
        "gpt2",
        {"dream.attention.causal": False},
        "this is a diffusion model, which does not write token by token; give another model",
    ),
}


@pytest.mark.parametrize(
    ("architecture", "tokenizer", "changes", "message"), OTHER_MODELS.values(), ids=OTHER_MODELS
)
def test_other_models(tmp_path, architecture, tokenizer, changes, message):
    path = write_model(tmp_path / "m.gguf", architecture, tokenizer, changes)
    with pytest.raises(ModelError) as caught:
        Model.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


ONE_TENSOR = {"w": np.zeros((4, 32), dtype=np.float32)}
OTHER_FILES = {
    "a projector": (
        {"general.architecture": "clip", "general.type": "mmproj"},
        ONE_TENSOR,
        "this is a projector for images or sound; give the model that it belongs to",
    ),
    "an old projector": (
        {"general.architecture": "clip"},
        ONE_TENSOR,
        "this is a projector for images or sound; give the model that it belongs to",
    ),
    "a LoRA adapter": (
        {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"},
        ONE_TENSOR,
        "this is an adapter; give it with lora=…, and the model that it was made for with path=…",
    ),
    "an importance matrix": (
        {"general.architecture": "llama", "general.type": "imatrix"},
        ONE_TENSOR,
        "this is an importance matrix, which is used to quantize a model; give a model",
    ),
    "a vocabulary": (
        {"general.architecture": "llama"} | make_vocabulary("gpt2"),
        {},
        "this is a vocabulary without tensors; give a whole model",
    ),
    "another program's model": (
        {"general.architecture": "sd1"},
        ONE_TENSOR,
        "it has no tokenizer (tokenizer.ggml.model), so it can neither read nor write text",
    ),
    "an architecture of the future": (
        {"general.architecture": "new"} | make_vocabulary("gpt2"),
        ONE_TENSOR,
        "unknown model architecture: 'new'",
    ),
}


LATER_PART = "this is part 2 of 2 of a model; give the first part, which ends in -00001-of-00002.gguf"
BIG_ENDIAN = "damaged GGUF file: it is big-endian; convert it with `gguf-convert-endian FILE little`"
VERSIONS = {
    1: "damaged GGUF file: version 1 is not 2 or 3; convert the model again",
    4: "damaged GGUF file: version 4 is not 2 or 3; another version of llama.cpp wrote it",
}


def test_the_manual_has_these_sentences():
    of_files = {message for *_, message in (*OTHER_MODELS.values(), *OTHER_FILES.values())}
    sentences = of_files | {LATER_PART, BIG_ENDIAN, *VERSIONS.values()}
    for word, flag in FLAGS.items():
        sentences = {sentence.replace(word, flag) for sentence in sentences}
    assert set(SENTENCES.values()) == sentences


@pytest.mark.parametrize(("metadata", "tensors", "message"), OTHER_FILES.values(), ids=OTHER_FILES)
def test_other_files(tmp_path, metadata, tensors, message):
    path = tmp_path / "m.gguf"
    write_file(path, metadata, tensors)
    with pytest.raises(ModelError) as caught:
        Model.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def write_parts(folder):
    """A model in two files, as llama.cpp splits them."""
    metadata = make_metadata("llama")
    tensors = list(random_tensors(tensor_shapes(folder / "m.gguf", metadata)).items())
    paths = [folder / f"m-{part:05}-of-00002.gguf" for part in (1, 2)]
    half = len(tensors) // 2
    for part, (path, some) in enumerate(zip(paths, (tensors[:half], tensors[half:]), strict=True)):
        split = {
            "split.no": np.uint16(part),
            "split.count": np.uint16(2),
            "split.tensors.count": np.int32(len(tensors)),
        }
        write_file(path, ({"general.architecture": "llama"} if part else metadata) | split, dict(some))
    return paths


def test_a_model_in_parts(tmp_path):
    first, second = write_parts(tmp_path)
    with Model.load(first, n_ctx=64, threads=1) as model:
        *_, done = generate(model, "hello", build("greedy"), max_tokens=3)
        assert done.completion_tokens == 3
    Model.load(second, n_ctx=64, threads=1).close()
    alone = tmp_path / "alone"
    alone.mkdir()
    later = second.rename(alone / second.name)
    with pytest.raises(ModelError, match=re.escape(f"{later}: {LATER_PART}")):
        Model.load(later)
    with pytest.raises(ModelError, match=r"m-00002-of-00002.gguf"):
        Model.load(first)


def test_big_endian(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match=re.escape(f"{path}: {BIG_ENDIAN}")):
        Model.load(path)


@pytest.mark.parametrize(("version", "message"), VERSIONS.items())
def test_other_versions(tmp_path, version, message):
    path = write_model(tmp_path / "m.gguf", "llama")
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", version)
    path.write_bytes(data)
    with pytest.raises(ModelError, match=re.escape(f"{path}: {message}")):
        Model.load(path)
