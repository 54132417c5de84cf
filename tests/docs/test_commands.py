"""Every command line and every flag in the Markdown files exists."""

import re
import shlex

import pytest
from logitsmith.cli import command_table

from .markdown import FILES, console_commands, name_of, without_blocks

COMMANDS = {name: command_table.load_command(name) for name in command_table.COMMANDS}
LINES = [(name_of(path), line) for path in FILES for line in console_commands(path.read_text()) if "gen " in line]


def leaves():
    """Every command without subcommands, by the words that call it."""
    for name, command in COMMANDS.items():
        subcommands = getattr(command, "commands", None)
        if subcommands:
            yield from (((name, sub), found) for sub, found in subcommands.items())
        else:
            yield (name,), command


def names_of_flags(command):
    """All names of the flags of a command, or of the commands of a group."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    names |= {name for flag in getattr(command.callback, "flags", ()) for name in flag.names}
    return names.union(*map(names_of_flags, getattr(command, "commands", {}).values()))


LEAVES = list(leaves())
FLAGS = set().union(*(names_of_flags(leaf) for _, leaf in LEAVES))


def gen_calls(line):
    """The arguments of each `gen` in a line of shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    words.whitespace_split = True
    arguments = None
    for word in [*words, "|"]:
        if set(word) <= set("|<>;&"):
            if arguments is not None:
                yield arguments
            arguments = None
        elif arguments is not None:
            arguments.append(word)
        elif word == "gen":
            arguments = []


@pytest.mark.parametrize(("place", "line"), LINES, ids=[f"{place}-{n}" for n, (place, _) in enumerate(LINES)])
def test_a_command_line_has_only_options_that_exist(place, line):
    calls = list(gen_calls(line))
    assert calls, line
    for arguments in calls:
        name, *following = arguments if arguments and arguments[0] in COMMANDS else ["run", *arguments]
        command = COMMANDS[name]
        subcommands = getattr(command, "commands", None)
        if subcommands and following:
            command = subcommands[following.pop(0)]
        command.make_context(f"gen {name}", following)  # raises an error


def test_the_manual_has_command_lines():
    assert len(LINES) > 50


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_flag_that_is_named_exists(path):
    own = {"--help", "--version"}
    foreign = {"--no-index", "--sampler-seq"} | own
    for code in re.findall(r"`([^`\n]+)`", without_blocks(path.read_text())):
        if code.startswith(("pip ", "python -m", "make ", "mkdocs", "git ", "ray ", "ruff ", "lm-eval ")):
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code):
            assert flag in FLAGS | foreign, code
