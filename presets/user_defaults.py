"""The user's defaults: config.yaml in the user's configuration folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import PresetError
from .messages import check_keys, field_message
from .search import is_path
from .written_config import absolute_path, config_file, read_config


class UserConfig(BaseModel):
    """The user's config.yaml; its fields are the keys of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    needed: ClassVar[Mapping[str, str]] = {
        "model": "a path or a model's name",
        "preset": "a name or a path",
        "model_folders": "a list of folders",
    }
    """What each key takes, in words, for messages."""

    model: str | None = Field(
        default=None, min_length=1, description="path or name of the model, if none is given"
    )
    preset: str | None = Field(default=None, min_length=1, description="name of the preset, if none is given")
    model_folders: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="folders in which models are looked for, besides other tools'",
    )


def user_config() -> UserConfig:
    """Return the user's configuration; an empty one if there is no file.

    A path may begin with ``~``; a relative one counts from the file's folder. A ``model`` that looks like no path
    is a name, and left as it is. Raises ``PresetError`` that names
    the file and the key, for an unknown key and for a value that is not allowed, and if the file cannot
    be read.
    """
    path = config_file()
    origin = str(path)
    table = read_config()
    try:
        check_keys(UserConfig, table)
        config = UserConfig.model_validate(table)
    except ValidationError as error:
        raise PresetError(f"{origin}: {field_message(error, table, UserConfig.needed)}") from None
    except PresetError as error:
        raise PresetError(f"{origin}: {error}") from None
    preset = config.preset
    if preset is not None and is_path(preset):
        preset = absolute_path(preset)
    model = config.model
    if model is not None and _is_model_path(model, path.parent):
        model = absolute_path(model)
    folders = tuple(absolute_path(folder) for folder in config.model_folders)
    return UserConfig(model=model, preset=preset, model_folders=folders)


def _is_model_path(text: str, folder: Path) -> bool:
    """True for a path of a model; False for a name such as ``ollama:llama3.2:1b``."""
    looks_like_path = text.lower().endswith(".gguf") and not text.startswith("hf:")
    return looks_like_path or text.startswith((".", "/", "~")) or (folder / text).exists()
