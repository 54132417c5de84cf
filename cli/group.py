"""The group of all commands: each is imported when it is asked for, and the help of `gen` itself is plain text."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "run": "Generate",
    "batch": "Generate",
    "score": "Generate",
    "inspect": "Look up",
    "recover": "Recover",
    "recover-basis": "Recover",
    "samplers": "Look up",
    "grammars": "Look up",
    "presets": "Look up",
}
"""The commands, and the panel of the help that each stands in; the module is named as the command is."""

_OPTIONS = "Options"


class Commands(TyperGroup):
    """The commands of `gen`; rich's panels would take as long to import as all else that the help needs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command, from its own module; None if there is none of this name."""
        if name not in COMMANDS:
            return None
        attribute = name.replace("-", "_")
        module = import_module(f".{attribute}", __package__)
        app = getattr(module, "app", None)
        if app is None:  # one command, and not a group of them
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(getattr(module, attribute))
        command = get_command(app)
        command.name = name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, text, examples, commands and options."""
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write((self.help or "").strip("\n") + "\n")
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, panel in COMMANDS.items():
            summary = self.get_command(ctx, name).get_short_help_str(limit=100)
            panels.setdefault(panel, []).append((name, summary))
        panels[_OPTIONS] = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write((self.epilog or "").strip("\n") + "\n")
