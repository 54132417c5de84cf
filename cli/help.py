"""The help of `gen` itself, as plain text: rich's panels take as long to import as all else that it needs."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_OPTIONS = "Options"


class PlainHelp(TyperGroup):
    """A group of commands whose help is plain text, the commands under the names of their panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, text, examples, commands and options."""
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write((self.help or "").strip("\n") + "\n")
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(panel, []).append((name, command.get_short_help_str(limit=100)))
        panels[_OPTIONS] = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write((self.epilog or "").strip("\n") + "\n")
