"""`gen inspect`: show runs that were written as jsonl, in the terminal or as an HTML page."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.files import bounded_lines, input_name, is_stdin, open_as_utf8, open_input, write_file_atomically
from ...common.flags import at_least
from ...common.text import count_noun, did_you_mean
from ..command_options import reject_same_file, takes_options
from ..flags import COLOR_METAVAR, Color, Options, argument, flag, read_color
from ..inputs.prompt import input_path
from ..interrupt import ignored_interrupts
from ..messages import FAILED, fail, print_message, print_note
from ..startup import start_collector

if TYPE_CHECKING:
    from ...logprobs.recorded import RecordedEvent, StreamError
    from ...logprobs.records import LogprobSource
    from ...logprobs.report.run_data import RunData


class OneSource(StrEnum):
    """The distribution whose logprobs are shown."""

    model = "model"
    chain = "chain"


@dataclass(frozen=True, kw_only=True)
class InspectOptions(Options):
    """The options of `gen inspect`."""

    files: list[Path] | None = argument(
        "RUN.JSONL...",
        display_name="the run",
        help="Files written by gen --format jsonl or gen batch --format jsonl; - reads stdin. [stdin]",
    )
    id: list[str] | None = flag(
        "--id", metavar="ID", help="Show only the answer to this request of a batch; repeatable."
    )
    html: Path | None = flag(
        "--html", help="Write an HTML page that shows each token and its trace; - = stdout.", is_path=True
    )
    token: int | None = flag(
        "--token",
        metavar="N",
        help="Show the trace of token N, counted from 0, and how it was drawn.",
        limit=at_least(0),
    )
    text: str | None = flag(
        "--text", metavar="TEXT", help="Show the trace of the first token that contains this text."
    )
    top: int | None = flag(
        "--top", help="Show a table of tokens with N alternatives for each token.", limit=at_least(0)
    )
    source: OneSource | None = flag(
        "--logprobs-from", help="Show logprobs of this distribution, if the run has both. [model]"
    )
    color: Color = flag(
        "--color",
        metavar=COLOR_METAVAR,
        parse=read_color,
        help="Color tokens by probability; auto = on a terminal without NO_COLOR. [auto]",
        default=Color.auto,
    )

    @property
    def needs_stdout(self) -> bool:
        """False if an HTML page is written to a file."""
        return self.html is None or self.prints_page

    @property
    def prints_page(self) -> bool:
        """Whether an HTML page is written to stdout."""
        return str(self.html) == "-"

    def check(self) -> None:
        """Raise ``UsageError`` for conflicting flags, a page that replaces a run, or a repeated stdin."""
        files = self.files or []
        self._check_token()
        if self.html is not None:
            is_terminal_flag_given = {
                "--top": self.top is not None,
                "--color": self.color is not Color.auto,
            }
            for name, is_given in is_terminal_flag_given.items():
                if is_given:
                    raise UsageError(f"{name} is for the terminal, and --html writes a page; omit one of them")
            if not self.prints_page:
                reject_same_file([("--html", self.html)], [("the run", file) for file in files])
        if files.count(Path("-")) > 1:
            raise UsageError("stdin (-) is given twice")

    def _check_token(self) -> None:
        """Raise ``UsageError`` for flags that have no effect on the trace of one token."""
        if self.token is None and self.text is None:
            return
        if self.token is not None and self.text is not None:
            raise UsageError("--token and --text both choose a token; give only one")
        if self.text == "":
            raise UsageError("--text: the text must not be empty")
        name = "--token" if self.token is not None else "--text"
        is_flag_without_effect_given = {
            "--html": self.html is not None,
            "--top": self.top is not None,
            "--color": self.color is not Color.auto,
            "--logprobs-from": self.source is not None,
        }
        for other, is_given in is_flag_without_effect_given.items():
            if is_given:
                raise UsageError(f"{name} shows the trace of one token, where {other} has no effect; omit {other}")


@takes_options(InspectOptions)
def inspect(options: InspectOptions) -> None:
    """Show runs written by gen --format jsonl: probability, surprise and entropy of each token.

    A run can be shown while it is written: gen "..." --format jsonl | gen inspect

      gen inspect run.jsonl --top 5
      gen inspect run.jsonl --token 12
      gen inspect a.jsonl b.jsonl --html both.html
    """
    start_collector()
    files = [_RunFile(path) for path in _paths_of_runs(options)]
    requested_ids = frozenset(options.id or ())
    if options.token is not None or options.text is not None:
        _print_token(files, options, requested_ids)
    elif options.html is None:
        _print_runs(files, options, requested_ids)
    else:
        _write_page(files, options, options.html, requested_ids)
    for file in files:
        file.discard_other_problems(requested_ids)
    _check_ids(files, requested_ids)
    _report_unreadable_lines(files)


def _check_ids(files: Sequence[_RunFile], requested_ids: frozenset[str]) -> None:
    """End the command if a requested id is in no file."""
    answered_ids: set[str] = set()
    missing_ids = set(requested_ids)
    for file in files:
        answered_ids |= file.ids
        missing_ids -= file.ids | file.unreadable_ids
    if missing_ids:
        suggestion = did_you_mean(min(missing_ids), sorted(answered_ids))
        advice = f"; {suggestion}" if suggestion else ""
        fail(f"--id: there is no answer to {', '.join(sorted(missing_ids))}{advice}")


def _paths_of_runs(options: InspectOptions) -> Sequence[Path]:
    """Return the files of the runs. Raises ``UsageError`` if neither a file nor a pipe is given."""
    files: Sequence[Path | None] = options.files or [None]  # None stands for stdin, if stdin is a pipe
    paths = [input_path(file) for file in files]
    if None in paths:
        raise UsageError(
            "no run is given: name a file, or pipe a run into this command (gen ... --format jsonl | gen inspect)"
        )
    return [path for path in paths if path is not None]


@dataclass
class _RunFile:
    """A file of runs, and the problems that were found while it was read."""

    path: Path
    problems: list[StreamError] = field(default_factory=list)  # the lines that could not be read
    ids: set[str] = field(default_factory=set)  # the ids of the requests whose answers are in the file
    has_run: bool = False

    @property
    def name(self) -> str:
        return input_name(self.path)

    @property
    def unreadable_ids(self) -> set[str]:
        """The ids of the requests whose lines have no tokens."""
        return {problem.request for problem in self.problems if problem.request is not None}

    def discard_other_problems(self, ids: frozenset[str]) -> None:
        """Discard the problems of requests that are not in ``ids``; keep all if ``ids`` is empty."""
        if ids:
            self.problems = [problem for problem in self.problems if problem.request in (None, *ids)]

    def runs(self, ids: frozenset[str]) -> Iterator[Iterator[RecordedEvent]]:
        """Yield the runs of the file; in results of a batch, only those in ``ids``, unless ``ids`` is empty."""
        from ...logprobs.recorded import read_stream, split_runs

        with ExitStack() as stack:
            if is_stdin(self.path):
                # Ctrl-C ends the program that writes the pipe. It writes a "done" line, which is read here.
                stack.enter_context(ignored_interrupts())
            file = stack.enter_context(open_input(self.path))
            events = read_stream(bounded_lines(open_as_utf8(file)), self.problems.append)
            for run in split_runs(events):
                yield from self._requested_run(run, ids)

    def _requested_run(
        self, run: Iterator[RecordedEvent], ids: frozenset[str]
    ) -> Iterator[Iterator[RecordedEvent]]:
        """Yield the run if ``ids`` is empty or contains the run's request."""
        from ...logprobs.recorded import RecordedStart

        first_event = next(run)
        request_id = first_event.id if isinstance(first_event, RecordedStart) else None
        if request_id is not None:
            self.ids.add(request_id)
        self.has_run = True
        if not ids or request_id in ids:
            yield chain([first_event], run)


