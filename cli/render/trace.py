"""The output of a trace: a table with a row per candidate and a column per stage, and notes about the steps.

The traces of `gen next` and of recorded runs have the same layout. A recorded token also has a line about its
draw.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from ..text import text_width, visible
from .table import Column, Table

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.next_token import ChainComparison, NextToken
    from ...logprobs.events import Token
    from ...logprobs.recorded import RecordedEvent, RecordedTokenLine, RecordedTrace
    from ...logprobs.records import Trace
    from ...samplers.chain import Chain

_CANDIDATE_LABEL_COLUMNS = 60  # columns of the longest token that is not truncated in the text around the table
_FIRST_CHAIN_TITLE = "chain"  # the name of the chain of the command line in titles and notes


@dataclass(frozen=True)
class TracedNextToken:
    """The trace of the next token through one chain, or through several chains that are compared."""

    model: Model  # the one that computed the logits
    chain: Chain  # of the command line
    result: NextToken
    other_names: Sequence[str]  # as the user typed them
    other_chains: Sequence[Chain]  # of the flag --against


def show_next_token(traced: TracedNextToken) -> None:
    """Print a table with a column per stage, or per chain if chains are compared."""
    result = traced.result
    trace = result.trace
    if result.comparisons:
        columns = _compared_columns(traced)
        notes = list(_distance_notes(traced))
    else:
        columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
        notes = stage_notes(trace.stages)
    forced_row = None
    if result.forced_token is not None:
        forced_row = [candidate.id for candidate in trace.candidates].index(result.forced_token)
        notes.append(
            StepNote(
                "forced",
                "the grammar allows only one text, which continues with the token marked >; the chain is not used",
            )
        )
    tokens = [candidate.data for candidate in trace.candidates]
    _print_trace_table(tokens, columns, notes, forced_row)


def _compared_columns(traced: TracedNextToken) -> list[TraceColumn]:
    """Return the column of the model, and a column with the final probabilities of each chain."""
    trace = traced.result.trace
    first_chain_columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    columns = [first_chain_columns[0], first_chain_columns[-1]._replace(title=_FIRST_CHAIN_TITLE)]
    for title, comparison in zip(_other_chain_titles(traced.other_names), traced.result.comparisons, strict=True):
        stages = comparison.trace.stages
        rows = [candidate.probs for candidate in comparison.trace.candidates]
        columns.append(stage_columns(stages, rows)[-1]._replace(title=title))
    return columns


def _distance_notes(traced: TracedNextToken) -> Iterator[StepNote]:
    """Yield the steps of the first chain, and the distances of the other chains' probabilities from the first."""
    # A chain whose name is too long for a title is written out in its note.
    steps = " > ".join(step.about.name for step in traced.chain.steps)
    yield StepNote(_FIRST_CHAIN_TITLE, steps)
    for name, title, comparison in zip(
        traced.other_names, _other_chain_titles(traced.other_names), traced.result.comparisons, strict=True
    ):
        written_out = "" if title == name else f"{name}: "
        yield StepNote(title, written_out + _distance_words(title, comparison))


def _distance_words(title: str, comparison: ChainComparison) -> str:
    """Return the distances of a chain from the first chain, in words; ``title`` is that of its column."""
    distance = comparison.distance
    parts = [
        f"total variation {distance.total_variation:.4f}",
        f"KL({_FIRST_CHAIN_TITLE} || {title}) {_nats(distance.divergence)}",
        f"KL({title} || {_FIRST_CHAIN_TITLE}) {_nats(distance.reverse_divergence)}",
    ]
    return ", ".join(parts)


def _nats(value: float) -> str:
    return f"{value:.4f} nats" if isfinite(value) else "infinite"


def _other_chain_titles(names: Sequence[str]) -> list[str]:
    """Return a title for each other chain: its name if the name is short, otherwise ``chain`` and a number."""
    return [short_title(name) or f"chain {number}" for number, name in enumerate(names, 2)]


_MAX_TITLE_COLUMNS = 14  # columns of the longest title of a chain


def short_title(name: str) -> str | None:
    """Return the name as a column's title; None if it is too long, empty or has several lines."""
    title = visible(name).strip()
    fits = text_width(title) <= _MAX_TITLE_COLUMNS and "\n" not in title
    return title if title and fits else None


def write_next_token_json(traced: TracedNextToken, out: TextIO) -> None:
    """Write one JSON object with the fields ``prompt_tokens, model, seed, chain, stages, candidates, against``."""
    from ...common.strict_json import json_line
    from ...engine.next_token import next_token_json

    against = list(zip(traced.other_names, traced.other_chains, strict=True))
    out.write(json_line(next_token_json(traced.model, traced.chain, traced.result, against)))


