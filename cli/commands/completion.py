"""`gen completion`: the script by which a shell completes the command line."""

from __future__ import annotations

import sys
from enum import StrEnum

from ..command_options import takes_options
from ..completion.shells import SCRIPTS
from ..flags import REQUIRED, Options, argument, options_class


class Shell(StrEnum):
    """A shell that completes command lines."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@options_class
class CompletionOptions(Options):
    """Which shell."""

    shell: Shell = argument("SHELL", display_name="SHELL", help="bash, zsh or fish.", default=REQUIRED)


@takes_options(CompletionOptions)
def completion(options: CompletionOptions) -> None:
    """Print the script by which a shell completes gen's command lines.

    Write it once to where your shell looks for it; in zsh, the script must follow compinit. New terminals then
    complete. An update of gen needs no new script.

      gen completion bash >> ~/.bashrc
      gen completion zsh >> ~/.zshrc
      gen completion fish > ~/.config/fish/completions/gen.fish
    """
    sys.stdout.write(SCRIPTS[options.shell.value])
