"""Wrong usage in one sentence of ours, whatever sentence typer has for it."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from ...common import nearest_name, one_of, problem_message
from ..help_page import parameter_name, usage_line
from .flags_elsewhere import flag_of_run, other_way
from .llama_cpp_flags import foreign_flag_sentence
from .near_command import command_of_name
from .respelled_flags import respelled
from .typed_names import typed_names

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_EXTRA = re.compile(r" \((.*)\)$", re.DOTALL)

_HINTS_ON_EXTRA_WORDS = {
    "gen run": "a prompt of several words stands in quotes",
    "gen chat": "messages are typed in the chat, or piped in; for one answer: gen --chat TEXT",
}
_FLAG_SIMILARITY = 0.75
"""Two letters of a short flag may differ, and --json is not --stop."""


def usage_sentence(error: Any) -> str:
    """Return what is wrong, and what may stand there; ``error``: a ``UsageError`` of typer's."""
    context = getattr(error, "ctx", None)
    kind = type(error).__name__
    if kind == "MissingParameter":
        return _missing(error.param, context)
    if kind == "NoSuchOption":
        return _no_such_flag(error, context)
    if kind == "BadOptionUsage":
        return _flag_and_value(error)
    if getattr(error, "param", None) is not None:
        return f"{_place(error.param, context)}: {_refusal(error)}"
    if context is not None and error.message.startswith(("Got unexpected", "Missing command", "No such command")):
        return _extra_words(error.message, context)
    return str(error.message)


def _missing(parameter: Any, context: Any) -> str:
    name = parameter_name(parameter).rpartition(", ")[2]  # one of a flag's names is enough
    meaning = (parameter.help or "").replace(r"\[", "[").partition(";")[0].rstrip(".")
    return f"{context.command_path} needs {name}: {meaning[:1].lower()}{meaning[1:]}"


def _no_such_flag(error: Any, context: Any) -> str:
    flag = error.option_name
    foreign = foreign_flag_sentence(respelled(flag))
    if foreign is not None:
        return foreign
    if context is None:
        return f"there is no flag {flag}"
    flags = [
        name
        for parameter in context.command.get_params(context)
        for name in [*parameter.opts, *parameter.secondary_opts]
    ]
    instead = other_way(context.command_path, flag, flags)
    if instead is not None:
        return instead
    if "--set" in flags:
        setting = _setting_of_run(flag_of_run(flag) or flag)
        if setting is not None:
            return f"there is no flag {flag} in {context.command_path}; use --set {setting}"
        instead = None if flag.lower() in flags else _way_to_set(flag, flags)
        if instead is not None:
            return f"there is no flag {flag}; use {instead}"
    hint = _near_flag(flag, flags) or f"{context.command_path} --help lists the flags"
    return f"there is no flag {flag}; {hint}"


def _near_flag(flag: str, flags: list[str]) -> str | None:
    """A flag that is written alike, as a hint; None: there is none."""
    if flag[1:] in flags:  # --n
        return f"write {flag[1:]}"
    long_flags = [name for name in flags if name.startswith("--")]
    near = nearest_name(respelled(flag).lower(), long_flags, _FLAG_SIMILARITY)
    return f"did you mean {near}?" if near else None


def _way_to_set(flag: str, flags: list[str]) -> str | None:
    """How a sampler is set whose name was typed as a flag; None: it is no sampler's, or takes no value."""
    from ...samplers import SamplingError, find_sampler
    from ..options.flag import flag_of
    from ..options.sampling import FullSamplingOptions

    try:
        about = find_sampler(flag.lstrip("-")).about
    except SamplingError:
        return None
    if about.main is None:
        return None
    declared = filter(None, map(flag_of, fields(FullSamplingOptions)))
    own = next((each.name for each in declared if each.sets == f"{about.name}.{about.main}"), None)
    return own if own in flags else f"--set {about.name}=VALUE"


def _setting_of_run(flag: str) -> str | None:
    """What ``--set`` takes in place of a sampler's flag of `gen run`; None if no ``--set`` does the same."""
    from ..options.flag import flag_of
    from ..options.sampling import FullSamplingOptions

    for declared in map(flag_of, fields(FullSamplingOptions)):
        if declared is not None and flag in declared.names and declared.sets is not None:
            return f"{declared.sets}=VALUE"
    return "ignore_eos=true" if flag == "--ignore-eos" else None


def _flag_and_value(error: Any) -> str:
    """A flag without its value, or a value for a flag that takes none."""
    if "does not take a value" in error.message:
        return f"{error.option_name} takes no value; write {error.option_name} alone"
    return f"{error.option_name} needs a value behind it"


def _extra_words(message: str, context: Any) -> str:
    """Words that no argument takes, or that are no command."""
    command, path = context.command, context.command_path
    subcommands = list(getattr(command, "commands", {}))
    if message.startswith("No such command"):
        match = _QUOTED.search(message)
        word = match[1] if match else ""
        shown = command_of_name(path, word)
        if shown is not None:
            return f"{path} has no command {word!r}; use {shown}"
        near = nearest_name(word, subcommands)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(subcommands)}"
        return f"{path} has no command {word!r}; {hint}"
    if message.startswith("Missing command"):
        return f"{path} needs a command: {', '.join(subcommands)}"
    extra = _EXTRA.search(message)
    words = extra[1] if extra else ""
    hint = _HINTS_ON_EXTRA_WORDS.get(path) or f"usage: {usage_line(command, context)}"
    return f"{words!r} is too much; {hint}"


def _refusal(error: Any) -> str:
    """Why a value is refused; of what pydantic refused, in words of ours."""
    problems = getattr(error.__cause__, "errors", None)
    if problems is None:
        return str(error.message)
    problem = problems()[0]
    choices = getattr(getattr(error.param, "type_descriptor", None), "choices", None)
    if choices is None:
        return problem_message(problem)
    return f"{problem['input']!r} is not {one_of([choice.value for choice in choices])}"


def _place(parameter: Any, context: Any) -> str:
    """What messages call a flag or an argument: as it was typed, else as its declaration says."""
    typed = None if context is None else typed_names(context).get(parameter.name)
    names = getattr(getattr(getattr(context, "command", None), "callback", None), "flag_names", {})
    return typed or str(
        names.get(parameter.name) or (parameter.opts[0] if parameter.opts else parameter_name(parameter))
    )
