"""What ``-m`` takes: the models of this machine by name, and GGUF files. No header of a file is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...common.errors import LogitsmithError
from .reply import Candidate, Reply, matching

_SUFFIX = ".gguf"


def complete_model(value: str) -> Reply:
    """Return names and paths that begin with the value; behind a tilde, which shells replace, files only."""
    if value.startswith("~"):
        return Reply([], file_suffix=_SUFFIX)
    return Reply(matching([*_names(), *_paths(value)], value))


def _names() -> list[Candidate]:
    from ...models.listing import list_models
    from ...presets.user_config import configured_model_folders

    try:
        folders = configured_model_folders()
    except LogitsmithError:  # a config that cannot be read: the command says so
        folders = []
    return [Candidate(entry.name, entry.source) for entry in list_models(folders)]


def _paths(value: str) -> Iterator[Candidate]:
    """The folders and GGUF files beside what is typed; those that are hidden only behind a dot."""
    typed_folder, slash, start = value.rpartition("/")
    try:
        paths = sorted(Path(typed_folder + slash).iterdir())
    except OSError:  # there is no such folder, or it may not be read
        return
    for path in paths:
        if path.name.startswith(".") and not start.startswith("."):
            continue
        if path.is_dir():
            yield Candidate(f"{typed_folder}{slash}{path.name}/", "folder")
        elif path.name.lower().endswith(_SUFFIX):
            yield Candidate(f"{typed_folder}{slash}{path.name}", "file")
