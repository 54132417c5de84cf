"""The candidates that a chain would draw the next token from, and their difference from those of other chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_forcing
from ..logprobs.jsonl import ChainDistance
from ..logprobs.records import Trace
from ..samplers.candidates import Candidates
from ..samplers.chain import Chain
from .context import Progress
from .generation import RunningRequest
from .model import Model
from .request import GenerationRequest
from .token_records import TraceReader

Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class ChainComparison:
    """Another chain on the same logits: its trace, and how far it is from the first chain."""

    trace: Trace
    distance: ChainDistance


@dataclass(frozen=True)
class NextToken:
    """The next token before it is drawn.

    Attributes:
        prompt_tokens: the number of the prompt's tokens.
        trace: from the model's logits to what would be drawn from; without a draw.
        forced: the token that the grammar leaves no choice about; None if there is a choice.
        comparisons: one for each other chain. Their candidates are those of ``trace``.
    """

    prompt_tokens: int
    trace: Trace
    forced: int | None
    comparisons: tuple[ChainComparison, ...]


def trace_next(  # noqa: PLR0913 - the arguments are public
    model: Model,
    prompt: str | bytes | Sequence[int],
    chain: Chain,
    constraint: Constraint | None = None,
    *,
    top: int = 20,
    against: Sequence[Chain] = (),
    jump: bool = True,
    exact_reuse: bool = False,
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> NextToken | None:
    """Return what a chain would draw the next token from, and how it came to that. No token is drawn.

    Args:
        model: The model; its own context is used.
        prompt: Text, UTF-8 bytes, or token ids.
        chain: Is reset, and applied to the logits after the prompt.
        constraint: Masks tokens before each chain.
        top: How many of the likeliest tokens of each stage are candidates.
        against: Other chains to compare with.
        jump: Take a token that the constraint forces, as `generate` does; False: each chain would draw it.
        exact_reuse: As for `generate`.
        progress: Called while the prompt is read.
        is_interrupted: Called while the prompt is read. Once it returns True, reading ends, and None is returned.

    Raises ``ModelError``, ``SamplingError``, ``GrammarError``.
    """
    request = GenerationRequest(prompt, chain, constraint, jump=jump, exact_reuse=exact_reuse)
    return trace_request(
        model, request, top=top, against=against, progress=progress, is_interrupted=is_interrupted
    )


def trace_request(  # noqa: PLR0913 - the arguments are public
    model: Model,
    request: GenerationRequest,
    *,
    top: int = 20,
    against: Sequence[Chain] = (),
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> NextToken | None:
    """Return what a request would draw its first token from, see `trace_next`.

    Args:
        model: The model; its own context is used.
        request: What to generate.
        top: How many of the likeliest tokens of each stage are candidates.
        against: Other chains to compare with.
        progress: Called while the prompt is read.
        is_interrupted: Called while the prompt is read. Once it returns True, reading ends, and None is returned.
    """
    running = RunningRequest(model, request, in_background=True)
    prompt_ids, constraint = running.prompt_ids, running.constraint
    context = model.context
    context.read(prompt_ids, progress, is_interrupted, exact=request.exact_reuse)
    if len(context.tokens) < len(prompt_ids):
        return None
    logits = context.logits()
    mask = None if constraint is None else constraint.mask()
    readers = []
    for each in (running.chain, *against):
        reader = TraceReader(model.vocabulary, each, top)
        each.reset(prompt_ids)
        reader.sample(logits, mask)
        readers.append(reader)
    forced = _forced_token(constraint) if request.jump else None
    chosen = () if forced is None else (forced,)
    ids = readers[0].by_model_logits(np.unique(np.concatenate([reader.likeliest(*chosen) for reader in readers])))
    first = probabilities(readers[0].candidates)
    comparisons = tuple(
        ChainComparison(reader.of_tokens(ids), distance(first, probabilities(reader.candidates)))
        for reader in readers[1:]
    )
    trace = readers[0].of_tokens(ids, is_forced=forced is not None)
    return NextToken(len(prompt_ids), trace, forced, comparisons)


def probabilities(candidates: Candidates) -> Probabilities:
    """The probability of every token, float64 (V,); 0 for those that are not among the candidates."""
    logits = candidates.logits.astype(np.float64)
    weights = np.exp(logits - logits.max())
    row = np.zeros(candidates.vocab_size)
    row[candidates.ids] = weights / weights.sum()
    return row


def distance(first: Probabilities, other: Probabilities) -> ChainDistance:
    """Return how far ``other`` is from ``first``, float64 (V,) each, which sum to 1.

    Total variation is sum |p - q| / 2. The divergences are KL(first || other) = sum p ln(p / q) and its
    reverse, in nats; infinite where q lacks a token that p has. The sums run over the whole vocabulary.
    """
    total_variation = float(np.abs(first - other).sum() / 2)
    return ChainDistance(total_variation, _divergence(first, other), _divergence(other, first))


def _divergence(p: Probabilities, q: Probabilities) -> float:
    """KL(p || q) in nats."""
    is_possible = p > 0
    p, q = p[is_possible], q[is_possible]
    if not q.all():
        return inf
    return max(float((p * np.log(p / q)).sum()), 0.0)  # rounding may put it below


def _forced_token(constraint: Constraint | None) -> int | None:
    forcing = None if constraint is None else as_forcing(constraint)
    return next(iter(forcing.forced_tokens()), None) if forcing is not None else None
