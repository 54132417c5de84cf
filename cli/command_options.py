"""From options classes to the flat signature that Typer reads, and from a command line back to options.

Between the two, escapes in texts are replaced, each value is checked against the declaration of its flag, and
flags that exclude each other are rejected under the names that were typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from inspect import Parameter, Signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from ..common.errors import UsageError
from .flags import REQUIRED, DeclaredFlag, Flag, Options, flag_of_field, iterate_flags
from .messages import report_failures, require_stdout

OptionsT = TypeVar("OptionsT", bound=Options)
_CONTEXT = "context"
_ESCAPE_FIELD = "escape"
"""The field that says whether escapes are processed; each command that takes texts with escapes has it."""
_TYPES: dict[type[Options], Mapping[str, Any]] = {}
"""The types of the fields of each class: to find them takes longer than all else here."""


def takes_options(cls: type[OptionsT]) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Let a command take its options as one object of a subclass of `Options`.

    Typer sees a function with a parameter for each flag of the class and its groups. The function checks the
    values, and reports the failures of the command.
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
        flat_command.options_class = cls  # type: ignore[attr-defined]
        flat_command.__signature__ = Signature(list(_parameters(cls)))  # type: ignore[attr-defined]
        return flat_command

    return decorate


def takes_group_options(
    cls: type[OptionsT],
) -> Callable[[Callable[[OptionsT, str | None], None]], Callable[..., None]]:
    """Let the callback of a group take the group's own options, and the command's name; None: no command follows.

    Typer sees no option: to read one that is not given, Typer would import pydantic.
    """

    def decorate(callback: Callable[[OptionsT, str | None], None]) -> Callable[..., None]:
        def group_callback(context: typer.Context) -> None:
            with report_failures():
                callback(_build(cls, command_line_of(context).values), context.invoked_subcommand)

        group_callback.__name__, group_callback.__doc__ = callback.__name__, callback.__doc__
        group_callback.__annotations__ = {"context": typer.Context}
        group_callback.options_class = cls  # type: ignore[attr-defined]
        return group_callback

    return decorate


def options_class_of(command: Any) -> type[Options] | None:
    """The options class of a command, or of a group's callback; None if it takes no options."""
    return getattr(command, "options_class", None)


def declared_flags(cls: type[Options]) -> Iterator[DeclaredFlag]:
    """The flags and arguments of an options class and of its groups, in the order of the help."""
    types = field_types(cls)
    for declared in fields(cls):
        flag = flag_of_field(declared)
        if flag is not None:
            value_type, is_list = _value_type(types[declared.name])
            default = REQUIRED if declared.default is MISSING else declared.default
            yield DeclaredFlag(declared.name, flag, value_type, is_list, default)
        elif types[declared.name] is not TypedFlags:
            yield from declared_flags(types[declared.name])


def field_types(cls: type[Options]) -> Mapping[str, Any]:
    """The types of the fields of an options class, by name."""
    if cls not in _TYPES:
        _TYPES[cls] = get_type_hints(cls)
    return _TYPES[cls]


def _value_type(declared_type: Any) -> tuple[type, bool]:
    """The type of a value, and whether there may be several: ``list[str] | None`` gives ``str`` and True."""
    if get_origin(declared_type) in (Union, UnionType):
        declared_type = next(part for part in get_args(declared_type) if part is not type(None))
    if get_origin(declared_type) is list:
        return get_args(declared_type)[0], True
    return declared_type, False


def _parameters(cls: type[Options]) -> Iterator[Parameter]:
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        flag = flag_of_field(declared)
        if flag is not None:
            default = Parameter.empty if declared.default is MISSING else declared.default
            annotation = Annotated[declared_type, _typer_parameter(flag)]  # type: ignore[valid-type]
            yield Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        elif declared_type is TypedFlags:
            yield Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)
        else:
            yield from _parameters(declared_type)


def _typer_parameter(flag: Flag) -> Any:
    """The declaration of a flag for Typer, which reads no value and writes no help: names and reader suffice."""
    if not flag.names:
        return typer.Argument(metavar=flag.metavar)
    return typer.Option(*flag.names, *(f" /{name}" for name in flag.negatives), parser=flag.parse)


_COMMAND_LINE = "logitsmith.command_line"
"""The key of the context's shared table."""


class CommandLine(NamedTuple):
    """The values and the names on a command line.

    Attributes:
        values: the values of the given flags and arguments, by field.
        typed_names: the given flags as they were typed, by field: ``-r`` or ``--reverse-prompt``, not ``--stop``.
    """

    values: Mapping[str, Any]
    typed_names: Mapping[str, str]


def store_command_line(context: Any, line: CommandLine) -> None:
    """Keep the command line in the context of its command."""
    context.meta[_COMMAND_LINE] = line


def command_line_of(context: Any) -> CommandLine:
    """Return the command line of a command."""
    line: CommandLine = context.meta[_COMMAND_LINE]
    return line