class TokenSearch:
    """A search for a token of a recorded run."""

    def __init__(self, number: int | None, text: str | None) -> None:
        # ``number``: the number of the token, counted from 0; None: the token is found by ``text``, a part of its
        # text.
        self._number = number
        self._text = text
        self.token_count = 0  # tokens that were read so far
        # the request that the run answers; None if the run is not part of a batch
        self.request_id: str | None = None

    @property
    def description(self) -> str:
        """The wanted token in words."""
        if self._number is not None:
            return f"token {self._number}"
        return f"token with the text {self._text!r}"

    def find(self, events: Iterable[RecordedEvent]) -> RecordedTokenLine | None:
        """Return the first matching token; None if there is none. The whole run is read in that case."""
        from ...logprobs.recorded import RecordedStart, RecordedTokenLine
        from ...logprobs.records import display_text

        for event in events:
            if isinstance(event, RecordedStart):
                self.request_id = event.id
            if not isinstance(event, RecordedTokenLine) or event.event != "token":
                continue
            self.token_count += 1
            if self._number is not None:
                if self.token_count - 1 == self._number:
                    return event
            elif self._text is not None and self._text in display_text(bytes(event.data)):
                return event
        return None


def show_token(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace, number: int) -> None:
    """Print a token, its trace in the layout of `gen next`, and how it was drawn. ``number`` counts from 0."""
    print(f"token {number}: {token_label(bytes(line.data), _CANDIDATE_LABEL_COLUMNS)}\n")
    columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    tokens = [bytes(candidate.data) for candidate in trace.candidates]
    ids = [candidate.id for candidate in trace.candidates]
    chosen_row = ids.index(line.id) if line.id in ids else None
    _print_trace_table(tokens, columns, stage_notes(trace.stages), chosen_row)
    print(f"\n{_draw_words(line, trace)}")


def _draw_words(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace) -> str:
    """Return in words how the token was chosen, such as ``u = 0.431 lies in 0.402 … 0.466: ' king'``."""
    label = token_label(bytes(line.data), _CANDIDATE_LABEL_COLUMNS)
    if trace.forced:
        return f"forced: the grammar allows only one text, which continues with {label}"
    if trace.draw is None:
        return f"no random number: {visible(trace.stages[-1].name)} selects {label}"
    draw = trace.draw
    return f"u = {draw.u:.6g} lies in {draw.low:.6g} … {draw.high:.6g}: {label}"


class _TraceStage(Protocol):
    """A stage of a trace, from the current run or from a record."""

    @property
    def name(self) -> str:
        """``model``, ``grammar`` or the name of the sampler."""
        ...

    @property
    def kept(self) -> int:
        """Number of candidates after the stage."""
        ...

    @property
    def entropy(self) -> float | None:
        """Entropy of the candidates after the stage, in nats; None if it is not recorded."""
        ...

    @property
    def note(self) -> str | None:
        """Description of what the step did; None if it has none."""
        ...


class TraceColumn(NamedTuple):
    """A column of the table: a stage, or the result of a chain."""

    title: str
    probs: Sequence[float | None]  # of each row's candidate; None if the candidate was dropped
    kept: int  # candidates after the stage
    entropy: float | None  # of these candidates, in nats; None if it is not recorded


class StepNote(NamedTuple):
    """A note below the table, about a step or a chain."""

    name: str
    text: str


def stage_columns(stages: Sequence[_TraceStage], probs: Sequence[Sequence[float | None]]) -> list[TraceColumn]:
    """Return a column for each stage. A last stage that changes nothing, such as ``dist``, gets no column."""
    # ``probs``: for each candidate, its probability after each stage; None where the candidate was dropped.
    columns = [
        TraceColumn(_stage_name(stage), [row[number] for row in probs], stage.kept, stage.entropy)
        for number, stage in enumerate(stages)
    ]
    if len(columns) > 1 and columns[-1]._replace(title=columns[-2].title) == columns[-2]:
        columns.pop()
    return columns


def stage_notes(stages: Sequence[_TraceStage]) -> list[StepNote]:
    return [StepNote(_stage_name(stage), visible(stage.note)) for stage in stages if stage.note is not None]


_MAX_NAME_COLUMNS = 30  # columns of the longest name of a stage that is not truncated


def _stage_name(stage: _TraceStage) -> str:
    """Return the name in one line. The name may be from a plug-in or a file, and contain any character."""
    return _truncated(" ".join(visible(stage.name).split()), _MAX_NAME_COLUMNS)


def _print_trace_table(
    tokens: Sequence[bytes],
    columns: Sequence[TraceColumn],
    notes: Sequence[StepNote],
    chosen_row: int | None = None,
) -> None:
    """Print the table and the notes in the width of the terminal. See `table_lines`."""
    width = shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns
    lines = table_lines(tokens, columns, width, chosen_row)
    if notes:
        lines += ["", *note_lines(notes, width)]
    print("\n".join(lines))


