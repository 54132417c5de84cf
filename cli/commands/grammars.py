"""`gen grammars`: list, show, check and sample grammars, without a model."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.files import STDIN, input_name, read_input
from ...common.flags import CompletionKind, within
from ...common.seeds import RANDOM_SEED, SEED_MAX, SEED_MIN, fixed_seed, following_seed
from ...common.text import UndecodableTextError, decode_text, without_last_line_end
from ...requests.sources import find_grammar_source, grammar_folders, report_ignored_schema_paths
from ..command_line import GenCommand
from ..command_options import takes_options
from ..flags import REQUIRED, Options, argument, flag
from ..inputs.overrides import given_grammar
from ..inputs.prompt import read_piped
from ..messages import FAILED, fail, print_note, report_failures
from ..options.sampling import GrammarOptions
from ..startup import start_collector

if TYPE_CHECKING:
    from ...grammars.mismatch import Mismatch
    from ...grammars.spec import GrammarSpec

_NAME_HELP = "Name of a grammar, or a file: .gbnf, .json (JSON Schema), .regex or .lark."


@dataclass(frozen=True, kw_only=True)
class GrammarNameOptions(Options):
    """The options of `gen grammars show`."""

    name: str = argument(
        None,
        display_name="the grammar's name",
        help=_NAME_HELP,
        default=REQUIRED,
        completion_kind=CompletionKind.GRAMMAR,
    )
    schema_lenient: bool = flag(
        "--schema-lenient",
        help="Ignore unsupported keywords of a JSON Schema, and list them.",
        default=False,
    )
    translated: bool = flag(
        "--translated", help="Print the grammar as the mask engine reads it, in llguidance's Lark.", default=False
    )


@dataclass(frozen=True, kw_only=True)
class GrammarSourceOptions(Options):
    """The flags that choose a grammar: by name or file, or by a grammar flag of `gen run`."""

    name: str | None = argument(
        "NAME", display_name="the grammar's name", help=_NAME_HELP, completion_kind=CompletionKind.GRAMMAR
    )
    grammar: GrammarOptions
    root: str = flag(
        "--root",
        "--grammar-root",
        metavar="RULE",
        help="First rule of a GBNF grammar.",
        default="root",
        shows_default=True,
    )

    def check(self) -> None:
        """Raise ``UsageError`` unless exactly one grammar is given."""
        flag_grammar = given_grammar(self.grammar)
        if self.name is None and flag_grammar is None:
            raise UsageError("no grammar is given: give a name, a file, or a flag such as --regex")
        if self.name is not None and flag_grammar is not None:
            raise UsageError(f"{self.name!r} and {flag_grammar.origin} both define a grammar; give only one")


@dataclass(frozen=True, kw_only=True)
class GrammarCheckOptions(GrammarSourceOptions):
    """The options of `gen grammars check`."""

    text: str | None = flag("--text", help="Text to match; a mismatch is reported with its place.")
    text_file: Path | None = flag(
        "--text-file", help="File with the text to match; - reads stdin. [stdin, if it is a pipe]"
    )

    def check(self) -> None:
        """Raise ``UsageError`` if the text is given twice, or the grammar is not given exactly once."""
        super().check()
        if self.text is not None and self.text_file is not None:
            raise UsageError("--text and --text-file both set the text; give only one")


@dataclass(frozen=True, kw_only=True)
class GrammarSampleOptions(GrammarSourceOptions):
    """The options of `gen grammars sample`."""

    seed: int = flag(
        "--seed",
        "-s",
        help="Random seed: the same seed gives the same sentences; -1 = random. [-1]",
        default=RANDOM_SEED,
        limit=within(SEED_MIN, SEED_MAX, minus_one_meaning="a random seed"),
    )
    count: int = flag("-n", help="Number of sentences.", default=1, shows_default=True, limit=within(1, 100_000))


app = typer.Typer(help="List, show, check and sample grammars.", add_completion=False)


@app.callback(invoke_without_command=True)
def grammars(context: typer.Context) -> None:
    """List, show, check and sample grammars. Without a command, list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list", cls=GenCommand)
def list_() -> None:
    """List the grammars in ./grammars, in your config folder, and the built-in ones."""
    with report_failures():
        from ...grammars.search import list_grammars
        from ..render.table import Column, print_table

        rows = [(entry.name, entry.origin, entry.description) for entry in list_grammars(grammar_folders())]
        print_table(["grammar", "from", Column("what it is", is_text=True)], rows)


@app.command(cls=GenCommand)
@takes_options(GrammarNameOptions)
def show(options: GrammarNameOptions) -> None:
    """Print a grammar; with --schema-lenient, a JSON Schema without ignored keywords."""
    from ..text import terminal_safe

    grammar = find_grammar_source(options.name, is_lenient=options.schema_lenient)
    text = grammar.source
    if grammar.schema_lenient:
        report_ignored_schema_paths(grammar, print_note)
        text = json.dumps(grammar.parsed.schema, indent=2, ensure_ascii=False) + "\n"
    if options.translated:
        text = grammar.compile(None).lark
    sys.stdout.write(terminal_safe(text, sys.stdout))


