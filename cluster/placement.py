"""How many workers a cluster has room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .errors import ClusterError


@dataclass(frozen=True)
class WorkerNeeds:
    """What a worker takes of its node: processors, GPUs, and bytes of memory."""

    cpus: int
    gpus: float
    memory_bytes: int

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus} CPU{gpus} and {self.memory_bytes / 1e9:.1f} GB"


def workers_that_fit(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> int:
    """Return how many workers fit on nodes, each given by its resources under Ray's names."""
    return sum(_fit_on(node, needs) for node in nodes)


def no_room(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> ClusterError:
    """Return the error for nodes on which not one worker fits."""
    largest = max((_describe(node) for node in nodes), default="none")
    return ClusterError(
        f"a worker needs {needs}, and no node of the cluster has that (there is {largest}); "
        f"see --cpus-per-worker, --parallel and -c"
    )


def _fit_on(node: Mapping[str, float], needs: WorkerNeeds) -> int:
    room = [node.get("CPU", 0) // needs.cpus, node.get("memory", 0) // needs.memory_bytes]
    if needs.gpus:
        room.append(node.get("GPU", 0) // needs.gpus)
    return int(min(room))


def _describe(node: Mapping[str, float]) -> str:
    return f"{node.get('CPU', 0):g} CPU and {node.get('memory', 0) / 1e9:.1f} GB"
