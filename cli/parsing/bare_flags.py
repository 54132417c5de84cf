"""Flags whose value may be left out: the next word is their value only if it looks like one."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .flag_parser import adapt_parsers

DEFAULT_TRACE_COUNT = 20
"""How many of the likeliest tokens of each stage a trace has: more than APIs show, and they fit on a screen."""


class _BareFlag(NamedTuple):
    """What a flag means without a value, and which words are a value of it."""

    meaning: str
    value: re.Pattern[str]


_BARE_FLAGS = {
    "--trace": _BareFlag(str(DEFAULT_TRACE_COUNT), re.compile(r"[+-]?\d+")),
    "--resume": _BareFlag("", re.compile(r"[^-].*", re.DOTALL)),
}


def allow_bare_flags(command: Any) -> None:
    """Let a command, and the commands of a group, take these flags without a value."""
    adapt_parsers(command, _match_bare_flags)


def _match_bare_flags(parser: Any, _context: Any) -> None:
    match_long = parser._match_long_opt

    def match_bare_flag(flag: str, value: str | None, state: Any) -> None:
        bare = _BARE_FLAGS.get(flag)
        option = parser._long_opt.get(flag)
        if value is None and bare is not None and option is not None and option.takes_value:
            has_value = bool(state.rargs) and bare.value.fullmatch(state.rargs[0])
            value = None if has_value else bare.meaning
        match_long(flag, value, state)

    parser._match_long_opt = match_bare_flag
