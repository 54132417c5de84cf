"""The table of flags of llama.cpp's programs, each with its meaning there and the advice of `gen`.

llama_cpp_flags.tsv has a line for each flag, or for several alike. Its columns:

- ``names``: all names, separated by spaces; one that ends in ``*`` is the beginning of names.
- ``option``: the setting that an import of a command line reads; empty for flags that an import leaves out.
- ``meaning``: noun phrase for the flag in llama.cpp; empty if `gen` has the flag, or is unlike the program.
- ``advice``: what to do in `gen`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("llama_cpp_flags.tsv")
"""Names are those of llama.cpp's common/arg.cpp of October 2026, and former ones that people still type."""


class LlamaCppFlag(NamedTuple):
    """A line of the table; the fields are its columns."""

    names: tuple[str, ...]
    option: str = ""
    meaning: str = ""
    advice: str = ""


@cache
def llama_cpp_flags() -> tuple[LlamaCppFlag, ...]:
    """Return the table. The file is read at the first call, because few runs need a flag of llama.cpp."""
    _, *lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return tuple(LlamaCppFlag(tuple(names.split()), *values) for names, *values in rows)


@cache
def _flags_by_name() -> dict[str, LlamaCppFlag]:
    return {name: flag for flag in llama_cpp_flags() for name in flag.names}


def find_llama_cpp_flag(name: str) -> LlamaCppFlag | None:
    """Return the flag that llama.cpp has by this name; None if it has none."""
    by_name = _flags_by_name()
    if name in by_name:
        return by_name[name]
    beginnings = (known for known in by_name if known.endswith("*"))
    return next((by_name[known] for known in beginnings if name.startswith(known[:-1])), None)


@cache
def options_without_dashes() -> dict[str, str]:
    """Return the option of each flag by its name without dashes; empty for flags that an import leaves out."""
    names = ((name, flag) for flag in llama_cpp_flags() for name in flag.names if not name.endswith("*"))
    return {name.lstrip("-"): flag.option for name, flag in names}
