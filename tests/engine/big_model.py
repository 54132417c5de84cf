"""A llama model with random weights, small except for its vocabulary."""

import gguf
import numpy as np


def write_model(path, vocabulary, width=64, heads=2):
    """Write a GGUF file with one layer and this many tokens: t0, t1, …."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(vocabulary)])
    writer.add_token_types([1] * vocabulary)
    writer.add_token_merges(["t 0"])
    shapes = {
        "token_embd": (vocabulary, width),
        "output": (vocabulary, width),
        "blk.0.attn_q": (width, width),
        "blk.0.attn_k": (width, width),
        "blk.0.attn_v": (width, width),
        "blk.0.attn_output": (width, width),
        "blk.0.ffn_gate": (2 * width, width),
        "blk.0.ffn_up": (2 * width, width),
        "blk.0.ffn_down": (width, 2 * width),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape).astype(np.float16))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
