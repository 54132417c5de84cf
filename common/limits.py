"""Numbers that llama.cpp is built with. Flags and the engine share them, and ``--help`` loads no engine."""

INT32_MAX = 2**31 - 1
"""llama.cpp's counts and token ids are 32-bit integers."""
SEED_MAX = 2**32 - 1
"""A seed is an unsigned 32-bit integer."""
MAX_THREADS = 512
"""GGML_MAX_N_THREADS: llama.cpp ends the process on more."""
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ: how many sequences llama.cpp can hold in one context."""
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""The number formats of llama.cpp's cache of keys and values (kv_cache_types)."""
ROPE_SCALINGS = ("none", "linear", "yarn")
"""The scalings of RoPE that llama.cpp's flag takes."""
SPLIT_MODES = ("none", "layer", "row", "tensor")
"""How llama.cpp divides a model among GPUs."""
NUMA_STRATEGIES = ("distribute", "isolate", "numactl")
"""How llama.cpp uses several NUMA nodes."""
