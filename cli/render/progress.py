"""Progress bars for long work: on stderr, and only if that is a terminal.

Of calls of an API that are repeated, there is a note on each new problem, and the seconds until the next try.
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
from .run import file_size, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from ...logprobs.events import Event
    from ...models.hub import PullProgress
    from ...recover.endpoints.http import Retry

_BAR_WIDTH, _NARROW_BAR_WIDTH = 8, 6
_MAX_LINE_CHARACTERS = 49
"""Of a line below a bar."""


@contextmanager
def loading_bar(name: str, *, is_almost_loaded: bool = False) -> Iterator[Callable[[float], None]]:
    """Show a bar while a model loads; yields a function that takes the loaded fraction, 0 to 1.

    ``is_almost_loaded``: the bar would come, and rich be imported, for a moment only.
    """
    if is_almost_loaded or not sys.stderr.isatty():
        yield lambda fraction: None
        return
    with _shown_bar(_percentage()) as bar:
        task = bar.add_task(f"Loading {_short_name(name)}", total=1.0)

        def update(fraction: float) -> None:
            bar.update(task, completed=fraction)

        yield update


_MAX_NAME_CHARACTERS = 26
"""Of a model's name, so that the bar stays short."""


def _short_name(path: str) -> str:
    """The name of a file, cut so that the bar stays short."""
    shown = visible(path.rpartition("/")[2])
    return shown if len(shown) <= _MAX_NAME_CHARACTERS else f"{shown[: _MAX_NAME_CHARACTERS - 1]}…"


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[PullProgress], None]]:
    """Show a bar of bytes while files are downloaded; yields a function that takes the progress.

    Where stderr is no terminal, a line tells of each file.
    """
    if not sys.stderr.isatty():
        named: set[str] = set()

        def tell(progress: PullProgress) -> None:
            if progress.file not in named:
                named.add(progress.file)
                print_note(f"{name}: downloading {progress.file}, {file_size(progress.total_bytes)}")

        yield tell
        return
    with _shown_bar(_bytes()) as bar:
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


_MAX_TITLE_CHARACTERS = 18
"""Of a file that is downloaded: bytes, rate and time stand beside it."""


def _short_title(progress: PullProgress) -> str:
    """The end of a file's name, where its quantisation stands, or that the file is checked."""
    if progress.is_checking:
        return "Checking"
    name = visible(progress.file.rpartition("/")[2])
    return name if len(name) <= _MAX_TITLE_CHARACTERS else f"…{name[1 - _MAX_TITLE_CHARACTERS :]}"


@contextmanager
def reading_bar() -> Iterator[ReadingBar | None]:
    """Show a bar while a long prompt is read; yields the ``progress`` argument of `generate`, None for no bar."""
    with _shown_while_read("Reading") as bar:
        yield bar


@contextmanager
def scoring_bar() -> Iterator[ReadingBar | None]:
    """Show a bar while a long text is scored; yields as `reading_bar` does."""
    with _shown_while_read("Scoring") as bar:
        yield bar


@contextmanager
def _shown_while_read(title: str) -> Iterator[ReadingBar | None]:
    if not sys.stderr.isatty():
        yield None
        return
    bar = ReadingBar(title)
    try:
        yield bar
    finally:
        bar.erase()


_LONG_PROMPT_TOKENS = 1024
"""A shorter prompt is read before a person would see a bar."""


class ReadingBar:
    """A bar that is shown while a long text is read, and for each second of a slow one shows another time.

    Call it with the number of tokens that are read, and with that of all.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._open_bar = ExitStack()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how much is read; a text that is read has no bar."""
        if total < _LONG_PROMPT_TOKENS:
            return
        if done >= total:
            self.erase()
            return
        if self._bar is None or self._task is None:  # rich is imported only now
            self._bar = self._open_bar.enter_context(_shown_bar(_counts("tokens", shows_time=True)))
            self._task = self._bar.add_task(self._title, total=total, completed=done)
        self._bar.update(self._task, completed=done)

    def erase(self) -> None:
        """Leave nothing of the bar on the screen."""
        self._open_bar.close()
        self._bar = self._task = None


def erase_bar_before_done(events: Iterable[Event], bar: ReadingBar | None) -> Iterator[Event]:
    """Yield the events of a run. A bar of a prompt whose reading was ended is erased before the last one.

    What is written for that event would otherwise move the cursor away from the bar.
    """
    from ...logprobs.events import Done

    for event in events:
        if bar is not None and isinstance(event, Done):
            bar.erase()
        yield event