_PIPED_COLUMNS = 1000  # width of a table in a pipe, unless COLUMNS is set: all columns are next to each other
_GAP = 2
_NARROW_COLUMNS = 60  # width of a terminal below which tokens and bars are shorter
_LABEL_COLUMNS = 18
_NARROW_LABEL_COLUMNS = 12
_BAR_COLUMNS = 10
_NARROW_BAR_COLUMNS = 6


def table_lines(
    tokens: Sequence[bytes], columns: Sequence[TraceColumn], width: int, chosen_row: int | None = None
) -> list[str]:
    """Return the lines of the table. Columns that do not fit next to each other are in another block below."""
    # There is at least one column. Bars next to the table show the probabilities of the last column, if there is
    # room. ``chosen_row`` is marked with ``>``; None: no row is marked.
    is_narrow = width < _NARROW_COLUMNS
    labels = _row_labels(tokens, _NARROW_LABEL_COLUMNS if is_narrow else _LABEL_COLUMNS, chosen_row)
    cells_of_columns = [_column_cells(column) for column in columns]
    bar_columns = _NARROW_BAR_COLUMNS if is_narrow else _BAR_COLUMNS
    last_cells_with_bars = _append_bars(cells_of_columns[-1], columns[-1].probs, bar_columns)
    if _max_width(labels) + _GAP + _max_width(last_cells_with_bars) <= width:
        cells_of_columns[-1] = last_cells_with_bars
    table_columns = [Column(), *(Column(title, align="right") for title, *_ in cells_of_columns)]
    rows = list(zip(labels, *(cells[1:] for cells in cells_of_columns), strict=True))
    return Table(table_columns, rows, gap=_GAP, has_rule=False).render(width)


def _append_bars(cells: Sequence[str], probs: Sequence[float | None], bar_columns: int) -> list[str]:
    """Return the cells of a column with a bar after each probability."""
    bars = [bar(prob or 0.0, bar_columns) for prob in probs]
    bars_of_cells = ["", *bars, "", ""]  # the title and the last two cells have no bar
    gap = " " * _GAP
    return [f"{cell}{gap}{each:{bar_columns}}" for cell, each in zip(cells, bars_of_cells, strict=True)]


def _max_width(texts: Sequence[str]) -> int:
    return max(text_width(text) for text in texts)


def _row_labels(tokens: Sequence[bytes], max_columns: int, chosen_row: int | None) -> list[str]:
    """Return the cells of the first column: the tokens, and the labels of the last two rows."""
    labels = [token_label(data, max_columns) for data in tokens]
    if chosen_row is not None:
        labels = [f"{'>' if row == chosen_row else ' '} {label}" for row, label in enumerate(labels)]
    return [*labels, "kept", "nats"]


def _column_cells(column: TraceColumn) -> list[str]:
    """Return the title, the probabilities, the number of kept candidates and the entropy."""
    entropy = "-" if column.entropy is None else f"{column.entropy:.3f}"
    probabilities = [probability_text(prob) for prob in column.probs]
    return [column.title, *probabilities, f"{column.kept:,}", entropy]


def note_lines(notes: Sequence[StepNote], width: int) -> list[str]:
    return Table([Column(), Column(is_text=True)], notes, gap=_GAP).render(width)


_DROPPED_MARK = "·"
_MIN_DECIMAL = 0.00005  # probability below which four decimals would show 0


def probability_text(prob: float | None) -> str:
    """Return a probability with four decimals, or with a power of ten if four decimals would show 0."""
    if prob is None:
        return _DROPPED_MARK
    is_rounded_to_zero = 0 < prob < _MIN_DECIMAL
    return f"{prob:.0e}" if is_rounded_to_zero else f"{prob:.4f}"


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(prob: float, columns: int) -> str:
    """Return a probability as a bar with a resolution of an eighth of a column; 1 fills all columns."""
    eighths = round(min(prob, 1.0) * columns * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def token_label(data: bytes, max_columns: int = sys.maxsize) -> str:
    """Return a token in quotes. A label that is too wide is truncated with an ellipsis."""
    # Bytes that are not UTF-8, such as a part of a character, become escapes without quotes: ``\xe6\x97``.
    try:
        label = visible(repr(data.decode()))
    except UnicodeDecodeError:
        return _truncated(repr(data)[2:-1], max_columns)
    if text_width(label) <= max_columns:
        return label
    return _truncated(label[:-1], max_columns - 1) + label[-1]


def _truncated(text: str, max_columns: int) -> str:
    """Return the text; an ellipsis ends it if it is too wide."""
    if text_width(text) <= max_columns:
        return text
    beginning = ""
    for character in text:
        if text_width(beginning + character) > max_columns - 1:
            break
        beginning += character
    return f"{beginning}…"
