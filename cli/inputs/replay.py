"""The command that makes a run again."""

from __future__ import annotations

import os
import shlex
import sys

_MODEL_VARIABLE = "GEN_MODEL"


def replay_command(random_seed: int | None, piped: str) -> str:
    """Return the command line as a shell takes it, with all that it does not say.

    Args:
        random_seed: the seed that was picked; None if it is set, by a flag or by a preset.
        piped: what was read from stdin, without the newline at its end; empty if nothing was.
    """
    words = ["gen", *sys.argv[1:]]
    if random_seed is not None:
        # The last one counts; behind `--` there are no flags.
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = ["--seed", str(random_seed)]
    model = os.environ.get(_MODEL_VARIABLE)
    command = shlex.join(words)
    if model:
        command = f"{_MODEL_VARIABLE}={shlex.quote(model)} {command}"
    return f"printf %s {shlex.quote(piped)} | {command}" if piped else command
