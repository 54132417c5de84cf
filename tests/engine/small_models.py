"""Models of random weights in every architecture of llama.cpp, of a few megabytes, with a vocabulary of bytes.

llama.cpp itself says which tensors an architecture has: `llama_model_init_from_user` makes a model from metadata.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import llama_cpp.llama_cpp as lib
import numpy as np
from llama_cpp._ggml import libggml
from logitsmith.engine.native.binding import pop_last_error

WIDTH, HEADS, LAYERS, HIDDEN, CONTEXT_TOKENS, EXPERTS = 128, 2, 2, 192, 512, 4
HEAD_WIDTH = WIDTH // HEADS

HYBRID = ("jamba", "plamo2", "granitehybrid", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "kimi-linear")
"""Architectures in which a layer without heads is a recurrent one."""
MIXTURES = frozenset(
    [
        "llama4",
        "qwen2moe",
        "qwen3moe",
        "phimoe",
        "dbrx",
        "olmoe",
        "arctic",
        "deepseek",
        "deepseek2",
        "grok",
        "gpt-oss",
        "glm4moe",
        "bailingmoe",
        "bailingmoe2",
        "dots1",
        "hunyuan-moe",
        "ernie4_5-moe",
        "granitemoe",
        "lfm2moe",
        "nemotron_h_moe",
        "smallthinker",
        "llada-moe",
        "grovemoe",
        "minimax-m2",
        "rnd1",
        "exaone-moe",
        "afmoe",
        "qwen3next",
        "qwen35moe",
        "qwen3vlmoe",
        "mimo2",
        "mistral4",
        "kimi-linear",
        "step35",
        "jamba",
    ]
)
SHORT_SHIFT = ("rwkv6qwen2", "arwkv7")
"""RWKV in place of a transformer's attention: llama.cpp knows it by the missing ``time_mix_first``."""
LATENT_ATTENTION = ("deepseek2", "deepseek2-ocr", "kimi-linear", "mistral4", "glm-dsa")
"""Architectures whose keys and values share one latent vector."""

BYTE_CHARACTERS = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256))]
"""The characters that byte-level vocabularies keep; the other bytes get characters from U+0100 on."""


def write_model(
    path: Path, architecture: str, tokenizer: str = "gpt2", changes: Mapping[str, object] = MappingProxyType({})
) -> Path:
    """Write a model; returns its path.

    Args:
        path: The GGUF file.
        architecture: llama.cpp's name of it.
        tokenizer: ``gpt2``, ``llama`` (SentencePiece), ``bert``, ``t5``, ``rwkv`` or ``plamo2``.
        changes: Other values of metadata, by key. None removes a key.
    """
    metadata = make_metadata(architecture, tokenizer) | changes
    write_file(path, metadata, random_tensors(tensor_shapes(path, metadata)))
    return path


def make_metadata(architecture: str, tokenizer: str = "gpt2") -> dict[str, object]:
    """Metadata for a small model of an architecture; what one does not need is not read."""
    heads: object = HEADS if architecture not in HYBRID else [HEADS, 0]
    hidden: object = HIDDEN
    layers = {"llama4": 4, "gemma3n": 22, "gemma4": 5}.get(architecture, LAYERS)
    if architecture.startswith("nemotron_h"):  # attention, a recurrent layer, a feed-forward one
        layers, heads, hidden = 3, [HEADS, 0, 0], [0, 0, HIDDEN]
    values: dict[str, object] = {
        "context_length": CONTEXT_TOKENS,
        "embedding_length": WIDTH,
        "features_length": WIDTH,
        "block_count": layers,
        "feed_forward_length": hidden,
        "leading_dense_block_count": 1,
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.group_norm_epsilon": 1e-5,
        "attention.group_norm_groups": 8,
        "attention.max_alibi_bias": 8.0,
        "attention.clamp_kqv": 1.0,
        "attention.relative_buckets_count": 8,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": 2,
        "attention.q_lora_rank": 64,
        "attention.kv_lora_rank": 512,
        "rope.dimension_sections": [HEAD_WIDTH // 4] * 4,
        "use_parallel_residual": False,
        "logit_scale": 1.0,
        "residual_scale": 1.0,
        "embedding_scale": 1.0,
        "full_attention_interval": 2,
        "time_mix_extra_dim": 32,
        "token_shift_count": 1 if architecture in SHORT_SHIFT else 2,
        "time_decay_extra_dim": 32,
        "wkv.head_size": HEAD_WIDTH,
        "shortconv.l_cache": 3,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 2 * WIDTH,
        "ssm.state_size": 16 if architecture in ("mamba", "jamba") else 64,
        "ssm.time_step_rank": HEADS * 2,
        "ssm.group_count": 0 if architecture == "plamo2" else 1,
        "kda.head_dim": HEAD_WIDTH,
        "attention.decay_lora_rank": 32,
        "attention.iclr_lora_rank": 32,
        "attention.value_residual_mix_lora_rank": 32,
        "attention.gate_lora_rank": 32,
        "vocab_size": len(make_vocabulary(tokenizer)["tokenizer.ggml.tokens"]),
        "attention.indexer.head_count": 64,
        "attention.indexer.key_length": 128,
        "attention.indexer.top_k": 1024,
        "embedding_length_per_layer_input": WIDTH // 2,
    }
    if architecture in LATENT_ATTENTION:
        values |= {
            "attention.head_count": 1 if architecture not in HYBRID else [1, 0],
            "attention.head_count_kv": 1 if architecture not in HYBRID else [1, 0],
            "attention.key_length": 576,
            "attention.value_length": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
            "rope.dimension_count": 64,
        }
    if architecture in MIXTURES:
        values |= {
            "expert_count": EXPERTS,
            "expert_used_count": 2,
            "expert_shared_count": 1,
            "expert_feed_forward_length": HIDDEN,
            "expert_shared_feed_forward_length": HIDDEN,
            "expert_chunk_feed_forward_length": HIDDEN,
            "expert_gating_func": 2,
            "expert_weights_scale": 1.0,
            "interleave_moe_layer_step": 2,
            "moe_every_n_layers": 2,
            "experts_per_group": 1,
            "expert_group_scale": 1.0,
        }
    metadata: dict[str, object] = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in values.items()}
    metadata |= {f"xielu.{name}": 1.0 for name in ("alpha_n", "alpha_p", "beta", "eps")}
    return metadata | make_vocabulary(tokenizer)


