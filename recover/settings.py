"""How a recovery is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .basis.basis import Basis
from .errors import RecoverError


@dataclass(frozen=True)
class RecoverySettings:
    """How a recovery is run.

    Args:
        basis: for the method of that name.
        eps: the error at which bisection stops, nats.
        tolerance: the largest error on held-out tokens with which a basis is used, nats.
        repeats: how often each question is asked, to average; None: once, or 4 times if the answers differ.
        max_calls: stop after so many new calls; None: no limit.
        in_flight: calls at once.
        checkpoint: a file that stores each answer.
        resume: continue with the checkpoint.
        progress: called with the number of recovered and of requested tokens.
        interrupted: asked again and again; True ends the run.
    """

    basis: Basis | None = None
    eps: float = 1e-3
    tolerance: float = 0.01
    repeats: int | None = None
    max_calls: int | None = None
    in_flight: int = 1
    checkpoint: Path | None = None
    resume: bool = False
    progress: Callable[[int, int], None] | None = None
    interrupted: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raise ``RecoverError`` for a value out of range."""
        for name, count in (
            ("repeats", self.repeats),
            ("max_calls", self.max_calls),
            ("in_flight", self.in_flight),
        ):
            if count is not None and count < 1:
                raise RecoverError(f"{name}: {count} is not ≥ 1")
        for name, number in (("eps", self.eps), ("tolerance", self.tolerance)):
            if not 0 < number < float("inf"):
                raise RecoverError(f"{name}: {number} is not a number > 0")
        if self.resume and self.checkpoint is None:
            raise RecoverError("resume: there is no checkpoint to go on with; name one")
