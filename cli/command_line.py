"""The ways of writing flags that llama.cpp's users know and Typer does not, as words that Typer's parser reads."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from typer.core import TyperCommand

from ..common.errors import UsageError
from ..presets.llama_cpp_flags import find_llama_cpp_flag
from .flags import DeclaredFlag

_SHORT_FLAG_LENGTH = 2  # a dash and one letter
# A flag of one letter followed directly by its value, a number, such as ``-n5``.
_ATTACHED_NUMBER = re.compile(r"(-[^-])([+-]?\d+(?:\.\d+)?)")


class GenCommand(TyperCommand):
    """A command of Typer's whose flags may be written as in llama.cpp."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words with the first name of each flag in place of the others."""
        flags: Sequence[DeclaredFlag] = getattr(self.callback, "flags", ())
        is_complete = not ctx.resilient_parsing
        return super().parse_args(ctx, list(normalized_words(args, flags, is_complete=is_complete)))


def normalized_words(words: Sequence[str], flags: Sequence[DeclaredFlag], *, is_complete: bool) -> Iterator[str]:
    """Yield the words with the first name of each flag, and with the default of each optional value left out."""
    # ``is_complete``: False if the user is still typing, so that no word is an error yet.
    flag_of_name = {name: declared for declared in flags for name in declared.names}
    remaining_words = deque(words)
    while remaining_words:
        word = remaining_words.popleft()
        if word == "--":
            yield word
            break
        name, equals_sign, value = word.partition("=")
        declared = flag_of_name.get(name) or flag_of_name.get(_with_dashes(name))
        if declared is None:
            if is_complete:
                _reject_unknown_flag(word, flag_of_name)
            yield word
        elif not declared.takes_value:
            first_name = declared.name_for_typer(_with_dashes(name))
            yield f"{first_name}{equals_sign}{value}"
        else:
            yield declared.name_for_typer(name)
            optional_value = declared.flag.optional_value
            if equals_sign:
                yield value
            elif optional_value is not None and not _begin_with_value(remaining_words, optional_value.pattern):
                yield optional_value.default
            elif remaining_words:
                yield remaining_words.popleft()
    yield from remaining_words


def _begin_with_value(words: Sequence[str], pattern: re.Pattern[str]) -> bool:
    return bool(words) and pattern.fullmatch(words[0]) is not None


def _with_dashes(name: str) -> str:
    """Return the name of a flag as it is declared: ``--top_k`` is ``--top-k``, as in llama.cpp."""
    return name.replace("_", "-") if name.startswith("--") else name


def _reject_unknown_flag(word: str, known_names: Iterable[str]) -> None:
    """Raise ``UsageError`` for a flag that only llama.cpp has, and for letters that Typer would read as flags."""
    if not word.startswith("-"):
        return
    name = _with_dashes(word.partition("=")[0])
    flag = find_llama_cpp_flag(name)
    if flag is not None and flag.meaning:
        raise UsageError(f"{name} is {flag.meaning} in llama.cpp; {flag.advice}")
    has_several_letters = len(word) > _SHORT_FLAG_LENGTH and not word.startswith("--")
    if has_several_letters and _ATTACHED_NUMBER.fullmatch(word) is None:
        beginning = max((name for name in known_names if word.startswith(name)), key=len, default=None)
        if beginning is not None:
            value = word.removeprefix(beginning)
            raise UsageError(f"there is no flag {word}; write {beginning} {value}, with a space before the value")
        raise UsageError(f"there is no flag {word}; text that begins with a dash follows --")
