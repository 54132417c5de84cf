"""A trace as a table: a row per candidate, a column per stage, and what each step did in words.

The traces of the next token (of one chain, or of several that are compared) and those of recorded runs are shown
alike. A recorded token has its draw in words, too.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from .run import visible
from .tables import PIPED_COLUMNS

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.next_token import ChainComparison, NextToken
    from ...logprobs.events import Token
    from ...logprobs.recorded import RecordedEvent, RecordedTokenLine, RecordedTrace
    from ...logprobs.records import Trace
    from ...samplers.chain import Chain

_CANDIDATE_LABEL_COLUMNS = 60
"""The longest token that is shown whole in the words around the table."""
_FIRST = "chain"
"""The title of the column of the first chain."""


@dataclass(frozen=True)
class TracedNextToken:
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


def show_next_token(traced: TracedNextToken) -> None:
    """Print the stages side by side; with other chains, what each of them leaves."""
    result = traced.result
    trace = result.trace
    tokens = [candidate.data for candidate in trace.candidates]
    if result.comparisons:
        columns, notes = _compared_columns(traced), list(_distance_notes(traced))
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
    _print_trace_table(tokens, columns, notes, None if result.forced is None else ids.index(result.forced))


def _compared_columns(traced: TracedNextToken) -> list[TraceColumn]:
    """The model's column, and one with what each chain leaves."""
    trace = traced.result.trace
    first = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    columns = [first[0], first[-1]._replace(title=_FIRST)]
    for title, comparison in zip(_titles(traced.names), traced.result.comparisons, strict=True):
        stages = comparison.trace.stages
        rows = [candidate.probs for candidate in comparison.trace.candidates]
        columns.append(stage_columns(stages, rows)[-1]._replace(title=title))
    return columns


def _distance_notes(traced: TracedNextToken) -> Iterator[StepNote]:
    """How far each other chain is from the first; a chain without a short name is written out."""
    steps = " > ".join(step.about.name for step in traced.chain.steps)
    yield StepNote(_FIRST, steps)
    for name, title, comparison in zip(
        traced.names, _titles(traced.names), traced.result.comparisons, strict=True
    ):
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


def _titles(names: Sequence[str]) -> list[str]:
    """A title for each other chain: its name if that is short, else a number."""
    return [short_title(name) or f"chain {number}" for number, name in enumerate(names, 2)]


_TITLE_COLUMNS = 14
"""The longest title of a chain's column."""


def short_title(name: str) -> str | None:
    """The name as a column's title; None if it is too long, or does not fit on a line."""
    title = visible(name).strip()
    return title if title and _display_width(title) <= _TITLE_COLUMNS and "\n" not in title else None


def write_next_token_json(traced: TracedNextToken, out: TextIO) -> None:
    """Write one object: ``prompt_tokens, model, seed, chain, stages, candidates``, and ``against``."""
    from ...common.strict_json import encode_json
    from ...logprobs.jsonl import TracedChain, next_token_fields

    result, model = traced.result, traced.model
    head = {"prompt_tokens": result.prompt_tokens, "model": model.name, "seed": traced.chain.seed}
    against = [
        (TracedChain(name, chain.config, comparison.trace), comparison.distance)
        for name, chain, comparison in zip(traced.names, traced.against, result.comparisons, strict=True)
    ]
    forced = None if result.forced is None else model.vocabulary.piece(result.forced)
    fields = next_token_fields(head, TracedChain(_FIRST, traced.chain.config, result.trace), forced, against)
    out.write(encode_json(fields) + "\n")


class TokenSearch:
    """Looks for one written token: that of a number, counted from 0, or the first one whose text has a text.

    Attributes: ``written``, how many tokens the run has, as far as it was read; ``request``, the id of the request
    that the run answers, None if it is not of a batch.
    """

    def __init__(self, number: int | None, text: str | None) -> None:
        self._number, self._text = number, text
        self.written = 0
        self.request: str | None = None

    @property
    def words(self) -> str:
        """What is looked for, for a message."""
        return f"token {self._number}" if self._number is not None else f"token with the text {self._text!r}"

    def find(self, events: Iterable[RecordedEvent]) -> RecordedTokenLine | None:
        """The token; None if the run has none that fits. ``written`` is then the number of its tokens."""
        from ...logprobs.recorded import RecordedStart, RecordedTokenLine
        from ...logprobs.records import display_text

        for event in events:
            if isinstance(event, RecordedStart):
                self.request = event.id
            if not isinstance(event, RecordedTokenLine) or event.event != "token":
                continue
            self.written += 1
            if self._number is not None:
                if self.written - 1 == self._number:
                    return event
            elif self._text is not None and self._text in display_text(bytes(event.data)):
                return event
        return None


