"""The options of `gen grammars check` and `gen grammars sample`."""

from __future__ import annotations

from pathlib import Path

import typer

from .completes import Completes
from .flag import REQUIRED, Options, argument, flag, options_class


@options_class
class GrammarNameOptions(Options):
    """Which grammar."""

    name: str = argument(
        None,
        called="the grammar's name",
        help="A grammar's name, or a file: .gbnf, .json (schema), .regex, .lark.",
        default=REQUIRED,
        completes=Completes.GRAMMAR,
    )
    schema_lenient: bool = flag(
        "--schema-lenient",
        help="Leave out what is not supported in a JSON Schema, and list it.",
        default=False,
    )


@options_class
class GrammarCheckOptions(GrammarNameOptions):
    """The options of `gen grammars check`."""

    text: str | None = flag("--text", help="Check whether this text matches, and if not, where it stops.")
    text_file: Path | None = flag("--text-file", help="The same for a file; - is stdin.")
    root: str = flag(
        "--root", metavar="RULE", help="The rule that GBNF begins with.", default="root", show_default=True
    )

    def check(self) -> None:
        """Refuse two texts."""
        if self.text is not None and self.text_file is not None:
            raise typer.BadParameter("--text and --text-file each give a text; one at a time")


@options_class
class GrammarSampleOptions(GrammarNameOptions):
    """The options of `gen grammars sample`."""

    seed: int | None = flag("--seed", "-s", help="Same seed, same sentences.")
    count: int = flag("-n", min=1, max=100_000, help="How many sentences.", default=1, show_default=True)
    root: str = flag(
        "--root", metavar="RULE", help="The rule that GBNF begins with.", default="root", show_default=True
    )
