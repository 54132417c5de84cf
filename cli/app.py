"""The application `gen`: the group of all commands, and the entry point."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command

from .command_line import GenCommand, GenGroup, match_words
from .command_table import COMMANDS, find_plugin, load_command, load_plugin, plugin_commands, run_plugin
from .flags import HELP, VERSION, DeclaredFlag
from .messages import BAD_USAGE, fail, plugin_notes, prepare_streams, report_failures
from .startup import start_collector


class Commands(GenGroup):
    """The group of all commands of `gen`. A command is imported when it is used."""

    @property
    def flags(self) -> list[DeclaredFlag]:
        return [VERSION, HELP]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help or the versions, or leave the words to the command that the first word names."""
        typed_flags = match_words(args, self.flags, ctx.command_path, is_group=True).typed_flags
        if next(iter(typed_flags), None) == VERSION.field:
            from importlib.metadata import version

            from .. import __version__

            print(f"gen {__version__} (llama-cpp-python {version('llama-cpp-python')})")
            raise typer.Exit
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None if there is no command of this name."""
        if cmd_name not in COMMANDS:
            return None
        loaded = load_command(cmd_name)
        if isinstance(loaded, typer.Typer):  # a group such as presets
            return get_command(loaded)
        app = typer.Typer(add_completion=False)
        app.command(cmd_name, cls=GenCommand)(loaded)
        return get_command(app)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, examples, commands and options."""
        from .help_page import HelpRow, page_width, section, wrap_command_lines, wrap_usage
        from .text import wrap_words

        width = page_width()
        intro, examples = (self.help or "").strip("\n").split("\n\n  ", 1)
        panels: dict[str, list[HelpRow]] = {}
        for name, command in COMMANDS.items():
            panels.setdefault(command.section, []).append(HelpRow(name, command.summary))
        for name, plugin in plugin_commands().items():
            panels.setdefault("Plug-ins", []).append(HelpRow(name, f"Command of the package {plugin.package}."))
        panels["Options"] = [HelpRow(flag.shown_name, flag.flag.help) for flag in self.flags]
        parts = [
            wrap_usage("gen PROMPT | COMMAND [OPTIONS]", width),
            *("\n".join(wrap_words(" ".join(paragraph.split()), width)) for paragraph in intro.split("\n\n")),
            wrap_command_lines(examples, width),
            *(section(title, rows, width) for title, rows in panels.items()),
            "\n".join(wrap_words(self.epilog or "", width)),
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
        with plugin_notes(), report_failures():
            plugin = find_plugin(words[0]) if words else None
            if plugin is None:
                code = app(args=_with_default_command(words), prog_name="gen", standalone_mode=False)
            else:
                command = load_plugin(plugin)
                start_collector()
                code = run_plugin(command, words)
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
    """Reject words that look like a mistyped command, or like a command of another tool, instead of a prompt."""
    # One word followed by flags is accepted as a prompt, unless the word starts a server in other tools.
    from shlex import quote

    from .usage_hints import command_advice, is_server_command

    word = arguments[0]
    has_more_words = len(arguments) > 1 and not arguments[1].startswith("-")
    if len(arguments) > 1 and not has_more_words and not is_server_command(word):
        return
    advice = command_advice(word, [*COMMANDS, *plugin_commands()])
    if advice is None:
        return
    way_to_continue = (
        "to use several words as a prompt, quote them"
        if has_more_words
        else f"to use the word as a prompt: gen run {quote(word)}"
    )
    fail(f"{word!r} is not a command: {advice}; {way_to_continue}", BAD_USAGE)