def show_token(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace, number: int) -> None:
    """Print the token, its trace as `gen next` does, and how it was drawn. ``number``: the token's, from 0."""
    print(f"token {number}: {token_label(bytes(line.data), _CANDIDATE_LABEL_COLUMNS)}\n")
    columns = stage_columns(trace.stages, [candidate.probs for candidate in trace.candidates])
    tokens = [bytes(candidate.data) for candidate in trace.candidates]
    ids = [candidate.id for candidate in trace.candidates]
    marked = ids.index(line.id) if line.id in ids else None
    _print_trace_table(tokens, columns, stage_notes(trace.stages), marked)
    print(f"\n{_draw_words(line, trace)}")


def _draw_words(line: RecordedTokenLine | Token, trace: RecordedTrace | Trace) -> str:
    """How the token was chosen, as ``u = 0.431 lies in 0.402 … 0.466: ' king'``."""
    label = token_label(bytes(line.data), _CANDIDATE_LABEL_COLUMNS)
    if trace.forced:
        return f"forced: the grammar allows one text only, which goes on with {label}"
    if trace.draw is None:
        return f"no random number: {visible(trace.stages[-1].name)} takes {label}"
    draw = trace.draw
    return f"u = {draw.u:.6g} lies in {draw.low:.6g} … {draw.high:.6g}: {label}"


class _AnyTraceStage(Protocol):
    """A stage of a trace, as it was recorded or read back."""

    @property
    def name(self) -> str:
        """``model``, ``grammar`` or the sampler's name."""
        ...

    @property
    def kept(self) -> int:
        """How many candidates there are after it."""
        ...

    @property
    def entropy(self) -> float | None:
        """Theirs, in nats."""
        ...

    @property
    def note(self) -> str | None:
        """What the step did, in words and numbers."""
        ...


class TraceColumn(NamedTuple):
    """A column of the table: a stage, or what a chain leaves."""

    title: str
    probs: Sequence[float | None]
    """The probability of each row; None if it is gone."""
    kept: int
    entropy: float | None
    """In nats."""


class StepNote(NamedTuple):
    """A line below the table, under the name of the step or the chain that it is about."""

    name: str
    text: str


def stage_columns(stages: Sequence[_AnyTraceStage], probs: Sequence[Sequence[float | None]]) -> list[TraceColumn]:
    """The columns of the stages. A selector that only draws, as ``dist``, has none: nothing changes there.

    ``probs``: for each candidate, its probability at each stage.
    """
    columns = [
        TraceColumn(_stage_name(stage), [row[number] for row in probs], stage.kept, stage.entropy)
        for number, stage in enumerate(stages)
    ]
    draws_only = len(columns) > 1 and columns[-1][1:] == columns[-2][1:]
    return columns[:-1] if draws_only else columns


def stage_notes(stages: Sequence[_AnyTraceStage]) -> list[StepNote]:
    """What the steps say that they did."""
    return [StepNote(_stage_name(stage), visible(stage.note)) for stage in stages if stage.note is not None]


_NAME_COLUMNS = 30
"""The longest name of a stage that is shown whole."""


def _stage_name(stage: _AnyTraceStage) -> str:
    """The name on one line. Names and notes come from other packages and from files."""
    return _shortened(" ".join(visible(stage.name).split()), _NAME_COLUMNS)


def _print_trace_table(
    tokens: Sequence[bytes], columns: Sequence[TraceColumn], notes: Sequence[StepNote], marked: int | None = None
) -> None:
    """Print the table and the notes, as wide as the terminal.

    Args:
        tokens: the bytes of each row's token.
        columns: at least one; the last one also has a bar per row.
        notes: lines below the table.
        marked: the row of the chosen token; None: none is marked.
    """
    width = shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns
    for line in table_lines(tokens, columns, width, marked):
        print(line)
    if notes:
        print()
    for line in note_lines(notes, width):
        print(line)


_GAP = "  "
_NARROW_COLUMNS = 60
"""Below this width, tokens and bars are shorter."""
_LABEL_COLUMNS, _NARROW_LABEL_COLUMNS = 18, 12
_BAR_COLUMNS, _NARROW_BAR_COLUMNS = 10, 6


