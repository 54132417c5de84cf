"""Conversion of an options class to the flat signature that Typer reads, and of a command line to options.

The conversion to options replaces escapes in strings, and checks each value against the declaration of its flag.
Messages about flags that exclude each other use the names that were typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from ..common.errors import UsageError
from ..common.flags import Flag
from .flags import REQUIRED, DeclaredFlag, Options, flag_of_field, iterate_flags
from .messages import FLAGS, report_failures, require_stdout

OptionsT = TypeVar("OptionsT", bound=Options)
_CONTEXT = "context"
# The field of ``--escape``. Each command with a flag that has escapes also has this flag.
_ESCAPE_FIELD = "escape"
# The types of the fields of each class, cached because finding them is the slowest step of the conversion.
_TYPES: dict[type[Options], Mapping[str, Any]] = {}


def takes_options(cls: type[OptionsT]) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Return a decorator that passes a command its options as one object of the options class."""
    # The decorated function, which Typer calls, has a parameter for each flag of the class and its groups. It
    # checks the values, and reports the failures of the command.

    def decorate(command: Callable[[OptionsT], None]) -> Callable[..., None]:
        def flat_command(**values: Any) -> None:
            options = _build_options(cls, values)
            check_options(options)
            with report_failures(partial(advice_words, cls)):
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
    """Return a decorator that passes the callback of a command group its options and the command's name."""
    # The name is None if no command follows. The options are hidden from Typer, because Typer would import
    # pydantic to read the default of an option.

    def decorate(callback: Callable[[OptionsT, str | None], None]) -> Callable[..., None]:
        def group_callback(context: typer.Context) -> None:
            with report_failures(partial(advice_words, cls)):
                callback(_build_options(cls, command_line_of(context).values), context.invoked_subcommand)

        group_callback.__name__, group_callback.__doc__ = callback.__name__, callback.__doc__
        group_callback.__annotations__ = {"context": typer.Context}
        group_callback.options_class = cls  # type: ignore[attr-defined]
        return group_callback

    return decorate


def options_class_of(command: Any) -> type[Options] | None:
    """Return the options class of a command or of a group's callback; None if it takes no options."""
    return getattr(command, "options_class", None)


def declared_flags(cls: type[Options]) -> Iterator[DeclaredFlag]:
    """Yield the flags and arguments of an options class and of its groups, in the order of the help."""
    types = field_types(cls)
    for declared in fields(cls):
        flag = flag_of_field(declared)
        if flag is not None:
            value_type, is_list = _value_type(types[declared.name])
            default = REQUIRED if declared.default is MISSING else declared.default
            yield DeclaredFlag(declared.name, flag, value_type, is_list, default)
        elif types[declared.name] is not TypedFlags:
            yield from declared_flags(types[declared.name])


def advice_words(cls: type[Options]) -> Mapping[str, str | None]:
    """Return what the advice of an error says to the user of a command for each `Word`: a flag of the command."""
    flags = {name for declared in declared_flags(cls) for name in declared.flag.names}
    return {
        word: cls.advice_words.get(word, text if text.split()[0] in flags else None)
        for word, text in FLAGS.items()
    }


def field_types(cls: type[Options]) -> Mapping[str, Any]:
    """Return the types of the fields of an options class, by the name of the field."""
    if cls not in _TYPES:
        _TYPES[cls] = get_type_hints(cls)
    return _TYPES[cls]


def _value_type(declared_type: Any) -> tuple[type, bool]:
    """Return the type of one value, and whether the flag takes a list: ``str``, True for ``list[str] | None``."""
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
    """Return Typer's declaration of a flag: names and a parser. Values and help are read and written elsewhere."""
    if not flag.names:
        return typer.Argument(metavar=flag.metavar)
    return typer.Option(*flag.names, *(f" /{name}" for name in flag.negatives), parser=flag.parse)


_COMMAND_LINE = "logitsmith.command_line"  # the key under which the context of a command stores its `CommandLine`


class CommandLine(NamedTuple):
    """The values and the names that were typed on a command line."""

    values: Mapping[str, Any]  # by field: the value of each flag and argument that was typed
    typed_names: Mapping[str, str]  # by field: the name that was typed, such as ``-r`` for the flag ``--stop``


def store_command_line(context: Any, line: CommandLine) -> None:
    context.meta[_COMMAND_LINE] = line


def command_line_of(context: Any) -> CommandLine:
    line: CommandLine = context.meta[_COMMAND_LINE]
    return line


