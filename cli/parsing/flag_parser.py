"""Changes to how a command reads its flags: typer's parser has no setting for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def adapt_parsers(command: Any, adapt: Callable[[Any, Any], None]) -> None:
    """Change every parser that a command, or a command of a group, makes.

    ``adapt``: called with the parser and its context before any word is read.
    """
    make_parser = command.make_parser

    def make_adapted_parser(context: Any) -> Any:
        parser = make_parser(context)
        adapt(parser, context)
        return parser

    command.make_parser = make_adapted_parser
    for subcommand in getattr(command, "commands", {}).values():
        adapt_parsers(subcommand, adapt)