@app.command(cls=GenCommand)
@takes_options(GrammarCheckOptions)
def check(options: GrammarCheckOptions) -> None:
    """Check a grammar, or whether a text matches it, and report where the error is.

    Exit code 1: the text does not match. Exit code 2: the grammar has an error.
    """
    grammar = _resolve_chosen_grammar(options)
    name = options.name or grammar.label
    start_collector()
    grammar.check()
    report_ignored_schema_paths(grammar, print_note)
    translated_paths = grammar.translated_schema_paths
    if translated_paths:
        print_note(f"translated to rules, exactly: {', '.join(translated_paths)}")
    text = _text_to_check(options)
    if text is None:
        print(f"{name}: ok")
        return
    mismatch = _find_mismatch(grammar, text, is_file=options.text is None)
    if mismatch is None:
        print(f"{name}: the text matches")
        return
    _show_mismatch(name, text, mismatch)
    raise typer.Exit(FAILED)


@app.command(cls=GenCommand)
@takes_options(GrammarSampleOptions)
def sample(options: GrammarSampleOptions) -> None:
    """Print random sentences of a grammar, generated without a model."""
    from ...grammars.errors import GrammarError
    from ...grammars.random_sentences import random_sentence
    from ..text import terminal_safe

    grammar = _resolve_chosen_grammar(options)
    start_collector()
    grammar.check()
    report_ignored_schema_paths(grammar, print_note)
    first_seed = fixed_seed(options.seed)
    for number in range(options.count):
        seed = following_seed(first_seed, number)
        try:
            sentence = random_sentence(
                grammar.source, seed, grammar.root, kind=grammar.kind, schema_lenient=grammar.schema_lenient
            )
        except GrammarError as error:
            raise error.within(grammar.label) from None
        print(terminal_safe(sentence.removesuffix("\n"), sys.stdout))


def _resolve_chosen_grammar(options: GrammarSourceOptions) -> GrammarSpec:
    """Return the grammar that the argument or a flag of the command names."""
    is_lenient = options.grammar.schema_lenient
    flag_grammar = given_grammar(options.grammar)
    if flag_grammar is None:
        return find_grammar_source(str(options.name), options.root, is_lenient=is_lenient)
    from ...grammars.errors import GrammarError
    from ...grammars.spec import grammar_table, resolve_grammar

    table = {**grammar_table(flag_grammar.value), "root": options.root, "schema_lenient": is_lenient}
    try:
        return resolve_grammar(table, grammar_folders())
    except GrammarError as error:
        raise error.within(flag_grammar.origin) from None


def _text_to_check(options: GrammarCheckOptions) -> str | None:
    """Return the text of a flag, or the piped text; None if there is no text."""
    if options.text is not None:
        return options.text
    if options.text_file is not None:
        return _decode_text(read_input(options.text_file), options.text_file)
    piped = read_piped("is the text to check")
    if piped == b"":
        print_note("stdin is empty: only the grammar is checked; --text '' checks an empty text")
    return _decode_text(piped, STDIN) if piped else None


def _decode_text(data: bytes, path: Path) -> str:
    try:
        return decode_text(data)
    except UndecodableTextError as error:
        fail(f"{input_name(path)}: line {error.line}: the text is {error}")


def _find_mismatch(grammar: GrammarSpec, text: str, *, is_file: bool) -> Mismatch | None:
    from ...grammars.mismatch import find_mismatch

    compiled_grammar = grammar.compile(None)
    mismatch = find_mismatch(compiled_grammar, text)
    if mismatch is not None and is_file and text.endswith("\n"):
        # The line end at the end of a file may not belong to the text.
        return find_mismatch(compiled_grammar, without_last_line_end(text))
    return mismatch


# maximum numbers of characters of a line that are shown: before a mismatch, and in total
_MAX_SHOWN_BEFORE_CHARACTERS = 60
_MAX_SHOWN_CHARACTERS = 100


def _show_mismatch(name: str, text: str, mismatch: Mismatch) -> None:
    from rich.cells import cell_len

    from ..text import terminal_safe

    line = text.split("\n")[mismatch.line - 1].replace("\t", " ")
    column = mismatch.column - 1
    start = max(0, column - _MAX_SHOWN_BEFORE_CHARACTERS)
    before = terminal_safe(line[start:column], sys.stdout)
    after = terminal_safe(line[column : start + _MAX_SHOWN_CHARACTERS], sys.stdout)
    if mismatch.character is None:
        reason = "the text ends too early"
    else:
        reason = f"{mismatch.character!r} is not allowed here"
    expected = terminal_safe(mismatch.expected, sys.stdout)
    print(f"{name}: line {mismatch.line}, column {mismatch.column}: {reason}; expected {expected}")
    print(f"  {before}{after}\n  {' ' * cell_len(before)}^")
