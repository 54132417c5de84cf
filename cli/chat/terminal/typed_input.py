"""What a person types: several lines, a history, completion, and a search backwards."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.utils import get_cwidth

from ...completion.reply import Reply
from ...errors import say
from .turn_input import EndOfInputError, TurnInput, is_open_block, unmarked
from .word_wrap import WordWrap

_MARK, _MARK_OF_FURTHER_LINES = "> ", "… "
_USUAL_EDITORS = [f"/usr/bin/{name}" for name in ("editor", "nano", "pico", "vi", "emacs")]
"""Those that prompt_toolkit opens if no variable names one."""
_ALL = 1 << 30
"""More entries than a history has."""
Complete = Callable[[str], tuple[Reply, int]]
"""From the text before the cursor to what completes it, and how many of its characters that replaces."""


class TypedInput(TurnInput):
    """A line editor on a terminal."""

    def __init__(self, complete: Complete, history: Path | None) -> None:
        """Prepare the editor.

        Args:
            complete: completes commands.
            history: a file that keeps what was typed; None: it is forgotten at the end.
        """
        self._question = _MARK
        self._editor: asyncio.Task[None] | None = None
        """An editor of the user, which may be open."""
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=_CommandCompleter(complete),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda *_: FormattedText([("fg:ansibrightblack", _MARK_OF_FURTHER_LINES)]),
            key_bindings=self._key_bindings(),
            enable_suspend=True,
            input_processors=[WordWrap(self._mark_width, get_cwidth(_MARK_OF_FURTHER_LINES))],
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
        return unmarked(text.encode("utf-8", "replace").decode())

    def _mark_width(self, line: int) -> int:
        return get_cwidth(_MARK_OF_FURTHER_LINES if line else self._question)

    @contextmanager
    def _noted_interrupts(self) -> Iterator[None]:
        """While inside, SIGINT loses no text that was sent: it ends the editor, or waits if that has ended."""
        app = self._session.app

        def note(_number: int, _frame: object) -> None:
            if self._editor is not None and not self._editor.done():
                say("")  # Ctrl-C is for the editor; the terminal wrote ^C where the prompt will begin a line
                return
            self.interrupt_waits = True
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
        if app.is_running and not app.is_done and self.take_interrupt():
            app.exit(exception=KeyboardInterrupt)

    def _look_for_control_c(self) -> None:
        """Look for Ctrl-C behind Enter, which the editor takes for a key of the next text."""
        source = self._session.app.input
        keys = [*get_typeahead(source), *source.read_keys()]
        places = [number for number, press in enumerate(keys) if press.key == Keys.ControlC]
        if places:
            self.interrupt_waits = True
        store_typeahead(source, keys[places[-1] + 1 :] if places else keys)

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        is_typing = has_focus(DEFAULT_BUFFER)  # and not searching

        @bindings.add("enter", filter=is_typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_open_block(buffer.text):
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
                run_in_terminal(lambda: say(f"gen: {problem}"))

        @bindings.add("c-c", filter=is_typing)
        def _control_c(event: KeyPressEvent) -> None:
            """Clear what is typed; where nothing is, tell the chat."""
            if event.current_buffer.text:
                _clear(event.current_buffer)
                self.was_cleared = True
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        return bindings


class _CommandCompleter(Completer):
    """Hands the text to a function, and its answers to prompt_toolkit."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, _event: object) -> Iterable[Completion]:
        """What may stand at the cursor."""
        reply, replaced = self._complete(document.text_before_cursor)
        for candidate in reply.candidates:
            yield Completion(candidate.text, -replaced, display_meta=candidate.help)


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


def _history(path: Path | None) -> History:
    return InMemoryHistory() if path is None else _PrivateHistory(str(path))


def _clear(buffer: Buffer) -> None:
    buffer.cancel_completion()
    buffer.history_forward(count=_ALL)  # not reset(), which would load the history anew
    buffer.text = ""
