"""How a recovery is run, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .basis.basis import Basis
from .errors import RecoverError
from .numerics import Float64s


@dataclass(frozen=True)
class RecoverySettings:
    """How a recovery is run.

    ``basis``: for the method of that name. ``eps``: the error that bisection stops at, nats. ``tolerance``: the
    largest error on held-out tokens, nats, with which a basis is believed. ``repeats``: how often each question is
    asked, to average (default: 1, or 4 if the answers differ). ``max_calls``: stop after so many new calls.
    ``in_flight``: calls at once. ``checkpoint``: a file that keeps each answer; ``resume``: go on with it.
    ``progress``: called with tokens known and tokens wanted. ``interrupted``: asked all along; True ends the run.
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
        """Raise ``RecoverError`` for what cannot be."""
        for name, value, least in (
            ("repeats", self.repeats, 1),
            ("max_calls", self.max_calls, 1),
            ("in_flight", self.in_flight, 1),
        ):
            if value is not None and value < least:
                raise RecoverError(f"{name}: {value} is not ≥ {least}")
        for name, number in (("eps", self.eps), ("tolerance", self.tolerance)):
            if not 0 < number < float("inf"):
                raise RecoverError(f"{name}: {number} is not a number > 0")
        if self.resume and self.checkpoint is None:
            raise RecoverError("resume: there is no checkpoint to go on with; name one")


@dataclass(frozen=True)
class Recovery:
    """What was recovered.

    ``logprobs``: float64 (V,), nats, NaN where a token was not asked for or not found. ``errors``: the error
    estimated for each, float64 (V,); ``error``: the largest of them. ``queries``: calls behind it, those of a
    checkpoint included; ``sent``: calls of this run. ``method``: the one that was used. ``complete``: every token
    that was asked for is there. ``normalised``: False where values are relative to the likeliest token (a part of
    the vocabulary by bisection). ``notes``: what was found out on the way. ``pieces``: bytes of tokens, as far as
    known. ``stopped``: why it ended early, if so: ``max_calls`` or ``interrupted``.
    """

    logprobs: Float64s
    errors: Float64s
    error: float
    queries: int
    sent: int
    method: str
    complete: bool
    normalised: bool = True
    notes: tuple[str, ...] = ()
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    stopped: str | None = None
