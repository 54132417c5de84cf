"""Words with one dash: a flag, or a flag of one letter with its number such as ``-n5``; all others are refused.

Short flags are never bundled: llama.cpp has flags such as ``-no-cnv`` and ``-st``, whose letters are flags here.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import typer

from .flag_parser import adapt_parsers

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def never_bundle_flags(command: Any) -> None:
    """Let a command, and the commands of a group, refuse words with one dash that are no flag."""
    adapt_parsers(command, _match_single_flags)


def _match_single_flags(parser: Any, context: Any) -> None:
    match_short = parser._match_short_opt

    def match_one_flag(word: str, state: Any) -> None:
        if not _is_one_flag(word, parser._short_opt):
            _refuse(word, [*parser._short_opt, *parser._long_opt], context)
        match_short(word, state)

    parser._match_short_opt = match_one_flag


def _is_one_flag(word: str, flags: Any) -> bool:
    """True for a flag of one letter, alone or with its number behind it; ``flags``: the parser's, by name."""
    flag = flags.get(word[:2])
    if flag is None or len(word) == 2:
        return flag is not None
    return bool(flag.takes_value and _NUMBER.fullmatch(word[2:]))


def _refuse(word: str, flags: list[str], context: Any) -> NoReturn:
    """Raise ``typer.BadParameter`` that says what the word means in llama.cpp, and what to write here."""
    from .flags_elsewhere import other_way
    from .llama_cpp_flags import foreign_flag_sentence

    name, equals, value = word.partition("=")
    foreign = other_way(context.command_path, name) or foreign_flag_sentence(name)
    if foreign is not None:
        message = foreign
    elif equals and name in flags:
        message = f"{word}: write {name} {value}"
    elif f"-{name}" in flags:
        message = f"there is no flag {name}; write -{name}"
    else:
        takes_text = any(parameter.name == "prompt" for parameter in context.command.params)
        text_hint = f"for a text that begins with a dash: {context.command_path} [FLAGS] -- TEXT"
        help_hint = f"{context.command_path} --help lists the flags"
        message = f"there is no flag {name}; {text_hint if takes_text else help_hint}"
    raise typer.BadParameter(message, ctx=context)
