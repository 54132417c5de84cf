"""The next token before it is drawn, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .records import display_text, finite_or_none
from .trace import Trace


@dataclass(frozen=True)
class TracedChain:
    """A chain under the name that the user gave it, with its trace; ``steps``: as in `Start.chain`."""

    name: str
    steps: Sequence[Mapping[str, Any]]
    trace: Trace


@dataclass(frozen=True)
class ChainDistance:
    """How far what a chain leaves is from what the first chain leaves.

    Attributes:
        total_variation: within 0..1.
        divergence: KL(first || this) in nats; may be infinite.
        reverse_divergence: KL(this || first), likewise.
    """

    total_variation: float
    divergence: float
    reverse_divergence: float


def next_token_fields(
    head: Mapping[str, Any],
    first: TracedChain,
    forced: bytes | None = None,
    against: Sequence[tuple[TracedChain, ChainDistance]] = (),
) -> dict[str, Any]:
    """One object: the head, ``chain, stages[], candidates[]``; ``forced`` and ``against[]`` if there are any.

    A chain of ``against`` has ``name, chain, total_variation, kl, reverse_kl, stages[], candidates[]``; a
    divergence that is infinite is null.

    Args:
        head: what is known of the model and the prompt, ``prompt_tokens`` among it.
        first: the chain of the command line.
        forced: the bytes of the token that the grammar leaves no choice about; None if there is a choice.
        against: the other chains.
    """
    return {
        **head,
        "chain": list(first.steps),
        **_trace_fields(first.trace),
        **({} if forced is None else {"forced": {"token": display_text(forced), "bytes": list(forced)}}),
        **({"against": [_against_fields(chain, distance) for chain, distance in against]} if against else {}),
    }


def _against_fields(chain: TracedChain, distance: ChainDistance) -> dict[str, Any]:
    return {
        "name": chain.name,
        "chain": list(chain.steps),
        "total_variation": distance.total_variation,
        "kl": finite_or_none(distance.divergence),
        "reverse_kl": finite_or_none(distance.reverse_divergence),
        **_trace_fields(chain.trace),
    }


def _trace_fields(trace: Trace) -> dict[str, Any]:
    fields = trace.as_json()
    return {"stages": fields["stages"], "candidates": fields["candidates"]}
