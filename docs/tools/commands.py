"""The pages of the commands, from the options that the commands declare."""

from __future__ import annotations

import inspect
from typing import Any

from logitsmith.cli.app import INTRODUCTION
from logitsmith.cli.command_table import COMMANDS, load_command

from .markdown import block, code, plain, table

_SYNOPSIS = 'gen "PROMPT" [OPTIONS]      the same as gen run "PROMPT"\ngen COMMAND [OPTIONS]'


def command_pages() -> dict[str, str]:
    """Markdown of the list of commands and of each command, by path."""
    by_name = {name: load_command(name) for name in COMMANDS}
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
    context = command.make_context("gen", [], resilient_parsing=True)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([usage, *(each.display_name_raw for each in arguments)])
    parts = [plain(_text(command)) + "\n", block(f"{usage} [OPTIONS]" if options else usage, "text")]
    if arguments:
        rows = [(code(each.display_name_raw), _meaning(each, context)) for each in arguments]
        parts.append(table(("argument", "meaning"), rows))
    panels: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        names, _ = option.get_help_record(context)
        row = (", ".join(map(code, names.split(", "))), _meaning(option, context))
        panels.setdefault(option.rich_help_panel or "", []).append(row)
    for panel, rows in panels.items():
        parts.append((f"**{plain(panel)}**\n\n" if panel else "") + table(("option", "meaning"), rows))
    return "\n".join(parts)


def _meaning(parameter: Any, context: Any) -> str:
    """The help of a parameter, in which a backslash precedes a bracket that would begin a markup."""
    return plain(parameter.get_help_record(context)[1].replace("\\[", "["))


def _text(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\f")[0].strip()


def _summary(command: Any) -> str:
    return _text(command).split("\n\n")[0].replace("\n", " ")
