"""`gen decide --fit`: a calibration that is fitted to labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import LogitsmithError, UsageError
from ...common.files import check_writable, input_name
from ..inputs.decisions import count_rows, make_decider, open_rows, read_rows
from ..inputs.model import load_model
from ..interrupt import interruptible
from ..messages import flag_sentence, print_note
from ..options.decide import DecideOptions

if TYPE_CHECKING:
    from ...decide.questions import Question
    from ...jobs.decisions import DecisionPlan, Row


def fit(options: DecideOptions, plan: DecisionPlan, path: Path) -> None:
    """Write a calibration that is fitted to labelled rows, and print the quality before and after."""
    from ...decide.fitting import LabelledAnswers, check_label_counts, fit_calibration
    from ...jobs.batch import Failure
    from ...jobs.decisions import decided_rows
    from ..render.decisions import show_calibration
    from ..render.progress import counting_bar

    if options.output is not None:
        _check_output(options.output)
    rows = read_rows(options, path)
    row_count = count_rows(options, rows, path)
    with open_rows(rows, path) as found:
        labelled_rows = [_labelled(plan.questions, row, path) for row in found]
    check_label_counts(plan.questions, [labels for _, labels in labelled_rows], with_bias=options.fit_bias)
    with (
        interruptible() as interrupt,
        load_model(options.model, interrupt, slots=options.parallel) as model,
        interrupt.graceful_shutdown(),
    ):
        decider = make_decider(plan, model)
        slots = options.parallel or model.default_parallel
        answered = []
        with counting_bar("Asking", row_count, "rows", is_needed=True) as advance_bar:
            rows_alone = [row for row, _ in labelled_rows]
            for row, result in decided_rows(decider, rows_alone, slots, describe_error=flag_sentence):
                interrupt.raise_if_requested()
                if isinstance(result, Failure):
                    raise UsageError(f"{input_name(path)}: line {row.number}: {result.message}")
                answered.append(result.answers)
                advance_bar()
        labels = [labels for _, labels in labelled_rows]
        calibration = fit_calibration(decider, map(LabelledAnswers, answered, labels), with_bias=options.fit_bias)
    show_calibration(calibration)  # first, because the disk may be full
    if options.output is not None:
        calibration.save(options.output)
    for note in dict.fromkeys(one.note for one in calibration.questions):
        if note is not None:
            print_note(note)


def _check_output(path: Path) -> None:
    """Raise an error if a calibration cannot be written here, or would replace another file than a calibration."""
    from ...decide.calibration import read_calibration

    check_writable(path)
    if path.is_file() and path.stat().st_size:
        try:
            read_calibration(path)
        except (LogitsmithError, OSError):
            raise UsageError(f"-o would replace {path}, which is no calibration; name another file") from None


def _labelled(questions: Sequence[Question], row: Row, path: Path) -> tuple[Row, list[int | None]]:
    """Return a row with the numbers of its labels. Raises ``UsageError``."""
    from ...decide.labels import label_indices

    try:
        if row.error is not None:
            raise row.error
        return row, label_indices(questions, row.fields)
    except LogitsmithError as error:
        raise UsageError(f"{input_name(path)}: line {row.number}: {error}") from None
