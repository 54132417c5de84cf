"""llama.cpp's optimisations for machines with several NUMA nodes."""

from __future__ import annotations

from pathlib import Path

from ..common.machine import NUMA_STRATEGIES
from ..models.errors import ModelError
from . import native_log  # noqa: F401 - it starts llama.cpp's back ends
from .native_binding import lib

_STRATEGY_IDS = dict(zip(NUMA_STRATEGIES, (1, 2, 3), strict=True))
"""ggml_numa_strategy, see ggml-cpu.h."""
_NODES = Path("/sys/devices/system/node")


def numa_nodes() -> int:
    """How many NUMA nodes Linux shows; 1 elsewhere, where llama.cpp knows no nodes."""
    return max(1, len(list(_NODES.glob("node[0-9]*"))))


def use_numa(strategy: str) -> bool:
    """Choose on which nodes this process computes, before a model is loaded; llama.cpp takes the first choice.

    ``strategy``: ``distribute`` (evenly over all nodes), ``isolate`` (on the node that this runs on) or
    ``numactl`` (as numactl says). Returns False if there is one node only, so that nothing changes. Raises
    ``ModelError``.
    """
    if strategy not in _STRATEGY_IDS:
        raise ModelError(f"numa: {strategy!r} is not one of {', '.join(NUMA_STRATEGIES)}")
    if numa_nodes() < 2:
        return False
    lib.llama_numa_init(_STRATEGY_IDS[strategy])
    return True
