"""The folders in which tools keep their models.

Read from the source of each tool: huggingface_hub's constants.py, llama.cpp's common.cpp and hf-cache.cpp,
Ollama's envconfig, LM Studio's `lms` command, GPT4All's settings and Jan's configuration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .folder_walk import read_text

_OLLAMA_SERVICES = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama")
"""Where Ollama's Linux service keeps models: the user `ollama` of its install script, and that of Arch Linux."""


@dataclass(frozen=True)
class SystemFolders:
    """The user's folders, as the system's conventions name them."""

    environment: Mapping[str, str]
    home: Path
    platform: str = sys.platform

    def variable(self, *names: str) -> Path | None:
        """Return the path in the first of these environment variables that is set; None if none is."""
        for name in names:
            if text := self.environment.get(name, "").strip():
                return self._expanded(text)
        return None

    @property
    def cache(self) -> Path:
        """The XDG cache folder, which tools use on macOS too."""
        return self.variable("XDG_CACHE_HOME") or self.home / ".cache"

    @property
    def data(self) -> Path:
        """The folder of application data."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.variable("XDG_DATA_HOME") or self.home / ".local" / "share"

    @property
    def config(self) -> Path:
        """The folder of configurations."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.variable("XDG_CONFIG_HOME") or self.home / ".config"

    def _expanded(self, text: str) -> Path:
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return Path(text)


def hugging_face_folders(system: SystemFolders) -> list[Path]:
    """Return the folders with the layout of Hugging Face's cache; llama.cpp downloads into it, too."""
    cache = system.variable("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    if cache is None:
        home = system.variable("HF_HOME") or system.cache / "huggingface"
        cache = home / "hub"
    llama_cpp = system.variable("LLAMA_CACHE")
    return [cache] if llama_cpp is None else [cache, llama_cpp]


def ollama_folders(system: SystemFolders) -> list[Path]:
    """Return Ollama's model folders: that of ``OLLAMA_MODELS``, or the user's and that of the Linux service."""
    configured = system.variable("OLLAMA_MODELS")
    if configured is not None:
        return [configured]
    services = [Path(path) for path in _OLLAMA_SERVICES] if system.platform == "linux" else []
    return [system.home / ".ollama" / "models", *services]


def lm_studio_folders(system: SystemFolders) -> list[Path]:
    """Return LM Studio's model folders: the one that the user chose in it, and the usual ones."""
    pointer = _first_line(system.home / ".lmstudio-home-pointer")
    homes = [Path(pointer)] if pointer else []
    homes += [system.home / ".lmstudio", system.home / ".cache" / "lm-studio"]
    settings = [home / "settings.json" for home in homes] + [system.config / "LM Studio" / "settings.json"]
    chosen = [Path(text) for file in settings if (text := _json_text(file, "downloadsFolder"))]
    return [*chosen, *(home / "models" for home in homes)]


def llama_cpp_folders(system: SystemFolders) -> list[Path]:
    """Return the folder into which older versions of llama.cpp download."""
    configured = system.variable("LLAMA_CACHE")
    if configured is not None:
        return [configured]
    caches = system.home / "Library" / "Caches" if system.platform == "darwin" else system.cache
    return [caches / "llama.cpp"]


def gpt4all_folders(system: SystemFolders) -> list[Path]:
    """Return the folders of GPT4All's program, and of its Python package."""
    return [system.data / "nomic.ai" / "GPT4All", system.home / ".cache" / "gpt4all"]


def jan_folders(system: SystemFolders) -> list[Path]:
    """Return the model folders of Jan, those of its older versions too."""
    folder = system.variable("JAN_DATA_FOLDER")
    if folder is None:
        chosen = _json_text(system.data / "Jan" / "settings.json", "data_folder")
        folder = Path(chosen) if chosen else system.data / "Jan" / "data"
    return [folder / "llamacpp" / "models", folder / "models", system.home / "jan" / "models"]


def _first_line(path: Path) -> str:
    return read_text(path).strip().split("\n")[0]


def _json_text(path: Path, key: str) -> str:
    """Return a text of another tool's settings; empty if there is none, or if the file cannot be read."""
    try:
        settings = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return ""
    value = settings.get(key) if isinstance(settings, dict) else None
    return value if isinstance(value, str) else ""
