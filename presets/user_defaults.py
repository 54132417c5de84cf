"""The user's defaults: config.yaml in the user's configuration folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import PresetError
from .messages import check_keys, field_message
from .search import config_folder, is_path
from .yaml_reader import read_table


class UserConfig(BaseModel):
    """The user's config.yaml; its fields are the keys of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    needed: ClassVar[Mapping[str, str]] = {"model": "a path", "preset": "a name or a path"}
    """What each key takes, in words, for messages."""

    model: str | None = Field(default=None, min_length=1, description="path of the model, if none is given")
    preset: str | None = Field(default=None, min_length=1, description="name of the preset, if none is given")


def user_config() -> UserConfig:
    """Return the user's configuration; an empty one if there is no file.

    A path may begin with ``~``; a relative one counts from the file's folder. Raises ``PresetError`` that names
    the file and the key, for an unknown key and for a value that is not allowed, and if the file cannot
    be read.
    """
    path = config_folder() / "config.yaml"
    origin = str(path)
    table = {} if _is_missing(path) else read_table(path, origin, empty={})
    try:
        check_keys(UserConfig, table)
        config = UserConfig.model_validate(table)
    except ValidationError as error:
        raise PresetError(f"{origin}: {field_message(error, table, UserConfig.needed)}") from None
    except PresetError as error:
        raise PresetError(f"{origin}: {error}") from None
    preset = config.preset
    if preset is not None and is_path(preset):
        preset = _absolute(preset, path.parent)
    model = None if config.model is None else _absolute(config.model, path.parent)
    return UserConfig(model=model, preset=preset)


def _is_missing(path: Path) -> bool:
    """True if there is no such file. A file in a folder without permission is not missing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # reading reports it
    return False


def _absolute(text: str, folder: Path) -> str:
    try:
        return str(folder / Path(text).expanduser())
    except RuntimeError:  # ~name of an unknown user: opening the file reports it
        return text
