"""What stands for the value of a flag, for the completion in shells."""

from __future__ import annotations

from enum import Enum, auto


class Completes(Enum):
    """What may be typed as a value, where the flag's type does not say it."""

    CHAIN = auto()
    """Steps in the compact notation."""
    CHAT = auto()
    """The name or the id of a stored chat."""
    EXPORT_FORMAT = auto()
    """A format that presets are exported to."""
    FILE = auto()
    """Any file."""
    GGUF_FILE = auto()
    """A GGUF file."""
    GRAMMAR = auto()
    """The name of a grammar, or a file."""
    GRAMMAR_NAME = auto()
    """The name of a grammar."""
    IMPORT_FORMAT = auto()
    """A format that presets are imported from."""
    LLAMA_CPP_SAMPLERS = auto()
    """llama.cpp's names of samplers, joined by semicolons."""
    MODEL = auto()
    """The name of a model, or a GGUF file."""
    PRESET = auto()
    """The name of a preset, ``model``, or a file."""
    PRESET_FILE = auto()
    """The name of a preset, or a file."""
    PRESET_OR_CHAIN = auto()
    """The name of a preset, or steps in the compact notation."""
    SAMPLER = auto()
    """The name of a sampler."""
    SETTING = auto()
    """``name.parameter=value``."""
