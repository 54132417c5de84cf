"""The output of `gen decide`: answers as bars, the tokens behind them, and the quality of a calibration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...common.text import count_noun
from ..text import BOLD, has_styles, output_width, styled, visible, wrap_words
from .table import Column, Table, print_table

if TYPE_CHECKING:
    from ...decide.answers import Answer
    from ...decide.calibration import Calibration, Measured

_MAX_OPTIONS = 20  # options of a choice that are shown
_MAX_BAR_WIDTH = 40
_MIN_BAR_WIDTH = 6
_PIPE_WIDTH = 80
_LOW_MASS = 0.5
_SHOWN_UNDECIDED = 0.005  # less changes no probability as it is shown
_BLOCKS = " ▏▎▍▌▋▊▉█"


def show_answers(answers: Sequence[Answer], piece_of: Callable[[int], bytes] | None = None) -> None:
    """Print answers with bars. ``piece_of``: returns the text of a token; with it, the tokens are printed too."""
    for number, answer in enumerate(answers):
        if number:
            print()
        _show_answer(answer)
        if piece_of is not None:
            print()
            _show_tokens(answer, piece_of)


def _show_answer(answer: Answer) -> None:
    width = output_width()
    question = answer.question
    title = question.instructions if question.name is None else f"{question.name}: {question.instructions}"
    for line in wrap_words(visible(title), width or sys.maxsize):
        print(styled(line, BOLD) if has_styles(sys.stdout) else line)
    print("\n".join(_bars(answer, width)))
    for note in _notes(answer):
        print("\n".join(wrap_words(f"  {note}", width or sys.maxsize, indent=2)))


def _bars(answer: Answer, width: int | None) -> list[str]:
    """Return a line for each option: those of a choice with the most probable first, others in their order."""
    probabilities = answer.probabilities
    numbers = list(range(len(probabilities)))
    if answer.question.type == "choice":
        numbers.sort(key=lambda number: -probabilities[number])
    shown = numbers if answer.question.type == "score" else numbers[:_MAX_OPTIONS]
    rows = []
    for number in shown:
        spread = "" if answer.spread is None else f" ± {answer.spread[number]:.2f}"
        label = visible(answer.question.options[number].label).replace("\n", visible("\r"))
        rows.append([label, f"{probabilities[number]:.2f}{spread}"])
    table = Table([Column(), Column(align="right")], rows, gap=2, indent=2)
    bar_width = min(_MAX_BAR_WIDTH, (width or _PIPE_WIDTH) - table.width - table.gap)
    if bar_width >= _MIN_BAR_WIDTH:
        bars = [_bar(probabilities[number], bar_width) for number in shown]
        table = Table([*table.columns, Column()], [[*row, bar] for row, bar in zip(rows, bars, strict=True)], 2, 2)
    lines = table.render(width)
    rest = numbers[len(shown) :]
    if rest:
        lines.append(
            f"  {count_noun(len(rest), 'other')}: {sum(probabilities[number] for number in rest):.2f} together"
        )
    return lines


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return (_BLOCKS[-1] * (eighths // 8) + _BLOCKS[eighths % 8]).rstrip()


def _notes(answer: Answer) -> Iterator[str]:
    if answer.question.type == "score":
        yield f"mean {answer.mean_value:.2f} of 0 to {len(answer.question.options) - 1}"
    if answer.is_unsure:
        yield "unsure: no answer has the probability of --min-confidence"
    if answer.mass < _LOW_MASS:
        yield f"mass {answer.mass:.2g}: the model would rather write something else"
    if answer.undecided >= _SHOWN_UNDECIDED:
        yield f"undecided {answer.undecided:.2g}: texts with this probability were not followed to an option"
    reading = answer.measured[0].reading
    if reading.shared:
        yield f"shared by several options, and left out: {', '.join(map(repr, reading.shared))}"


def _show_tokens(answer: Answer, piece_of: Callable[[int], bytes]) -> None:
    """Print the spellings of each option, the most likely first, with the logprobs of their tokens."""
    rows = []
    reading = answer.measured[0].reading
    for option, spellings in zip(answer.question.options, reading.spellings, strict=True):
        for spelling in sorted(spellings, key=lambda one: -one.logprob):
            tokens = [
                f"{piece_of(token.id).decode(errors='replace')!r} {token.logprob:.2f}" for token in spelling.tokens
            ]
            tokens.append(f"end {spelling.end_logprob:.2f}")
            rows.append([option.label, repr(spelling.text), f"{spelling.logprob:.2f}", ", ".join(tokens)])
    columns = [Column("option"), Column("spelling"), Column("logprob", align="right")]
    print_table([*columns, Column("tokens with logprobs", is_text=True)], rows)
    if len(answer.measured) > 1 or answer.priors:
        print()
        _show_log_values(answer)


def _show_log_values(answer: Answer) -> None:
    """Print what the probabilities are computed from: the log values of the options, in each order of them."""
    labels = [option.label for option in answer.question.options]
    rows = [
        [
            f"{words}order {number}",
            ", ".join(f"{labels[index]} {one.log_values[index]:.2f}" for index in one.order),
        ]
        for words, measured in (("", answer.measured), ("prior, ", answer.priors))
        for number, one in enumerate(measured, 1)
    ]
    print_table([Column("asked"), Column("log values of the options", is_text=True)], rows)


def show_calibration(calibration: Calibration) -> None:
    """Print the quality of answers before and after a fit."""
    for number, one in enumerate(calibration.questions):
        if number:
            print()
        print(
            visible(f"{one.question.name or one.question.instructions}: temperature {one.values.temperature:.3g}")
        )
        rows = []
        for name in ("accuracy", "log_loss", "brier", "ece"):
            before, after = (_with_interval(getattr(quality, name)) for quality in (one.before, one.after))
            rows.append([name.replace("_", " "), before, after])
        print_table(["", "before", "after"], rows)


def _with_interval(measured: Measured) -> str:
    return f"{measured.value:.3f} ({measured.low:.3f} to {measured.high:.3f})"
