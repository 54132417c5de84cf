"""The options of `gen completion`."""

from __future__ import annotations

from enum import StrEnum

from .flag import REQUIRED, Options, argument, options_class


class Shell(StrEnum):
    """A shell that completes command lines."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@options_class
class CompletionOptions(Options):
    """Which shell."""

    shell: Shell = argument("SHELL", called="SHELL", help="bash, zsh or fish.", default=REQUIRED)
