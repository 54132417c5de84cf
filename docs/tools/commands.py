"""The pages of the commands, from the options that the commands declare."""

from __future__ import annotations

import inspect
from typing import Any

from logitsmith.cli.app import INTRODUCTION, app
from typer.main import get_command

from .markdown import block, code, plain, table

_SYNOPSIS = 'gen "PROMPT" [OPTIONS]      the same as gen run "PROMPT"\ngen COMMAND [OPTIONS]'


def group() -> Any:
    """The group of all commands, as typer builds it."""
    return get_command(app)


def command_pages() -> dict[str, str]:
    """Markdown of the list of commands and of each command, by path."""
    commands = group()
    by_name = {name: commands.get_command(None, name) for name in commands.list_commands(None)}
    pages = {f"commands/{name}.md": _page(name, command) for name, command in by_name.items()}
    rows = [(f"[`gen {name}`]({name}.md)", plain(_summary(command))) for name, command in by_name.items()]
    pages["commands/index.md"] = (
        f"# Commands\n\n{block(_SYNOPSIS, 'text')}\n{table(('command', 'what it does'), rows)}\n"
        f"`gen --help` shows this list, `gen COMMAND --help` the options of a command, and `gen --version` the "
        f"versions.\n\n## Examples\n\n{block(_examples(), 'console')}"
    )
    return pages


def _examples() -> str:
    return "\n".join(f"$ {line.strip()}" for line in INTRODUCTION.splitlines() if line.startswith("  "))


def _page(name: str, command: Any) -> str:
    subcommands = getattr(command, "commands", None)
    if not subcommands:
        return f"# gen {name}\n\n{_body(f'gen {name}', command)}"
    parts = [f"# gen {name}\n\n{plain(_text(command))}\n"]
    parts.extend(
        f"## gen {name} {sub}\n\n{_body(f'gen {name} {sub}', subcommand)}"
        for sub, subcommand in subcommands.items()
    )
    return "\n".join(parts)


def _body(usage: str, command: Any) -> str:
    arguments = [flag for flag in command.flags if flag.is_argument]
    options = [flag for flag in command.flags if not flag.is_argument and flag.field != "help"]
    usage = " ".join([usage, *(flag.metavar for flag in arguments)])
    parts = [plain(_text(command)) + "\n", block(f"{usage} [OPTIONS]" if options else usage, "text")]
    if arguments:
        rows = [(code(flag.metavar), plain(flag.flag.help)) for flag in arguments]
        parts.append(table(("argument", "meaning"), rows))
    panels: dict[str, list[tuple[str, str]]] = {}
    for flag in options:
        panels.setdefault(flag.flag.panel or "", []).append((_names(flag), plain(flag.flag.help)))
    for panel, rows in panels.items():
        parts.append((f"**{plain(panel)}**\n\n" if panel else "") + table(("option", "meaning"), rows))
    return "\n".join(parts)


def _names(flag: Any) -> str:
    """The names as the help shows them: ``-n, --predict N``."""
    return ", ".join(map(code, flag.shown_name.split(", ") if flag.takes_value else flag.names))


def _text(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\f")[0].strip()


def _summary(command: Any) -> str:
    return _text(command).split("\n\n")[0].replace("\n", " ")
