"""The keys of the user's config.yaml, with messages for wrong keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .preset import validated

# the allowed values of each key, as noun phrases for messages
_ALLOWED_VALUES = {
    "model": "a path or a model's name",
    "preset": "a name or a path",
    "model_folders": "a list of folders",
}


class ConfigTable(BaseModel):
    """The keys and values of config.yaml, as the file gives them; see `UserConfig`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str | None = Field(default=None, min_length=1)
    preset: str | None = Field(default=None, min_length=1)
    model_folders: tuple[str, ...] = Field(default=(), strict=False)

    @classmethod
    def checked(cls, table: Mapping[Any, Any], origin: str) -> ConfigTable:
        """Return the validated table of a file. Raises ``PresetError`` that begins with ``origin``."""
        return validated(cls, table, origin, _ALLOWED_VALUES)
