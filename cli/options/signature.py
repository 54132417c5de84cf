"""From options classes to the flat signature that Typer reads, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ..errors import report_failures, require_stdout
from ..escapes import process_escapes
from ..parsing.typed_names import typed_names
from .flag import Flag, Options, flag_of, walk_flags
from .given import GivenFlags

OptionsT = TypeVar("OptionsT", bound=Options)
_CONTEXT = "context"
_ESCAPE = "escape"
"""The field that says whether escapes are processed; each command that takes texts with escapes has it."""
_TYPES: dict[type[Options], Mapping[str, Any]] = {}
"""The types of the fields of each class: to find them takes longer than all else here."""
_METAVARS: Mapping[Any, str] = {int: "N", float: "N", str: "TEXT", Path: "FILE"}
_MAX_CHOICES_CHARACTERS = 24
"""Longer lists of choices do not fit beside a flag; their flag has a metavar of its own."""


def takes_options(cls: type[OptionsT]) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Let a command take its options as one object of a subclass of `Options`.

    Typer sees a function with a parameter for each flag of the class and its groups. It checks the values, and
    reports the failures of the command.
    """

    def decorate(command: Callable[[OptionsT], None]) -> Callable[..., None]:
        def flat_command(**values: Any) -> None:
            options = _build(cls, values)
            check_options(options)
            with report_failures():
                if options.needs_stdout:
                    require_stdout()
                command(options)

        flat_command.__name__, flat_command.__doc__ = command.__name__, command.__doc__
        flat_command.flag_names = dict(_flag_names(cls))  # type: ignore[attr-defined]
        flat_command.options_class = cls  # type: ignore[attr-defined]
        flat_command.__signature__ = Signature(list(_parameters(cls)))  # type: ignore[attr-defined]
        return flat_command

    return decorate


def options_class_of(command: Callable[..., None]) -> type[Options] | None:
    """The options class of a command; None if it takes no options."""
    return getattr(command, "options_class", None)


def check_options(options: Options) -> None:
    """Refuse wrong values, and then those that exclude each other. Raises ``typer.BadParameter``."""
    given = given_flags(options)
    for flag, value in walk_flags(options):
        _check_value(given.name_of(flag), flag, value)
    _check_groups(options)


def given_flags(options: Options) -> GivenFlags:
    """The flags on the command line, if the options class has a field for them; else none."""
    values = (getattr(options, declared.name) for declared in fields(options))
    return next((value for value in values if isinstance(value, GivenFlags)), GivenFlags())


def field_types(cls: type[Options]) -> Mapping[str, Any]:
    """The types of the fields of an options class, by name."""
    if cls not in _TYPES:
        _TYPES[cls] = get_type_hints(cls)
    return _TYPES[cls]


def _check_groups(options: Options) -> None:
    for declared in fields(options):
        value = getattr(options, declared.name)
        if isinstance(value, Options):
            _check_groups(value)
    options.check()


def _check_value(name: str, flag: Flag, value: Any) -> None:
    if value is None:
        return
    if flag.limit is not None:
        complaint = flag.limit.complaint(value)
        if complaint is not None:
            raise typer.BadParameter(f"{name}: {complaint}")
    for text in value if isinstance(value, list) else [value]:
        # Python turns bytes of an argument that are not UTF-8 into surrogates; a path may have them.
        if type(text) is str and not flag.is_path and not _is_unicode(text):
            raise typer.BadParameter(f"{name} is not UTF-8")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parameters(cls: type[Options]) -> Iterator[Parameter]:
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        flag = flag_of(declared)
        if flag is not None:
            default = Parameter.empty if declared.default is MISSING else declared.default
            if isinstance(flag.parameter, OptionInfo):  # an argument without a metavar is named as its field
                flag.parameter.metavar = flag.parameter.metavar or _metavar(declared_type)
            annotation = Annotated[declared_type, flag.parameter]  # type: ignore[valid-type]
            yield Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        elif declared_type is GivenFlags:
            yield Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)
        else:
            yield from _parameters(declared_type)


def _flag_names(cls: type[Options]) -> Iterator[tuple[str, str]]:
    """Each field that is a flag, and what messages call it."""
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        described = flag_of(declared)
        if described is not None:
            yield declared.name, described.name
        elif declared_type is not GivenFlags:
            yield from _flag_names(declared_type)


def _metavar(declared_type: Any) -> str | None:
    """What stands for a value of this type in the help: N, TEXT, FILE or the choices; None: a switch."""
    types = [item for item in get_args(declared_type) if item is not type(None)] or [declared_type]
    value_type = (get_args(types[0]) or types)[0]
    if isinstance(value_type, type) and issubclass(value_type, Enum):
        choices = "|".join(member.value for member in value_type)
        return choices if len(choices) <= _MAX_CHOICES_CHARACTERS else "NAME"
    return _METAVARS.get(value_type)


def _build(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    built = {}
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        described = flag_of(declared)
        if described is not None:
            value = values[declared.name]
            built[declared.name] = _unescape(value) if described.has_escapes and values[_ESCAPE] else value
        elif declared_type is GivenFlags:
            built[declared.name] = _given(values[_CONTEXT], cls)
        else:
            built[declared.name] = _build(declared_type, values)
    return cls(**built)


def _unescape(value: Any) -> Any:
    """A text, or each text of a list, with its escapes processed; None stays."""
    if value is None:
        return None
    return [process_escapes(text) for text in value] if isinstance(value, list) else process_escapes(value)


def _given(context: typer.Context, cls: type[Options]) -> GivenFlags:
    typed = typed_names(context)
    names = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name and source is not None and source.name == "COMMANDLINE":
            is_negated = context.params.get(name) is False and parameter.secondary_opts
            names[name] = typed.get(name) or (parameter.secondary_opts if is_negated else parameter.opts)[0]
    return GivenFlags(names, {called: typed[name] for name, called in _flag_names(cls) if name in typed})
