"""Progress bars for long work: on stderr, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

from .text import visible

_LONG_PROMPT_TOKENS = 1024
"""A shorter prompt is read before a person would see a bar."""


@contextmanager
def loading(name: str) -> Iterator[Callable[[float], None]]:
    """Show a bar while a model loads; yields a function that takes the loaded fraction, 0 to 1."""
    if not sys.stderr.isatty():
        yield lambda fraction: None
        return
    with _bar() as bar:
        task = bar.add_task(f"Loading {visible(name)}", total=1.0)

        def update(fraction: float) -> None:
            bar.update(task, completed=fraction)

        yield update


@contextmanager
def reading() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar while a long prompt is read; yields the ``progress`` argument of `generate`, None for no bar."""
    with _show_if_long("Reading the prompt") as update:
        yield update


@contextmanager
def _show_if_long(title: str) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    bar = _bar()
    tasks: list[int] = []

    def update(done: int, total: int) -> None:
        if total < _LONG_PROMPT_TOKENS:
            return
        if not tasks:
            bar.start()
            tasks.append(bar.add_task(title, total=total))
        bar.update(tasks[0], completed=done)  # type: ignore[arg-type]
        if done >= total:
            bar.stop()

    try:
        yield update
    finally:
        bar.stop()


@contextmanager
def scoring() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar while a long text is scored; yields as `reading` does."""
    with _show_if_long("Scoring the text") as update:
        yield update


@contextmanager
def recovering(title: str = "Recovering") -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar of recovered tokens; yields a function of the recovered and the requested number, or None."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bar() as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar of finished items; yields a function to call after each item.

    There is no bar if stdout is a terminal: the results are printed there.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    with _bar() as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Stdout is not redirected: what is written there meanwhile is output.
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
