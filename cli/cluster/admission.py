"""Whether a worker may join: it must compute what the others compute."""

from __future__ import annotations

from typing import Any

from ...engine.generation import versions


class Admission:
    """Compares each worker with this machine's versions, and with the first worker's model and kernels.

    Args:
        needs_same_kernels: refuse a worker whose processor computes other logits than the first one's.
    """

    def __init__(self, needs_same_kernels: bool) -> None:
        self._needs_same_kernels = needs_same_kernels
        self._first: dict[str, Any] | None = None
        self.has_other_kernels = False

    def __call__(self, facts: dict[str, Any]) -> str | None:
        """Return why a worker may not join; None if it may."""
        for name, here in versions().items():
            there = facts["versions"].get(name)
            if there != here:
                return f"it has {name} {there}, and this machine has {here}; install the same there"
        if self._first is None:
            self._first = facts
            return None
        if facts["model"].identity != self._first["model"].identity:
            return "its file of the model is another one, or it computes with other settings"
        if facts["kernels"] == self._first["kernels"]:
            return None
        if self._needs_same_kernels:
            first, this = self._first["worker"]["cpu"], facts["worker"]["cpu"]
            return (
                f"--deterministic: its processor ({this}) computes other logits than the first worker's ({first})"
            )
        self.has_other_kernels = True
        return None
