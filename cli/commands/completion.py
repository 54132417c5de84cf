"""`gen completion`: print the completion script of a shell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from ..command_options import takes_options
from ..completion.shells import SCRIPTS
from ..flags import REQUIRED, Options, argument


class Shell(StrEnum):
    """A shell that completes command lines."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(Options):
    """The options of `gen completion`."""

    shell: Shell = argument("SHELL", display_name="SHELL", help="bash, zsh or fish.", default=REQUIRED)


@takes_options(CompletionOptions)
def completion(options: CompletionOptions) -> None:
    """Print the script that lets your shell complete gen's commands and flags.

    Add the script once to a file that your shell reads at start; in zsh, after the line with compinit. Completion
    works in new terminals. The script stays valid after updates.

      gen completion bash >> ~/.bashrc
      gen completion zsh >> ~/.zshrc
      gen completion fish > ~/.config/fish/completions/gen.fish
    """
    sys.stdout.write(SCRIPTS[options.shell.value])