def _build_options(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    value_by_field = {}
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        described = flag_of_field(declared)
        if described is not None:
            value = values.get(declared.name, declared.default)
            value_by_field[declared.name] = (
                _unescape(value) if described.has_escapes and values[_ESCAPE_FIELD] else value
            )
        elif declared_type is TypedFlags:
            value_by_field[declared.name] = _read_typed_flags(values[_CONTEXT], cls)
        else:
            value_by_field[declared.name] = _build_options(declared_type, values)
    return cls(**value_by_field)


def _read_typed_flags(context: typer.Context, cls: type[Options]) -> TypedFlags:
    line = command_line_of(context)
    names = {name: line.typed_names.get(name, name) for name in line.values}
    display_names = {flag.field: flag.flag.name for flag in declared_flags(cls)}
    return TypedFlags(names, {display_names[field]: name for field, name in line.typed_names.items()})


def _unescape(value: Any) -> Any:
    """Return a string, or each string of a list, with escapes replaced; None for None."""
    if value is None:
        return None
    return [process_escapes(text) for text in value] if isinstance(value, list) else process_escapes(value)


_ESCAPE_REGEX = re.compile(rb"""\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<letter>[nrt'"\\]))""")
_CHARACTER_BY_LETTER = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def process_escapes(text: str) -> str:
    r"""Return the text with its escapes replaced: ``\n \r \t \' \" \\`` and ``\xHH``, a byte of UTF-8."""
    # Like llama.cpp's ``string_process_escapes``, which leaves other backslashes unchanged. Bytes that are not
    # UTF-8 become surrogates, as Python does for arguments of the command line.
    if "\\" not in text:
        return text
    return _ESCAPE_REGEX.sub(_unescape_match, text.encode(errors="surrogateescape")).decode(
        errors="surrogateescape"
    )


def _unescape_match(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"].decode())
    letter = match["letter"]
    return _CHARACTER_BY_LETTER.get(letter, letter)


def check_options(options: Options) -> None:
    """Raise ``UsageError`` for a value that its flag does not allow, or for values that exclude each other."""
    typed_flags = typed_flags_of(options)
    for flag, value in iterate_flags(options):
        _check_value(typed_flags.name_of(flag), flag, value)
    _check_combinations(options)


def _check_combinations(options: Options) -> None:
    for declared in fields(options):
        value = getattr(options, declared.name)
        if isinstance(value, Options):
            _check_combinations(value)
    options.check()


def _check_value(name: str, flag: Flag, value: Any) -> None:
    if value is None:
        return
    if flag.limit is not None:
        violation = flag.limit.violation(value)
        if violation is not None:
            raise UsageError(f"{name}: {violation}")
    for text in value if isinstance(value, list) else [value]:
        # Python turns bytes of an argument that are not UTF-8 into surrogates. Only paths may have such bytes.
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
    """The flags that the user typed on the command line, including those whose value equals the default."""

    # A field of this type in an options class declares no flag: it is filled from the command line.

    typed_name_by_field: Mapping[str, str] = field(default_factory=dict)  # by the field that declares the flag
    typed_name_by_display_name: Mapping[str, str] = field(default_factory=dict)  # by the flag's name in messages

    def name_of(self, flag: Flag) -> str:
        """Return the name of a flag in messages: the name that was typed, or else the flag's first name."""
        return self.typed_name_by_display_name.get(flag.name, flag.name)

    def reject(self, *groups: type[Options], why: str, required_companions: Collection[str] | None = None) -> None:
        """Raise ``UsageError`` if a flag of these groups, or of nested ones, was typed."""
        # ``why``: the message after the flag's name. ``required_companions``: reject only flags that need one of
        # these, see `Flag`; None: all flags.
        for name, flag in self._typed_flags_in(groups):
            if required_companions is None or not set(flag.required_companions).isdisjoint(required_companions):
                raise UsageError(f"{name} {why}")

    def reject_unavailable(self, *groups: type[Options], available: Collection[str]) -> None:
        """Raise ``UsageError`` if a flag was typed whose required companions are all missing in ``available``."""
        for name, flag in self._typed_flags_in(groups):
            if flag.required_companions and set(flag.required_companions).isdisjoint(available):
                raise UsageError(f"{name} is for {' or '.join(flag.required_companions)}")

    def _typed_flags_in(self, groups: Collection[type[Options]]) -> Iterator[tuple[str, Flag]]:
        """Yield the flags of these groups that were typed, each with the name that was typed."""
        for group in groups:
            for declared in fields(group):
                flag = flag_of_field(declared)
                if flag is not None and declared.name in self.typed_name_by_field:
                    yield self.typed_name_by_field[declared.name], flag


def typed_flags_of(options: Options) -> TypedFlags:
    """Return the `TypedFlags` of an options object; empty if its class has no such field."""
    values = (getattr(options, declared.name) for declared in fields(options))
    return next((value for value in values if isinstance(value, TypedFlags)), TypedFlags())


NamedPath = tuple[str, Path | None]  # name of a flag, and its path; None if the flag is not given


def reject_same_file(written: Sequence[NamedPath], read: Sequence[NamedPath]) -> None:
    """Raise ``UsageError`` if a file would be written that is also read, or written twice."""
    for index, (flag, path) in enumerate(written):
        for other_flag, other_path in (*written[index + 1 :], *read):
            if path is not None and other_path is not None and _is_same_file(path, other_path):
                raise UsageError(f"{flag} and {other_flag} are the same file, {other_path}; name another one")


def _is_same_file(first_path: Path, second_path: Path) -> bool:
    try:
        return first_path.samefile(second_path)
    except OSError:  # one of the files does not exist yet
        return os.path.realpath(first_path) == os.path.realpath(second_path)
