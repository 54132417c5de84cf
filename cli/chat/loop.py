"""The loop of a chat: opens the chat on a terminal or between pipes, and runs its turns until the user leaves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import Word
from ..messages import FAILED, INTERRUPTED, named_failures, print_message, print_note
from .answer_view import PlainView, ScreenView
from .chat import Chat, LeaveChatError
from .commands import complete_line, is_command, run_command
from .settings import ChatSettings
from .typed_input import EndOfInputError, LineCompletion, PipedInput, TypedInput, terminal_without_echo

if TYPE_CHECKING:
    from ...chats.session import ChatSession


_HISTORY = "chat_history"  # name of the file of typed texts, in the folder of the store


def open_chat(session: ChatSession, settings: ChatSettings, store: Path | None) -> Chat:
    """Return a chat with a line editor if stdin and stdout are a terminal, otherwise a chat of plain lines."""
    # ``store`` is None if neither messages nor typed texts are stored.
    if not _is_on_terminal():
        return Chat(session, settings, PlainView(), PipedInput())
    from rich.console import Console

    def complete(text: str) -> LineCompletion:
        return complete_line(chat, text)

    history = None if store is None else store.with_name(_HISTORY)
    chat = Chat(session, settings, ScreenView(Console(highlight=False)), TypedInput(complete, history))
    return chat


def terminal_mode() -> AbstractContextManager[None]:
    """Return a context in which the terminal shows typed keys only in the input line, not within answers."""
    return terminal_without_echo() if _is_on_terminal() else nullcontext()


def _is_on_terminal() -> bool:
    """Return whether a person uses the chat."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


# The command for each `Word` that the advice of an error may name; other words are flags
_COMMANDS: Mapping[str, str] = {Word.CHAIN: "/chain", Word.SET: "/set"}


def run_loop(chat: Chat) -> int:
    """Run turns until the user leaves or the input ends, and return the exit code."""
    # The error of a turn that fails is printed, and the chat continues. If a turn of piped input failed, the exit
    # code is 1.
    is_piped = isinstance(chat.input, PipedInput)
    exit_code = 0

    def report(sentence: str, _exit_code: int) -> None:
        nonlocal exit_code
        print_message(f"gen: {sentence}")
        exit_code = FAILED if is_piped else 0

    while True:
        try:
            with named_failures(report, lambda: _COMMANDS):
                _run_turn(chat)
        except EndOfInputError:
            return exit_code
        except LeaveChatError as leave_request:
            return leave_request.exit_code or exit_code
        except KeyboardInterrupt:
            if is_piped or chat.record_interrupt():
                return INTERRUPTED
            print_note("press Ctrl-C again, or Ctrl-D, to leave the chat")


def _run_turn(chat: Chat) -> None:
    turn = chat.read_turn()
    if not turn.strip():
        return
    if is_command(turn):
        run_command(chat, turn)
    else:
        chat.send(turn)
        chat.note_full_context()