def _print_runs(inputs: Sequence[_RunFile], options: InspectOptions, ids: frozenset[str]) -> None:
    from ..render.inspection import RunPrinter

    printer = RunPrinter(options.top, _logprob_source(options), options.color.is_colored)
    for item in inputs:
        for run in item.runs(ids):
            printer.show(run, item.name if len(inputs) > 1 else None)


def _print_token(inputs: Sequence[_RunFile], options: InspectOptions, ids: frozenset[str]) -> None:
    """Show the trace of one token of each run. A run without the token, or without a trace, is an error."""
    from ..render.inspection import run_heading
    from ..render.trace import TokenSearch, show_token

    is_first = True
    for item in inputs:
        for run in item.runs(ids):
            search = TokenSearch(options.token, options.text)
            line = search.find(run)
            name = item.name if search.request_id is None else f"{item.name}: {search.request_id}"
            if line is None:
                fail(f"{name}: there is no {search.description}; the run has {search.token_count:,} tokens")
            if line.trace is None:
                fail(f"{name}: this run has no trace; repeat it with --format jsonl --trace")
            if not is_first:
                print()
            is_first = False
            heading = run_heading(item.name if len(inputs) > 1 else None, search.request_id)
            if heading is not None:
                print(heading)
            show_token(line, line.trace, search.token_count - 1)


def _write_page(inputs: Sequence[_RunFile], options: InspectOptions, target: Path, ids: frozenset[str]) -> None:
    from ...logprobs.report import page
    from ...logprobs.report.run_data import RunReader

    source = _logprob_source(options)
    runs: list[RunData] = []
    for item in inputs:
        for events in item.runs(ids):
            run = RunReader(item.name, source).read(events)
            if run is not None:
                runs.append(run)
    if not runs:
        return
    html = page(runs)
    if options.prints_page:
        sys.stdout.write(html)
    else:
        data = html.encode()
        write_file_atomically(target, lambda file: file.write(data))
        tokens = count_noun(sum(run.token_count for run in runs), "token")
        print_message(f"gen: {target}: {count_noun(len(runs), 'run')}, {tokens}, {len(data) / 1e6:.2f} MB")
    for run in runs:
        if run.is_cut_off:
            reason = 'its record does not end with a "done" line'
            print_note(f"{run.name}: the run was cut off after {count_noun(run.token_count, 'token')}: {reason}")


def _logprob_source(options: InspectOptions) -> LogprobSource | None:
    return None if options.source is None else options.source.value


_MAX_SHOWN_PROBLEMS = 20  # maximum number of unreadable lines that are reported one by one


def _report_unreadable_lines(inputs: Sequence[_RunFile]) -> None:
    """Report unreadable lines and empty files. If there are any, the command fails."""
    for item in inputs:
        if item.problems and not item.has_run:
            reason = "this file was not written by gen --format jsonl or gen batch --format jsonl"
            print_message(f"gen: {item.name}: {reason}; {item.problems[0]}")
            continue
        for problem in item.problems[:_MAX_SHOWN_PROBLEMS]:
            print_message(f"gen: {item.name}: {problem}")
        if len(item.problems) > _MAX_SHOWN_PROBLEMS:
            more_lines = count_noun(len(item.problems) - _MAX_SHOWN_PROBLEMS, "more line")
            print_message(f"gen: {item.name}: and {more_lines} without an event")
        if not item.problems and not item.has_run:
            print_message(f"gen: {item.name}: the file has no run")
    if any(item.problems or not item.has_run for item in inputs):
        raise typer.Exit(FAILED)
