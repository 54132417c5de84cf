"""Write cli/completion/samplers.json, from which the completion in shells reads the samplers and their parameters.

python tools/sampler_names.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from logitsmith.samplers import Sampler, catalogue

FILE = Path(__file__).resolve().parent.parent / "cli" / "completion" / "samplers.json"


def file_text() -> str:
    """Return the text that the file should contain."""
    table = {name: _facts(cls) for name, cls in catalogue().items()}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _facts(cls: type[Sampler]) -> dict[str, Any]:
    fields = cls.model_fields
    choices = {name: _choices(field.annotation) for name, field in fields.items()}
    return {
        "summary": cls.about.summary,
        "main": cls.about.main_parameter,
        "parameters": {name: field.description or "" for name, field in fields.items()},
        "choices": {name: values for name, values in choices.items() if values},
    }


def _choices(annotation: Any) -> list[str]:
    if annotation is bool:
        return ["true", "false"]
    if get_origin(annotation) is not Literal:
        return []
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in get_args(annotation)]


if __name__ == "__main__":
    FILE.write_text(file_text(), encoding="utf-8")