def table_lines(
    tokens: Sequence[bytes], columns: Sequence[TraceColumn], width: int, marked: int | None = None
) -> Iterator[str]:
    """Yield the lines of the table. Stages that do not fit side by side stand in a further block below.

    Args:
        tokens: the bytes of each row's token.
        columns: at least one.
        width: how many columns of characters a line may have.
        marked: the row of the chosen token, which gets a ``>``; None: no row is marked.
    """
    is_narrow = width < _NARROW_COLUMNS
    labels = _labels(tokens, _NARROW_LABEL_COLUMNS if is_narrow else _LABEL_COLUMNS, marked)
    cells = [_column_cells(column) for column in columns]
    bar_columns = _NARROW_BAR_COLUMNS if is_narrow else _BAR_COLUMNS
    bars = ["", *(bar(prob or 0.0, bar_columns) for prob in columns[-1].probs), "", ""]
    label_columns = max(map(_display_width, labels))
    blocks = list(_blocks(cells, width - label_columns, len(_GAP) + bar_columns))
    for number, block in enumerate(blocks):
        if number:
            yield ""
        block_columns = label_columns + sum(len(_GAP) + _display_width(column[0]) for column in block)
        has_bars = number == len(blocks) - 1 and block_columns + len(_GAP) + bar_columns <= width
        for row, label in enumerate(labels):
            line = label + " " * (label_columns - _display_width(label))
            line += "".join(_GAP + column[row] for column in block)
            yield (line + _GAP + bars[row] if has_bars else line).rstrip()


def _labels(tokens: Sequence[bytes], columns: int, marked: int | None) -> list[str]:
    """The first column: header, tokens, foot."""
    labels = [token_label(data, columns) for data in tokens]
    if marked is not None:
        labels = [f"{'>' if row == marked else ' '} {label}" for row, label in enumerate(labels)]
    return ["", *labels, "kept", "nats"]


def _column_cells(column: TraceColumn) -> list[str]:
    """The cells of a column, all of one width: title, probabilities, kept, entropy."""
    entropy = "-" if column.entropy is None else f"{column.entropy:.3f}"
    cells = [column.title, *map(probability_text, column.probs), f"{column.kept:,}", entropy]
    width = max(map(_display_width, cells))
    return [" " * (width - _display_width(cell)) + cell for cell in cells]


def _blocks(cells: Sequence[list[str]], width: int, bar_width: int) -> Iterator[Sequence[list[str]]]:
    """Divide the columns so that each block fits, the last one with its bar; at least one column per block."""
    start = 0
    while start < len(cells):
        end, used = start, 0
        while end < len(cells):
            used += len(_GAP) + _display_width(cells[end][0])
            needed = used + (bar_width if end == len(cells) - 1 else 0)
            if end > start and needed > width:
                break
            end += 1
        yield cells[start:end]
        start = end


def note_lines(notes: Sequence[StepNote], width: int) -> Iterator[str]:
    """Yield a line per note; the names stand in a column, and longer texts are wrapped beside it."""
    indent = max((_display_width(note.name) for note in notes), default=0) + len(_GAP)
    for note in notes:
        start = note.name + " " * (indent - _display_width(note.name))
        yield from wrap(
            note.text, max(width, indent + 10), initial_indent=start, subsequent_indent=" " * indent
        )  # fmt: skip


_GONE = "·"
_LEAST_DECIMAL = 0.00005
"""Below this, four decimals would show 0."""


def probability_text(prob: float | None) -> str:
    """A probability with four decimals, or in powers of ten where these would show 0."""
    if prob is None:
        return _GONE
    return f"{prob:.4f}" if prob >= _LEAST_DECIMAL or prob == 0 else f"{prob:.0e}"


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(prob: float, columns: int) -> str:
    """A probability as a bar of eighths; 1 fills all columns."""
    eighths = round(min(prob, 1.0) * columns * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def token_label(data: bytes, columns: int = sys.maxsize) -> str:
    """A token in quotes, at most so many columns wide; what is cut off is replaced by an ellipsis.

    Bytes that are not UTF-8, as a part of a character, are escapes without quotes: ``\\xe6\\x97``.
    """
    try:
        label = visible(repr(data.decode()))
    except UnicodeDecodeError:
        return _shortened(repr(data)[2:-1], columns)
    return label if _display_width(label) <= columns else _shortened(label[:-1], columns - 1) + label[-1]


def _shortened(text: str, columns: int) -> str:
    """The text, cut with an ellipsis where it is wider than so many columns."""
    if _display_width(text) <= columns:
        return text
    kept = ""
    for character in text:
        if _display_width(kept + character) > columns - 1:
            break
        kept += character
    return f"{kept}…"


def _display_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    from rich.cells import cell_len

    return cell_len(text)
