"""The state of one recovery: what is known of each token, and how the endpoint is asked for more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot, inf

import numpy as np
from numpy.typing import NDArray

from .asker import Asker
from .endpoint import Answer, Bias
from .numerics import Floats
from .settings import Settings


@dataclass(frozen=True)
class Findings:
    """What a few calls showed of an endpoint.

    ``window``: logprobs shown; ``spread``: largest difference between two answers to one question, nats;
    ``tokens``: those that were drawn without a bias; ``moves``: a bias moves the logprobs; ``forces``: a bias
    chooses the token, and its own logprob is named without the bias; ``max_bias``: the largest bias that is added
    as asked; ``lines``: all this in words.
    """

    window: int
    spread: float = 0.0
    tokens: tuple[int | None, ...] = ()
    moves: bool = False
    forces: bool = False
    max_bias: float = inf
    lines: tuple[str, ...] = ()

    @property
    def pointwise(self) -> str:
        """The cheapest method for single tokens that works."""
        if self.moves:
            return "parallel" if self.window > 1 else "single"
        return "forced" if self.forces else "bisection"


@dataclass
class Run:
    """What methods work on.

    ``wanted``: the ids that are asked for, int (n,). ``logprobs``, ``errors``: float64 (V,), NaN where unknown.
    ``method``: as it was named, then as it was chosen. ``base``: the window without a bias, {id: logprob}.
    ``found``: what the probe said. ``turns``: how often each question is asked. ``trusted``: biases up to it were
    seen to be added in full. ``blocked``: ids that the endpoint cannot name.
    """

    asker: Asker
    settings: Settings
    wanted: NDArray[np.intp]
    logprobs: Floats
    errors: Floats
    method: str
    base: dict[int, float] = field(default_factory=dict)
    found: Findings = field(default_factory=lambda: Findings(0))
    turns: int = 1
    trusted: float = 0.0
    blocked: frozenset[int] = frozenset()
    normalised: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The relative error of a probability that the endpoint names."""
        return self.asker.endpoint.limits.precision

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

    def ask(self, biases: Iterable[Bias]) -> Iterator[list[Answer]]:
        """The answers to each question, ``turns`` of them."""
        for answers in self.asker.ask(biases, self.turns):
            yield answers
            self.tell()

    def learn(self, token: int, estimates: Sequence[float], error: float) -> None:
        """Keep a token's logprob, the mean of its estimates; the error joins theirs and the mean's own."""
        mean = float(np.mean(estimates))
        count = len(estimates)
        own = float(np.std(estimates, ddof=1)) / count**0.5 if count > 1 else 0.0
        self.logprobs[token] = min(mean, 0.0)
        self.errors[token] = hypot(error, own)

    def tell(self) -> None:
        """Report how far the run is."""
        if self.settings.progress is not None:
            self.settings.progress(int(np.isfinite(self.logprobs[self.wanted]).sum()), len(self.wanted))

    def unknown(self, tokens: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Those of these tokens whose logprob is not known yet, and can be."""
        ids = np.asarray(tokens, dtype=np.intp)
        return [int(token) for token in ids[np.isnan(self.logprobs[ids])] if int(token) not in self.blocked]


def _whole(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
