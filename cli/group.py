"""The group of all commands, and the help of `gen` itself."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from .startup import import_command, skip_absent_options

COMMANDS = {
    "run": ("Generate", "Write on from a prompt, token by token, through your chain of samplers."),
    "batch": ("Generate", "Answer a file of requests, several at a time, each as if it were alone."),
    "score": ("Generate", "Score a text by the model's own logprobs, or several continuations of a prompt."),
    "inspect": (
        "Look up",
        "Show a run of gen --format jsonl: its tokens tinted by probability, their surprise and entropy.",
    ),
    "recover": (
        "Recover",
        "Recover the logprobs of all tokens, or of some, from an API that shows a few per call.",
    ),
    "recover-basis": ("Recover", "Make a basis of a model's logits, by which a few logprobs give the whole row."),
    "samplers": ("Look up", "List the samplers, or show one: formula, parameters, ranges, source."),
    "grammars": ("Look up", "List, show, check and try grammars."),
    "presets": ("Look up", "List, show, check, import and export presets."),
}
"""The commands, each with its panel in the help and the first sentence of its own help.

They stand here so that `gen --help` need not import the commands. A module in commands/ has its name.
"""

_OPTIONS = "Options"


class Commands(TyperGroup):
    """The commands of `gen`. Their help is plain text: to import rich for it would double its 66 ms."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command; None if none has this name."""
        if name not in COMMANDS:
            return None
        from .single_dash import never_bundle_flags

        module = import_command(name)
        app = getattr(module, "app", None)
        if app is None:  # a single command, and not a group of them
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(getattr(module, name.replace("-", "_")))
        command = get_command(app)
        command.name = name
        skip_absent_options(command)
        never_bundle_flags(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, text, examples, commands and options."""
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write((self.help or "").strip("\n") + "\n")
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, (panel, summary) in COMMANDS.items():
            panels.setdefault(panel, []).append((name, summary))
        panels[_OPTIONS] = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write((self.epilog or "").strip("\n") + "\n")