def _build(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    built = {}
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        described = flag_of_field(declared)
        if described is not None:
            value = values.get(declared.name, declared.default)
            built[declared.name] = _unescape(value) if described.has_escapes and values[_ESCAPE_FIELD] else value
        elif declared_type is TypedFlags:
            built[declared.name] = _given(values[_CONTEXT], cls)
        else:
            built[declared.name] = _build(declared_type, values)
    return cls(**built)


def _given(context: typer.Context, cls: type[Options]) -> TypedFlags:
    line = command_line_of(context)
    names = {name: line.typed_names.get(name, name) for name in line.values}
    display_names = {flag.field: flag.flag.name for flag in declared_flags(cls)}
    return TypedFlags(names, {display_names[field]: name for field, name in line.typed_names.items()})


def _unescape(value: Any) -> Any:
    """A text, or each text of a list, with its escapes processed; None stays."""
    if value is None:
        return None
    return [process_escapes(text) for text in value] if isinstance(value, list) else process_escapes(value)


_ESCAPE = re.compile(rb"""\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<letter>[nrt'"\\]))""")
_CHARACTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def process_escapes(text: str) -> str:
    r"""Return the text with its escapes replaced: ``\n \r \t \' \" \\`` and ``\xHH``, a byte of UTF-8.

    As llama.cpp's ``string_process_escapes``: any other backslash stays. Bytes that are not UTF-8 become
    surrogates, as those of an argument do.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_replacement, text.encode(errors="surrogateescape")).decode(errors="surrogateescape")


def _replacement(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"].decode())
    letter = match["letter"]
    return _CHARACTERS.get(letter, letter)


def check_options(options: Options) -> None:
    """Refuse wrong values, and then those that exclude each other. Raises ``UsageError``."""
    given = typed_flags_of(options)
    for flag, value in iterate_flags(options):
        _check_value(given.name_of(flag), flag, value)
    _check_groups(options)


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
        violation = flag.limit.violation(value)
        if violation is not None:
            raise UsageError(f"{name}: {violation}")
    for text in value if isinstance(value, list) else [value]:
        # Python turns bytes of an argument that are not UTF-8 into surrogates; a path may have them.
        if type(text) is str and not flag.is_path and not _is_unicode(text):
            raise UsageError(f"{name} is not UTF-8")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class TypedFlags:
    """The flags on the command line, whatever their values; a default is not given.

    A field of this type in an options class declares no flag: it is filled from the command line.

    Attributes:
        typed_name_by_field: the name that was typed for each flag, by the field that declares the flag.
        typed_name_by_display_name: the name that was typed for each flag, by the flag's name in messages.
    """

    typed_name_by_field: Mapping[str, str] = field(default_factory=dict)
    typed_name_by_display_name: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, flag: Flag) -> str:
        """What a message calls a flag: as it was typed."""
        return self.typed_name_by_display_name.get(flag.name, flag.name)

    def reject(self, *groups: type[Options], why: str, required_companions: Collection[str] | None = None) -> None:
        """Raise ``UsageError`` if a flag of these groups is given.

        Args:
            groups: options classes; their own groups are not looked at.
            why: the message, after the flag.
            required_companions: just the flags that are only for one of these, see `Flag`; None: all of them.
        """
        for name, flag in self._typed_flags_in(groups):
            if required_companions is None or not set(flag.required_companions).isdisjoint(required_companions):
                raise UsageError(f"{name} {why}")

    def reject_unavailable(self, *groups: type[Options], available: Collection[str]) -> None:
        """Raise ``UsageError`` if a flag is given that is only for something else than ``available``."""
        for name, flag in self._typed_flags_in(groups):
            if flag.required_companions and set(flag.required_companions).isdisjoint(available):
                raise UsageError(f"{name} is for {' or '.join(flag.required_companions)}")

    def _typed_flags_in(self, groups: Collection[type[Options]]) -> Iterator[tuple[str, Flag]]:
        """The given flags of these groups, each with the name on the command line."""
        for group in groups:
            for declared in fields(group):
                flag = flag_of_field(declared)
                if flag is not None and declared.name in self.typed_name_by_field:
                    yield self.typed_name_by_field[declared.name], flag


def typed_flags_of(options: Options) -> TypedFlags:
    """The flags on the command line, if the options class has a field for them; else none."""
    values = (getattr(options, declared.name) for declared in fields(options))
    return next((value for value in values if isinstance(value, TypedFlags)), TypedFlags())


NamedPath = tuple[str, Path | None]
"""A flag, and the path that it gives; None: it is not given."""


def reject_same_file(written: Sequence[NamedPath], read: Sequence[NamedPath]) -> None:
    """Refuse to write a file that is also read, or written twice. Raises ``UsageError``."""
    for number, (flag, path) in enumerate(written):
        for other_flag, other_path in (*written[number + 1 :], *read):
            if path is not None and other_path is not None and _is_same_file(path, other_path):
                raise UsageError(f"{flag} and {other_flag} are one file, {other_path}; name another one")


def _is_same_file(first_path: Path, second_path: Path) -> bool:
    try:
        return first_path.samefile(second_path)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(first_path) == os.path.realpath(second_path)
