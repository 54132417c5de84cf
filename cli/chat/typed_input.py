"""The input of a chat: a line editor with history and completion on a terminal, or the lines of stdin.

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
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

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
from ...common.text import UndecodableTextError, decode_text, without_last_line_end
from ..completion.values import CompletionItem
from ..messages import print_message


class EndOfInputError(Exception):
    """The end of the input: Ctrl-D in the line editor, or the end of stdin."""


class TurnError(LogitsmithError):
    """A turn that cannot be read: it is not UTF-8, or too large."""


class TurnInput(ABC):
    """A source of turns: messages of the user, and commands."""

    # Ctrl-C was pressed after the last turn that was read, and the chat has not reacted yet
    has_pending_interrupt = False
    was_cleared = False  # Ctrl-C cleared the input line, and no turn was sent after that

    def pop_interrupt(self) -> bool:
        """Return whether an interrupt is pending, and reset this state."""
        has_pending_interrupt = self.has_pending_interrupt
        self.has_pending_interrupt = False
        return has_pending_interrupt

    def pop_was_cleared(self) -> bool:
        """Return whether the input line was cleared, and reset this state."""
        was_cleared = self.was_cleared
        self.was_cleared = False
        return was_cleared

    @abstractmethod
    def read(self, default: str = "", prompt_mark: str = "") -> str:
        """Return the next turn, which may have several lines. ``default`` is editable text of the input line."""
        # ``prompt_mark`` is shown in front of the input line; empty for the usual ``> ``. Raises
        # ``EndOfInputError`` at the end of the input, ``TurnError``, and ``KeyboardInterrupt`` for Ctrl-C in an
        # empty input line or for a pending interrupt.


_BLOCK_MARK = '"""'  # a line that consists of this mark begins or ends a block: one turn of several lines


class PipedInput(TurnInput):
    """The lines of stdin. Each line, or each block between two marks, is one turn. Blank lines are skipped."""

    _is_closed = False  # True after a turn that is too large: the rest of stdin is not read

    def read(self, default: str = "", prompt_mark: str = "") -> str:
        line = self._line()
        while not line.strip():
            line = self._line()
        return self._read_block() if line.strip() == _BLOCK_MARK else line.strip("\r\n")

    def _read_block(self) -> str:
        """Return the lines up to the end mark of a block, or to the end of stdin."""
        block = StringIO()  # a list of short lines would need twenty times the memory
        try:
            while (line := self._line()).strip() != _BLOCK_MARK:
                block.write(line)
                self._check_size(block.tell(), "a block")
        except EndOfInputError:
            if not block.tell():
                raise
        return without_last_line_end(block.getvalue())

    def _line(self) -> str:
        can_read = sys.stdin is not None and not self._is_closed
        data = sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1) if can_read else b""
        if not data:
            raise EndOfInputError
        self._check_size(len(data), "a line")
        try:
            return decode_text(data)
        except UndecodableTextError as error:
            raise TurnError(f"stdin is {error}") from None

    def _check_size(self, size: int, noun: str) -> None:
        """Raise ``TurnError`` if a line or a block is too large, and close the input."""
        # The rest of stdin is dropped, because it begins in the middle of that line or block.
        if size > MAX_TEXT_BYTES:
            self._is_closed = True
            limit = MAX_TEXT_BYTES // 1_000_000
            raise TurnError(f"stdin: {noun} is larger than {limit} MB, so the chat ends; send shorter turns")


class LineCompletion(NamedTuple):
    """The completions of a partly typed line."""

    items: list[CompletionItem]
    replaced_count: int  # number of characters before the cursor that a completion replaces


_CompleteLine = Callable[[str], LineCompletion]  # takes the text before the cursor


_PROMPT_MARK = "> "  # in front of the first line of the input
_CONTINUATION_MARK = "… "  # in front of each following line


