"""`gen grammars`: list, show, check and try grammars, with no model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FAILED, fail, report_failures
from ..options.checks import check_text

if TYPE_CHECKING:
    from ...grammars import GrammarSpec, Mismatch

app = typer.Typer(help="List, show, check and try grammars.", rich_markup_mode="rich", add_completion=False)

Name = Annotated[str, typer.Argument(help="A grammar's name, or a file: .gbnf, .json (schema), .regex, .lark.")]
Text = Annotated[str | None, typer.Option("--text", help="Does this text match? If not, where does it leave?")]
TextFile = Annotated[Path | None, typer.Option("--text-file", help="The same for a file; - is stdin.")]
Root = Annotated[str, typer.Option("--root", metavar="RULE", help="The rule that GBNF begins with.")]
Seed = Annotated[int | None, typer.Option("--seed", "-s", help="Same seed, same sentences.")]
Count = Annotated[int, typer.Option("-n", min=1, max=100_000, help="How many sentences.")]


@app.callback(invoke_without_command=True)
def grammars(context: typer.Context) -> None:
    """List, show, check and try grammars. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_() -> None:
    """List the grammars that a name finds: ./grammars, your config folder, the built-in ones."""
    with report_failures():
        from ...grammars import list_grammars
        from ..inputs.grammar import folders
        from ..render.tables import show_grammars

        show_grammars(list_grammars(folders()))


@app.command()
def show(name: Name) -> None:
    """Print a grammar's text."""
    with report_failures():
        from ..render.text import terminal_safe

        sys.stdout.write(terminal_safe(_spec(name).source, sys.stdout))


@app.command()
def check(name: Name, text: Text = None, text_file: TextFile = None, root: Root = "root") -> None:
    """Say whether a grammar is right, or whether a text matches it; if not, where and why.

    Exit code 1: the text does not match; 2: the grammar is wrong.
    """
    if text is not None and text_file is not None:
        raise typer.BadParameter("--text and --text-file each give a text; one at a time")
    if text is not None:
        check_text("text", text)
    with report_failures():
        from ...grammars import find_mismatch

        spec = _spec(name, root)
        spec.check()
        given = text if text_file is None else _read(text_file)
        if given is None:
            print(f"{name}: ok")
            return
        grammar = spec.compile(None)
        found = find_mismatch(grammar, given)
        if found is not None and text_file is not None and given.endswith("\n"):
            found = find_mismatch(grammar, given[:-1])  # a file's last line end need not belong to the text
        if found is None:
            print(f"{name}: the text matches")
            return
        _show_mismatch(name, given, found)
        raise typer.Exit(FAILED)


@app.command()
def sample(name: Name, seed: Seed = None, n: Count = 1, root: Root = "root") -> None:
    """Print random sentences of a GBNF grammar, made with no model."""
    with report_failures():
        from ...grammars import GrammarError, random_sentence
        from ..render.text import terminal_safe

        spec = _spec(name, root)
        if spec.kind != "gbnf":
            fail(f"{name}: sentences can be made of GBNF only")
        for number in range(n):
            try:
                made = random_sentence(spec.source, None if seed is None else seed + number, spec.root)
            except GrammarError as error:
                raise error.within(spec.label) from None
            print(terminal_safe(made.removesuffix("\n"), sys.stdout))


def _spec(name: str, root: str = "root") -> GrammarSpec:
    """A grammar by its name, or by its file, whose ending says the kind."""
    from ...grammars import KIND_OF_SUFFIX, GrammarError, GrammarSpec, read_grammar_file, resolve_grammar
    from ..inputs.grammar import folders

    path = Path(name)
    kind = KIND_OF_SUFFIX.get(path.suffix)
    if kind is not None:
        if root != "root" and kind != "gbnf":
            raise GrammarError(f"{name}: --root names a rule of GBNF, and this is a {path.suffix} file")
        source = read_grammar_file(path)
        return GrammarSpec(name, kind, source.rstrip("\n") if kind == "regex" else source, root)
    if "/" in name or path.suffix:
        raise GrammarError(
            f"{name}: the kind of a grammar file is told by its ending: {', '.join(KIND_OF_SUFFIX)}"
        )
    table: dict[str, Any] = {"name": name, "root": root}
    return resolve_grammar(table, folders())


def _read(path: Path) -> str:
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        fail(f"{path}: line {data[: error.start].count(10) + 1}: the text is not UTF-8")


def _show_mismatch(name: str, text: str, found: Mismatch) -> None:
    from rich.cells import cell_len

    from ..render.text import terminal_safe

    line = text.split("\n")[found.line - 1].replace("\t", " ")
    start = max(0, found.column - 1 - 60)
    before = terminal_safe(line[start : found.column - 1], sys.stdout)
    shown = before + terminal_safe(line[found.column - 1 : start + 100], sys.stdout)
    what = "the text ends too early" if found.character is None else f"{found.character!r} cannot stand here"
    expected = terminal_safe(found.expected, sys.stdout)
    print(f"{name}: line {found.line}, column {found.column}: {what}; expected {expected}")
    print(f"  {shown}\n  {' ' * cell_len(before)}^")
