"""The application `gen`: the group of all commands, and the entry point."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_install_completion_arguments

from .. import __version__
from ..common.text import nearest_name
from .command_table import COMMANDS, load_command, load_plugin, plugin_commands
from .messages import plugin_notes, prepare_streams, report_failures
from .startup import start_collector

# Minimum similarity of a word to a command. It allows one wrong letter of six, not ``watch`` for ``batch``.
_COMMAND_SIMILARITY = 0.82


class Commands(TyperGroup):
    """The group of all commands of `gen`. A command is imported when it is used."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        plugins = (
            TyperCommand(name, help=f"Command of the package {plugin.package}.", rich_help_panel="Plug-ins")
            for name, plugin in plugin_commands().items()
        )
        own = (
            TyperCommand(name, help=command.summary, rich_help_panel=command.section)
            for name, command in COMMANDS.items()
        )
        # what is shown of the commands; `resolve_command` imports them
        self.commands = {str(command.name): command for command in (*own, *plugins)}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that the first word names."""
        name, found, words = super().resolve_command(ctx, args)
        if name is None or found is None:  # of a line that is being typed
            return name, found, words
        if name in COMMANDS:
            return name, load_command(name), words
        command = load_plugin(plugin_commands()[name])
        start_collector()
        return name, command, words

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` before words that begin with neither a command nor an option of `gen` itself."""
        is_typed = ctx.resilient_parsing
        return super().parse_args(ctx, ["run", *args] if self._are_of_run(args, is_typed=is_typed) else args)

    def _are_of_run(self, words: Sequence[str], *, is_typed: bool) -> bool:
        if not words:
            return not (is_typed or sys.stdin is None or sys.stdin.isatty())
        if words[0].startswith("-"):
            return words[0] not in ("--help", "-h", "--version")
        names = [*self.commands, *(name.removesuffix("s") for name in self.commands)]
        is_mistyped = len(words) == 1 and nearest_name(words[0], names, _COMMAND_SIMILARITY) is not None
        return words[0] not in self.commands and not is_mistyped


INTRODUCTION = """Run a GGUF model and choose every token yourself.

gen "PROMPT" continues a prompt; it is short for gen run "PROMPT".

  gen "Once upon a time" -n 200 --temp 1.1
  echo "The capital of France is" | gen -n 5 -P deterministic
  gen --chat "What is a logit?" --system "Answer in one sentence."
  gen "The sea was" --chain "top-k40 > top-p0.9 > temp0.8" --seed 7
  gen "The sea was" --format jsonl --logprobs 5 | jq -c 'select(.event=="token")'
"""

app = typer.Typer(
    name="gen",
    help=INTRODUCTION,
    epilog="gen COMMAND --help lists the options of a command, such as gen run --help.",
    cls=Commands,
    subcommand_metavar="PROMPT | COMMAND [ARGS]...",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_versions(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version  # takes 10 ms, which no other command needs

        print(f"gen {__version__} (llama-cpp-python {version('llama-cpp-python')})")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_versions, is_eager=True, help="Show the versions.")
    ] = False,
) -> None:
    """Give Typer the options of `gen` itself."""


def start(arguments: Sequence[str] | None = None) -> None:
    """Run `gen` with these arguments, and exit. Without arguments, ``sys.argv`` is used."""
    prepare_streams()
    if "_GEN_COMPLETE" in os.environ:  # a shell asks for completions
        get_install_completion_arguments()  # called because Typer then knows the shells
        _complete_flags_of_run()
    try:
        with plugin_notes(), report_failures():
            app(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="gen")
    except typer.Exit as end:  # a failure outside of any command
        sys.exit(end.exit_code)


def _complete_flags_of_run() -> None:
    """Insert ``run`` into the typed line, which Typer reads, if a flag follows ``gen``."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    os.environ["_TYPER_COMPLETE_ARGS"] = re.sub(r"^(\s*\S+\s+)(?=-)", r"\1run ", line)
