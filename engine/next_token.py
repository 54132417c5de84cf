"""The candidates that a chain would draw the next token from, and their difference from those of other chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_forcing
from ..logprobs.jsonl import ChainDistance, TracedChain, next_token_fields
from ..logprobs.records import Trace
from ..samplers.base import BuildContext
from ..samplers.candidates import Candidates
from ..samplers.chain import Chain
from ..samplers.kernels import Floats
from ..samplers.recorder import GRAMMAR_STAGE, HEALING_STAGE, NamedMask
from .context import Progress
from .generation import RunningRequest
from .guidance import GuidedLogits
from .healing import PromptHealer
from .model import Model
from .phases import first_mask
from .request import GenerationRequest
from .token_records import TraceReader
from .vocabulary import Vocabulary

Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class ChainComparison:
    """The result of another chain for the same logits.

    Attributes:
        trace: the trace of the other chain.
        distance: the distance from the first chain's distribution.
    """

    trace: Trace
    distance: ChainDistance


@dataclass(frozen=True)
class NextToken:
    """The next token before it is drawn.

    Attributes:
        prompt_tokens: number of tokens in the prompt.
        trace: the steps from the model's logits to the final distribution, without a draw.
        forced_token: the only token that the grammar allows; None if it allows several.
        comparisons: one for each other chain, with the candidates of ``trace``.
    """

    prompt_tokens: int
    trace: Trace
    forced_token: int | None
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
    """Return the distribution that a chain would draw the next token from, with a trace. No token is drawn.

    Args:
        model: The model, whose context is used.
        prompt: Text, UTF-8 bytes, or token ids.
        chain: The chain. It is reset, and applied to the logits after the prompt.
        constraint: Masks tokens before each chain.
        top: Number of most likely tokens of each stage that are candidates.
        against: Other chains to compare with.
        jump: Whether to take a token that the constraint forces, as `generate` does; False: each chain would draw
            it.
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
    """Return the distribution of a request's first token with a trace, see `trace_next`."""
    running = RunningRequest(model, request, compiles_in_background=True)
    prompt_ids = running.prompt_ids
    context = model.context
    context.read(prompt_ids, progress, is_interrupted, exact=bool(request.exact_reuse))
    if len(context.tokens) < len(prompt_ids):
        return None
    row: Floats | GuidedLogits = context.logits()
    negative = running.open_negative_text()
    if negative is not None:
        if not negative.read_prompt(progress, is_interrupted, exact=bool(request.exact_reuse)):
            return None
        (row,) = negative.guide_rows([context.logits()], (), 0)
    request = replace(running.request, prompt=prompt_ids, chain=running.chain, constraint=running.constraint)
    return trace_row(model.vocabulary, row, request, top=top, against=against, healer=running.healer)


class RecordingChain(Chain):
    """A chain that keeps a copy of the last logits, float32 (V,), and draws any token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__([], BuildContext(0, vocabulary))
        self.row: Floats | None = None  # the logits; None before the first ones

    def apply(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> Candidates:
        self.row = logits.copy()
        return super().apply(logits, mask)


def trace_row(  # noqa: PLR0913 - a command and a route share it
    vocabulary: Vocabulary,
    row: Floats | GuidedLogits,
    request: GenerationRequest,
    *,
    top: int = 20,
    against: Sequence[Chain] = (),
    healer: PromptHealer | None = None,
) -> NextToken:
    """Return the distribution of a request's first token with a trace, from the logits after its prompt.

    The prompt is token ids, the chain built, the constraint started. ``healer``: spells the prompt's end.
    """
    prompt_ids = cast("Sequence[int]", request.prompt)
    constraint = cast("Constraint | None", request.constraint)
    reasoning = request.reasoning
    if reasoning is not None and reasoning.place == "inside":
        constraint = None  # it begins with the answer
    masks = []
    if constraint is not None:
        mask = first_mask(vocabulary, reasoning, constraint)
        masks.append(NamedMask(GRAMMAR_STAGE, mask))
    if healer is not None:
        masks.append(NamedMask(HEALING_STAGE, healer.mask()))
    trace_readers = []
    for chain in (cast("Chain", request.chain), *against):
        trace_reader = TraceReader(vocabulary, chain, top)
        chain.reset(prompt_ids)
        trace_reader.sample(row, masks)
        trace_readers.append(trace_reader)
    is_decided = reasoning is None or reasoning.place == "after"
    forced_token = _forced_token(constraint) if request.jump and is_decided else None
    chosen_ids = () if forced_token is None else (forced_token,)
    top_ids = np.unique(np.concatenate([trace_reader.top_ids(*chosen_ids) for trace_reader in trace_readers]))
    candidate_ids = trace_readers[0].sort_by_model_logits(top_ids)
    first_probabilities = probabilities(trace_readers[0].candidates)
    comparisons = tuple(
        ChainComparison(
            trace_reader.make_trace(candidate_ids),
            distance(first_probabilities, probabilities(trace_reader.candidates)),
        )
        for trace_reader in trace_readers[1:]
    )
    trace = trace_readers[0].make_trace(candidate_ids, is_forced=forced_token is not None)
    return NextToken(len(prompt_ids), trace, forced_token, comparisons)


def next_token_json(
    model: Model, chain: Chain, result: NextToken, against: Sequence[tuple[str, Chain]] = ()
) -> dict[str, Any]:
    compared_chains = [
        (TracedChain(name, other.config, comparison.trace), comparison.distance)
        for (name, other), comparison in zip(against, result.comparisons, strict=True)
    ]
    forced = None if result.forced_token is None else model.vocabulary.piece(result.forced_token)
    fields = {"prompt_tokens": result.prompt_tokens, "model": model.name, "seed": chain.seed}
    return next_token_fields(fields, TracedChain("chain", chain.config, result.trace), forced, compared_chains)


def probabilities(candidates: Candidates) -> Probabilities:
    """Return the probability of every token, float64 (V,); 0 for tokens that are not candidates."""
    logits = candidates.logits.astype(np.float64)
    weights = np.exp(logits - logits.max())
    probability_row = np.zeros(candidates.vocab_size)
    probability_row[candidates.ids] = weights / weights.sum()
    return probability_row


def distance(first: Probabilities, second: Probabilities) -> ChainDistance:
    """Return the distance between two distributions, float64 (V,), each with the sum 1.

    With p the first and q the second, the total variation is sum |p - q| / 2. The divergences are KL(p || q) = sum
    p ln(p / q) and KL(q || p), in nats. A divergence is infinite if its second distribution lacks a token of its
    first one. The sums include the whole vocabulary.
    """
    total_variation = float(np.abs(first - second).sum() / 2)
    return ChainDistance(total_variation, _divergence(first, second), _divergence(second, first))


def _divergence(p: Probabilities, q: Probabilities) -> float:
    """Return KL(p || q) in nats."""
    is_possible = p > 0
    p = p[is_possible]
    q = q[is_possible]
    if not q.all():
        return inf
    return max(float((p * np.log(p / q)).sum()), 0.0)  # rounding can make a sum of zero slightly negative


def _forced_token(constraint: Constraint | None) -> int | None:
    """Return the first token that a constraint forces; None if it forces none."""
    forcing_constraint = as_forcing(constraint)
    if forcing_constraint is None:
        return None
    return next(iter(forcing_constraint.forced_tokens()), None)