class TypedInput(TurnInput):
    """A line editor on a terminal."""

    def __init__(self, complete_line: _CompleteLine, history: Path | None) -> None:
        # ``history``: file of the texts that were typed; None to keep them in memory only.
        self._prompt_mark = _PROMPT_MARK
        # The program of ``$EDITOR`` that Ctrl-X Ctrl-E opened last, running or ended; None before that.
        self._editor: asyncio.Task[None] | None = None
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if history is None else _PrivateHistory(str(history)),
            completer=_CommandCompleter(complete_line),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda *_: FormattedText([("fg:ansibrightblack", _CONTINUATION_MARK)]),
            key_bindings=self._key_bindings(),
            enable_suspend=True,
            input_processors=[_WordWrap(self._mark_width, get_cwidth(_CONTINUATION_MARK))],
            tempfile_suffix=".md",
            search_ignore_case=True,
        )

    def read(self, default: str = "", prompt_mark: str = "") -> str:
        """Return the typed text. Enter sends it, Alt-Enter begins a new line."""
        self._prompt_mark = prompt_mark or _PROMPT_MARK
        mark = FormattedText([("bold", self._prompt_mark)])
        self.was_cleared = False
        with self._noted_interrupts():
            try:
                text = self._session.prompt(
                    mark, default=default, handle_sigint=False, pre_run=self._end_if_interrupted
                )
            except EOFError:
                raise EndOfInputError from None
            self._find_typed_ahead_interrupt()
        self.was_cleared = False
        return _without_block_marks(text.encode("utf-8", "replace").decode())

    def _mark_width(self, line: int) -> int:
        return get_cwidth(_CONTINUATION_MARK if line else self._prompt_mark)

    @contextmanager
    def _noted_interrupts(self) -> Iterator[None]:
        """Handle SIGINT in the context so that no sent text is lost."""
        # SIGINT ends the line editor. If the line editor has just returned its text, SIGINT becomes a pending
        # interrupt.
        app = self._session.app

        def on_sigint(_number: int, _frame: object) -> None:
            if self._editor is not None and not self._editor.done():
                print_message("")  # Ctrl-C is meant for $EDITOR; the prompt begins a new line after the printed ^C
                return
            self.has_pending_interrupt = True
            if app.is_running and app.loop is not None:
                app.loop.call_soon_threadsafe(self._end_if_interrupted)

        handler_before = signal.signal(signal.SIGINT, on_sigint)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler_before)

    def _end_if_interrupted(self) -> None:
        """End the line editor if SIGINT arrived, even before the line editor was started."""
        app = self._session.app
        if app.is_running and not app.is_done and self.pop_interrupt():
            app.exit(exception=KeyboardInterrupt)

    def _find_typed_ahead_interrupt(self) -> None:
        """Set ``has_pending_interrupt`` if Ctrl-C was pressed right after Enter."""
        # The line editor has read such a Ctrl-C, and would otherwise take it for a key of the next text.
        source = self._session.app.input
        keys = [*get_typeahead(source), *source.read_keys()]
        interrupt_positions = [position for position, press in enumerate(keys) if press.key == Keys.ControlC]
        if interrupt_positions:
            self.has_pending_interrupt = True
            keys = keys[interrupt_positions[-1] + 1 :]
        store_typeahead(source, keys)

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        is_typing = has_focus(DEFAULT_BUFFER)  # False during a search with Ctrl-R

        @bindings.add("enter", filter=is_typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if _is_open_block(buffer.text):
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @bindings.add("escape", "c-j", filter=is_typing)  # Enter sends Ctrl-J while the line editor is not running
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
            """Clear the input line. If it is empty, raise ``KeyboardInterrupt`` in `read`."""
            if event.current_buffer.text:
                _clear(event.current_buffer)
                self.was_cleared = True
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        return bindings


def _without_block_marks(text: str) -> str:
    """Return a turn without the marks of a block around it."""
    lines = text.strip().split("\n")
    is_block = len(lines) > 1 and lines[0].strip() == _BLOCK_MARK
    if not is_block:
        return text
    if lines[-1].strip() == _BLOCK_MARK:
        lines.pop()
    return "\n".join(lines[1:])


def _is_open_block(text: str) -> bool:
    """Return whether the text is a block whose end mark is missing."""
    lines = text.strip().split("\n")
    has_start = lines[0].strip() == _BLOCK_MARK
    has_end = len(lines) > 1 and lines[-1].strip() == _BLOCK_MARK
    return has_start and not has_end


class _CommandCompleter(Completer):
    """A completer of prompt_toolkit that calls a function of the chat."""

    def __init__(self, complete_line: _CompleteLine) -> None:
        self._complete_line = complete_line

    def get_completions(self, document: Document, _event: object) -> Iterable[Completion]:
        completion = self._complete_line(document.text_before_cursor)
        for item in completion.items:
            yield Completion(item.text, start_position=-completion.replaced_count, display_meta=item.help)


class _PrivateHistory(FileHistory):
    """A history in a file that only its user can read. If the disk is full, only the history is lost."""

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, the latest one first."""
        with suppress(OSError):
            return list(super().load_history_strings())
        return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            os.close(os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)


# Editors that prompt_toolkit tries if neither ``$VISUAL`` nor ``$EDITOR`` is set.
_USUAL_EDITORS = [f"/usr/bin/{name}" for name in ("editor", "nano", "pico", "vi", "emacs")]


def _editor_problem() -> str | None:
    """Return why no editor can be opened; None if an editor can be opened."""
    # Without this check, prompt_toolkit would silently open another editor, or none.
    variable = next((name for name in ("VISUAL", "EDITOR") if os.environ.get(name)), None)
    if variable is None:
        has_usual_editor = any(Path(path).exists() for path in _USUAL_EDITORS)
        return None if has_usual_editor else "$EDITOR is not set; set it to an editor, such as nano"
    command = os.environ[variable]
    try:
        program, *_arguments = shlex.split(command)
    except ValueError as error:
        return f"${variable}: {command!r} is not a command ({error})"
    return None if shutil.which(program) else f"${variable}: {program} is not an installed program"


_ALL_ENTRIES = 1 << 30  # a count that is larger than the number of entries of any history


def _clear(buffer: Buffer) -> None:
    buffer.cancel_completion()
    buffer.history_forward(count=_ALL_ENTRIES)  # reset() would load the history from the file again
    buffer.text = ""


_WORD = re.compile(r"\S+\s?|\s")  # a word with the space after it, so that no row begins with that space


class _WordWrap(Processor):
    """A processor that wraps the lines of the input between words."""

    # It fills each row with spaces, which are shown but are not part of the text. prompt_toolkit itself wraps at
    # the last column, within words.

    def __init__(self, mark_width: Callable[[int], int], continuation_width: int) -> None:
        # ``mark_width``: columns of the mark in front of a line's first row, by the number of the line, from 0.
        # ``continuation_width``: columns of the mark in front of each following row.
        self._mark_width = mark_width
        self._continuation_width = continuation_width

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return the line with filling spaces, and maps between positions in the source and in the shown line."""
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        first_width = transformation_input.width - self._mark_width(transformation_input.lineno)
        if len(text) < first_width and get_cwidth(text) < first_width:
            return Transformation(fragments)
        row_width = transformation_input.width - self._continuation_width
        breaks = list(_row_breaks(text, first_width, row_width))
        if not breaks:
            return Transformation(fragments)
        characters = explode_text_fragments(fragments)
        filled = []
        row_start = 0
        for row_break in breaks:
            filled += characters[row_start : row_break.position]
            filled.append(("", " " * row_break.space_count))
            row_start = row_break.position
        filled += characters[row_start:]
        break_positions = [row_break.position for row_break in breaks]
        # the number of spaces in the rows before row 0, 1, 2, …
        space_sums = [0, *accumulate(row_break.space_count for row_break in breaks)]
        shown_break_positions = [
            position + spaces_before
            for position, spaces_before in zip(break_positions, space_sums[1:], strict=True)
        ]

        def source_to_display(position: int) -> int:
            row = bisect_right(break_positions, position)
            return position + space_sums[row]

        def display_to_source(position: int) -> int:
            row = bisect_right(shown_break_positions, position)
            # a position among the spaces is that of the first character of the next row
            max_position = break_positions[row] if row < len(break_positions) else position
            return min(position - space_sums[row], max_position)

        return Transformation(filled, source_to_display, display_to_source)


class _RowBreak(NamedTuple):
    """A place in a line where a new row must begin."""

    position: int  # of the first character of the row
    space_count: int  # number of spaces that fill the row before


def _row_breaks(text: str, first_width: int, row_width: int) -> Iterator[_RowBreak]:
    """Yield the places between words where rows must begin."""
    # A word that is longer than a row is not yielded: the terminal splits it at the last column.
    column = 0
    width = first_width
    for match in _WORD.finditer(text):
        word_width = get_cwidth(match[0])
        fits_into_next_row = word_width <= row_width
        if column > 0 and column + word_width > width and fits_into_next_row:
            yield _RowBreak(match.start(), width - column)
            column = 0
            width = row_width
        if column + word_width <= width:
            column += word_width
            continue
        for character in match[0]:
            character_width = get_cwidth(character)
            if column + character_width > width:
                column = 0
                width = row_width
            column += character_width


@contextmanager
def terminal_without_echo() -> Iterator[None]:
    """Turn off the terminal's echo of typed keys in the context. The line editor shows its text itself."""
    # Ctrl-C still sends SIGINT. Shells reset the terminal when Ctrl-Z stops a process, so the echo is turned off
    # again when the process continues.
    terminal = sys.stdin.fileno()
    try:
        attributes_before = termios.tcgetattr(terminal)
    except termios.error:
        yield
        return
    attributes = [*attributes_before]
    attributes[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    control_characters = [*attributes_before[_CONTROL_CHARACTERS]]
    control_characters[termios.VMIN] = 1
    control_characters[termios.VTIME] = 0
    attributes[_CONTROL_CHARACTERS] = control_characters

    def turn_off_again(*_: object) -> None:
        with suppress(termios.error, OSError):
            is_in_foreground = os.tcgetpgrp(terminal) == os.getpgrp()
            if is_in_foreground:  # the system stops a background process that changes the terminal
                termios.tcsetattr(terminal, termios.TCSANOW, attributes)

    handler_before = signal.signal(signal.SIGCONT, turn_off_again)
    try:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)
        yield
    finally:
        signal.signal(signal.SIGCONT, handler_before)
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, attributes_before)


# places in the list that `termios.tcgetattr` returns
_LOCAL_FLAGS = 3
_CONTROL_CHARACTERS = 6
