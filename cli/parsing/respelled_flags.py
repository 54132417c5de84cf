"""Flags in another spelling: llama.cpp reads ``--top_k`` as ``--top-k``."""

from __future__ import annotations

from typing import Any

from .flag_parser import adapt_parsers

_RESPELLED = {"--no-cnv": "-no-cnv"}


def respelled(flag: str) -> str:
    """The flag as it is declared, if it is one at all."""
    return _RESPELLED.get(flag, flag.replace("_", "-") if flag.startswith("--") else flag)


def respell_flags(command: Any) -> None:
    """Let a command, and the commands of a group, take its flags in other spellings."""
    adapt_parsers(command, _match_respelled_flags)


def _match_respelled_flags(parser: Any, _context: Any) -> None:
    match_long = parser._match_long_opt

    def match_respelled_flag(flag: str, value: str | None, state: Any) -> None:
        is_other_spelling = flag not in parser._long_opt and respelled(flag) in parser._long_opt
        match_long(respelled(flag) if is_other_spelling else flag, value, state)

    parser._match_long_opt = match_respelled_flag
