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

# Minimum similarity of a mistyped command to its name. One letter of six may be wrong; ``watch`` is not ``batch``.
_COMMAND_SIMILARITY = 0.82
# commands of groups, such as `gen models list`, that a user may type without the group
_WORDS_OF_GROUPS = ("list", "show", "check", "import", "export", "pull")


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
        # These have only the names and the summaries. `resolve_command` imports the commands themselves.
        self.commands = {str(command.name): command for command in (*own, *plugins)}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that the first word names."""
        name, placeholder, remaining_words = super().resolve_command(ctx, args)
        if name is None or placeholder is None:  # the user is still typing the line
            return name, placeholder, remaining_words
        if name in COMMANDS:
            return name, load_command(name), remaining_words
        command = load_plugin(plugin_commands()[name])
        start_collector()
        return name, command, remaining_words

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` before words that begin with neither a command nor an option of `gen` itself."""
        if self._begin_with_prompt(args, is_incomplete=ctx.resilient_parsing):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _begin_with_prompt(self, words: Sequence[str], *, is_incomplete: bool) -> bool:
        """Return whether words are a prompt and options of `gen run`. Without words, stdin may be the prompt."""
        # ``is_incomplete``: whether the user is still typing the line.
        if not words:
            has_piped_input = sys.stdin is not None and not sys.stdin.isatty()
            return has_piped_input and not is_incomplete
        first_word = words[0]
        if first_word.startswith("-"):
            return first_word not in ("--help", "-h", "--version")
        if first_word in self.commands:
            return False
        return len(words) > 1 or not self._is_similar_to_command(first_word)

    def _is_similar_to_command(self, word: str) -> bool:
        singular_names = [name.removesuffix("s") for name in self.commands]
        names = [*self.commands, *singular_names, *_WORDS_OF_GROUPS]
        return nearest_name(word, names, _COMMAND_SIMILARITY) is not None


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
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # so rich ends a help whose reader has closed the pipe
            sys.exit(0)
        raise


_GEN_BEFORE_FLAG = re.compile(r"^(\s*\S+\s+)(?=-)")


def _complete_flags_of_run() -> None:
    """Change a typed line such as ``gen --temp`` into ``gen run --temp``, whose flags Typer completes."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    os.environ["_TYPER_COMPLETE_ARGS"] = _GEN_BEFORE_FLAG.sub(r"\1run ", line)
