"""The pages of the commands, from the options that the commands declare."""

from __future__ import annotations

import inspect
from typing import Any

import typer
from logitsmith.cli.app import HELP, app

from .markdown import block, code, plain, table

_SYNOPSIS = 'gen "PROMPT" [OPTIONS]      the same as gen run "PROMPT"\ngen COMMAND [OPTIONS]'


def group() -> Any:
    """The group of all commands, as typer builds it."""
    return typer.main.get_command(app)


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
    return "\n".join(f"$ {line.strip()}" for line in HELP.splitlines() if line.startswith("  "))


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
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([usage, *(str(argument.metavar or argument.name.upper()) for argument in arguments)])
    parts = [plain(_text(command)) + "\n", block(f"{usage} [OPTIONS]" if options else usage, "text")]
    if arguments:
        rows = [(code(str(argument.metavar or argument.name.upper())), _help(argument)) for argument in arguments]
        parts.append(table(("argument", "meaning"), rows))
    context = typer.Context(command)
    panels: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        if not option.hidden:
            panels.setdefault(option.rich_help_panel or "", []).append((_flags(option, context), _help(option)))
    for panel, rows in panels.items():
        parts.append((f"**{plain(panel)}**\n\n" if panel else "") + table(("option", "meaning"), rows))
    return "\n".join(parts)


def _flags(option: Any, context: typer.Context) -> str:
    """The flags as the help shows them: ``-n, --predict INTEGER``."""
    if option.is_flag:
        return ", ".join(code(flag) for flag in [*option.opts, *option.secondary_opts])
    shown, _ = option.get_help_record(context)
    return ", ".join(map(code, shown.split(", ")))


def _help(parameter: Any) -> str:
    return plain((parameter.help or "").replace(r"\[", "["))


def _text(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\f")[0].strip()


def _summary(command: Any) -> str:
    return _text(command).split("\n\n")[0].replace("\n", " ")
