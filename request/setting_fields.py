"""Fields of requests that hold the values of settings, made from the table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import create_model

from ..common.strict_model import StrictModel
from ..presets.setting_table import SETTINGS


def setting_fields(setting_by_field: Mapping[str, str]) -> type[StrictModel]:
    """Return a model whose fields hold the values of settings, by the table of settings."""
    fields: dict[str, Any] = {
        field: (SETTINGS[name].kind.field_type, None) for field, name in setting_by_field.items()
    }
    return create_model("SettingFields", __base__=StrictModel, **fields)
