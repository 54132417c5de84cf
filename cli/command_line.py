"""The ways of writing flags that llama.cpp's users know and Typer does not, as words that Typer's parser reads."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand

from ..common.errors import UsageError
from ..presets.llama_cpp_flags import find_llama_cpp_flag
from .flags import DeclaredFlag

# A flag of one letter followed directly by its value, a number, such as ``-n5``.
_ATTACHED_NUMBER = re.compile(r"(-[^-])([+-]?\d+(?:\.\d+)?)")


class GenCommand(TyperCommand):
    """A command of Typer's whose flags may be written as in llama.cpp."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words with the first name of each flag in place of the others."""
        flags: Sequence[DeclaredFlag] = getattr(self.callback, "flags", ())
        return super().parse_args(ctx, list(normalized_words(args, flags, is_complete=not ctx.resilient_parsing)))


def normalized_words(words: Sequence[str], flags: Sequence[DeclaredFlag], *, is_complete: bool) -> Iterator[str]:
    """Yield the words with each flag under its first name, followed by its value, even if that was left out."""
    # ``is_complete``: False if the user is still typing, so that no word is an error yet.
    by_name = {name: declared for declared in flags for name in declared.names}
    remaining_words = deque(words)
    while remaining_words:
        word = remaining_words.popleft()
        if word == "--":
            yield word
            break
        name, sign, value = word.partition("=")
        declared = by_name.get(name) or by_name.get(_with_dashes(name))
        if declared is None:
            if is_complete:
                _reject_unknown_flag(word)
            yield word
        elif not declared.takes_value:
            yield declared.first_name(_with_dashes(name)) + sign + value
        else:
            yield declared.flag.names[0]
            optional = declared.flag.optional_value
            if sign:
                yield value
            elif optional and not (remaining_words and optional.pattern.fullmatch(remaining_words[0])):
                yield optional.default
            elif remaining_words:
                yield remaining_words.popleft()
    yield from remaining_words


def _with_dashes(name: str) -> str:
    """Return the name of a flag as it is declared: ``--top_k`` is ``--top-k``, as in llama.cpp."""
    return name.replace("_", "-") if name.startswith("--") else name


def _reject_unknown_flag(word: str) -> None:
    """Raise ``UsageError`` for a flag that only llama.cpp has, and for letters that Typer would read as flags."""
    name = _with_dashes(word.partition("=")[0])
    flag = find_llama_cpp_flag(name) if word.startswith("-") else None
    if flag is not None and flag.meaning:
        raise UsageError(f"{name} is {flag.meaning} in llama.cpp; {flag.advice}")
    has_letters = len(word) > len("-p") and word.startswith("-") and not word.startswith("--")
    if has_letters and _ATTACHED_NUMBER.fullmatch(word) is None:
        raise UsageError(f"there is no flag {word}; text that begins with a dash follows --")
