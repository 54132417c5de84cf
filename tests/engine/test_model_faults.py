"""Models on which llama.cpp alone would end the process or never return: each is one sentence."""

import gguf
import numpy as np
import pytest
from logitsmith.engine import Model, ModelError
from logitsmith.engine.native.binding import set_log_sink

from .small_models import make_metadata, make_vocabulary, random_tensors, tensor_shapes, write_file, write_model

REFUSED_AT_LOADING = {
    "duplicate tokens": (
        {"tokenizer.ggml.tokens": ["a", "b", "a", *map(str, range(258))]},
        "its vocabulary holds 'a' twice, as tokens 0 and 2; convert the model again",
    ),
    "experts, but none is used": (
        {"llama.expert_count": 4},
        "llama.expert_count is 4, and llama.expert_used_count is 0 or missing",
    ),
    "too many expert groups": (
        {"llama.expert_count": 4, "llama.expert_used_count": 2, "llama.expert_group_count": 4},
        "llama.expert_group_count is 4, and llama.expert_count only 4",
    ),
    "expert groups of two sizes": (
        {"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_group_count": 3},
        "llama.expert_group_count is 3, which does not divide llama.expert_count, 8",
    ),
    "all expert groups are used": (
        {
            "llama.expert_count": 4,
            "llama.expert_used_count": 2,
            "llama.expert_group_count": 2,
            "llama.expert_group_used_count": 2,
        },
        r"llama.expert_group_used_count is 2, not within 1\.\.1",
    ),
    "an unknown tokenizer": ({"tokenizer.ggml.model": "new"}, "unknown tokenizer: 'new'"),
    "an unknown pre-tokenizer": ({"tokenizer.ggml.pre": "new"}, "unknown pre-tokenizer type: 'new'"),
    "no merges": ({"tokenizer.ggml.merges": None}, "cannot find tokenizer merges"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "cannot find tokenizer vocab"),
    "a vocabulary that is not RWKV's": ({"tokenizer.ggml.model": "rwkv"}, "it has no token for the byte 0x"),
    "an unknown architecture": ({"general.architecture": "new"}, "unknown model architecture: 'new'"),
    "a diffusion model": ({"general.architecture": "dream"}, "key not found in model: dream"),
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "m.gguf"
    return random_tensors(tensor_shapes(path, make_metadata("llama")))


@pytest.mark.parametrize(("changes", "message"), REFUSED_AT_LOADING.values(), ids=REFUSED_AT_LOADING)
def test_refused_at_loading(tmp_path, weights, changes, message):
    path = tmp_path / "m.gguf"
    write_file(path, make_metadata("llama") | changes, weights)
    with pytest.raises(ModelError, match=message) as caught:
        Model.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def load_unknown_architecture(folder, weights):
    write_file(folder / "m.gguf", make_metadata("llama") | {"general.architecture": "new"}, weights)
    Model.load(folder / "m.gguf")


def make_refused_context(folder, _weights):
    heads = {"llama.attention.head_count": 8, "llama.attention.head_count_kv": 8, "llama.rope.dimension_count": 16}
    metadata = make_metadata("llama") | heads  # of 16 numbers, and the blocks of q8_0 have 32
    write_file(folder / "m.gguf", metadata, random_tensors(tensor_shapes(folder / "m.gguf", metadata)))
    with Model.load(folder / "m.gguf", n_ctx=64, cache_type_k="q8_0") as model:
        model.context  # noqa: B018 - it is made at the first look


def load_adapter_of_another_model(folder, weights):
    write_file(folder / "m.gguf", make_metadata("llama"), weights)
    lora = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    write_file(folder / "a.gguf", lora | {"adapter.lora.alpha": 4.0}, {"w": np.zeros((4, 32), dtype=np.float32)})
    Model.load(folder / "m.gguf", lora=[(folder / "a.gguf", 1.0)])


REFUSED = {
    "a model": (
        load_unknown_architecture,
        "could not load the model: llama_model_load: error loading model: unknown",
    ),
    "a context": (make_refused_context, "64 tokens: llama_init_from_model: K cache type q8_0 with block size 32"),
    "an adapter": (load_adapter_of_another_model, "could not load this adapter: llama_adapter_lora_init"),
}


@pytest.mark.parametrize(("refused", "message"), REFUSED.values(), ids=REFUSED)
def test_a_reason_does_not_begin_with_a_warning_about_an_earlier_model(tmp_path, weights, refused, message):
    path = tmp_path / "earlier.gguf"
    write_file(path, make_metadata("llama"), weights)
    logged = []
    set_log_sink(logged.append)
    try:
        with Model.load(path, n_ctx=1024) as model:
            model.context  # noqa: B018 - it is made at the first look
    finally:
        set_log_sink(None)
    assert "possible training context overflow" in "".join(logged)
    with pytest.raises(ModelError) as caught:
        refused(tmp_path, weights)
    assert message in str(caught.value)
    assert "overflow" not in str(caught.value)


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q8_0"])
def test_a_norm_that_is_not_in_f32(tmp_path, weights, quantization):
    changed = gguf.GGMLQuantizationType[quantization]
    path = tmp_path / "m.gguf"
    name = "blk.0.attn_norm.weight"
    write_file(path, make_metadata("llama"), weights | {name: (weights[name], changed)})
    with pytest.raises(ModelError, match=rf"the tensor '{name}' has the type \d+, not 0 \(F32\)"):
        Model.load(path)


def without_bytes(*more):
    """A SentencePiece vocabulary of some letters, a space, and no bytes."""
    tokens = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "é", *more]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6 if "<0x" in token else 1 for token in tokens[3:]],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "llama.vocab_size": len(tokens),
    }


