"""Limits and names that are compiled into llama.cpp, for flags too: `--help` must not load the engine."""

INT32_MAX = 2**31 - 1  # llama.cpp's counts and token ids are 32-bit integers
MAX_THREADS = 512  # GGML_MAX_N_THREADS: with more threads, llama.cpp ends the process
MAX_SLOTS = 256  # LLAMA_MAX_SEQ: the maximum number of sequences in one context of llama.cpp
# the data types of llama.cpp's cache of keys and values (kv_cache_types), with their numbers in ggml (ggml_type)
CACHE_TYPES = {
    "f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "iq4_nl": 20, "q5_0": 6, "q5_1": 7,
}  # fmt: skip
FLASH_ATTENTION_MODES = ("on", "off", "auto")  # auto: flash attention is used if the model supports it
ROPE_SCALINGS = ("none", "linear", "yarn")  # the kinds of RoPE scaling that llama.cpp's flag accepts
SPLIT_MODES = ("none", "layer", "row", "tensor")  # the ways in which llama.cpp divides a model among GPUs
NUMA_STRATEGIES = ("distribute", "isolate", "numactl")  # the ways in which llama.cpp uses several NUMA nodes
# Greatest scale of a negative prompt, up or down. Far larger products would exceed float32, the type of logits.
MAX_GUIDANCE_SCALE = 100.0
