"""What makes `gen` start soon. Each function here saves time and changes nothing else.

The gains are processor time on two cores, with Python 3.11 and typer 0.29: the lowest of 20 runs with the
function, and of 20 without it, taken in turn. ``python -m benchmarks.start`` measures the whole start.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_ALLOCATIONS_BETWEEN_COLLECTIONS = 200_000
"""More than the imports of a run make, so that none of them is searched for garbage."""


@contextmanager
def few_collections(*, is_whole_process: bool) -> Iterator[None]:
    """Let the garbage collector rest: modules that are being imported are no garbage.

    It does not search at the end either: the process gives its memory back at once.
    Gain: 10 of 76 ms for `gen --help`, 105 of 537 ms for `gen x --show-config`. ``is_whole_process``: the process
    ends with the block.
    """
    atexit.register(gc.freeze)
    thresholds = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS, *thresholds[1:])
    try:
        yield
    finally:
        if not is_whole_process:  # else the old threshold would start a search just before the end
            gc.set_threshold(*thresholds)


def import_command(name: str) -> ModuleType:
    """Import the module of one command; the others are not imported.

    The group of all commands holds their names and summaries, so that `gen --help` imports none of them.
    Gain: 52 of 118 ms for `gen --help`.
    """
    return import_module(f".commands.{name.replace('-', '_')}", __package__)


def skip_absent_options(command: Any) -> None:
    """Let an option that is not given have no value, without a look at its type.

    typer makes a validator for each option, given or not, and a run has some seventy options.
    Gain: 3 ms for a run.
    """
    for subcommand in getattr(command, "commands", {}).values():
        skip_absent_options(subcommand)
    for parameter in command.params:
        if parameter.nargs == 1 and not parameter.required and not parameter.callback:
            _skip_if_absent(parameter)


def _skip_if_absent(parameter: Any) -> None:
    process = parameter.process_value
    absent = () if parameter.multiple else None

    def process_value(context: Any, value: Any) -> Any:
        return absent if value is None else process(context, value)

    parameter.process_value = process_value
