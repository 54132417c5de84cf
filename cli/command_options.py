"""Conversion of an options class to the flat signature that Typer reads, and of Typer's values to options.

The conversion to options replaces escapes in strings, and checks each value against the declaration of its flag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from ..common.errors import UsageError
from ..common.flags import Flag
from .flag_values import EMPTY_NAME, completer_of, element_type, process_escapes, read_path, reader_of
from .flags import DeclaredFlag, Options, flag_of_field, iterate_flags, typer_names
from .messages import FLAGS, report_failures, require_stdout

OptionsT = TypeVar("OptionsT", bound=Options)
_CONTEXT = "context"
_CONTEXT_PARAMETER = Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)
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
            with report_failures(partial(advice_words, cls)):
                options = _build_options(cls, values)
                check_options(options)
                if options.needs_stdout:
                    require_stdout()
                command(options)

        return _with_flags(flat_command, cls, command)

    return decorate


def takes_group_options(
    cls: type[OptionsT],
) -> Callable[[Callable[[OptionsT, str | None], None]], Callable[..., None]]:
    """Return a decorator that passes the callback of a command group its options and the command's name."""
    # the name is None if no command follows

    def decorate(callback: Callable[[OptionsT, str | None], None]) -> Callable[..., None]:
        def group_callback(**values: Any) -> None:
            with report_failures(partial(advice_words, cls)):
                callback(_build_options(cls, values), values[_CONTEXT].invoked_subcommand)

        return _with_flags(group_callback, cls, callback, _CONTEXT_PARAMETER)

    return decorate


def _with_flags(function: Any, cls: type[Options], described: Any, *parameters: Parameter) -> Any:
    """Return the function with the name and the help of another one, and with a parameter for each flag."""
    function.__name__ = described.__name__
    function.__doc__ = help_text(described.__doc__ or "")
    function.flags = tuple(declared_flags(cls))
    function.__signature__ = Signature([*parameters, *_parameters(cls)])
    return function


def declared_flags(cls: type[Options]) -> Iterator[DeclaredFlag]:
    """Yield the flags and arguments of an options class and of its groups, in the order of the help."""
    types = field_types(cls)
    for declared in fields(cls):
        flag = flag_of_field(declared)
        if flag is not None:
            yield DeclaredFlag(flag, types[declared.name])
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


def _parameters(cls: type[Options]) -> Iterator[Parameter]:
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        flag = flag_of_field(declared)
        if flag is not None:
            default = Parameter.empty if declared.default is MISSING else declared.default
            annotation = Annotated[declared_type, _typer_parameter(flag, declared_type)]  # type: ignore[valid-type]
            yield Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        elif declared_type is TypedFlags:
            yield _CONTEXT_PARAMETER
        else:
            yield from _parameters(declared_type)


def _typer_parameter(flag: Flag, annotation: Any) -> Any:
    """Return Typer's declaration of a flag. Typer knows one long and one short name; `GenCommand` the others."""
    metavar = flag.metavar or None
    parse = flag.parse
    if annotation in (Path, Path | None):
        metavar = metavar or "FILE"
        parse = parse or read_path
    elif annotation in (bool, bool | None):
        metavar = metavar or ""  # without it, Typer shows <bool>
    elif parse is None:
        parse, default_metavar = reader_of(element_type(annotation))
        metavar = metavar or default_metavar
    declaration: dict[str, Any] = {
        "metavar": metavar,
        "show_default": flag.shows_default,
        "autocompletion": completer_of(flag, annotation),
        "parser": _parser(parse),
    }
    if flag.action is not None:
        declaration |= {"callback": _callback(flag.action), "is_eager": True}
    if not flag.names:
        return typer.Argument(help=help_text(flag.help), **declaration)
    known_names = typer_names(flag)
    other_names = [name for name in flag.names + flag.negatives if name not in known_names]
    text = f"{flag.help} Also: {', '.join(other_names)}." if other_names else flag.help
    # Typer declares a name that switches a flag off by a slash: `` /--no-mmap``
    declared_names = [f" /{name}" if name in flag.negatives else name for name in known_names]
    return typer.Option(*declared_names, help=help_text(text), rich_help_panel=flag.panel, **declaration)


def _callback(action: Callable[[], object]) -> Callable[[typer.Context, bool], bool]:
    """Return a function that ends the command by an action, if its switch is given."""

    def run_action(context: typer.Context, is_given: bool) -> bool:
        is_complete = not context.resilient_parsing  # False while a shell completes the line
        if is_given and is_complete:
            action()
            raise typer.Exit
        return is_given

    return run_action


