"""A file of another tool, written for the test, and its import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logitsmith.presets import ImportedPreset, import_preset

Load = Callable[..., ImportedPreset]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Import a text, bytes, or an object that becomes JSON."""

    def write_and_import(content: Any, form: str | None = None, section: str | None = None) -> ImportedPreset:
        path = tmp_path / "theirs"
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return import_preset(path, form, section)

    return write_and_import
