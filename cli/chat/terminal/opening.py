"""Where a chat reads and shows: a terminal, or stdin and stdout."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ...completion.reply import Reply
from .answer_view import PlainView, ScreenView
from .chat import Chat
from .chat_settings import ChatSettings
from .quiet_keys import quiet_keys
from .turn_input import PipedInput

if TYPE_CHECKING:
    from ..session import ChatSession

_HISTORY = "chat_history"
"""The file beside the store that keeps what was typed."""


def is_on_terminal() -> bool:
    """True if a person types and reads."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def terminal_mode() -> AbstractContextManager[None]:
    """While inside, the terminal shows what is typed at the prompt only, not where it happens to be typed."""
    return quiet_keys() if is_on_terminal() else nullcontext()


def open_chat(session: ChatSession, settings: ChatSettings, store: Path | None) -> Chat:
    """Return a chat at the terminal; where stdin or stdout is none, one of plain lines.

    Args:
        session: the model in the conversation.
        settings: the chain and what goes with it.
        store: the file of the store; None: nothing is kept, and what is typed neither.
    """
    if not is_on_terminal():
        return Chat(session, settings, PlainView(), PipedInput())
    from rich.console import Console

    from ..commands.registry import complete_line
    from .typed_input import TypedInput

    def complete(text: str) -> tuple[Reply, int]:
        return complete_line(chat, text)

    history = None if store is None else store.with_name(_HISTORY)
    chat = Chat(session, settings, ScreenView(Console(highlight=False)), TypedInput(complete, history))
    return chat
