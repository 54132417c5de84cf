"""The file of the user's configuration, as it is written. It imports little: completion in shells needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .search import config_folder


def config_file() -> Path:
    """The file of the user's configuration, which need not exist."""
    return config_folder() / "config.yaml"


def read_config() -> dict[Any, Any]:
    """Return the file's keys and values, unchecked; none if there is no file. Raises ``PresetError``."""
    path = config_file()
    if _is_missing(path):
        return {}
    from .yaml_reader import read_table  # noqa: PLC0415 - few have a file, and PyYAML takes 10 ms

    return read_table(path, str(path), empty={})


def configured_model_folders() -> list[str]:
    """Return the folders under ``model_folders``, those that are texts. Raises ``PresetError``."""
    folders = read_config().get("model_folders")
    return (
        [absolute_path(folder) for folder in folders if isinstance(folder, str)]
        if isinstance(folders, list)
        else []
    )


def absolute_path(text: str) -> str:
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
