"""The declaration of a flag as one field of an options class.

The help, the completion in shells, the flag's name in messages and the check of its values follow from the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from inspect import get_annotations
from pathlib import Path
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
    return field(metadata=metadata) if default is REQUIRED else field(default=default, metadata=metadata)


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


_METAVARS: dict[type, str] = {int: "N", float: "N", str: "TEXT", Path: "FILE"}
# A longer list of choices does not fit next to a flag: the help shows ``NAME`` unless a metavar is declared.
_MAX_CHOICES_CHARACTERS = 24


class DeclaredFlag(NamedTuple):
    """A flag or an argument of a command, with the name, type and default of its field."""

    field: str  # its name in the options class
    flag: Flag
    value_type: type = bool  # of one value; bool for a switch
    is_list: bool = False  # whether the flag may be given several times
    default: Any = False  # of a flag that is not given; `REQUIRED` if the flag must be given

    @property
    def is_argument(self) -> bool:
        # an argument has no name on the command line
        return not self.flag.names

    @property
    def takes_value(self) -> bool:
        """False for a switch."""
        return self.value_type is not bool

    @property
    def names_a_file(self) -> bool:
        """True if the value is the name of a file, a model or a preset, so that it cannot be empty."""
        if self.value_type is Path or self.flag.is_path or self.flag.completion_kind in _KINDS_OF_FILES:
            return True
        return _FILE_METAVAR_PATTERN.search(self.flag.metavar or "") is not None

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def names(self) -> tuple[str, ...]:
        """All names on the command line, including those that switch the flag off."""
        return self.flag.names + self.flag.negatives

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of an enumeration; empty for other types."""
        return tuple(member.value for member in self.value_type) if issubclass(self.value_type, Enum) else ()

    @property
    def metavar(self) -> str:
        """Placeholder of the value in the help, declared or derived from the type; for an argument, its name."""
        if self.flag.metavar is not None or self.is_argument:
            return self.flag.metavar or self.field.upper()
        if self.choices:
            choices = "|".join(self.choices)
            return choices if len(choices) <= _MAX_CHOICES_CHARACTERS else "NAME"
        return _METAVARS[self.value_type]

    @property
    def shown_name(self) -> str:
        """Name of an argument, or names and placeholder of a flag, as in the help: ``-n, --predict N``."""
        if self.is_argument:
            return self.metavar
        names = ", ".join(sorted(self.flag.names, key=lambda name: name.startswith("--")))
        if self.flag.negatives:
            names += f" / {', '.join(self.flag.negatives)}"
        return f"{names} {self.metavar}" if self.takes_value else names

    def read(self, text: str) -> Any:
        """Return the value of a typed string. Raises ``ValueError`` with the message."""
        if not text and self.names_a_file:
            raise ValueError("'' is empty, where a name is needed; is a variable of the shell not set?")
        if self.flag.parse is not None:
            return self.flag.parse(text)
        if issubclass(self.value_type, Enum):
            return self._read_choice(text)
        return _READERS[self.value_type](text)

    def _read_choice(self, text: str) -> Any:
        try:
            return self.value_type(text)
        except ValueError:
            from ..common.text import join_alternatives

            raise ValueError(f"{text!r} is not {join_alternatives(self.choices)}") from None


_FILE_METAVAR_PATTERN = re.compile(r"FILE|MODEL|REPO|FOLDER|DIR")
_INTEGER_PATTERN = re.compile(r"([+-]?\d+(?:_\d+)*)(?:\.0+)?", re.ASCII)


def _read_integer(text: str) -> int:
    """Return an integer, which may be typed as ``1_000`` or ``5.0``."""
    match = _INTEGER_PATTERN.fullmatch(text.strip())
    if match is None:
        raise _wrong_value_error("an integer", text)
    try:
        return int(match[1])
    except ValueError:  # Python's limit of digits, 4300 by default
        raise _wrong_value_error("an integer of supported length", text) from None


def _read_number(text: str) -> float:
    """Return a number typed in ASCII. ``inf`` and ``nan`` are left to limits and samplers to reject."""
    try:
        text.strip().encode("ascii")
        return float(text)
    except ValueError:
        raise _wrong_value_error("a number", text) from None


def _wrong_value_error(noun: str, text: str) -> ValueError:
    from ..common.text import short_repr

    return ValueError(f"{short_repr(text)} is not {noun}")


_READERS: dict[type, Callable[[str], Any]] = {str: str, int: _read_integer, float: _read_number, Path: Path}

HELP = DeclaredFlag("help", Flag("--help", "Show this message and exit.", ("--help", "-h")))
VERSION = DeclaredFlag("version", Flag("--version", "Show the versions.", ("--version",)))
_OTHER_SPELLINGS = {"--no-cnv": "-no-cnv"}  # llama.cpp's names with one dash that are often typed with two


def normalize_flag_name(name: str) -> str:
    """Return the name of a flag as it is declared: ``--top_k`` becomes ``--top-k``, as in llama.cpp."""
    return _OTHER_SPELLINGS.get(name, name.replace("_", "-") if name.startswith("--") else name)


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


COLOR_METAVAR = "auto|always|never"
read_color = make_switch_parser(Color, "auto, always or never")


_KINDS_OF_FILES = (
    *(CompletionKind.FILE, CompletionKind.GGUF_FILE, CompletionKind.GRAMMAR, CompletionKind.MODEL),
    *(CompletionKind.PRESET, CompletionKind.PRESET_FILE),
)
