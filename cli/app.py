"""The application `gen`, and its start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from .errors import BAD_USAGE, fail, prepare_streams, report_failures
from .group import COMMANDS, Commands

HELP = """Run a GGUF model and choose every token yourself.

gen "PROMPT" writes on from a prompt; it is short for gen run "PROMPT".

  gen "Once upon a time" -n 200 --temp 1.1
  echo "The capital of France is" | gen -n 5 -P deterministic
  gen --chat "What is a logit?" --system "Answer in one sentence."
  gen "The sea was" --chain "top-k40 > top-p0.9 > temp0.8" --seed 7
  gen "The sea was" --format jsonl --logprobs 5 | jq -c 'select(.event=="token")'
"""

_SERVER_COMMANDS = ("serve", "server")
"""The commands by which other tools start a server."""

app = typer.Typer(
    name="gen",
    help=HELP,
    epilog="gen run --help lists every option of a run: model, prompt, sampling, output.",
    cls=Commands,
    subcommand_metavar="PROMPT | COMMAND [ARGS]...",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version

        print(f"gen {version('logitsmith')} (llama-cpp-python {version('llama-cpp-python')})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions.")
    ] = False,
) -> None:
    """Hold the options of `gen` itself."""


def start(arguments: Sequence[str] | None = None) -> None:
    """Run `gen` with these arguments (default: those of the process), and exit."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with report_failures():
            code = app(args=_with_default_command(words), prog_name="gen", standalone_mode=False)
    except typer.Exit as end:  # a failure outside of a command
        code = end.exit_code
    sys.exit(code or 0)


def _with_default_command(arguments: list[str]) -> list[str]:
    """Put ``run`` in front, unless a command or an option of `gen` itself comes first."""
    if not arguments and sys.stdin is not None and sys.stdin.isatty():
        return ["--help"]
    if arguments and arguments[0] in {"--help", "-h", "--version", *COMMANDS}:
        return arguments
    if arguments and arguments[0] in _SERVER_COMMANDS:
        fail(f"gen has no server; for the text: gen run {arguments[0]}", BAD_USAGE)
    if len(arguments) == 1:
        _ask_about(arguments[0], f"for the text: gen run {arguments[0]!r}")
    elif len(arguments) > 1 and not arguments[0].startswith("-") and not arguments[1].startswith("-"):
        _ask_about(arguments[0], "a prompt of several words stands in quotes")  # `gen run` takes one word
    return ["run", *arguments]


def _ask_about(word: str, otherwise: str) -> None:
    """End the command if the word is nearly a command; ``otherwise``: what to type if it is a prompt."""
    from .parsing.near_command import meant_command

    meant = meant_command(word, list(COMMANDS))
    if meant is not None:
        fail(f"did you mean {meant}? {otherwise}", BAD_USAGE)
