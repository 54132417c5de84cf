"""A trace as a table: a row per candidate, a column per stage, and what each step did in words.

It shows the traces of `gen next` and those of recorded runs alike.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple, Protocol

from .token_label import display_width, shortened, token_label

_PIPED_COLUMNS = 1000
"""Wide enough that no table in a pipe is divided."""
_GAP = "  "
_GONE = "·"
_NARROW_COLUMNS = 60
"""Below this width, tokens and bars are shorter."""
_LABEL_COLUMNS, _NARROW_LABEL_COLUMNS = 18, 12
_BAR_COLUMNS, _NARROW_BAR_COLUMNS = 10, 6
_EIGHTHS = " ▏▎▍▌▋▊▉"
_TITLE_COLUMNS = 14
"""The longest title of a chain's column."""
_NAME_COLUMNS = 30
"""The longest name of a stage that is shown whole."""
_LEAST_DECIMAL = 0.00005
"""Below this, four decimals would show 0."""


class AnyTraceStage(Protocol):
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


def stage_columns(stages: Sequence[AnyTraceStage], probs: Sequence[Sequence[float | None]]) -> list[TraceColumn]:
    """The columns of the stages. A selector that only draws, as ``dist``, has none: nothing changes there.

    ``probs``: for each candidate, its probability at each stage.
    """
    columns = [
        TraceColumn(_stage_name(stage), [row[number] for row in probs], stage.kept, stage.entropy)
        for number, stage in enumerate(stages)
    ]
    draws_only = len(columns) > 1 and columns[-1][1:] == columns[-2][1:]
    return columns[:-1] if draws_only else columns


def stage_notes(stages: Sequence[AnyTraceStage]) -> list[StepNote]:
    """What the steps say that they did."""
    from .text import visible

    return [StepNote(_stage_name(stage), visible(stage.note)) for stage in stages if stage.note is not None]


def _stage_name(stage: AnyTraceStage) -> str:
    """The name on one line. Names and notes come from other packages and from files."""
    from .text import visible

    return shortened(" ".join(visible(stage.name).split()), _NAME_COLUMNS)


def print_trace_table(
    tokens: Sequence[bytes], columns: Sequence[TraceColumn], notes: Sequence[StepNote], marked: int | None = None
) -> None:
    """Print the table and the notes, as wide as the terminal.

    Args:
        tokens: the bytes of each row's token.
        columns: at least one; the last one also has a bar per row.
        notes: lines below the table.
        marked: the row of the chosen token; None: none is marked.
    """
    width = shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns
    for line in table_lines(tokens, columns, width, marked):
        print(line)
    if notes:
        print()
    for line in note_lines(notes, width):
        print(line)


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
    label_columns = max(map(display_width, labels))
    blocks = list(_blocks(cells, width - label_columns, len(_GAP) + bar_columns))
    for number, block in enumerate(blocks):
        if number:
            yield ""
        block_columns = label_columns + sum(len(_GAP) + display_width(column[0]) for column in block)
        has_bars = number == len(blocks) - 1 and block_columns + len(_GAP) + bar_columns <= width
        for row, label in enumerate(labels):
            line = label + " " * (label_columns - display_width(label))
            line += "".join(_GAP + column[row] for column in block)
            yield (line + _GAP + bars[row] if has_bars else line).rstrip()


def note_lines(notes: Sequence[StepNote], width: int) -> Iterator[str]:
    """Yield a line per note; the names stand in a column, and longer texts are wrapped beside it."""
    indent = max((display_width(note.name) for note in notes), default=0) + len(_GAP)
    for note in notes:
        start = note.name + " " * (indent - display_width(note.name))
        yield from wrap(
            note.text, max(width, indent + 10), initial_indent=start, subsequent_indent=" " * indent
        )  # fmt: skip


def probability_text(prob: float | None) -> str:
    """A probability with four decimals, or in powers of ten where these would show 0."""
    if prob is None:
        return _GONE
    return f"{prob:.4f}" if prob >= _LEAST_DECIMAL or prob == 0 else f"{prob:.0e}"


def short_title(name: str) -> str | None:
    """The name as a column's title; None if it is too long, or does not fit on a line."""
    from .text import visible

    title = visible(name).strip()
    return title if title and display_width(title) <= _TITLE_COLUMNS and "\n" not in title else None


def bar(prob: float, columns: int) -> str:
    """A probability as a bar of eighths; 1 fills all columns."""
    eighths = round(min(prob, 1.0) * columns * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


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
    width = max(map(display_width, cells))
    return [" " * (width - display_width(cell)) + cell for cell in cells]


def _blocks(cells: Sequence[list[str]], width: int, bar_width: int) -> Iterator[Sequence[list[str]]]:
    """Divide the columns so that each block fits, the last one with its bar; at least one column per block."""
    start = 0
    while start < len(cells):
        end, used = start, 0
        while end < len(cells):
            used += len(_GAP) + display_width(cells[end][0])
            needed = used + (bar_width if end == len(cells) - 1 else 0)
            if end > start and needed > width:
                break
            end += 1
        yield cells[start:end]
        start = end
