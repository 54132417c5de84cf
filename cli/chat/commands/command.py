"""What a command of a chat is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....common.errors import LogitsmithError

if TYPE_CHECKING:
    from ...completion.reply import Reply
    from ..terminal.chat import Chat


class ChatCommandError(LogitsmithError):
    """A command of a chat that cannot be carried out as it was typed."""


@dataclass(frozen=True)
class ChatCommand:
    """A command.

    Attributes:
        name: without the slash.
        argument: how the help shows what follows it; empty if nothing does.
        summary: what it does, in one line.
        run: carries it out, with what follows its name, blanks at both ends cut off.
        complete: completes what follows its name; None: nothing does.
        aliases: further names, by which it is found and not listed.
    """

    name: str
    argument: str
    summary: str
    run: Callable[[Chat, str], None]
    complete: Callable[[Chat, str], Reply] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.argument}".rstrip()


def refuse_argument(command: str, argument: str) -> None:
    """Raise ``ChatCommandError`` if something follows a command that takes nothing."""
    if argument:
        raise ChatCommandError(f"/{command} takes nothing after its name, and {argument!r} came")


def whole_number(command: str, argument: str, largest: int) -> int:
    """Return a number from 1 on. Raises ``ChatCommandError``."""
    if argument.isascii() and argument.isdecimal() and 1 <= int(argument) <= largest:
        return int(argument)
    raise ChatCommandError(f"/{command}: {argument!r} is not a whole number within 1..{largest}")
