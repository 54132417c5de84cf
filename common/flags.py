"""The declaration of a flag of the command line, in an options class of `cli/` or in a table of settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Any, NamedTuple


class Flag(NamedTuple):
    """The declaration of a flag or argument. The default is that of its field in an options class."""

    name: str  # in messages
    help: str
    names: tuple[str, ...] = ()  # on the command line; empty for an argument
    negatives: tuple[str, ...] = ()  # names on the command line that switch the flag off
    panel: str | None = None
    metavar: str | None = None
    shows_default: bool = False
    setting_name: str | None = None  # the setting that the flag sets, as ``--set`` names it
    part: str = ""  # what the value is in the setting, such as a key of its table; empty: the whole value
    value_type: Any = None  # of a flag in a table; None: the options class has the type
    limit: Limit | None = None
    required_companions: tuple[str, ...] = ()
    is_path: bool = False
    has_escapes: bool = False  # unless ``--no-escape`` is given
    completion_kind: CompletionKind | None = None
    parse: Callable[[str], Any] | None = None  # raises ``ValueError`` with the message
    optional_value: OptionalValue | None = None
    # what a switch does instead of the command, before other values are read; None: the command gets the switch
    action: Callable[[], object] | None = None

    @property
    def names_a_file(self) -> bool:
        """True if the value is the name of a file, a model or a preset, so that it cannot be empty."""
        completes_files = self.completion_kind is not None and self.completion_kind.names_a_file
        has_file_metavar = _FILE_METAVAR_PATTERN.search(self.metavar or "") is not None
        return self.is_path or completes_files or has_file_metavar


_FILE_METAVAR_PATTERN = re.compile(r"FILE|MODEL|REPO|FOLDER|DIR")


def declare_flag(
    *names: str,
    help: str,  # noqa: A002 - named as Typer names it
    display_name: str | None = None,
    required_companions: str | tuple[str, ...] = (),
    **facts: Any,
) -> Flag:
    """Return a flag with these names, such as ``--mmap/--no-mmap``; ``facts``: other fields of `Flag`."""
    # ``display_name``: the name in messages; None: the first name
    positive_names: list[str] = []
    negative_names: list[str] = []
    for name in names:
        positive_name, _, negative_name = name.partition("/")
        positive_names.append(positive_name)
        negative_names.append(negative_name)
    if isinstance(required_companions, str):
        required_companions = (required_companions,)
    return Flag(
        name=display_name or positive_names[0],
        help=help,
        names=tuple(filter(None, positive_names)),
        negatives=tuple(filter(None, negative_names)),
        required_companions=required_companions,
        **facts,
    )


class OptionalValue(NamedTuple):
    """The value of a flag that may be typed without a value, such as ``--trace`` or ``--trace 5``."""

    default: str  # of a flag that is typed without a value
    pattern: re.Pattern[str]  # matches a value; a word that does not match is not part of the flag


@dataclass(frozen=True)
class Limit:
    """The numbers that a flag allows."""

    allowed_values_text: str  # the allowed numbers in words, for messages: ``within 0..7``
    minimum: float
    maximum: float = inf
    # the meaning of -1, if it is allowed below ``minimum``; None: no special meaning
    minus_one_meaning: str | None = None
    excludes_bounds: bool = False  # whether ``minimum`` and ``maximum`` themselves are not allowed

    def violation(self, value: float) -> str | None:
        """Return why a number is not allowed, as the end of a message; None if the number is allowed."""
        if self.excludes_bounds:
            is_within = self.minimum < value < self.maximum
        else:
            is_within = self.minimum <= value <= self.maximum
        has_special_meaning = value == -1 and self.minus_one_meaning is not None
        if is_within or has_special_meaning:
            return None
        shown_value = f"{value:g}" if isinstance(value, float) else str(value)
        minus_one_text = "" if self.minus_one_meaning is None else f", nor -1 for {self.minus_one_meaning}"
        return f"{shown_value} is not {self.allowed_values_text}{minus_one_text}"


def within(minimum: int, maximum: int, minus_one_meaning: str | None = None) -> Limit:
    """Return a limit that allows ``minimum``, ``maximum`` and the numbers between; for -1 see `Limit`."""
    return Limit(f"within {minimum}..{maximum}", minimum, maximum, minus_one_meaning)


def at_least(minimum: int, minus_one_meaning: str | None = None) -> Limit:
    """Return a limit that allows ``minimum`` and all higher numbers; for -1 see `Limit`."""
    return Limit(f"≥ {minimum}", minimum, minus_one_meaning=minus_one_meaning)


POSITIVE = Limit("a number > 0", 0.0, excludes_bounds=True)  # limit that allows finite numbers above 0


class CompletionKind(Enum):
    """The kind of values that a shell offers for a flag whose type does not determine them."""

    CHAIN = auto()  # steps of a chain in the compact notation: ``top-k40 > temp0.8``
    CHAT = auto()  # the name or the id of a stored chat
    EXPORT_FORMAT = auto()  # a format that presets are exported to
    FILE = auto()  # any file
    GGUF_FILE = auto()  # a GGUF file
    GRAMMAR = auto()  # the name of a grammar, or a file
    GRAMMAR_NAME = auto()  # the name of a grammar
    IMPORT_FORMAT = auto()  # a format that presets are imported from
    LLAMA_CPP_SAMPLERS = auto()  # llama.cpp's names of samplers, joined by semicolons
    MODEL = auto()  # the name of a model, or a GGUF file
    PRESET = auto()  # the name of a preset, ``model`` for the settings of the model's author, or a file
    PRESET_FILE = auto()  # the name of a preset, or a file
    PRESET_OR_CHAIN = auto()  # the name of a preset, or steps of a chain in the compact notation
    SAMPLER = auto()  # the name of a sampler
    SETTING_NAME = auto()  # the name of a setting or of a sampler
    SETTING = auto()  # a setting and its value: ``name.parameter=value``

    @property
    def names_a_file(self) -> bool:
        """True if the value is the name of a file, a model or a preset."""
        return self in (
            CompletionKind.FILE,
            CompletionKind.GGUF_FILE,
            CompletionKind.GRAMMAR,
            CompletionKind.MODEL,
            CompletionKind.PRESET,
            CompletionKind.PRESET_FILE,
        )
