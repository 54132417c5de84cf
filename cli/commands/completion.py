"""`gen completion`: the script by which a shell completes the command line."""

from __future__ import annotations

import sys

from ..completion.shells import SCRIPTS
from ..options.completion import CompletionOptions
from ..options.signature import takes_options


@takes_options(CompletionOptions)
def completion(options: CompletionOptions) -> None:
    """Print the script by which a shell completes gen's command lines.

    Write it once to where your shell looks for it; an update of gen needs nothing. New terminals then complete.

    bash: gen completion bash >> ~/.bashrc

    zsh: gen completion zsh >> ~/.zshrc (below compinit)

    fish: gen completion fish > ~/.config/fish/completions/gen.fish
    """
    sys.stdout.write(SCRIPTS[options.shell.value])
