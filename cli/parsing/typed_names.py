"""How each flag was typed: messages call it as the user did, ``-r`` or ``--reverse-prompt``, not ``--stop``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .flag_parser import adapt_parsers

_TYPED_NAMES = "logitsmith.typed_names"
"""The key of the context's shared table."""


def remember_typed_names(command: Any) -> None:
    """Let a command, and the commands of a group, keep the name by which each flag was given last."""
    adapt_parsers(command, _remember_names)


def _remember_names(parser: Any, context: Any) -> None:
    names = context.meta.setdefault(_TYPED_NAMES, {})
    match_long, match_short = parser._match_long_opt, parser._match_short_opt

    def match_long_flag(flag: str, value: str | None, state: Any) -> None:
        if flag in parser._long_opt:
            names[parser._long_opt[flag].dest] = flag
        match_long(flag, value, state)

    def match_short_flag(word: str, state: Any) -> None:
        if word[:2] in parser._short_opt:
            names[parser._short_opt[word[:2]].dest] = word[:2]
        match_short(word, state)

    parser._match_long_opt, parser._match_short_opt = match_long_flag, match_short_flag


def typed_names(context: Any) -> Mapping[str, str]:
    """The flags of a command line as they were typed, by the names of their parameters."""
    names: Mapping[str, str] = context.meta.get(_TYPED_NAMES, {})
    return names
