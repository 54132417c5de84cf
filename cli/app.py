"""The application `gen`, and its start."""

from __future__ import annotations

import sys
from collections.abc import Sequence

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


@app.callback()
def options() -> None:
    """Make a group of the application; `Commands` has its flags and its commands."""


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
    if arguments and not arguments[0].startswith("-"):
        _check_first_word(arguments)
    return ["run", *arguments]


def _check_first_word(arguments: list[str]) -> None:
    """Reject words that look like a command instead of a prompt.

    A single word that is followed by flags is a prompt, except a command that starts a server.
    """
    from shlex import quote

    from .usage_hints import command_advice, is_server_command

    word = arguments[0]
    has_more_words = len(arguments) > 1 and not arguments[1].startswith("-")
    if len(arguments) > 1 and not has_more_words and not is_server_command(word):
        return
    advice = command_advice(word, COMMANDS)
    if advice is None:
        return
    way_to_continue = (
        "to continue several words as a prompt, quote them"
        if has_more_words
        else f"to continue it as a prompt: gen run {quote(word)}"
    )
    fail(f"{word!r} is not a command: {advice}; {way_to_continue}", BAD_USAGE)
