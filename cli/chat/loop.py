"""A chat at work: opened at a terminal or between pipes, and led turn by turn until the user leaves."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..completion.values import CompletionResult
from ..messages import FAILED, INTERRUPTED, named_failures, print_message, print_note
from .answer_view import PlainView, ScreenView
from .chat import Chat, LeaveChatError
from .commands import complete_line, is_command, run_command
from .settings import ChatSettings
from .typed_input import EndOfInputError, PipedInput, TypedInput, terminal_without_echo

if TYPE_CHECKING:
    from ...chats.session import ChatSession


_HISTORY = "chat_history"
"""The file beside the store that keeps what was typed."""


def open_chat(session: ChatSession, settings: ChatSettings, store: Path | None) -> Chat:
    """Return a chat at the terminal; where stdin or stdout is none, one of plain lines.

    Args:
        session: the model in the conversation.
        settings: the chain and what goes with it.
        store: the file of the store; None: nothing is kept, and what is typed neither.
    """
    if not _is_on_terminal():
        return Chat(session, settings, PlainView(), PipedInput())
    from rich.console import Console

    def complete(text: str) -> tuple[CompletionResult, int]:
        return complete_line(chat, text)

    history = None if store is None else store.with_name(_HISTORY)
    chat = Chat(session, settings, ScreenView(Console(highlight=False)), TypedInput(complete, history))
    return chat


def terminal_mode() -> AbstractContextManager[None]:
    """While inside, the terminal shows what is typed at the prompt only, not where it happens to be typed."""
    return terminal_without_echo() if _is_on_terminal() else nullcontext()


def _is_on_terminal() -> bool:
    """True if a person types and reads."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def run_loop(chat: Chat) -> int:
    """Read turns until the end; returns the exit code.

    A turn that fails says why, and the chat goes on. Of lines of stdin that fail, the exit code is 1.
    """
    is_piped = isinstance(chat.input, PipedInput)
    code = 0

    def report(sentence: str, _exit_code: int) -> None:
        nonlocal code
        print_message(f"gen: {sentence}")
        code = FAILED if is_piped else 0

    while True:
        try:
            with named_failures(report):
                _take_turn(chat)
        except EndOfInputError:
            return code
        except LeaveChatError as leaving:
            return leaving.code or code
        except KeyboardInterrupt:
            if is_piped or chat.is_second_interrupt():
                return INTERRUPTED
            print_note("Ctrl-C again, or Ctrl-D, leaves the chat")


def _take_turn(chat: Chat) -> None:
    turn = chat.read_turn()
    if not turn.strip():
        return
    if is_command(turn):
        run_command(chat, turn)
    else:
        chat.send(turn)
        chat.warn()
