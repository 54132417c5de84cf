"""A llama model with random weights, small except for its vocabulary."""

import gguf
import numpy as np


def write_sentencepiece_model(path, adds_bos):
    """Write a small model whose vocabulary is SentencePiece's: all bytes, letters, and the sign for a space."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"Thesa.", "\u2581T"]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)

    def add_tokenizer(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_scores([float(len(token)) for token in tokens])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(adds_bos)

    write_model(path, len(tokens), add_tokenizer=add_tokenizer)


def write_model(
    path,
    vocabulary,
    width=64,
    heads=2,
    layers=1,
    has_output=True,
    scale=1.0,
    experts=0,
    add_tokenizer=None,
    feed_forward=None,
    kv_heads=None,
):
    """Write a GGUF file in F16 with this many tokens: t0, t1, …, unless ``add_tokenizer`` writes others.

    Without an output matrix (``has_output``) the model uses its embeddings, as many small models do. ``scale`` is
    the standard deviation of the weights. With ``experts``, each token is sent to two of them. Feed-forward layers
    are twice as wide as the others, and keys have as many heads as queries, unless arguments say otherwise.
    """
    feed_forward = feed_forward or 2 * width
    kv_heads = kv_heads or heads
    kv_width = width // heads * kv_heads
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    writer.add_vocab_size(vocabulary)
    if add_tokenizer is None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([f"t{i}" for i in range(vocabulary)])
        writer.add_token_types([1] * vocabulary)
        writer.add_token_merges(["t 0"])
    else:
        add_tokenizer(writer)
    shapes = {"token_embd": (vocabulary, width)}
    if has_output:
        shapes["output"] = (vocabulary, width)
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_q": (width, width),
            f"blk.{layer}.attn_k": (kv_width, width),
            f"blk.{layer}.attn_v": (kv_width, width),
            f"blk.{layer}.attn_output": (width, width),
        }
        kind, dimensions = ("_exps", (experts,)) if experts else ("", ())
        shapes |= {
            f"blk.{layer}.ffn_gate{kind}": (*dimensions, feed_forward, width),
            f"blk.{layer}.ffn_up{kind}": (*dimensions, feed_forward, width),
            f"blk.{layer}.ffn_down{kind}": (*dimensions, width, feed_forward),
        }
        if experts:
            shapes[f"blk.{layer}.ffn_gate_inp"] = (experts, width)
    for name, shape in shapes.items():
        weights = random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float16))
    norms = [f"blk.{layer}.{name}_norm" for layer in range(layers) for name in ("attn", "ffn")]
    for name in ("output_norm", *norms):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
