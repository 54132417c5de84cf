"""The options of llama.cpp that an import reads, by their names without dashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..llama_cpp_flags import options_without_dashes
from .llama_chain import OFF


@dataclass(frozen=True)
class LlamaEntry:
    """A value, and how and where the file spells its key."""

    spelled: str
    value: Any
    line: int = 0


OPTIONS = (
    *OFF,
    *("sampler-seq", "seed", "n-predict", "logit-bias", "reverse-prompt", "json-schema", "json-schema-file"),
    *("grammar", "grammar-file", "system-prompt", "dry-sequence-breaker", "samplers", "ignore-eos"),
)
"""The options that are read; `llama_cpp_flags` has all names of each."""
MEANT_OPTIONS = {"repetition-penalty": "repeat-penalty", "rep-pen": "repeat-penalty", "max-tokens": "n-predict"}

# The key of a GGUF, where it is no option with underscores.
METADATA_OPTIONS = {
    "penalty-last-n": "repeat-last-n",
    "penalty-repeat": "repeat-penalty",
    "mirostat-tau": "mirostat-ent",
    "mirostat-eta": "mirostat-lr",
    "sequence": "samplers",
}

SILENT_VARIABLES = ("LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_LOG_", "LLAMA_CACHE", "HF_TOKEN", "MODEL_ENDPOINT")
"""How the environment names begin that an INI file may use instead."""


def option_of_name(name: str) -> str | None:
    """Return the option that has this name, which is written without dashes; None if none has."""
    return options_without_dashes().get(name) or None


def is_left_out(name: str) -> bool:
    """True for an option of llama.cpp that says nothing about sampling; ``name``: without dashes."""
    return options_without_dashes().get(name) == ""