def make_vocabulary(tokenizer: str) -> dict[str, object]:
    """Metadata of a vocabulary of all bytes, a few words, and what begins and ends a text."""
    letters = [chr(i) for i in range(33, 127)]
    words = ["he", "ll", "hello", "in", "th"]
    hexadecimal = [f"<0x{byte:02X}>" for byte in range(256)]
    if tokenizer == "gpt2":
        others = iter(range(256, 512))
        texts = [chr(b) if chr(b) in BYTE_CHARACTERS else chr(next(others)) for b in range(256)]
        tokens, types = [*texts, *words, "<s>", "</s>"], [1] * (256 + len(words)) + [3, 3]
    elif tokenizer == "bert":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        texts = [*(f"\u2581{letter}" for letter in letters), *letters]
        tokens, types = [*special, *texts, *words], [3] * 5 + [1] * (len(texts) + len(words))
    elif tokenizer == "rwkv":
        texts = [chr(b) if 32 <= b < 127 and chr(b) != "\\" else f"\\x{b:02x}" for b in range(256)]
        tokens, types = ["<s>", *texts, *words], [3] + [1] * (256 + len(words))
    else:
        texts = ["\u2581", *letters, *words]
        tokens, types = ["<unk>", "<s>", "</s>", *hexadecimal, *texts], [2, 3, 3] + [6] * 256 + [1] * len(texts)
    ids = {name: tokens.index(text) for name, text in (("bos", "<s>"), ("eos", "</s>")) if text in tokens}
    if tokenizer == "bert":
        ids |= {"unknown": 1, "cls": 2, "bos": 2, "seperator": 3, "padding": 0, "mask": 4}
    return {
        "tokenizer.ggml.model": tokenizer,
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [float(len(token)) for token in tokens],
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o", "i n", "t h"],
        **{f"tokenizer.ggml.{name}_token_id": token for name, token in ids.items()},
    }


def write_file(path: Path, metadata: dict[str, object], tensors: dict[str, object]) -> None:
    """Write a GGUF file; a tensor is an array, or an array with its quantization."""
    writer = gguf.GGUFWriter(path, str(metadata["general.architecture"]))
    for key, value in metadata.items():
        if key != "general.architecture" and value is not None:
            of_items = _type_of(value[0]) if isinstance(value, list) else None
            signed = gguf.GGUFValueType.INT32 if key == "tokenizer.ggml.token_type" else of_items
            writer.add_key_value(key, value, _type_of(value), signed)
    for name, tensor in tensors.items():
        array, quantization = tensor if isinstance(tensor, tuple) else (tensor, None)
        if quantization is None:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quantize(array, quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _type_of(value: object) -> gguf.GGUFValueType:
    numbers = {np.uint16: gguf.GGUFValueType.UINT16, np.int32: gguf.GGUFValueType.INT32}
    if type(value) in numbers:
        return numbers[type(value)]
    if isinstance(value, int) and not isinstance(value, bool):
        return gguf.GGUFValueType.UINT32 if value >= 0 else gguf.GGUFValueType.INT32
    return gguf.GGUFValueType.get_type(value)


class _InitParams(ctypes.Structure):
    """gguf_init_params, see gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def tensor_shapes(path: Path, metadata: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """The tensors that llama.cpp wants for this metadata, with their shapes in NumPy's order."""
    empty = path.with_suffix(".metadata")
    write_file(empty, metadata, {})
    libggml.gguf_init_from_file.restype = ctypes.c_void_p
    libggml.gguf_init_from_file.argtypes = (ctypes.c_char_p, _InitParams)
    context = libggml.gguf_init_from_file(os.fsencode(empty), _InitParams(True, None))
    empty.unlink()
    libggml.ggml_get_name.restype = ctypes.c_char_p
    libggml.ggml_get_name.argtypes = (ctypes.c_void_p,)
    shapes: dict[str, tuple[int, ...]] = {}

    @lib.llama_model_set_tensor_data_t
    def on_tensor(tensor: int, _data: object) -> None:
        address = ctypes.cast(tensor, ctypes.c_void_p).value or 0
        extents = list((ctypes.c_int64 * 4).from_address(address + 16))  # behind the type and a pointer
        while len(extents) > 1 and extents[-1] == 1:
            del extents[-1]
        shapes[libggml.ggml_get_name(address).decode()] = tuple(reversed(extents))

    model = lib.llama_model_init_from_user(context, on_tensor, None, lib.llama_model_default_params())
    if not model:
        raise ValueError(f"{metadata['general.architecture']}: {pop_last_error()}")
    lib.llama_model_free(model)
    if metadata["general.architecture"] in SHORT_SHIFT:
        return {name: shape for name, shape in shapes.items() if "time_mix_first" not in name}
    return shapes


def random_tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, object]:
    """Random weights: matrices in F16, all others in F32; norms are one."""
    random = np.random.default_rng(1)
    tensors: dict[str, object] = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)
        if name.endswith("norm.weight"):
            values = np.ones(shape, dtype=np.float32)
        elif "ssm_a" in name:  # a decay
            values = -np.abs(values)
        tensors[name] = values
    return tensors
