"""The options of `gen grammars`."""

from __future__ import annotations

from pathlib import Path

from ...common.errors import UsageError
from .completes import Completes
from .flag import REQUIRED, Options, argument, flag, options_class
from .grammar import GrammarOptions, given_grammar
from .limits import within

_NAME_HELP = "A grammar's name, or a file: .gbnf, .json (schema), .regex, .lark."


@options_class
class GrammarNameOptions(Options):
    """Which grammar."""

    name: str = argument(
        None,
        called="the grammar's name",
        help=_NAME_HELP,
        default=REQUIRED,
        completes=Completes.GRAMMAR,
    )
    schema_lenient: bool = flag(
        "--schema-lenient",
        help="Leave out what is not supported in a JSON Schema, and list it.",
        default=False,
    )


@options_class
class GrammarSourceOptions(Options):
    """Which grammar: by its name or file, or by a flag of `gen run`."""

    name: str | None = argument("NAME", called="the grammar's name", help=_NAME_HELP, completes=Completes.GRAMMAR)
    grammar: GrammarOptions
    root: str = flag(
        "--root",
        "--grammar-root",
        metavar="RULE",
        help="The rule that GBNF begins with.",
        default="root",
        shows_default=True,
    )

    def check(self) -> None:
        """Refuse no grammar, and two."""
        given = given_grammar(self.grammar)
        if self.name is None and given is None:
            raise UsageError("there is no grammar: give a name or a file, or a flag such as --regex")
        if self.name is not None and given is not None:
            raise UsageError(f"{self.name!r} and {given.flag} each give a grammar; one at a time")


@options_class
class GrammarCheckOptions(GrammarSourceOptions):
    """The options of `gen grammars check`."""

    text: str | None = flag("--text", help="Check whether this text matches, and if not, where it stops.")
    text_file: Path | None = flag("--text-file", help="The same for a file; - is stdin, as a pipe is anyway.")

    def check(self) -> None:
        """Refuse two texts."""
        super().check()
        if self.text is not None and self.text_file is not None:
            raise UsageError("--text and --text-file each give a text; one at a time")


@options_class
class GrammarSampleOptions(GrammarSourceOptions):
    """The options of `gen grammars sample`."""

    seed: int | None = flag("--seed", "-s", help="Same seed, same sentences.")
    count: int = flag("-n", help="How many sentences.", default=1, shows_default=True, limit=within(1, 100_000))
