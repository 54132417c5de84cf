"""The flags of grammars."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...common.errors import UsageError
from .completes import Completes
from .flag import Options, flag, options_class, walk_flags

_grammar = partial(flag, panel="Grammar (one of the first six)")


@options_class
class GrammarOptions(Options):
    """Where a grammar comes from: one of these."""

    grammar: str | None = _grammar(
        "--grammar",
        metavar="NAME|GBNF",
        help="A grammar's name (gen grammars), or GBNF itself.",
        sets="grammar",
        completes=Completes.GRAMMAR_NAME,
    )
    grammar_file: Path | None = _grammar("--grammar-file", help="A GBNF file.", sets="grammar.file")
    json_schema: str | None = _grammar(
        "-j",
        "--json-schema",
        help="JSON that fits this JSON Schema.",
        called="--json-schema",
        sets="grammar.json_schema",
    )
    json_schema_file: Path | None = _grammar(
        "-jf",
        "--json-schema-file",
        help="The same, from a file.",
        called="--json-schema-file",
        sets="grammar.json_schema_file",
    )
    regex: str | None = _grammar("--regex", help="Text that matches as a whole.", sets="grammar.regex")
    lark_file: Path | None = _grammar(
        "--lark-file", help="A grammar in llguidance's Lark.", sets="grammar.lark_file"
    )

    schema_lenient: bool = _grammar(
        "--schema-lenient",
        help="Leave out what is not supported in a JSON Schema, and list it.",
        default=False,
    )

    def check(self) -> None:
        """Refuse two grammars."""
        given = [flag.name for flag, value in walk_flags(self) if flag.sets is not None and value is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} each give a grammar; one at a time")


class GivenGrammar(NamedTuple):
    """What a flag gives; ``value`` is what a preset's ``grammar:`` would hold, a text or a table."""

    flag: str
    value: str | dict[str, str]


def given_grammar(options: Options) -> GivenGrammar | None:
    """The grammar that a flag of these options gives; None if none does."""
    for described, value in walk_flags(options):
        setting, _, key = (described.sets or "").partition(".")
        if setting == "grammar" and value is not None:
            return GivenGrammar(described.name, {key: str(value)} if key else value)
    return None


@options_class
class ConstraintOptions(GrammarOptions):
    """A grammar, and how it is applied."""

    grammar_root: str | None = _grammar("--grammar-root", metavar="RULE", help="GBNF's first rule. [root]")
    grammar_after: str | None = _grammar(
        "--grammar-after", metavar="TEXT", help="Free text until this is written, then the grammar."
    )
    grammar_complete: bool = _grammar(
        "--grammar-complete", help="Close the sentence also where -n breaks it off.", default=False
    )
    no_jump: bool = _grammar("--no-jump", help="Draw also the tokens that the grammar forces.", default=False)
