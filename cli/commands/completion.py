"""`gen completion`: the script by which a shell completes the command line."""

from __future__ import annotations

import sys

from ..completion.shells import SCRIPTS
from ..options.completion import CompletionOptions
from ..options.signature import takes_options


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
