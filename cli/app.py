"""The application `gen`: the table of commands, which are imported when they are used, and the entry point."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import typer
from typer.main import get_command

from .command_line import GenCommand, GenGroup, match_words
from .flags import HELP, VERSION, DeclaredFlag
from .messages import BAD_USAGE, fail, prepare_streams, report_failures
from .startup import import_command

COMMANDS = {
    "run": ("Generate", "Continue a prompt, choosing each token with your chain of samplers."),
    "chat": ("Generate", "Talk with a model: change settings, go back, branch, and see how tokens were chosen."),
    "batch": ("Generate", "Answer a file of requests, several at a time, each as if it ran alone."),
    "serve": (
        "Generate",
        "Serve a model to other programs over HTTP: OpenAI's API and others, several requests at a time.",
    ),
    "compare": ("Generate", "Compare presets, chains or models on the same prompts."),
    "next": ("Generate", "Show the candidates for the next token after each step of the chain."),
    "score": ("Generate", "Score a text, or continuations of a prompt, by the model's logprobs."),
    "inspect": (
        "Look up",
        "Show runs written by gen --format jsonl: probability, surprise and entropy of each token.",
    ),
    "detect": ("Look up", "Find the watermark of the sampler synthid in texts."),
    "recover": (
        "Recover",
        "Recover the logprobs of all or some tokens from an API that shows only a few per call.",
    ),
    "recover-basis": (
        "Recover",
        "Compute a basis of a model's logits, with which a few logprobs determine a complete row.",
    ),
    "models": ("Look up", "List the models on this machine, show one, or download one."),
    "samplers": ("Look up", "List the samplers, or show one: formula, parameters, ranges, source."),
    "grammars": ("Look up", "List, show, check and sample grammars."),
    "presets": ("Look up", "List, show, check, import and export presets."),
    "doctor": ("Set up", "Check the installation, and print a page for a bug report."),
    "completion": ("Set up", "Print the script that lets your shell complete gen's commands and flags."),
}
"""The section of the help and the summary of each command, by the command's name.

The summary repeats the first sentence of the command's own help, so that `gen --help` imports no command. The
module of a command in commands/ has the name of the command.
"""


class Commands(GenGroup):
    """The group of all commands of `gen`. A command is imported when it is used."""

    @property
    def flags(self) -> list[DeclaredFlag]:
        """The flags of `gen` itself."""
        return [VERSION, HELP]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help or the versions, or leave the words to the command that the first word names."""
        typed_flags = match_words(args, self.flags, ctx.command_path, is_group=True).typed_flags
        if next(iter(typed_flags), None) == VERSION.field:
            from importlib.metadata import version

            print(f"gen {version('logitsmith')} (llama-cpp-python {version('llama-cpp-python')})")
            raise typer.Exit
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None if there is no command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_command(cmd_name)
        app = getattr(module, "app", None)
        if app is None:  # a single command, not a group such as presets
            app = typer.Typer(add_completion=False)
            app.command(cmd_name, cls=GenCommand)(getattr(module, cmd_name.replace("-", "_")))
        return get_command(app)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, examples, commands and options."""
        from .help_page import HelpRow, page_width, section, wrap_command_lines, wrap_usage

        width = page_width()
        intro, examples = (self.help or "").strip("\n").split("\n\n  ", 1)
        panels: dict[str, list[HelpRow]] = {}
        for name, (panel, meaning) in COMMANDS.items():
            panels.setdefault(panel, []).append(HelpRow(name, meaning))
        panels["Options"] = [HelpRow(flag.shown_name, flag.flag.help) for flag in self.flags]
        parts = [
            wrap_usage("gen PROMPT | COMMAND [OPTIONS]", width),
            *("\n".join(wrap(paragraph, width, break_on_hyphens=False)) for paragraph in intro.split("\n\n")),
            wrap_command_lines(examples, width),
            *(section(title, rows, width) for title, rows in panels.items()),
            "\n".join(wrap(self.epilog or "", width, break_on_hyphens=False)),
        ]
        formatter.write("\n\n".join(parts))


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
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options() -> None:
    """Give Typer the callback that makes the application a group of commands."""


def start(arguments: Sequence[str] | None = None) -> None:
    """Run `gen` with these arguments, and exit. Without arguments, ``sys.argv`` is used."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with report_failures():
            code = app(args=_with_default_command(words), prog_name="gen", standalone_mode=False)
    except typer.Exit as end:  # a failure outside of any command
        code = end.exit_code
    sys.exit(code or 0)


def _with_default_command(arguments: list[str]) -> list[str]:
    """Insert ``run`` before the arguments, unless they begin with a command or with an option of `gen` itself."""
    if not arguments and sys.stdin is not None and sys.stdin.isatty():
        return ["--help"]
    if arguments and arguments[0] in {"--help", "-h", "--version", *COMMANDS}:
        return arguments
    if arguments and not arguments[0].startswith("-"):
        _check_first_word(arguments)
    return ["run", *arguments]


def _check_first_word(arguments: list[str]) -> None:
    """Reject words that look like a mistyped command, or like a command of another tool, instead of a prompt.

    One word followed by flags is accepted as a prompt, unless the word starts a server in other tools.
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
        "to use several words as a prompt, quote them"
        if has_more_words
        else f"to use the word as a prompt: gen run {quote(word)}"
    )
    fail(f"{word!r} is not a command: {advice}; {way_to_continue}", BAD_USAGE)
