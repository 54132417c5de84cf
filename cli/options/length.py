"""The flags that end a text."""

from __future__ import annotations

from functools import partial

from .flag import Options, flag, options_class
from .limits import at_least

length_flag = partial(flag, panel="Length")


@options_class
class LengthOptions(Options):
    """Where a text ends."""

    max_tokens: int | None = length_flag(
        "-n",
        "--predict",
        "--n-predict",
        help="Tokens to write at most; -1 = no limit. [256, then a grammar's sentence is closed]",
        sets="max_tokens",
        limit=at_least(1, minus_one="no limit"),
    )
    stop: list[str] | None = length_flag("--stop", "-r", help="End before this text; repeatable.", sets="stop")
