"""The state of one recovery: what is known of each token, and how the endpoint is asked for more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot, inf

import numpy as np
from numpy.typing import NDArray

from .endpoints.base import Bias, EndpointAnswer
from .numerics import Float64s
from .query_session import QuerySession
from .settings import RecoverySettings


@dataclass(frozen=True)
class EndpointProfile:
    """What a few calls showed of an endpoint.

    ``window``: logprobs shown; ``spread``: largest difference between two answers to one question, nats;
    ``tokens``: those that were drawn without a bias; ``moves``: a bias moves the logprobs as asked; ``together``:
    so do several in one call; ``chooses``: a bias chooses the token; ``forces``: it does, and the token's own
    logprob is named without the bias; ``max_bias``: the largest bias that is added as asked; ``step``: biases are
    multiples of it (0: any); ``lines``: all this in words.
    """

    window: int
    spread: float = 0.0
    tokens: tuple[int | None, ...] = ()
    moves: bool = False
    together: bool = True
    chooses: bool = False
    forces: bool = False
    max_bias: float = inf
    step: float = 0.0
    lines: tuple[str, ...] = ()

    @property
    def pointwise(self) -> str:
        """The cheapest method for single tokens that works."""
        if self.moves:
            return "parallel" if self.window > 1 and self.together else "single"
        return "forced" if self.forces else "bisection"


LOOK = 100
"""Questions between two looks at whether the endpoint still answers as it did."""
_LOOKS_FROM = 1 << 20
_ALIKE = 0.02


@dataclass
class RecoveryRun:
    """What methods work on.

    ``wanted``: the ids that are asked for, int (n,). ``logprobs``, ``errors``: float64 (V,), NaN where unknown.
    ``method``: as it was named, then as it was chosen. ``base``: the window without a bias, {id: logprob}.
    ``found``: what the probe said. ``turns``: how often each question is asked. ``trusted``: biases up to it were
    seen to be added in full. ``blocked``: ids that the endpoint cannot name. ``ceiling``: no token behind the base
    window can be likelier, nats; ``doubted``: ids whose answers say so, or contradict one another. ``nameless``:
    logprobs of likely tokens without a name.
    ``noise``: the standard deviation of the difference of two answered logprobs, nats; ``measured``: the relative
    error that answers were seen to have; ``drift``: by how much an answer changed in the course of the run, nats;
    ``watch``: finds that out, given the number of a turn, where what is shown without a bias does not tell it.
    """

    asker: QuerySession
    settings: RecoverySettings
    wanted: NDArray[np.intp]
    logprobs: Float64s
    errors: Float64s
    method: str
    base: dict[int, float] = field(default_factory=dict)
    found: EndpointProfile = field(default_factory=lambda: EndpointProfile(0))
    turns: int = 1
    trusted: float = 0.0
    blocked: frozenset[int] = frozenset()
    ceiling: float = inf
    doubted: set[int] = field(default_factory=set)
    noise: float = 0.0
    measured: float = 0.0
    drift: float = 0.0
    watch: Callable[[int], float] | None = None
    nameless: list[float] = field(default_factory=list)
    asked: int = 0
    normalised: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The relative error of a probability that the endpoint names."""
        return max(self.asker.endpoint.limits.precision, self.measured)

    @property
    def margin(self) -> float:
        """By how much two values of one logprob may differ, nats."""
        return max(_ALIKE, 10 * self.found.spread)

    @property
    def anchor(self) -> int:
        """The likeliest token that may be drawn, see `open`."""
        return self.open(sorted(self.base, key=lambda token: -self.base[token]))[0]

    def open(self, tokens: Sequence[int]) -> Sequence[int]:
        """Those of these tokens that are whole text, as far as is known, or all of them if there are none.

        llama.cpp's server shows no logprobs behind a token that ends inside a character, so none should be lifted
        to where it is drawn all the time.
        """
        return [token for token in tokens if _whole(self.asker.pieces.get(token, b""))] or tokens

    def stepped(self, bias: float) -> float:
        """The bias, or the next smaller one that the endpoint adds as asked."""
        step = self.found.step
        return int(bias / step) * step if step else bias

    def ask(self, biases: Iterable[Bias], likeliest: bool = False) -> Iterator[list[EndpointAnswer]]:
        """The answers to each question, ``turns`` of them. ``likeliest``: not a token that was drawn."""
        for answers in self.asker.ask(biases, self.turns, likeliest=likeliest):
            yield answers
            self.asked += 1
            if self.asked % LOOK == 0:
                self._look()
            self.tell()

    def _look(self) -> None:
        """Ask once more what is known, by default without a bias: does the endpoint still answer as it did?"""
        turn = _LOOKS_FROM + self.asked // LOOK
        if self.watch is not None:
            self.drift = max(self.drift, self.watch(turn))
            return
        ((answer,),) = self.asker.ask([{}], first=turn)
        both = answer.logprobs.keys() & self.base.keys()
        moved = max((abs(answer.logprobs[token] - self.base[token]) for token in both), default=0.0)
        if moved > max(20 * self.precision, 3 * self.found.spread, 5 * self.noise):
            self.drift = max(self.drift, moved)

    def learn(self, token: int, estimates: Sequence[float], error: float) -> None:
        """Keep a token's logprob, the mean of its estimates; the error joins theirs and the mean's own.

        One that is likelier than all that the base window did not show is not kept: its bias did not act as asked.
        """
        mean = float(np.mean(estimates))
        if token not in self.base and mean > self.ceiling:
            self.doubted.add(token)
            return
        count = len(estimates)
        own = float(np.std(estimates, ddof=1)) if count > 1 else 0.0
        self.logprobs[token] = min(mean, 0.0)
        self.errors[token] = hypot(error, max(own, self.noise) / count**0.5)

    def doubt(self, token: int) -> None:
        """Forget a token whose answers contradict one another, and ask for it no more."""
        self.logprobs[token] = self.errors[token] = np.nan
        self.doubted.add(token)

    def outranked(self, logprobs: Sequence[float]) -> None:
        """Keep the logprobs of likely tokens that were shown without a name; the same return in each window."""
        if len(logprobs) > len(self.nameless):
            self.nameless = list(logprobs)

    def tell(self) -> None:
        """Report how far the run is."""
        if self.settings.progress is not None:
            self.settings.progress(int(np.isfinite(self.logprobs[self.wanted]).sum()), len(self.wanted))

    def unknown(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Those of these tokens whose logprob is not known yet, and can be."""
        ids = np.asarray(tokens, dtype=np.intp)
        without = self.blocked | self.doubted
        return [int(token) for token in ids[np.isnan(self.logprobs[ids])] if int(token) not in without]


def _whole(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
