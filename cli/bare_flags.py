"""Flags whose number may be left out: the next word is their value only if it is a number."""

from __future__ import annotations

import re
from typing import Any

DEFAULT_TRACE_COUNT = 20
"""How many of the likeliest tokens of each stage a trace has: more than APIs show, and they fit on a screen."""
BARE_VALUES = {"--trace": str(DEFAULT_TRACE_COUNT)}
"""What such a flag means without a number."""
_NUMBER = re.compile(r"[+-]?\d+")


def allow_bare_flags(command: Any) -> None:
    """Let a command, and the commands of a group, take these flags without a number."""
    make_parser = command.make_parser

    def make_lenient_parser(context: Any) -> Any:
        parser = make_parser(context)
        match_long = parser._match_long_opt

        def match_bare_flag(flag: str, value: str | None, state: Any) -> None:
            if value is None and flag in BARE_VALUES and flag in parser._long_opt:
                has_number = bool(state.rargs) and _NUMBER.fullmatch(state.rargs[0])
                value = None if has_number else BARE_VALUES[flag]
            match_long(flag, value, state)

        parser._match_long_opt = match_bare_flag
        return parser

    command.make_parser = make_lenient_parser
    for subcommand in getattr(command, "commands", {}).values():
        allow_bare_flags(subcommand)
