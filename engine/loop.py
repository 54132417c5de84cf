"""The loop: read the prompt, then logits, chain, token, again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import log
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..grammars import Constraint
from ..logprobs import TokenLogprob
from ..samplers import Candidates, Chain
from .context import Progress
from .errors import ModelError
from .events import Done, Event, Start, Timings, Token
from .model import Model
from .native import BINDING_VERSION
from .text import TextStream

Floats = NDArray[np.float32]


def generate(  # noqa: PLR0913 - the contract's own names
    model: Model,
    prompt: str | bytes | Sequence[int],
    chain: Chain,
    constraint: Constraint | None = None,
    *,
    stop: str | Sequence[str] = (),
    max_tokens: int | None = None,
    top_logprobs: int | None = None,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Write on from ``prompt`` (text, UTF-8 bytes, or token ids), one event after the other.

    ``chain`` chooses each token; it is reset first. ``constraint``: masks tokens before the chain.
    ``stop``: a text, or texts, that end the run. ``max_tokens``: None: until the model ends or the context is
    full.
    ``top_logprobs``: None: no logprobs; 0: the chosen token's; n: the n likeliest beside it. Logprobs are the
    model's own, nats. ``interrupted`` is asked while the prompt is read and before each token; once it returns
    True, the run ends in order. Raises ``ModelError``, ``SamplingError``.
    """
    for name, value in (("max_tokens", max_tokens), ("top_logprobs", top_logprobs)):
        if value is not None and value < 0:
            raise ModelError(f"{name}: {value} is not ≥ 0")
    stop = [stop] if isinstance(stop, str) else stop
    ids = _prompt_ids(model, prompt)
    run = _Run(model, chain, constraint, top_logprobs)
    began = perf_counter()
    cached = model.context.read(ids, progress, interrupted)
    run.prompt_seconds = perf_counter() - began
    chain.reset(ids)
    limit = sys.maxsize if max_tokens is None else max_tokens
    yield Start(
        model=model.name,
        seed=chain.seed,
        chain=chain.config,
        prompt_tokens=len(ids),
        prompt_ids=tuple(ids),
        cached_tokens=cached,
        context=model.context.length,
        max_tokens=max_tokens,
        stop=tuple(stop),
        versions=versions(),
    )
    stream = TextStream(stop)
    reason = "length"
    if len(model.context.tokens) < len(ids):
        reason, limit = "interrupted", 0
    began = perf_counter()
    while run.count < limit:
        if interrupted is not None and interrupted():
            reason = "interrupted"
            break
        token, event = run.next(stream)
        yield event
        if model.vocabulary.is_eog(token) or stream.stopped is not None:
            reason = "stop"
            break
        if run.count >= limit:
            break
        if model.context.full:
            reason = "context"
            break
        model.context.push(token)
    rest = stream.finish()
    yield Done(
        finish_reason="stop" if stream.stopped is not None else reason,
        text=stream.text,
        rest=rest,
        stop=stream.stopped,
        prompt_tokens=len(ids),
        completion_tokens=run.count,
        timings=Timings(run.prompt_seconds, perf_counter() - began, run.chain_seconds),
    )


def versions() -> dict[str, str]:
    """The versions of this package and of llama.cpp's binding."""
    return {"logitsmith": version("logitsmith"), "llama-cpp-python": BINDING_VERSION}


@dataclass
class _Run:
    """What one run counts and needs at each token."""

    model: Model
    chain: Chain
    constraint: Constraint | None
    top_logprobs: int | None
    count: int = 0
    prompt_seconds: float = 0.0
    chain_seconds: float = 0.0
    scratch: Floats | None = None

    def next(self, stream: TextStream) -> tuple[int, Token]:
        """Choose one token and tell of it."""
        vocabulary = self.model.vocabulary
        logits = self.model.context.logits()
        mask = None if self.constraint is None else self.constraint.mask()
        began = perf_counter()
        token = self.chain.sample(logits, mask)
        self.chain.accept(token)
        self.chain_seconds += perf_counter() - began
        if self.constraint is not None:
            self.constraint.accept(token)
        data = vocabulary.piece(token)
        chosen, top = self._logprobs(logits, token, data)
        text = "" if vocabulary.is_control(token) else stream.push(data)
        event = Token(self.count, chosen, top, text)
        self.count += 1
        return token, event

    def _logprobs(self, logits: Floats, token: int, data: bytes) -> tuple[TokenLogprob, tuple[TokenLogprob, ...]]:
        """The raw log-softmax of the chosen token and of the likeliest ones."""
        if self.top_logprobs is None:
            return TokenLogprob(token, data, None), ()
        row = Candidates(logits)
        if self.scratch is None:
            self.scratch = np.empty_like(logits)
        weights = np.exp(np.subtract(logits, row.max, out=self.scratch), out=self.scratch)
        total = float(row.max) + log(np.add.reduce(weights, dtype=np.float64))
        chosen = TokenLogprob(token, data, float(logits[token]) - total)
        if not self.top_logprobs:
            return chosen, ()
        likeliest = row.leading(self.top_logprobs)
        piece = self.model.vocabulary.piece
        pairs = zip(likeliest.tolist(), logits[likeliest].tolist(), strict=True)
        return chosen, tuple(TokenLogprob(other, piece(other), logit - total) for other, logit in pairs)


def _prompt_ids(model: Model, prompt: str | bytes | Sequence[int]) -> list[int]:
    vocabulary = model.vocabulary
    if isinstance(prompt, str):
        try:
            prompt = prompt.encode()
        except UnicodeEncodeError:
            raise ModelError("the prompt is not UTF-8") from None
    ids = vocabulary.tokenize_prompt(prompt) if isinstance(prompt, bytes) else list(prompt)
    if not ids and vocabulary.bos is not None:
        ids = [vocabulary.bos]  # an empty prompt: let the model begin by itself
    vocabulary.check(ids)
    return ids