_TAG_START = re.compile(r"\[(?=[a-z#/@])")  # the beginning of a tag of rich's markup, such as ``[bold]``


def help_text(text: str) -> str:
    """Return a help text for Typer: each paragraph on one line, except indented command lines."""
    # A bracket that rich would take for markup is escaped.
    paragraphs = []
    for paragraph in cleandoc(text).split("\n\n"):
        is_indented = paragraph.startswith("  ")
        paragraphs.append(paragraph if is_indented else " ".join(paragraph.split()))
    return _TAG_START.sub(r"\\[", "\n\n".join(paragraphs))


def _parser(parse: Callable[[str], Any] | None) -> Callable[[str], Any] | None:
    """Return a function that reports a wrong value to Typer."""
    if parse is None:
        return None

    def parse_or_reject(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse_or_reject


def _build_options(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    value_of_field: dict[str, Any] = {}
    for declared in fields(cls):
        declared_type = field_types(cls)[declared.name]
        flag = flag_of_field(declared)
        if flag is not None:
            value = values[declared.name]
            if flag.has_escapes and values[_ESCAPE_FIELD]:
                value = _unescape(value)
            value_of_field[declared.name] = value
        elif declared_type is TypedFlags:
            value_of_field[declared.name] = _typed_flags(values[_CONTEXT])
        else:
            value_of_field[declared.name] = _build_options(declared_type, values)
    return cls(**value_of_field)


def _typed_flags(context: typer.Context) -> TypedFlags:
    typed_fields = set()
    for field in context.params:
        source = context.get_parameter_source(field)
        if source is not None and source.name == "COMMANDLINE":
            typed_fields.add(field)
    return TypedFlags(frozenset(typed_fields))


def _unescape(value: Any) -> Any:
    """Return a string, or each string of a list, with escapes replaced; None for None."""
    if value is None:
        return None
    return [process_escapes(text) for text in value] if isinstance(value, list) else process_escapes(value)


def check_options(options: Options) -> None:
    """Raise ``UsageError`` for a value that its flag does not allow, or for values that exclude each other."""
    for flag, value in iterate_flags(options):
        _check_value(flag, value)
    _check_combinations(options)


def _check_combinations(options: Options) -> None:
    for declared in fields(options):
        value = getattr(options, declared.name)
        if isinstance(value, Options):
            _check_combinations(value)
    options.check()


def _check_value(flag: Flag, value: Any) -> None:
    if value is None:
        return
    if flag.limit is not None:
        violation = flag.limit.violation(value)
        if violation is not None:
            raise UsageError(f"{flag.name}: {violation}")
    for text in value if isinstance(value, list) else [value]:
        if text == "" and flag.names_a_file:
            raise UsageError(f"{flag.name}: {EMPTY_NAME}")
        # Python turns bytes of an argument that are not UTF-8 into surrogates. Only paths may have such bytes.
        if type(text) is str and not flag.is_path and not _is_unicode(text):
            raise UsageError(f"{flag.name} is not UTF-8")


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

    fields_of_flags: frozenset[str] = frozenset()

    def reject(self, *groups: type[Options], why: str, required_companions: Collection[str] | None = None) -> None:
        """Raise ``UsageError`` if a flag of these groups, or of nested ones, was typed."""
        # ``why``: the message after the flag's name. ``required_companions``: reject only flags that need one of
        # these, see `Flag`; None: all flags.
        for flag in self._typed_flags_in(groups):
            needs_companion = not set(flag.required_companions).isdisjoint(required_companions or ())
            if required_companions is None or needs_companion:
                raise UsageError(f"{flag.name} {why}")

    def reject_unavailable(self, *groups: type[Options], available: Collection[str]) -> None:
        """Raise ``UsageError`` if a flag was typed whose required companions are all missing in ``available``."""
        for flag in self._typed_flags_in(groups):
            if flag.required_companions and set(flag.required_companions).isdisjoint(available):
                raise UsageError(f"{flag.name} is for {' or '.join(flag.required_companions)}")

    def _typed_flags_in(self, groups: Collection[type[Options]]) -> Iterator[Flag]:
        for group in groups:
            for declared in fields(group):
                flag = flag_of_field(declared)
                if flag is not None and declared.name in self.fields_of_flags:
                    yield flag


NamedPath = tuple[str, Path | None]  # name of a flag, and its path; None if the flag was not typed


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
