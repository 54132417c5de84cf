"""The machine that `gen` runs on, and limits that are compiled into llama.cpp.

Flags and the engine share these limits. They are defined here because ``--help`` must not load the engine.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

INT32_MAX = 2**31 - 1
"""llama.cpp's counts and token ids are 32-bit integers."""
SEED_MAX = 2**32 - 1
"""A seed is an unsigned 32-bit integer."""
MAX_THREADS = 512
"""GGML_MAX_N_THREADS: with more threads, llama.cpp ends the process."""
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ: the maximum number of sequences in one context of llama.cpp."""
MAX_GUIDANCE_SCALE = 100.0
"""Greatest scale of guidance, up or down. Far larger products would exceed float32."""
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""The data types of llama.cpp's cache of keys and values (kv_cache_types)."""
ROPE_SCALINGS = ("none", "linear", "yarn")
"""The kinds of RoPE scaling that llama.cpp's flag accepts."""
SPLIT_MODES = ("none", "layer", "row", "tensor")
"""The ways in which llama.cpp divides a model among GPUs."""
NUMA_STRATEGIES = ("distribute", "isolate", "numactl")
"""The ways in which llama.cpp uses several NUMA nodes."""


def describe_machine() -> dict[str, Any]:
    """Return a description of the system, the processor, and the memory in bytes; None for unknown values."""
    return {
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "hardware_threads": os.cpu_count(),
        "usable_threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _page_count_in_bytes("SC_PHYS_PAGES"),
        "available_memory_bytes": _available_memory_bytes(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _page_count_in_bytes(setting: str) -> int | None:
    try:
        return os.sysconf(setting) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _available_memory_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def shorten_home(value: Any) -> Any:
    """Return a value of JSON in which each string has ``~`` for the user's home folder."""
    home = str(Path.home())
    if isinstance(value, dict):
        return {key: shorten_home(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shorten_home(item) for item in value]
    return value.replace(home, "~") if isinstance(value, str) and home != os.sep else value
