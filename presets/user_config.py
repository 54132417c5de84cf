"""The user's defaults: config.yaml in the user's configuration folder.

Completion in shells imports this module, and few users have the file: YAML and pydantic are imported only if
the file exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .search import config_folder, is_path


@dataclass(frozen=True)
class UserConfig:
    """The user's config.yaml; its fields are the keys of the file.

    Attributes: ``model``, the path or name of the model, if none is given; ``preset``, the name of the preset, if
    none is given; ``model_folders``, in which models are looked for, besides other tools'.
    """

    model: str | None = None
    preset: str | None = None
    model_folders: tuple[str, ...] = ()


def user_config() -> UserConfig:
    """Return the user's configuration; an empty one if there is no file.

    A path may begin with ``~``; a relative one counts from the file's folder. A ``model`` that looks like no path
    is a name, and left as it is. Raises ``PresetError`` that names
    the file and the key, for an unknown key and for a value that is not allowed, and if the file cannot
    be read.
    """
    path = config_file()
    table = _read_config()
    if not table:
        return UserConfig()
    from .config_table import ConfigTable  # noqa: PLC0415 - few have a file, and pydantic takes 40 ms

    config = ConfigTable.checked(table, str(path))
    preset = config.preset
    if preset is not None and is_path(preset):
        preset = _absolute_path(preset)
    model = config.model
    if model is not None and _is_model_path(model, path.parent):
        model = _absolute_path(model)
    return UserConfig(model, preset, tuple(_absolute_path(folder) for folder in config.model_folders))


def config_file() -> Path:
    """The file of the user's configuration, which need not exist."""
    return config_folder() / "config.yaml"


def _read_config() -> dict[Any, Any]:
    """Return the file's keys and values, unchecked; none if there is no file. Raises ``PresetError``."""
    path = config_file()
    if _is_missing(path):
        return {}
    from .yaml_reader import read_table  # noqa: PLC0415 - few have a file, and PyYAML takes 10 ms

    return read_table(path, str(path), empty={})


def configured_model_folders() -> list[str]:
    """Return the folders under ``model_folders``, those that are texts. Raises ``PresetError``."""
    folders = _read_config().get("model_folders")
    return (
        [_absolute_path(folder) for folder in folders if isinstance(folder, str)]
        if isinstance(folders, list)
        else []
    )


def _absolute_path(text: str) -> str:
    """Return a path of the file: it may begin with ``~``, and a relative one counts from the file's folder."""
    try:
        return str(config_folder() / Path(text).expanduser())
    except RuntimeError:  # ~name of an unknown user: opening the file reports it
        return text


def _is_missing(path: Path) -> bool:
    """True if there is no such file. A file in a folder without permission is not missing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # reading reports it
    return False


def _is_model_path(text: str, folder: Path) -> bool:
    """True for a path of a model; False for a name such as ``ollama:llama3.2:1b``."""
    looks_like_path = text.lower().endswith(".gguf") and not text.startswith("hf:")
    return looks_like_path or text.startswith((".", "/", "~")) or (folder / text).exists()
