"""The options of `gen models`."""

from __future__ import annotations

from enum import StrEnum

from .completes import Completes
from .flag import REQUIRED, Options, argument, flag, options_class


class ModelsFormat(StrEnum):
    """How models are printed."""

    text = "text"
    json = "json"


@options_class
class ModelsOptions(Options):
    """The options of `gen models`, which are those of its list."""

    format: ModelsFormat = flag(
        "--format", help="text: a table; json: all facts, with paths. [text]", default=ModelsFormat.text
    )
    has_missing: bool = flag("--all", help="Also list models of Ollama whose file is missing.", default=False)


@options_class
class ModelListOptions(ModelsOptions):
    """The options of `gen models list`."""

    part: str | None = argument("PART", called="PART", help="Only models with this in their names.")


@options_class
class ModelShowOptions(Options):
    """The options of `gen models show`."""

    name: str = argument(
        "NAME",
        called="NAME",
        help="A model's name, a part of it, or a file, as for -m.",
        default=REQUIRED,
        completes=Completes.MODEL,
    )
    format: ModelsFormat = flag(
        "--format", help="text: in words; json: the whole metadata. [text]", default=ModelsFormat.text
    )


@options_class
class ModelPullOptions(Options):
    """The options of `gen models pull`."""

    reference: str = argument(
        "hf:USER/REPO[:QUANT]",
        called="the model",
        help="A repository of Hugging Face, and a quantisation; or hf:USER/REPO/FILE.gguf. [Q4_K_M, else Q8_0]",
        default=REQUIRED,
    )