@contextmanager
def recovery_bar(title: str = "Recovering") -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar of recovered tokens; yields a function of the recovered and the requested number, or None.

    While an API is asked again, the seconds until the next try stand in place of the title.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with _shown_bar(_counts("tokens", RETRY_DISPLAY.countdown)) as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


@contextmanager
def counting_bar(title: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar of finished items; yields a function to call after each item.

    There is no bar if stdout is a terminal: the results are printed there.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    with _shown_bar(_counts("items")) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def _shown_bar(columns: tuple[ProgressColumn, ...]) -> Iterator[Progress]:
    """Show a bar while inside, and leave nothing of it."""
    with visible_bar(), make_bar(columns) as bar:
        yield bar


def make_bar(columns: tuple[ProgressColumn, ...], details: Callable[[], Iterable[str]] = tuple) -> Progress:
    """A bar of one line, which disappears at its end.

    A line that a terminal wraps when it becomes narrower leaves remains. So ``columns`` take at most 49 of a
    line, whatever the width.

    Args:
        columns: of the line.
        details: called at each refresh; returns lines to show below it, which are cut to the same width.
    """
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

    class Bar(Progress):
        """The line, and what stands below it."""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            for line in details():
                text = Text(line, style="dim", no_wrap=True)
                text.truncate(_MAX_LINE_CHARACTERS, overflow="ellipsis")
                yield text

    # Stdout is not redirected: what is written there meanwhile is output.
    return Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)


def _percentage() -> tuple[ProgressColumn, ...]:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    return (TextColumn("{task.description}"), BarColumn(_BAR_WIDTH), TaskProgressColumn())


_FAST_RATE = 1000
"""A text that is read with more tokens a second has counts that change several times a second."""


def _counts(
    noun: str, replace_title: Callable[[], str] = str, *, shows_time: bool = False
) -> tuple[ProgressColumn, ...]:
    """Columns of how much is done, of how much, and how much a second.

    Args:
        noun: what is counted.
        replace_title: called at each refresh; a text that is not empty replaces the title.
        shows_time: show the time since the beginning, unless the counts change faster than that.
    """
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Title(TextColumn):
        """The title, or what replaces it now."""

        def render(self, task: Task) -> Text:
            return Text(replace_title() or task.description)

    class CountAndRate(ProgressColumn):
        """``1,024/4,096  512 tokens/s 0:02``."""

        def render(self, task: Task) -> Text:
            total = "" if task.total is None else f"/{task.total:,.0f}"
            rate = "" if not task.speed else f" {task.speed:,.0f} {noun}/s"
            is_fast = (task.speed or 0) >= _FAST_RATE
            time = f" {_clock(task.elapsed or 0)}" if shows_time and not is_fast else ""
            return Text(f"{task.completed:,.0f}{total}{rate}{time}")

    return (Title(""), BarColumn(_NARROW_BAR_WIDTH if shows_time else _BAR_WIDTH), CountAndRate())


def _clock(seconds: float) -> str:
    """A time as ``0:07`` or ``1:02:07``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _bytes() -> tuple[ProgressColumn, ...]:
    from rich.progress import DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    measures = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    return (TextColumn("{task.description}"), *measures)


class RetryDisplay:
    """What a person sees of retries. Threads may share it."""

    def __init__(self) -> None:
        self._last_problem: str | None = None
        self._next_tries: dict[float, Retry] = {}
        """The retries that are waited for, by the time when they begin."""
        self._lock = Lock()

    def show(self, retry: Retry) -> None:
        """Print a note, once as long as the same problem lasts, and count down from now on."""
        with self._lock:
            self._next_tries[time.monotonic() + retry.wait_seconds] = retry
            is_new = retry.problem != self._last_problem
            self._last_problem = retry.problem
        if is_new:
            print_note(f"{retry.problem}; trying again in {_seconds(retry.wait_seconds)}, {_count(retry)}")

    def countdown(self) -> str:
        """Which try comes next, and in how many seconds; empty if none is waited for."""
        now = time.monotonic()
        with self._lock:
            self._next_tries = {begin: retry for begin, retry in self._next_tries.items() if begin > now}
            if not self._next_tries:
                return ""
            begin = min(self._next_tries)
            return f"Again in {_seconds(begin - now)}, {_count(self._next_tries[begin])}"


def _seconds(seconds: float) -> str:
    return f"{ceil(seconds):,} s"


def _count(retry: Retry) -> str:
    return f"try {retry.attempt_number:,} of {retry.max_attempts:,}"


RETRY_DISPLAY = RetryDisplay()
"""Those of this process, which runs one command."""
