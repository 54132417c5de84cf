"""Progress bars for long operations, on stderr and only if stderr is a terminal.

When a call of an API is retried, a note names each new problem, and the bar shows the seconds until the next try.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING

from ..messages import print_note, visible_bar
from ..text import file_size, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from ...logprobs.events import Event
    from ...models.hub import PullProgress
    from ...recover.endpoints.http import Retry

_BAR_WIDTH = 8
_NARROW_BAR_WIDTH = 6
_MAX_LINE_COLUMNS = 49  # columns of the longest line below a bar; longer lines are truncated


@contextmanager
def loading_bar(name: str, *, is_needed: bool) -> Iterator[Callable[[float], None] | None]:
    """Show a bar while a model loads, and yield a function that takes the loaded fraction, 0 to 1."""
    # Without a bar, None is yielded, so that llama.cpp calls no Python while it loads. ``is_needed``: False for a
    # model that is loaded in a moment.
    has_bar = is_needed and sys.stderr.isatty()
    if not has_bar:
        yield None
        return
    with _shown_bar(_percentage_columns()) as bar:
        task = bar.add_task(f"Loading {_short_name(name)}", total=1.0)

        def update(fraction: float) -> None:
            bar.update(task, completed=fraction)

        yield update


# Longest name of a model in a bar. Longer names are truncated, so that the bar fits on a narrow terminal.
_MAX_NAME_CHARACTERS = 26


def _short_name(path: str) -> str:
    """Return the name of a file, truncated at its end if it is long."""
    shown = visible(path.rpartition("/")[2])
    return shown if len(shown) <= _MAX_NAME_CHARACTERS else f"{shown[: _MAX_NAME_CHARACTERS - 1]}…"


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[PullProgress], None]]:
    """Show a bar of bytes while files are downloaded, and yield a function that takes the progress."""
    # If stderr is not a terminal, a note names each file of the model ``name`` instead.
    if not sys.stderr.isatty():
        noted_files: set[str] = set()

        def note_new_file(progress: PullProgress) -> None:
            if progress.file not in noted_files:
                noted_files.add(progress.file)
                print_note(f"{name}: downloading {progress.file}, {file_size(progress.total_bytes)}")

        yield note_new_file
        return
    with _shown_bar(_byte_columns()) as bar:
        tasks: dict[str, TaskID] = {}

        def update(progress: PullProgress) -> None:
            title = _short_title(progress)
            if title not in tasks:
                for task in tasks.values():
                    bar.remove_task(task)
                tasks.clear()
                tasks[title] = bar.add_task(title, total=progress.total_bytes, completed=progress.done_bytes)
            bar.update(tasks[title], completed=progress.done_bytes)

        yield update


_MAX_TITLE_CHARACTERS = 18  # longest name of a downloaded file in a bar, which also shows bytes, rate and time


def _short_title(progress: PullProgress) -> str:
    """Return the end of a file's name, which has the quantization, or ``Checking`` while the file is checked."""
    if progress.is_checking:
        return "Checking"
    name = visible(progress.file.rpartition("/")[2])
    return name if len(name) <= _MAX_TITLE_CHARACTERS else f"…{name[1 - _MAX_TITLE_CHARACTERS :]}"


@contextmanager
def reading_bar() -> Iterator[ReadingBar | None]:
    """Show a bar while a long prompt is read; yield the argument ``progress`` of `generate`, or None."""
    with _erased_bar(ReadingBar("Reading")) as bar:
        yield bar


@contextmanager
def scoring_bar() -> Iterator[ReadingBar | None]:
    """Show a bar while a long text is scored; yield a ``progress`` argument, or None without a bar."""
    with _erased_bar(ReadingBar("Scoring")) as bar:
        yield bar


@contextmanager
def _erased_bar(bar: ReadingBar) -> Iterator[ReadingBar | None]:
    """Yield a bar, and erase it in the end; yield None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield bar
    finally:
        bar.erase()


_LONG_PROMPT_TOKENS = 1024  # Length of the shortest prompt that gets a bar. Shorter prompts are read in a moment.


class ReadingBar:
    """A bar that is shown while a text of at least ``min_tokens`` is read. If that is slow, it shows the time."""

    def __init__(self, title: str, min_tokens: int = _LONG_PROMPT_TOKENS) -> None:
        self._title = title
        self._min_tokens = min_tokens
        self._open_bar = ExitStack()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, done_count: int, total_count: int) -> None:
        """Update the bar, or erase it when the text is read."""
        if total_count < self._min_tokens:
            return
        if done_count >= total_count:
            self.erase()
            return
        if self._bar is None or self._task is None:  # short prompts return above, and need not import rich
            self._bar = self._open_bar.enter_context(_shown_bar(_count_columns("tokens", shows_time=True)))
            self._task = self._bar.add_task(self._title, total=total_count, completed=done_count)
        self._bar.update(self._task, completed=done_count)

    def erase(self) -> None:
        self._open_bar.close()
        self._bar = None
        self._task = None


@contextmanager
def sample_bar() -> Iterator[ReadingBar | None]:
    """Show a bar while several texts are generated; yield it, or None without a bar."""
    with _erased_bar(ReadingBar("Writing", min_tokens=1)) as bar:
        yield bar


def erase_bar_before_done(events: Iterable[Event], bar: ReadingBar | None) -> Iterator[Event]:
    """Yield the events of a run, and erase the bar before the last event."""
    # The bar is still on the screen if reading the prompt was interrupted. The output of the last event would move
    # the cursor away from the bar, which could then not be erased.
    from ...logprobs.events import Done

    for event in events:
        if bar is not None and isinstance(event, Done):
            bar.erase()
        yield event


@contextmanager
def recovery_bar(title: str = "Recovering") -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar, and yield a function of the numbers of recovered and of requested tokens; None without a bar."""
    # While a call of an API is retried, the bar shows the seconds until the next try instead of the title.
    if not sys.stderr.isatty():
        yield None
        return
    with _shown_bar(_count_columns("tokens", RETRY_DISPLAY.countdown)) as bar:
        task = bar.add_task(title, total=None)

        def update(done_count: int, total_count: int) -> None:
            bar.update(task, completed=done_count, total=total_count)

        yield update


