"""The loop of a chat: a turn is read, and carried out or answered, until the user leaves."""

from __future__ import annotations

from ...errors import FAILED, INTERRUPTED, named_failures, note, say
from .chat import Chat, LeaveChatError
from .turn_input import EndOfInputError, PipedInput


def run_loop(chat: Chat) -> int:
    """Read turns until the end; returns the exit code.

    A turn that fails says why, and the chat goes on. Of lines of stdin that fail, the exit code is 1.
    """
    is_piped = isinstance(chat.input, PipedInput)
    code = 0

    def report(sentence: str, _exit_code: int) -> None:
        nonlocal code
        say(f"gen: {sentence}")
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
            note("Ctrl-C again, or Ctrl-D, leaves the chat")


def _take_turn(chat: Chat) -> None:
    from ..commands.registry import is_command, run_command

    turn = chat.read_turn()
    if not turn.strip():
        return
    if is_command(turn):
        run_command(chat, turn)
    else:
        chat.send(turn)
        chat.warn()
