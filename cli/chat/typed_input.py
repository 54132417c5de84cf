"""The input of a chat: typed by a person, in a line editor with a history and completion, or as lines of stdin.

Keys that are typed while an answer is shown do not appear in the answer (see `terminal_without_echo`). They appear
at the next prompt.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
import termios
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import get_cwidth

from ...common.errors import LogitsmithError
from ...common.files import MAX_TEXT_BYTES
from ...common.text import NotUTF8Error, decode_utf8
from ..completion.values import CompletionResult
from ..messages import print_message


class EndOfInputError(Exception):
    """Nothing more comes."""


class TurnError(LogitsmithError):
    """A turn that cannot be used."""


class TurnInput(ABC):
    """Where turns come from.

    Attributes: ``has_pending_interrupt``, True after Ctrl-C behind a turn that was read, or behind another Ctrl-C:
    nobody knows of it yet; ``was_cleared``, True if Ctrl-C cleared what was typed, and nothing was sent since.
    """

    has_pending_interrupt = False
    was_cleared = False

    def pop_interrupt(self) -> bool:
        """Return ``has_pending_interrupt``, which is False from then on."""
        waits, self.has_pending_interrupt = self.has_pending_interrupt, False
        return waits

    def pop_was_cleared(self) -> bool:
        """Return ``was_cleared``, which is False from then on."""
        cleared, self.was_cleared = self.was_cleared, False
        return cleared

    @abstractmethod
    def read(self, default: str = "", question: str = "") -> str:
        """Return the next turn, which may have several lines.

        Args:
            default: a text that the person may change.
            question: what stands before the place to type; empty: the usual mark.

        Raises ``EndOfInputError`` when nothing more comes, ``TurnError``, and ``KeyboardInterrupt`` for Ctrl-C
        where nothing is typed, also for one that waits.
        """


_BLOCK_MARK = '"""'
"""On a line of its own it begins and ends a turn of several lines."""


class PipedInput(TurnInput):
    """The lines of stdin: each is a turn, or part of a block between two marks. Blank lines are none."""

    _is_over = False
    """True after a turn that is too large: nothing more is read."""

    def read(self, default: str = "", question: str = "") -> str:
        """Return the next turn."""
        while not (line := self._line().strip("\n")).strip():
            pass
        if line.strip() != _BLOCK_MARK:
            return line
        block = StringIO()  # a list of short lines would take twenty times the memory
        try:
            while (line := self._line()).strip() != _BLOCK_MARK:
                block.write(line)
                self._check_size(block.tell(), "a block")
        except EndOfInputError:
            if not block.tell():
                raise
        return block.getvalue().removesuffix("\n")

    def _line(self) -> str:
        is_open = sys.stdin is not None and not self._is_over
        data = sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1) if is_open else b""
        if not data:
            raise EndOfInputError
        self._check_size(len(data), "a line")
        try:
            return decode_utf8(data)
        except NotUTF8Error as error:
            raise TurnError(f"stdin is {error}") from None

    def _check_size(self, size: int, what: str) -> None:
        """End the input with a ``TurnError``: what follows in such a line or block is not a turn."""
        if size > MAX_TEXT_BYTES:
            self._is_over = True
            limit = MAX_TEXT_BYTES // 1_000_000
            raise TurnError(f"stdin: {what} is larger than {limit} MB, so the chat ends; give shorter turns")


_Complete = Callable[[str], tuple[CompletionResult, int]]
"""From the text before the cursor to what completes it, and how many of its characters that replaces."""


_MARK, _MARK_OF_FURTHER_LINES = "> ", "… "


