"""Progress on long work: on stderr, and only when that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

from .text import visible

# A prompt shorter than this is read before a bar could be seen.
_LONG_PROMPT = 1024


@contextmanager
def loading(name: str) -> Iterator[Callable[[float], None]]:
    """A bar for loading a model; yields what is to be called with the part that is loaded."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    with _bar() as bar:
        task = bar.add_task(f"Loading {visible(name)}", total=1.0)

        def step(part: float) -> None:
            bar.update(task, completed=part)

        yield step


@contextmanager
def reading() -> Iterator[Callable[[int, int], None] | None]:
    """A bar for reading a long prompt; yields what `generate` takes as ``progress``, or None."""
    with _watching("Reading the prompt") as step:
        yield step


@contextmanager
def _watching(what: str) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    bar = _bar()
    tasks: list[int] = []

    def step(done: int, total: int) -> None:
        if total < _LONG_PROMPT:
            return
        if not tasks:
            bar.start()
            tasks.append(bar.add_task(what, total=total))
        bar.update(tasks[0], completed=done)  # type: ignore[arg-type]
        if done >= total:
            bar.stop()

    try:
        yield step
    finally:
        bar.stop()


@contextmanager
def scoring() -> Iterator[Callable[[int, int], None] | None]:
    """A bar for scoring a long text, as `reading`."""
    with _watching("Scoring the text") as step:
        yield step


@contextmanager
def recovering(what: str = "Recovering") -> Iterator[Callable[[int, int], None] | None]:
    """A bar for tokens that become known; yields what is to be called with known and wanted ones, or None."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bar() as bar:
        task = bar.add_task(what, total=None)

        def step(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield step


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar for work of several parts; yields what is to be called after each. None where stdout is a terminal."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Stdout is left alone: what is written there while the bar stands belongs to the user.
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