@contextmanager
def counting_bar(
    title: str, total: int | None, noun: str = "items", *, is_needed: bool | None = None
) -> Iterator[Callable[[], None]]:
    """Show a bar of finished items (``total``: None if unknown), and yield a function to call after each item."""
    # ``is_needed``: None: unless stdout is a terminal, because results are printed there.
    if is_needed is None:
        is_needed = not sys.stdout.isatty()
    if not (is_needed and sys.stderr.isatty()):
        yield lambda: None
        return
    with _shown_bar(_count_columns(noun)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def _shown_bar(columns: tuple[ProgressColumn, ...]) -> Iterator[Progress]:
    with visible_bar(), make_bar(columns) as bar:
        yield bar


def make_bar(
    columns: tuple[ProgressColumn, ...], get_lines_below: Callable[[], Iterable[str]] = tuple
) -> Progress:
    """Return a bar of one line, which is removed when its context ends."""
    # The line has at most 49 columns on every terminal: if a terminal became narrower than the line, it would wrap
    # the line, and parts of the bar could not be removed. The lines of ``get_lines_below``, which is called at
    # each refresh, are truncated to 49 columns, too.
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

    class Bar(Progress):
        """The bar, and the lines below it."""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            for line in get_lines_below():
                text = Text(line, style="dim", no_wrap=True)
                text.truncate(_MAX_LINE_COLUMNS, overflow="ellipsis")
                yield text

    # rich would redirect stdout to stderr. Results are printed to stdout while the bar is shown.
    return Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)


def _percentage_columns() -> tuple[ProgressColumn, ...]:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    return (TextColumn("{task.description}"), BarColumn(_BAR_WIDTH), TaskProgressColumn())


# Tokens per second above which the elapsed time is not shown, since the counts already change all the time.
_FAST_RATE = 1000


def _count_columns(
    noun: str, get_title: Callable[[], str] = str, *, shows_time: bool = False
) -> tuple[ProgressColumn, ...]:
    """Return the columns of a bar with the finished number, the total and the rate per second."""
    # ``get_title`` returns the text that replaces the title, or an empty string; it is called at each refresh. The
    # elapsed time is not shown if the counts change quickly.
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Title(TextColumn):
        """The title, or the text that replaces it."""

        def render(self, task: Task) -> Text:
            return Text(get_title() or task.description)

    class CountAndRate(ProgressColumn):
        """A column such as ``1,024/4,096  512 tokens/s 0:02``."""

        def render(self, task: Task) -> Text:
            text = f"{task.completed:,.0f}"
            if task.total is not None:
                text += f"/{task.total:,.0f}"
            speed = task.speed or 0.0
            if speed:
                text += f" {speed:,.0f} {noun}/s"
            if shows_time and speed < _FAST_RATE:
                text += f" {_clock(task.elapsed or 0)}"
            return Text(text)

    return (Title(""), BarColumn(_NARROW_BAR_WIDTH if shows_time else _BAR_WIDTH), CountAndRate())


def _clock(seconds: float) -> str:
    """Return ``0:07`` or ``1:02:07``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _byte_columns() -> tuple[ProgressColumn, ...]:
    from rich.progress import DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    measures = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    return (TextColumn("{task.description}"), *measures)


class RetryDisplay:
    """A display of retries: a note for each new problem, and a countdown. Several threads may use one display."""

    def __init__(self) -> None:
        self._last_problem: str | None = None
        # The pending retries, by the time at which they begin, in seconds of ``time.monotonic()``.
        self._pending_retries: dict[float, Retry] = {}
        self._lock = Lock()

    def show(self, retry: Retry) -> None:
        """Start the countdown of a retry. Print a note if its problem differs from the last one."""
        with self._lock:
            self._pending_retries[time.monotonic() + retry.wait_seconds] = retry
            is_new = retry.problem != self._last_problem
            self._last_problem = retry.problem
        if is_new:
            print_note(
                f"{retry.problem}; trying again in {_whole_seconds(retry.wait_seconds)}, {_retry_number(retry)}"
            )

    def countdown(self) -> str:
        """Return the number of the next try and the seconds until then, in words; empty if no try is pending."""
        now = time.monotonic()
        with self._lock:
            self._pending_retries = {start: retry for start, retry in self._pending_retries.items() if start > now}
            if not self._pending_retries:
                return ""
            next_start = min(self._pending_retries)
            next_retry = self._pending_retries[next_start]
            return f"Again in {_whole_seconds(next_start - now)}, {_retry_number(next_retry)}"


def _whole_seconds(seconds: float) -> str:
    return f"{ceil(seconds):,} s"


def _retry_number(retry: Retry) -> str:
    return f"try {retry.attempt_number:,} of {retry.max_attempts:,}"


RETRY_DISPLAY = RetryDisplay()  # of all retries of this process
