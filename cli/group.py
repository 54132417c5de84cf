"""The group of all commands, and the help of `gen` itself."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from .startup import false_if_absent, import_command

COMMANDS = {
    "run": ("Generate", "Write on from a prompt, token by token, through your chain of samplers."),
    "chat": ("Generate", "Talk with a model: change settings, go back, branch, and see why it answers so."),
    "batch": ("Generate", "Answer a file of requests, several at a time, each as if it were alone."),
    "next": ("Generate", "Show what the next token would be drawn from, step by step of the chain."),
    "score": ("Generate", "Score a text by the model's own logprobs, or several continuations of a prompt."),
    "inspect": (
        "Look up",
        "Show runs of gen --format jsonl: tokens tinted by probability, their surprise and entropy.",
    ),
    "recover": (
        "Recover",
        "Recover the logprobs of all tokens, or of some, from an API that shows a few per call.",
    ),
    "recover-basis": ("Recover", "Make a basis of a model's logits, by which a few logprobs give the whole row."),
    "models": ("Look up", "List the models on this machine, show one, or download one."),
    "samplers": ("Look up", "List the samplers, or show one: formula, parameters, ranges, source."),
    "grammars": ("Look up", "List, show, check and sample grammars."),
    "presets": ("Look up", "List, show, check, import and export presets."),
    "doctor": ("Set up", "Show what gen finds here, and what is wrong: a page for a bug report."),
    "completion": ("Set up", "Print the script by which a shell completes gen's command lines."),
}
"""The commands, each with its panel in the help and the first sentence of its own help.

They stand here so that `gen --help` need not import the commands. A module in commands/ has its name.
"""

_OPTIONS = "Options"


class Commands(TyperGroup):
    """The commands of `gen`. A command is imported when it is needed."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option ``--help``."""
        return false_if_absent(super().get_help_option(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command; None if none has this name."""
        if name not in COMMANDS:
            return None
        from .help_page import show_plain_help
        from .parsing.bare_flags import allow_bare_flags
        from .parsing.plain_values import read_plain_values
        from .parsing.respelled_flags import respell_flags
        from .parsing.single_dash import never_bundle_flags
        from .parsing.typed_names import remember_typed_names

        module = import_command(name)
        app = getattr(module, "app", None)
        if app is None:  # a single command, and not a group of them
            app = typer.Typer(add_completion=False)
            app.command(name)(getattr(module, name.replace("-", "_")))
        command = get_command(app)
        command.name = name
        read_plain_values(command)
        never_bundle_flags(command)
        allow_bare_flags(command)
        remember_typed_names(command)
        respell_flags(command)
        show_plain_help(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, text, examples, commands and options."""
        from .help_page import HelpRow, page_width, parameter_name, section, wrap_command_lines, wrap_usage

        width = page_width()
        intro, examples = (self.help or "").strip("\n").split("\n\n  ", 1)
        panels: dict[str, list[HelpRow]] = {}
        for name, (panel, meaning) in COMMANDS.items():
            panels.setdefault(panel, []).append(HelpRow(name, meaning))
        options: list[Any] = self.get_params(ctx)
        panels[_OPTIONS] = [HelpRow(parameter_name(option), option.help or "") for option in options]
        parts = [
            wrap_usage("gen PROMPT | COMMAND [OPTIONS]", width),
            *("\n".join(wrap(paragraph, width, break_on_hyphens=False)) for paragraph in intro.split("\n\n")),
            wrap_command_lines(examples, width),
            *(section(title, rows, width) for title, rows in panels.items()),
            "\n".join(wrap(self.epilog or "", width, break_on_hyphens=False)),
        ]
        formatter.write("\n\n".join(parts))
