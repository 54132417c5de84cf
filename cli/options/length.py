"""The flags that end a text."""

from __future__ import annotations

from functools import partial
from typing import Any

from .flag import Options, flag, options_class
from .limits import Limit, at_least

UNTIL_CONTEXT_IS_FULL = -2
"""llama.cpp's number for it: also with ``--context-shift``. Else -1, no limit, means the same."""

length_flag = partial(flag, panel="Length")


def _max_tokens_flag(meaning: str) -> Any:
    return length_flag(
        "-n",
        "--predict",
        "--n-predict",
        help=meaning,
        sets="max_tokens",
        limit=Limit("≥ 0, nor -1 or -2 for no limit", UNTIL_CONTEXT_IS_FULL),
    )


def _stop_flag() -> Any:
    return length_flag(
        "--stop",
        "-r",
        "--reverse-prompt",
        help="End before this text; repeatable.",
        sets="stop",
        has_escapes=True,
    )


def lookup_flag() -> Any:
    """The flag of prompt lookup."""
    return length_flag(
        "--lookup",
        metavar="N",
        help="Guess up to N tokens from the text so far; 0 = off. [0]",
        default=0,
        limit=at_least(0),
    )


@options_class
class LengthOptions(Options):
    """Where a text ends."""

    max_tokens: int | None = _max_tokens_flag(
        "Tokens at most; 0 = only read, -1, -2 = until the context is full. [256, then a sentence is closed]"
    )
    stop: list[str] | None = _stop_flag()


@options_class
class AnswerLengthOptions(Options):
    """Where an answer of a chat ends."""

    max_tokens: int | None = _max_tokens_flag("Tokens of an answer at most. [until the model ends it]")
    stop: list[str] | None = _stop_flag()


@options_class
class ContextShiftOptions(Options):
    """What happens when the context is full."""

    context_shift: bool = length_flag(
        "--context-shift/--no-context-shift",
        help="When the context is full, discard older tokens and go on. [--no-context-shift]",
        default=False,
    )
    keep: int | None = length_flag(
        "--keep",
        metavar="N",
        help="Tokens of the prompt that are never discarded; -1 = all. [0]",
        limit=at_least(0, minus_one="all"),
    )
