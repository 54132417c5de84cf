"""The options of `gen inspect`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from .flag import Options, argument, flag, options_class


class OneSource(str, Enum):
    """One of two distributions."""

    model = "model"
    chain = "chain"


class Color(str, Enum):
    """When colours are written."""

    auto = "auto"
    always = "always"
    never = "never"


@options_class
class InspectOptions(Options):
    """The options of `gen inspect`."""

    file: Path | None = argument("RUN.JSONL", called="the run", help="What gen --format jsonl wrote. [stdin]")
    top: int | None = flag("--top", min=0, help="A table of the tokens, with this many alternatives each.")
    source: OneSource | None = flag("--logprobs-from", help="Which distribution, if the run has both. [model]")
    color: Color = flag(
        "--color", help="Tint the text; auto: on a terminal, without NO_COLOR. [auto]", default=Color.auto
    )
