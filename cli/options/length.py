"""The flags that end a text."""

from __future__ import annotations

from functools import partial

from .flag import Options, flag, options_class
from .limits import Limit, at_least

UNTIL_CONTEXT_IS_FULL = -2
"""llama.cpp's number for it: also with ``--context-shift``. Else -1, no limit, means the same."""

length_flag = partial(flag, panel="Length")


@options_class
class LengthOptions(Options):
    """Where a text ends."""

    max_tokens: int | None = length_flag(
        "-n",
        "--predict",
        "--n-predict",
        help="Tokens at most; 0 = only read, -1, -2 = until the context is full. [256, then a sentence is closed]",
        sets="max_tokens",
        limit=Limit("≥ 0, nor -1 or -2 for no limit", UNTIL_CONTEXT_IS_FULL),
    )
    stop: list[str] | None = length_flag(
        "--stop",
        "-r",
        "--reverse-prompt",
        help="End before this text; repeatable.",
        sets="stop",
        has_escapes=True,
    )


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
