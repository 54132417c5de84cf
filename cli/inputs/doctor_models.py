"""The models on this machine, for `gen doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .examination import Examination

if TYPE_CHECKING:
    from ...presets.user_config import UserConfig

_FOLDER_ADVICE = "let the folder be read, or correct model_folders: in config.yaml"


def model_folders(config: UserConfig) -> list[dict[str, Any]]:
    """The folders in which models are looked for: those of other tools that exist, and the user's own."""
    from ...models.listing import tool_folders

    folders = [path for path in tool_folders() if path.is_dir()] + [Path(text) for text in config.model_folders]
    return [{"of": "models", "path": os.fspath(path), "exists": path.is_dir()} for path in folders]


def list_found_models(examination: Examination, config: UserConfig) -> list[dict[str, str]]:
    """Each model with the tool that has it. No header is read."""
    from ...models.listing import list_models

    entries = list_models(config.model_folders, lambda sentence: examination.report(sentence, _FOLDER_ADVICE))
    return [{"name": entry.name, "origin": entry.source} for entry in sorted(entries, key=lambda e: e.source)]


def default_model(examination: Examination, config: UserConfig) -> dict[str, Any] | None:
    """The model that a run without -m takes; None if there is none."""
    try:
        from ...models.folders import locate
        from ...models.gguf import check_gguf
        from ...models.resolve import resolve_model
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # reported as a problem of llama.cpp
    located = examination.attempt("one of these", lambda: locate(None, config.model))
    if located is None:
        return None
    path, origin = located
    advice = "name another model: -m MODEL, $GEN_MODEL, or model: in config.yaml"
    if not path.is_file():  # a name, as for -m
        path = examination.attempt(advice, lambda: resolve_model(str(path), config.model_folders)) or path
    if path.exists() or path.suffix == ".gguf":
        examination.attempt(advice, lambda: check_gguf(path))
    size = path.stat().st_size if path.is_file() else None
    return {"path": os.fspath(path), "origin": origin, "size_bytes": size}
