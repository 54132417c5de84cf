"""The table of flags of llama.cpp's programs, with the meaning of each flag and advice for users of `gen`.

llama_cpp_flags.tsv has a line for each flag, or for several similar flags. The columns of a line:

- ``names``: all names, separated by spaces. A name that ends in ``*`` stands for all names with this start.
- ``option``: the setting that an import of a command line reads; ``run`` for a flag of `gen run` that a preset
  does not hold; empty for flags that an import ignores.
- ``meaning``: noun phrase for the meaning in llama.cpp; empty for a flag that `gen` has as well, and for flags of
  programs that have no counterpart in `gen`.
- ``advice``: what to use in `gen` instead.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

# The table. Its names are those of llama.cpp's common/arg.cpp of October 2026, and older names still in use.
_FILE = Path(__file__).with_name("llama_cpp_flags.tsv")


class LlamaCppFlag(NamedTuple):
    """A line of the table; the module's docstring explains the columns."""

    names: tuple[str, ...]
    option: str = ""
    meaning: str = ""
    advice: str = ""

    @property
    def is_imported(self) -> bool:
        return self.option not in ("", "run")

    @property
    def is_of_run(self) -> bool:
        """True if `gen run` has the flag, and a preset does not hold it."""
        return self.option == "run"


@cache
def llama_cpp_flags() -> tuple[LlamaCppFlag, ...]:
    """Return the lines of the table. The file is read at the first call, because few runs need the table."""
    _, *lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return tuple(LlamaCppFlag(tuple(names.split()), *values) for names, *values in rows)


@cache
def _flags_by_name() -> dict[str, LlamaCppFlag]:
    return {name: flag for flag in llama_cpp_flags() for name in flag.names}


def find_llama_cpp_flag(name: str) -> LlamaCppFlag | None:
    """Return llama.cpp's flag with this name, given with dashes; None if there is none."""
    by_name = _flags_by_name()
    if name in by_name:
        return by_name[name]
    patterns = (known_name for known_name in by_name if known_name.endswith("*"))
    return next((by_name[pattern] for pattern in patterns if name.startswith(pattern[:-1])), None)
