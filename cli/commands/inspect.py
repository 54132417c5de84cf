"""`gen inspect`: a look at a run that was written as jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from ..errors import FAILED, fail, say
from ..inputs.files import input_name, input_path, is_stdin, open_input
from ..interrupt import ignored_interrupts
from ..options.inspect import Color, InspectOptions
from ..options.signature import takes_options

if TYPE_CHECKING:
    from ...logprobs import StreamError

_COLORED = {Color.auto: None, Color.always: True, Color.never: False}
_MAX_PROBLEMS = 20
"""Wrong lines that are reported one by one."""


@takes_options(InspectOptions)
def inspect(options: InspectOptions) -> None:
    """Show a run of gen --format jsonl: its tokens tinted by probability, their surprise and entropy.

    Reads along while a run is written: gen "..." --format jsonl | gen inspect
    """
    from ...logprobs import read_stream
    from ..render.inspection import show

    path = input_path(options.file)
    if path is None:
        raise typer.BadParameter(
            "there is no run: give a file, or pipe one in (gen ... --format jsonl | gen inspect)"
        )
    problems: list[StreamError] = []
    # Ctrl-C is for the program that writes the pipe; it then ends the stream in order.
    with ignored_interrupts() if is_stdin(path) else nullcontext(), open_input(path) as lines:
        events = read_stream(lines, problems.append)
        has_events = show(
            events,
            options.top,
            None if options.source is None else options.source.value,
            _COLORED[options.color],
        )
    _report(problems, has_events, input_name(path))


def _report(problems: Sequence[StreamError], has_events: bool, name: str) -> None:
    for problem in problems[:_MAX_PROBLEMS]:
        say(f"gen: {name}: {problem}")
    if len(problems) > _MAX_PROBLEMS:
        say(f"gen: {name}: and {len(problems) - _MAX_PROBLEMS:,} further lines that are no events")
    if problems:
        raise typer.Exit(FAILED)
    if not has_events:
        fail(f"{name}: there is no run in it")
