"""The flags that end a text."""

from __future__ import annotations

from functools import partial

from .flag import Options, flag, options_class
from .limits import Limit

UNTIL_CONTEXT_IS_FULL = -2
"""llama.cpp's number for it. Here -1, no limit, means the same: a context that is full ends every text."""

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
