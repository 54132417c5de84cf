"""The command `gen letters`."""

from string import ascii_lowercase
from typing import Annotated

import typer


def letters(
    text: Annotated[typer.FileText, typer.Argument(metavar="FILE", help="A text; - reads stdin.")],
    without: Annotated[str, typer.Option(help="Letters that the text must not contain.")] = "",
) -> None:
    """Print the letters that a text does without. Exit code 1: it contains a letter of --without."""
    found = set(text.read().lower())
    print("".join(letter for letter in ascii_lowercase if letter not in found))
    forbidden = sorted(found & set(without.lower()))
    if forbidden:
        typer.echo(f"the text contains {', '.join(forbidden)}", err=True)
        raise typer.Exit(1)