@pytest.fixture(scope="module")
def model_without_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m.gguf"
    write_model(path, "llama", "llama", without_bytes())
    with Model.load(path, n_ctx=64) as model:
        yield model


@pytest.mark.parametrize(("text", "pieces"), [("ab é", [" ", "ab", " ", "é"]), ("b", [" ", "b"]), ("", [])])
def test_sentencepiece_without_bytes_reads_what_it_has_tokens_for(model_without_bytes, text, pieces):
    vocabulary = model_without_bytes.vocabulary
    tokens = vocabulary.tokenize(text.encode())
    assert [vocabulary.piece(token).decode() for token in tokens] == pieces
    assert vocabulary.tokenize_prompt(text.encode()) == [vocabulary.bos, *tokens]


@pytest.mark.parametrize("character", ["c", "A", "ü", "中", "\n", "😀"])
def test_sentencepiece_without_bytes_names_what_it_cannot_read(model_without_bytes, character):
    with pytest.raises(ModelError) as caught:
        model_without_bytes.vocabulary.tokenize(f"ab{character}".encode())
    assert str(caught.value) == f"the model's vocabulary has no token for {character!r}, nor for its bytes"


def test_sentencepiece_with_bytes_in_any_order(tmp_path):
    bytes_backwards = [f"<0x{byte:02X}>" for byte in range(255, -1, -1)]
    path = write_model(tmp_path / "m.gguf", "llama", "llama", without_bytes(*bytes_backwards))
    with Model.load(path, n_ctx=64) as model:
        vocabulary = model.vocabulary
        pieces = [vocabulary.piece(token) for token in vocabulary.tokenize("ü".encode())]
        assert pieces == [b" ", b"\xc3", b"\xbc"]


def vocabulary_of(count):
    """The default ids of some special tokens are outside of so small a vocabulary."""
    return {
        "tokenizer.ggml.tokens": [f"{i:02}" for i in range(count)],
        "tokenizer.ggml.token_type": [1] * count,
        "tokenizer.ggml.scores": [0.0] * count,
        **{f"tokenizer.ggml.{name}_token_id": None for name in ("bos", "eos", "cls", "mask", "padding")},
        **{f"tokenizer.ggml.{name}_token_id": None for name in ("seperator", "unknown")},
        "llama.vocab_size": count,
    }


ENDS = {
    "no beginning": ("llama", 1, {}, "adds the token 'bos' to each text, but its vocabulary has none"),
    "no end": ("llama", 2, {"tokenizer.ggml.add_eos_token": True}, "adds the token 'eos'"),
    "no beginning, byte-level": ("gpt2", 5, {"tokenizer.ggml.add_bos_token": True}, "adds the token 'bos'"),
    "no beginning, WordPiece": ("bert", 50, {}, "adds the token 'bos'"),
    "no separator, WordPiece": ("bert", 102, {}, "adds the token 'sep'"),
}


@pytest.mark.parametrize(("tokenizer", "count", "changes", "message"), ENDS.values(), ids=ENDS)
def test_a_token_at_the_ends_that_the_vocabulary_lacks(tmp_path, tokenizer, count, changes, message):
    path = write_model(tmp_path / "m.gguf", "llama", tokenizer, vocabulary_of(count) | changes)
    with Model.load(path, n_ctx=64) as model, pytest.raises(ModelError, match=message):
        model.vocabulary.tokenize_prompt(b"")


def test_text_that_no_token_covers(tmp_path):
    path = write_model(tmp_path / "m.gguf", "llama", "bert", vocabulary_of(50))
    message = "has no token for a part of the text, nor one for unknown text"
    with Model.load(path, n_ctx=64) as model, pytest.raises(ModelError, match=message):
        model.vocabulary.tokenize("中".encode())


def test_small_vocabularies_are_as_llama_cpp_reads_them(tmp_path):
    for tokenizer in ("gpt2", "llama", "rwkv", "t5"):
        path = write_model(tmp_path / f"{tokenizer}.gguf", "llama", tokenizer)
        with Model.load(path, n_ctx=64) as model:
            assert model.vocabulary.size == len(make_vocabulary(tokenizer)["tokenizer.ggml.tokens"])
            text = "hello in thé"
            tokens = model.vocabulary.tokenize(text.encode())
            if tokenizer != "t5":  # it has no bytes
                assert model.vocabulary.detokenize(tokens).decode().strip() == text
            model.context.read(tokens)
            assert np.isfinite(model.context.logits()).all()
