"""The JSON Schema of a preset file, for editors, made from the fields of `Preset` and of every sampler."""

from __future__ import annotations

from typing import Any

from ..samplers.base import Sampler
from ..samplers.registry import catalogue
from .preset import Preset


def preset_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a preset file, with descriptions, ranges and defaults."""
    samplers = catalogue()
    schema = Preset.model_json_schema()
    schema["properties"]["chain"].update(_chain_schema(samplers))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "$defs": {name: _parameters_schema(cls) for name, cls in samplers.items()},
    }


def _chain_schema(samplers: dict[str, type[Sampler]]) -> dict[str, Any]:
    samplers_by_name = {spelling: cls for cls in samplers.values() for spelling in _name_spellings(cls)}
    name_only = {"enum": list(samplers_by_name), "description": "a sampler with its default parameters"}
    step_text = {"type": "string", "pattern": "[0-9(=]", "description": "a step in the compact notation: temp0.8"}
    step_schemas = [name_only, step_text, *(_step_schema(name, cls) for name, cls in samplers_by_name.items())]
    return {
        "anyOf": [
            {"type": "array", "items": {"anyOf": step_schemas}},
            {"type": "string", "description": "the compact notation: top_k40 > top_p0.95 > temp0.8"},
        ]
    }


def _name_spellings(cls: type[Sampler]) -> list[str]:
    names = [cls.about.name, *cls.about.aliases]
    return list(dict.fromkeys([*names, *(name.replace("_", "-") for name in names)]))


def _step_schema(spelling: str, cls: type[Sampler]) -> dict[str, Any]:
    """Return the schema of a step: ``{name: main value}``, ``{name: {parameters}}`` or ``{name: null}``."""
    about = cls.about
    value_schemas: list[dict[str, Any]] = [{"$ref": f"#/$defs/{about.name}"}, {"type": "null"}]
    if about.main_parameter is not None:
        value_schemas.insert(0, _parameters_schema(cls)["properties"][about.main_parameter])
    return {
        "type": "object",
        "description": about.summary,
        "properties": {spelling: {"anyOf": value_schemas}},
        "required": [spelling],
        "additionalProperties": False,
    }


def _parameters_schema(cls: type[Sampler]) -> dict[str, Any]:
    schema = cls.model_json_schema()
    schema["description"] = f"{cls.about.summary}: {cls.about.formula}"
    schema["title"] = cls.about.name
    for field in schema["properties"].values():
        field.pop("title", None)
    return schema