class TypedInput(TurnInput):
    """A line editor on a terminal."""

    def __init__(self, complete: _Complete, history: Path | None) -> None:
        """Prepare the editor.

        Args:
            complete: completes commands.
            history: a file that keeps what was typed; None: it is forgotten at the end.
        """
        self._question = _MARK
        self._editor: asyncio.Task[None] | None = None
        """An editor of the user, which may be open."""
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if history is None else _PrivateHistory(str(history)),
            completer=_CommandCompleter(complete),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda *_: FormattedText([("fg:ansibrightblack", _MARK_OF_FURTHER_LINES)]),
            key_bindings=self._key_bindings(),
            enable_suspend=True,
            input_processors=[_WordWrap(self._mark_width, get_cwidth(_MARK_OF_FURTHER_LINES))],
            tempfile_suffix=".md",
            search_ignore_case=True,
        )

    def read(self, default: str = "", question: str = "") -> str:
        """Return what is typed. Enter ends it, Alt-Enter goes on in a further line."""
        self._question = question or _MARK
        mark = FormattedText([("bold", self._question)])
        self.was_cleared = False
        with self._noted_interrupts():
            try:
                text = self._session.prompt(
                    mark, default=default, handle_sigint=False, pre_run=self._end_if_interrupted
                )
            except EOFError:
                raise EndOfInputError from None
            self._look_for_control_c()
        self.was_cleared = False
        return _unmarked(text.encode("utf-8", "replace").decode())

    def _mark_width(self, line: int) -> int:
        return get_cwidth(_MARK_OF_FURTHER_LINES if line else self._question)

    @contextmanager
    def _noted_interrupts(self) -> Iterator[None]:
        """While inside, SIGINT loses no text that was sent: it ends the editor, or waits if that has ended."""
        app = self._session.app

        def note(_number: int, _frame: object) -> None:
            if self._editor is not None and not self._editor.done():
                print_message(
                    ""
                )  # Ctrl-C is for the editor; the terminal wrote ^C where the prompt will begin a line
                return
            self.has_pending_interrupt = True
            if app.is_running and app.loop is not None:
                app.loop.call_soon_threadsafe(self._end_if_interrupted)

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _end_if_interrupted(self) -> None:
        """End the editor if SIGINT came, be it before it was started."""
        app = self._session.app
        if app.is_running and not app.is_done and self.pop_interrupt():
            app.exit(exception=KeyboardInterrupt)

    def _look_for_control_c(self) -> None:
        """Look for Ctrl-C behind Enter, which the editor takes for a key of the next text."""
        source = self._session.app.input
        keys = [*get_typeahead(source), *source.read_keys()]
        places = [number for number, press in enumerate(keys) if press.key == Keys.ControlC]
        if places:
            self.has_pending_interrupt = True
        store_typeahead(source, keys[places[-1] + 1 :] if places else keys)

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        is_typing = has_focus(DEFAULT_BUFFER)  # and not searching

        @bindings.add("enter", filter=is_typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if _is_open_block(buffer.text):
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @bindings.add("escape", "c-j", filter=is_typing)  # typed ahead: outside the editor, Enter is Ctrl-J
        @bindings.add("escape", "enter", filter=is_typing)
        def _alt_enter(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @bindings.add("c-x", "c-e", filter=is_typing)
        def _open_editor(event: KeyPressEvent) -> None:
            problem = _editor_problem()
            if problem is None:
                self._editor = event.current_buffer.open_in_editor()
            else:
                run_in_terminal(lambda: print_message(f"gen: {problem}"))

        @bindings.add("c-c", filter=is_typing)
        def _control_c(event: KeyPressEvent) -> None:
            """Clear what is typed; where nothing is, tell the chat."""
            if event.current_buffer.text:
                _clear(event.current_buffer)
                self.was_cleared = True
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        return bindings


def _unmarked(text: str) -> str:
    """A turn without the marks of a block around it."""
    lines = text.strip().split("\n")
    if len(lines) > 1 and lines[0].strip() == _BLOCK_MARK:
        end = -1 if lines[-1].strip() == _BLOCK_MARK else len(lines)
        return "\n".join(lines[1:end])
    return text


def _is_open_block(text: str) -> bool:
    """True for a block whose end mark is missing."""
    lines = text.strip().split("\n")
    return lines[0].strip() == _BLOCK_MARK and (len(lines) == 1 or lines[-1].strip() != _BLOCK_MARK)


class _CommandCompleter(Completer):
    """Hands the text to a function, and its answers to prompt_toolkit."""

    def __init__(self, complete: _Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, _event: object) -> Iterable[Completion]:
        """What may stand at the cursor."""
        reply, replaced = self._complete(document.text_before_cursor)
        for item in reply.items:
            yield Completion(item.text, -replaced, display_meta=item.help)


class _PrivateHistory(FileHistory):
    """A history in a file that only its user can read. A disk that is full loses it, and nothing else."""

    def load_history_strings(self) -> Iterable[str]:
        """The entries, the latest one first."""
        with suppress(OSError):
            return list(super().load_history_strings())
        return []

    def store_string(self, string: str) -> None:
        """Keep an entry."""
        with suppress(OSError):
            os.close(os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)


_USUAL_EDITORS = [f"/usr/bin/{name}" for name in ("editor", "nano", "pico", "vi", "emacs")]
"""Those that prompt_toolkit opens if no variable names one."""


def _editor_problem() -> str | None:
    """Why no editor can be opened; None if one can. prompt_toolkit would open another one, or none, in silence."""
    variable = next((name for name in ("VISUAL", "EDITOR") if os.environ.get(name)), None)
    if variable is None:
        is_there = any(map(os.path.exists, _USUAL_EDITORS))
        return None if is_there else "$EDITOR is not set; set it to an editor, such as nano"
    try:
        program, *_ = shlex.split(os.environ[variable])
    except ValueError as error:
        return f"${variable}: {os.environ[variable]!r} is not a command ({error})"
    return None if shutil.which(program) else f"${variable}: {program} is not an installed program"


_ALL = 1 << 30
"""More entries than a history has."""


def _clear(buffer: Buffer) -> None:
    buffer.cancel_completion()
    buffer.history_forward(count=_ALL)  # not reset(), which would load the history anew
    buffer.text = ""


_WORD = re.compile(r"\S+\s?|\s")
"""A word with the space after it: a row does not begin with that space."""


class _WordWrap(Processor):
    """Fills a row with spaces where the next word would not fit. They are only shown, and not part of the text.

    prompt_toolkit alone wraps at the last column, within words.
    """

    def __init__(self, mark_width: Callable[[int], int], further_mark_width: int) -> None:
        """Prepare it.

        Args:
            mark_width: from the number of a line, counted from 0, to the width of the mark before its first row.
            further_mark_width: the width of the mark before each further row.
        """
        self._mark_width, self._further_mark_width = mark_width, further_mark_width

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return the line with these spaces, and from each place in one text the place in the other."""
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        first_width = transformation_input.width - self._mark_width(transformation_input.lineno)
        if len(text) < first_width and get_cwidth(text) < first_width:
            return Transformation(fragments)
        row_width = transformation_input.width - self._further_mark_width
        places, sums, total = [], [0], 0
        for place, spaces in _fillers(text, first_width, row_width):
            total += spaces
            places.append(place)
            sums.append(total)
        if not places:
            return Transformation(fragments)
        characters = explode_text_fragments(fragments)
        filled = []
        for number, place in enumerate(places):
            start = places[number - 1] if number else 0
            filled += [*characters[start:place], ("", " " * (sums[number + 1] - sums[number]))]
        filled += characters[places[-1] :]
        shown_places = [place + sums[number + 1] for number, place in enumerate(places)]

        def source_to_display(place: int) -> int:
            return place + sums[bisect_right(places, place)]

        def display_to_source(place: int) -> int:
            number = bisect_right(shown_places, place)
            following = places[number] if number < len(places) else place
            return min(place - sums[number], following)

        return Transformation(filled, source_to_display, display_to_source)


def _fillers(text: str, first_width: int, row_width: int) -> Iterator[tuple[int, int]]:
    """Yield the place of each word that has to begin a row, and how many spaces fill the row before it."""
    column, width = 0, first_width
    for match in _WORD.finditer(text):
        size = get_cwidth(match[0])
        if column and column + size > width and size <= row_width:
            yield match.start(), width - column
            column, width = 0, row_width
        if column + size <= width:
            column += size
            continue
        for character in match[0]:  # a word that is longer than a row is divided
            size = get_cwidth(character)
            if column + size > width:
                column, width = 0, row_width
            column += size


@contextmanager
def terminal_without_echo() -> Iterator[None]:
    """While inside, the terminal does not show what is typed; a line editor does. Ctrl-C works as ever.

    Shells change the terminal when a process is stopped (Ctrl-Z): once it goes on, this is set again.
    """
    keys = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(keys)
    except termios.error:
        yield
        return
    changed = [*before]
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    changed[6] = [*before[6]]
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0

    def set_again(*_: object) -> None:
        with suppress(termios.error, OSError):
            if os.tcgetpgrp(keys) == os.getpgrp():  # in the background, it would be stopped for that
                termios.tcsetattr(keys, termios.TCSANOW, changed)

    handler = signal.signal(signal.SIGCONT, set_again)
    try:
        with suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSADRAIN, changed)
        yield
    finally:
        signal.signal(signal.SIGCONT, handler)
        with suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
