"""The commands of `gen`: its own, and those of plug-ins. A command is imported when it is used."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from ..common.errors import PluginError
from ..common.plugins import Plugin, find_plugins
from .command_line import GenCommand

# The entry-point group in which a package lists its commands: ``name = "package.module:object"``.
GROUP = "logitsmith.commands"


class Command(NamedTuple):
    """A command of `gen` itself."""

    section: str  # of the help
    # the first sentence of the command's own help, repeated here so that `gen --help` imports no command
    summary: str


# The commands of `gen` itself, by name. The module of a command in commands/ has the name of the command.
COMMANDS = {
    "run": Command("Generate", "Continue a prompt, choosing each token with your chain of samplers."),
    "chat": Command(
        "Generate", "Talk with a model: change settings, go back, branch, and see how tokens were chosen."
    ),
    "batch": Command("Generate", "Answer a file of requests, several at a time, each as if it ran alone."),
    "serve": Command(
        "Generate",
        "Serve a model to other programs over HTTP: OpenAI's API and others, several requests at a time.",
    ),
    "compare": Command("Generate", "Compare presets, chains or models on the same prompts."),
    "next": Command("Generate", "Show the candidates for the next token after each step of the chain."),
    "score": Command("Generate", "Score a text, or continuations of a prompt, by the model's logprobs."),
    "decide": Command("Generate", "Answer questions with a closed list of answers by the model's probabilities."),
    "inspect": Command(
        "Look up", "Show runs written by gen --format jsonl: probability, surprise and entropy of each token."
    ),
    "detect": Command("Look up", "Find the watermark of the sampler synthid in texts."),
    "recover": Command(
        "Recover", "Recover the logprobs of all or some tokens from an API that shows only a few per call."
    ),
    "recover-basis": Command(
        "Recover", "Compute a basis of a model's logits, with which a few logprobs determine a complete row."
    ),
    "models": Command("Look up", "List the models on this machine, show one, or download one."),
    "settings": Command(
        "Look up", "List all settings, or show one: values, default, flags, names in other tools."
    ),
    "samplers": Command("Look up", "List the samplers, or show one: formula, parameters, ranges, source."),
    "grammars": Command("Look up", "List, show, check and sample grammars."),
    "presets": Command("Look up", "List, show, check, import and export presets."),
    "doctor": Command("Set up", "Check the installation, and print a page for a bug report."),
    "completion": Command("Set up", "Print the script that lets your shell complete gen's commands and flags."),
}


def load_command(name: str) -> Any:
    """Import a command of `gen` itself, and no other, and return it as Typer builds it."""
    python_name = name.replace("-", "_")  # of the module and of its function
    module = import_module(f".commands.{python_name}", __package__)
    if hasattr(module, "app"):  # a group such as presets
        return get_command(module.app)
    app = typer.Typer(add_completion=False)
    app.command(name, cls=GenCommand)(getattr(module, python_name))
    return get_command(app)


@cache
def plugin_commands() -> dict[str, Plugin]:
    """Return the commands of plug-ins, by name, without those whose name is taken or cannot be typed."""
    return {name: plugin for name, plugin in plugins().items() if reason_against(name) is None}


@cache
def plugins() -> dict[str, Plugin]:
    """Return the plug-ins of `GROUP`, by name, usable or not. None of them is imported."""
    return find_plugins(GROUP)


_NAME = re.compile(r"[A-Za-z][\w-]*")


def reason_against(name: str) -> str | None:
    """Return the reason why no plug-in can have a command of this name; None if one can."""
    if name in COMMANDS:
        return "gen has a command of this name"
    if _NAME.fullmatch(name) is None:
        return "the name of a command is a letter, then letters, digits, - and _"
    return None


def load_plugin(plugin: Plugin) -> Any:
    """Import a plug-in, and return its command as Typer builds it."""
    # Raises ``PluginError`` if that fails, or if the object is neither a ``typer.Typer`` nor a function.
    loaded = plugin.load()
    group = typer.Typer(add_completion=False)
    group.callback()(_no_options)
    if isinstance(loaded, typer.Typer):
        group.add_typer(loaded, name=plugin.name)
    elif callable(loaded) and not isinstance(loaded, type):
        group.command(plugin.name)(loaded)
    else:
        raise PluginError(f"{plugin.title} is neither a typer.Typer nor a function")
    try:
        built: Any = get_command(group)
        return built.commands[plugin.name]
    except Exception as error:  # Typer raises several types for annotations that it cannot read
        raise PluginError(f"{plugin.title} cannot be used: {error}") from error


def _no_options() -> None:
    """Take no options: a callback makes a group, even of one command."""
