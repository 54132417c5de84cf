"""The group of all commands: each is imported when it is asked for, and the help of `gen` itself is plain text."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "run": ("Generate", "Write on from a prompt, token by token, through your chain of samplers."),
    "batch": ("Generate", "Answer a file of requests, several at a time, each as if it were alone."),
    "score": ("Generate", "Score a text by the model's own logprobs, or the ways to go on from a prompt."),
    "inspect": (
        "Look up",
        "Show a run of gen --format jsonl: its tokens tinted by probability, their surprise and entropy.",
    ),
    "recover": ("Recover", "Recover the logprobs of all tokens, or of some, from an API that shows few a call."),
    "recover-basis": ("Recover", "Make a basis of a model's logits, by which few logprobs tell a whole row."),
    "samplers": ("Look up", "List the samplers, or show one: formula, parameters, ranges, source."),
    "grammars": ("Look up", "List, show, check and try grammars."),
    "presets": ("Look up", "List, show and check presets."),
}
"""The commands, each with its panel of the help and the first sentence of its own; its module is named as it is.

Told here, so that the help need not import them all.
"""

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
        module = import_module(f".commands.{attribute}", __package__)
        app = getattr(module, "app", None)
        if app is None:  # one command, and not a group of them
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name)(getattr(module, attribute))
        command = get_command(app)
        command.name = name
        for parameter in command.params:
            _leave_alone_if_absent(parameter)
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


def _leave_alone_if_absent(parameter: Any) -> None:
    """Let an option without a value have none, without a look at its type.

    typer makes a validator for each option, given or not; for fifty of them that is a sixth of the start of `gen`.
    """
    if parameter.nargs != 1 or parameter.required or parameter.callback:
        return
    process = parameter.process_value
    none = () if parameter.multiple else None

    def process_value(ctx: Any, value: Any) -> Any:
        return none if value is None else process(ctx, value)

    parameter.process_value = process_value
