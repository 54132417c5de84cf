"""`gen decide --table`: the answers about each row of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from ...common.errors import UsageError
from ...common.files import input_name
from ..inputs.decisions import count_rows, make_decider, open_rows, read_rows
from ..inputs.model import find_model, load_model
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, flag_sentence, print_message, print_note
from ..options.decide import DecideOptions

if TYPE_CHECKING:
    from ...jobs.decisions import (
        CsvRows,
        DecisionJournal,
        DecisionPlan,
        JsonRows,
        ResultFormat,
        Row,
        TableRun,
    )
    from ...jobs.lines import BackgroundReader
    from ...requests.recorded_settings import ModelDescription
    from ..render.batch_progress import BatchProgress


class _TableJob(NamedTuple):
    """A table whose model is not loaded yet."""

    options: DecideOptions
    plan: DecisionPlan
    rows: CsvRows | JsonRows
    results: ResultFormat
    journal: DecisionJournal | None  # None: the results are printed
    progress: BatchProgress


def decide_table(options: DecideOptions, plan: DecisionPlan, path: Path) -> None:
    """Write the answers about each row of a table."""
    from ...jobs.decisions import DecisionJournal
    from ...jobs.journal import closing_results
    from ..render.batch_progress import BatchProgress

    rows = read_rows(options, path)
    results = _result_format(options, plan, rows)
    progress = BatchProgress(count_rows(options, rows, path))
    journal = None
    if options.output is not None and options.writes_file:
        journal = DecisionJournal(options.output, results, options.resume)
    job = _TableJob(options, plan, rows, results, journal, progress)
    with nullcontext() if journal is None else closing_results(journal), interruptible() as interrupt:
        (_decide_locally if options.cluster.on is None else _decide_on_cluster)(job, path, interrupt)
    if not progress.finished_count and not interrupt.requested:
        raise UsageError(f"{input_name(path)} has no rows")
    print_message(f"gen: {progress.summary()}")
    if progress.first_failure is not None:
        number, reason = progress.first_failure
        print_note(f"line {number} is the first that failed: {reason}")
    if interrupt.requested:
        if journal is not None:
            print_note("--resume continues from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed_count or progress.existing_failure_count:
        raise typer.Exit(FAILED)


def _result_format(options: DecideOptions, plan: DecisionPlan, rows: CsvRows | JsonRows) -> ResultFormat:
    from ...jobs.decisions import RESULT_FIELDS, CsvResults, CsvRows, JsonResults
    from ...requests.errors import InvalidLineError

    try:
        if isinstance(rows, CsvRows) and options.writes_csv:
            return CsvResults(rows, plan)
    except InvalidLineError as error:
        raise UsageError(f"{options.table}: {error}") from None
    if isinstance(rows, CsvRows):
        for name in RESULT_FIELDS:
            if name in rows.columns:
                raise UsageError(f'{options.table}: the results need a field "{name}"; rename this column')
    return JsonResults(with_tokens=options.trace)


def _decide_locally(job: _TableJob, path: Path, interrupt: Interrupt) -> None:
    from ...jobs.decisions import decided_rows
    from ...requests.recorded_settings import describe_model
    from ..render.batch_progress import show_progress, stop_check_with_note

    options = job.options
    with load_model(options.model, interrupt, slots=options.parallel) as model:
        decider = make_decider(job.plan, model)
        run = _begin_run(job, describe_model(model))
        slots = options.parallel or model.default_parallel
        with (
            open_rows(job.rows, path) as rows,
            show_progress(job.progress, _prints_on_terminal(job)) as display,
        ):
            decided = decided_rows(
                decider,
                run.new_rows(_available_rows(options, rows)),
                slots,
                describe_error=flag_sentence,
                should_stop=stop_check_with_note(interrupt),
            )
            for row, result in decided:
                run.write(row, result)
                display.refresh()


def _decide_on_cluster(job: _TableJob, path: Path, interrupt: Interrupt) -> None:
    from ...engine.slots import default_slots
    from ...jobs.workers import DecideServiceSpec, decisions_on_cluster, model_for_workers, wait_for_model
    from ..inputs.model import cluster_workers
    from ..render.batch_progress import show_cluster_progress, stop_check_with_note

    options = job.options
    spec = model_for_workers(
        find_model(options.model, interrupt, slots=options.parallel), options.cluster.worker_cpus
    )
    parallel = options.parallel or default_slots(spec.options.thread_count)
    service = DecideServiceSpec(spec, job.plan, options.parallel, flag_sentence)
    with cluster_workers(options.cluster, spec, service, sequences=parallel, shard_size=parallel) as workers:
        run = _begin_run(job, wait_for_model(workers, interrupt.raise_if_requested))
        with (
            open_rows(job.rows, path) as rows,
            show_cluster_progress(job.progress, workers, _prints_on_terminal(job)) as display,
        ):
            new_rows = run.new_rows(_available_rows(options, rows))
            for row, result in decisions_on_cluster(workers, new_rows, stop_check_with_note(interrupt)):
                run.write(row, result)
                display.refresh()


def _prints_on_terminal(job: _TableJob) -> bool:
    return job.journal is None and sys.stdout.isatty()


def _available_rows(options: DecideOptions, rows: Iterator[Row]) -> Iterator[Row] | BackgroundReader[Row]:
    """Return the rows. A pipe is read in the background, because its rows may arrive slowly."""
    from ...jobs.lines import BackgroundReader

    return rows if options.rows_can_be_counted else BackgroundReader(rows)


def _begin_run(job: _TableJob, model: ModelDescription) -> TableRun:
    """Return the run over a table. Raises ``JournalError`` if existing results were made in another way."""
    from ...jobs.decisions import TableRun
    from ...jobs.journal import check_and_write_settings

    options, journal = job.options, job.journal
    if journal is None:
        if job.results.header is not None:
            print(job.results.header, flush=True)
        return TableRun(job.results, job.progress, partial(print, flush=True))
    if journal.is_file and options.output is not None:
        flags = {"context": options.model.context_size, "column": options.column, "trace": options.trace}
        check_and_write_settings(
            options.output,
            job.plan.recorded_settings(model, flags),
            has_results=bool(journal.existing_results),
            needs_old_settings=True,
            way_out="name another file with -o",
        )
    return TableRun(job.results, job.progress, journal.add, journal.existing_results)
