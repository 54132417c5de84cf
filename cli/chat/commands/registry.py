"""All commands of a chat, and how a line is carried out."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from ...completion.reply import Candidate, Reply, matching
from . import branches, files, insight, settings
from .command import ChatCommand, ChatCommandError, refuse_argument

if TYPE_CHECKING:
    from ..terminal.chat import Chat

_COMMAND_LINE = re.compile(r"/(?P<name>[A-Za-z_?-]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def _help(_chat: Chat, argument: str) -> None:
    from ...help_page import HelpRow, page_width, section

    refuse_argument("help", argument)
    print(section("Commands", [HelpRow(each.usage, each.summary) for each in COMMANDS], page_width()))
    keys = [
        HelpRow("Enter", "Send the message."),
        HelpRow("Alt-Enter", 'Start a new line; so does """ on a line of its own, until the next one.'),
        HelpRow("Tab", "Complete commands, samplers, parameters, presets."),
        HelpRow("Ctrl-R", "Search what was typed before."),
        HelpRow("Ctrl-X Ctrl-E", "Open the text in $VISUAL or $EDITOR."),
        HelpRow("Ctrl-C", "End the answer, and keep what is there; twice: leave."),
        HelpRow("Ctrl-D", "Leave."),
    ]
    print(f"\n{section('Keys', keys, page_width())}\n\nA message may begin with a slash behind a blank.")


COMMANDS = (
    ChatCommand("help", "", "Show this page.", _help),
    *settings.COMMANDS,
    *branches.COMMANDS,
    *insight.COMMANDS,
    *files.COMMANDS,
)


def is_command(text: str) -> bool:
    """True for a line that begins with a slash and a word; a path has a second slash."""
    return _COMMAND_LINE.fullmatch(text) is not None


def run_command(chat: Chat, line: str) -> None:
    """Carry out a command. Raises ``ChatCommandError`` for an unknown one, and what the command raises."""
    match = _COMMAND_LINE.fullmatch(line)
    name = "" if match is None else match["name"].lower()
    argument = ((match and match["argument"]) or "").strip()
    command = _find(name)
    if command is None:
        raise ChatCommandError(f"there is no command /{name}{_hint(name, argument)}; /help lists them")
    command.run(chat, argument)


def complete_line(chat: Chat, text: str) -> tuple[Reply, int]:
    """Return what completes a text up to the cursor, and how many of its characters that replaces."""
    if not text.startswith("/") or "\n" in text:
        return Reply([]), 0
    name, blank, argument = text[1:].partition(" ")
    if not blank:
        names = [Candidate(f"/{each.name}", each.summary) for each in COMMANDS]
        return Reply(matching(names, text)), len(text)
    command = _find(name)
    if command is None or command.complete is None:
        return Reply([]), 0
    typed = argument.lstrip()
    return command.complete(chat, typed), len(typed)


def _find(name: str) -> ChatCommand | None:
    return next((command for command in COMMANDS if name in (command.name, *command.aliases)), None)


def _hint(name: str, argument: str) -> str:
    from ....common.text import nearest_name
    from ....presets.errors import PresetError
    from ....presets.overrides import parse_set

    with suppress(PresetError):  # not the name of a setting or of a sampler
        parse_set(f"{name}=1")
        return f"; use /set {name}={argument or 'VALUE'}"
    nearest = nearest_name(name, [command.name for command in COMMANDS])
    return "" if nearest is None else f"; did you mean /{nearest}?"
