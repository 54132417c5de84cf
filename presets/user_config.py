"""The user's defaults, from config.yaml in the user's configuration folder.

Completion in shells imports this module, and few users have the file. So PyYAML is imported only if the file
exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.errors import wrong_value
from ..common.text import unknown_name
from .errors import PresetError
from .search import config_folder, is_path

# the keys of the file, with the allowed values of each as noun phrases for messages
_ALLOWED_VALUES = {
    "model": "a path or a model's name",
    "preset": "a name or a path",
    "model_folders": "a list of folders",
}


@dataclass(frozen=True)
class UserConfig:
    """The values of the user's config.yaml. The fields are the keys of the file.

    Attributes:
        model: path or name of the model to use if no flag names one; None if not set.
        preset: path or name of the preset to use if no flag names one; None if not set.
        model_folders: folders that are searched for models, in addition to the folders of other tools.
    """

    model: str | None = None
    preset: str | None = None
    model_folders: tuple[str, ...] = ()


def user_config() -> UserConfig:
    """Return the user's configuration, with absolute paths; without values if there is no file."""
    # A path may begin with ``~``. A relative path counts from the folder of the file. A ``model`` that does not
    # look like a path is kept as a name.
    path = config_file()
    table = _read_config()
    _check(table, str(path))
    model, preset = table.get("model"), table.get("preset")
    if preset is not None and is_path(preset):
        preset = _absolute_path(preset)
    if model is not None and _is_model_path(model, path.parent):
        model = _absolute_path(model)
    return UserConfig(model, preset, tuple(_absolute_path(folder) for folder in table.get("model_folders", ())))


def _check(table: Mapping[Any, Any], origin: str) -> None:
    """Raise ``PresetError`` for the first wrong key or value."""
    for key, value in table.items():
        if key not in _ALLOWED_VALUES:
            raise PresetError(unknown_name("key", key, _ALLOWED_VALUES), origin=origin)
        if key == "model_folders":
            is_allowed = isinstance(value, list) and all(isinstance(folder, str) for folder in value)
        else:
            is_allowed = value is None or (isinstance(value, str) and value != "")
        if not is_allowed:
            raise PresetError(wrong_value(value, _ALLOWED_VALUES[key]), origin=origin, place=(key,))


def config_file() -> Path:
    """Return the path of the user's config.yaml, which need not exist."""
    return config_folder() / "config.yaml"


def _read_config() -> dict[Any, Any]:
    """Return the unchecked keys and values of config.yaml; an empty table if there is no file."""
    path = config_file()
    if _is_missing(path):
        return {}
    from .yaml_reader import read_table  # noqa: PLC0415 - few users have the file, and importing PyYAML takes 10 ms

    return read_table(path, str(path), empty={})


def configured_model_folders() -> list[str]:
    """Return the folders of ``model_folders``, without values that are not strings."""
    folders = _read_config().get("model_folders")
    return (
        [_absolute_path(folder) for folder in folders if isinstance(folder, str)]
        if isinstance(folders, list)
        else []
    )


def _absolute_path(text: str) -> str:
    """Return the absolute path of a value, which may begin with ``~``, or count from the configuration folder."""
    try:
        return str(config_folder() / Path(text).expanduser())
    except RuntimeError:  # the user in ~name is unknown; opening the file will report it
        return text


def _is_missing(path: Path) -> bool:
    # A file in a folder without read permission does not count as missing.
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # reading the file will report the error
    return False


def _is_model_path(text: str, folder: Path) -> bool:
    """Return True for the path of a model; False for a name such as ``ollama:llama3.2:1b``."""
    looks_like_path = text.lower().endswith(".gguf") and not text.startswith("hf:")
    return looks_like_path or text.startswith((".", "/", "~")) or (folder / text).exists()
