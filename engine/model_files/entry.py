"""A model file that was found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelEntry:
    """A model in one of the folders where tools keep them.

    Attributes:
        name: What ``-m`` takes, such as ``ollama:llama3.2:1b``; no two entries of a list share one.
        source: The tool, such as ``Ollama``; ``bundled``; or the folder of the user's config.
        path: The GGUF file; of a split model, the first part.
        parts: All its files that exist; none if the file is missing that a tool names.
        settings: A JSON file with the sampling settings that Ollama keeps beside the model; None without one.
    """

    name: str
    source: str
    path: Path
    parts: tuple[Path, ...]
    settings: Path | None = None

    @property
    def is_missing(self) -> bool:
        """True if the tool names a file that does not exist."""
        return not self.parts

    @property
    def advice_if_missing(self) -> str:
        """Advice for a missing file; only Ollama's models are listed without one."""
        return f"`ollama pull {self.name.removeprefix('ollama:')}` downloads it"
