"""The options of the commands of `gen presets`."""

from __future__ import annotations

from pathlib import Path

from ...common.errors import UsageError
from .completes import Completes
from .flag import REQUIRED, Options, argument, flag, options_class


@options_class
class PresetNameOptions(Options):
    """Which preset."""

    name: str = argument(
        "NAME",
        called="NAME",
        help="A preset's name, a file, or FILE#NAME for one preset of a file with several.",
        default=REQUIRED,
        completes=Completes.PRESET_FILE,
    )


@options_class
class PresetImportOptions(Options):
    """Which file, and where its preset goes."""

    file: str = argument(
        "FILE",
        called="FILE",
        help="A preset of another tool, FILE#NAME for one of several, or a GGUF; - is stdin.",
        default=REQUIRED,
        completes=Completes.FILE,
    )
    format: str | None = flag(
        "--from",
        metavar="FORMAT",
        help="webui, sillytavern, koboldai, koboldcpp, huggingface, ollama, tabbyapi, llama.cpp or lmstudio."
        " [by the content]",
        completes=Completes.IMPORT_FORMAT,
    )
    section: str | None = flag(
        "--section", metavar="NAME", help="Which preset of a file with several, as FILE#NAME does."
    )
    save: str | None = flag(
        "--save", metavar="NAME", help="Save it in your preset folder, for -P NAME. [print it]"
    )
    force: bool = flag("--force", help="Replace a saved preset of this name.", default=False)

    def check(self) -> None:
        """Refuse ``--force`` without ``--save``, and a name that `-P` would not find."""
        if self.force and self.save is None:
            raise UsageError("--force needs a --save")
        if self.save is not None:
            is_name = self.save.isprintable() and self.save.strip() == self.save and not self.save.startswith(".")
            if not (is_name and self.save) or any(mark in self.save for mark in '/\\:*?"<>|'):
                raise UsageError(f"--save: {self.save!r} is not a name that a file can have everywhere")
            if self.save.lower().endswith((".yaml", ".yml")):
                raise UsageError(f"--save: give the name only, {Path(self.save).stem!r}")
            if self.save == "model":
                raise UsageError("--save: -P model stands for the settings of the GGUF's author")


@options_class
class PresetExportOptions(Options):
    """Which preset, and for which tool."""

    name: str = argument(
        "NAME",
        called="NAME",
        help="A preset's name, a file, also of another tool, or FILE#NAME for one of several.",
        default=REQUIRED,
        completes=Completes.PRESET_FILE,
    )
    to: str = flag(
        "--to",
        metavar="FORMAT",
        help="llama.cpp (a command line), llama-server, koboldcpp (both JSON of a request), webui, sillytavern,"
        " koboldai, huggingface, ollama, tabbyapi or lmstudio.",
        default=REQUIRED,
        completes=Completes.EXPORT_FORMAT,
    )
