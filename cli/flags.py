"""The declaration of a flag as one field of an options class.

The help, the completion in shells, the flag's name in messages and the check of its values follow from the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from inspect import get_annotations
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..common.flags import CompletionKind, Flag, declare_flag

EnumT = TypeVar("EnumT", bound=Enum)
REQUIRED: Any = ...  # The default of a flag that must be given. Typer uses the same object.


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a command, or a group of options that several commands share."""

    # A field is a flag (declared by `flag` or `argument`), or a nested group, whose type is a subclass of this
    # class. The value None means that a flag without a default is not given.

    # what the advice of an error says for a `Word` whose usual flag the command does not have
    advice_words: ClassVar[Mapping[str, str]] = {}

    @property
    def needs_stdout(self) -> bool:
        """True if the command prints its result. A closed stdout is then an error before the work begins."""
        return True

    def check(self) -> None:
        """Raise ``UsageError`` for values that exclude each other."""


OptionsT = TypeVar("OptionsT", bound=Options)
_FLAG_KEY = "flag"  # of the `Flag` in the metadata of the field that declares it


def flag(*names: str, default: Any = None, **facts: Any) -> Any:
    """Declare a field that is an option of the command line, see `declare_flag`."""
    return _declare_field(declare_flag(*names, **facts), default)


def table_flag(described: Flag, **changes: Any) -> Any:
    """Declare a field that is a flag of a table; ``changes``: what differs in the command, such as its help."""
    return _declare_field(described._replace(**changes), None)


def with_flags(*described: Flag) -> Callable[[type[OptionsT]], type[OptionsT]]:
    """Return a decorator that puts flags of tables before the fields of an options class."""
    # It comes before ``dataclass``. The field of ``--top-k`` is ``top_k``.
    by_field = {each.name.lstrip("-").replace("-", "_"): each for each in described}

    def decorate(cls: type[OptionsT]) -> type[OptionsT]:
        types = {name: each.value_type | None for name, each in by_field.items()}
        cls.__annotations__ = {**types, **get_annotations(cls)}
        for name, each in by_field.items():
            setattr(cls, name, _declare_field(each, None))
        return cls

    return decorate


def argument(
    metavar: str | None,
    *,
    display_name: str,
    help: str,  # noqa: A002 - named as Typer names it
    default: Any = None,
    has_escapes: bool = False,
    completion_kind: CompletionKind | None = None,
) -> Any:
    """Declare a field that is a positional argument of the command line, see `flag`."""
    # ``metavar``: name in the help; None: the name of the field.
    described = Flag(display_name, help, metavar=metavar, has_escapes=has_escapes, completion_kind=completion_kind)
    return _declare_field(described, default)


def _declare_field(described: Flag, default: Any) -> Any:
    metadata = {_FLAG_KEY: described}
    if default is REQUIRED:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def flag_of_field(declared: Any) -> Flag | None:
    """Return the flag that a dataclass field declares; None for a group of options."""
    flag_or_none: Flag | None = declared.metadata.get(_FLAG_KEY)
    return flag_or_none


def iterate_flags(options: Options) -> Iterator[tuple[Flag, Any]]:
    """Yield each flag of the options and of their groups, with its value, in the order of the help."""
    for declared in fields(options):
        value = getattr(options, declared.name)
        described = flag_of_field(declared)
        if described is not None:
            yield described, value
        elif isinstance(value, Options):
            yield from iterate_flags(value)


def flag_values(options: Options) -> dict[str, Any]:
    """Return the value of each flag of the options, by the flag's name in messages."""
    return {described.name: value for described, value in iterate_flags(options)}


class DeclaredFlag(NamedTuple):
    """A flag or an argument of a command, with the type of its field."""

    flag: Flag
    annotation: Any  # of the field, such as ``list[str] | None``

    @property
    def names(self) -> tuple[str, ...]:
        """All names on the command line, including those that switch the flag off; empty for an argument."""
        return self.flag.names + self.flag.negatives

    @property
    def takes_value(self) -> bool:
        """False for a switch."""
        return self.annotation not in (bool, bool | None)

    def name_for_typer(self, name: str) -> str:
        """Return the typed name of a flag if Typer knows it, else the first one that means the same."""
        known_names = typer_names(self.flag)
        if name in known_names:
            return name
        return self.flag.negatives[0] if name in self.flag.negatives else known_names[0]


# The help has a column for short names. A longer one would take the place of the other columns.
_MAX_SHORT_NAME = len("-ngl")


def typer_names(flag: Flag) -> tuple[str, ...]:
    """Return the names that Typer knows: the first long, the first short and the first negative one."""
    long_names = [name for name in flag.names if name.startswith("--")]
    short_names = [
        name
        for name in flag.names
        if not name.startswith("--") and (len(name) <= _MAX_SHORT_NAME or not long_names)
    ]
    return (*long_names[:1], *short_names[:1], *flag.negatives[:1])


# synonyms that llama.cpp accepts
_SWITCH_WORDS = {
    "enabled": "on",
    "true": "on",
    "1": "on",
    "disabled": "off",
    "false": "off",
    "0": "off",
    "-1": "auto",
}


def make_switch_parser(enum: type[EnumT], choices: str) -> Callable[[str], EnumT]:
    """Return a function that parses a member of an enumeration, or a synonym such as ``true`` for ``on``."""
    # ``choices``: the allowed values, as the message about another word lists them.

    def parse(text: str) -> EnumT:
        try:
            return enum(_SWITCH_WORDS.get(text, text))
        except ValueError:
            raise ValueError(f"{text!r} is not {choices}") from None

    return parse


class Color(StrEnum):
    """When colors are written; ``on`` and ``off`` are llama.cpp's names of ``always`` and ``never``."""

    auto = "auto"
    always = "always"
    never = "never"
    on = "on"
    off = "off"

    @property
    def is_colored(self) -> bool | None:
        """True if colors are written, False if not; None: only on a terminal without ``NO_COLOR``."""
        return {"always": True, "on": True, "never": False, "off": False}.get(self.value)


COLOR_METAVAR = "auto|always|never|on|off"
read_color = make_switch_parser(Color, "auto, always, never, on or off")
