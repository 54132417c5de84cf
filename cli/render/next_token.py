"""The next token of one chain or several, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, TextIO

from .trace_table import StepNote, TraceColumn, print_trace_table, short_title, stage_columns, stage_notes

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.next_token import ChainComparison, NextToken
    from ...samplers.chain import Chain

_FIRST = "chain"
"""The title of the column of the first chain."""


@dataclass(frozen=True)
class NamedNextToken:
    """The next token, and the names of the chains that it is traced through.

    Attributes:
        model: the model.
        chain: the chain of the command line.
        result: the traces.
        names: what the user called each chain of ``against``.
        against: the other chains.
    """

    model: Model
    chain: Chain
    result: NextToken
    names: Sequence[str]
    against: Sequence[Chain]


def show_table(named: NamedNextToken) -> None:
    """Print the stages side by side; with other chains, what each of them leaves."""
    result = named.result
    trace = result.trace
    tokens = [candidate.data for candidate in trace.candidates]
    if result.comparisons:
        columns, notes = _compared_columns(named), list(_distance_notes(named))
    else:
        columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
        notes = stage_notes(trace.stages)
    ids = [candidate.id for candidate in trace.candidates]
    if result.forced is not None:
        notes.append(
            StepNote(
                "forced",
                "the grammar allows one text only, which goes on with the token marked >; the chain has no say",
            )
        )
    print_trace_table(tokens, columns, notes, None if result.forced is None else ids.index(result.forced))


def write_json(named: NamedNextToken, out: TextIO) -> None:
    """Write one object: ``prompt_tokens, model, seed, chain, stages, candidates``, and ``against``."""
    from ...common.strict_json import encode_json
    from ...logprobs.jsonl import TracedChain, next_token_fields

    result, model = named.result, named.model
    head = {"prompt_tokens": result.prompt_tokens, "model": model.name, "seed": named.chain.seed}
    against = [
        (TracedChain(name, chain.config, comparison.trace), comparison.distance)
        for name, chain, comparison in zip(named.names, named.against, result.comparisons, strict=True)
    ]
    forced = None if result.forced is None else model.vocabulary.piece(result.forced)
    fields = next_token_fields(head, TracedChain(_FIRST, named.chain.config, result.trace), forced, against)
    out.write(encode_json(fields) + "\n")


def _titles(names: Sequence[str]) -> list[str]:
    """A title for each other chain: its name if that is short, else a number."""
    return [short_title(name) or f"chain {number}" for number, name in enumerate(names, 2)]


def _compared_columns(named: NamedNextToken) -> list[TraceColumn]:
    """The model's column, and one with what each chain leaves."""
    trace = named.result.trace
    first = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    columns = [first[0], first[-1]._replace(title=_FIRST)]
    for title, comparison in zip(_titles(named.names), named.result.comparisons, strict=True):
        stages = comparison.trace.stages
        rows = [candidate.probs for candidate in comparison.trace.candidates]
        columns.append(stage_columns(stages, rows)[-1]._replace(title=title))
    return columns


def _distance_notes(named: NamedNextToken) -> Iterator[StepNote]:
    """How far each other chain is from the first; a chain without a short name is written out."""
    steps = " > ".join(step.about.name for step in named.chain.steps)
    yield StepNote(_FIRST, steps)
    for name, title, comparison in zip(named.names, _titles(named.names), named.result.comparisons, strict=True):
        written_out = "" if title == name else f"{name}: "
        yield StepNote(title, written_out + _distance_words(title, comparison))


def _distance_words(title: str, comparison: ChainComparison) -> str:
    distance = comparison.distance
    parts = [f"total variation {distance.total_variation:.4f}"]
    for words, value in (
        (f"KL({_FIRST} || {title})", distance.divergence),
        (f"KL({title} || {_FIRST})", distance.reverse_divergence),
    ):
        parts.append(f"{words} {value:.4f} nats" if isfinite(value) else f"{words} infinite")
    return ", ".join(parts)
