"""Downloads a model from Hugging Face's hub into Hugging Face's cache.

``huggingface_hub`` lists the repository, finds the user's token, makes the requests and lays out the cache. Its
own download starts from nothing in each process, and compares no checksum of what it gets by HTTP. Both are done
here: a file that is not complete is kept, and is continued by a request for the rest of it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...common.text import count_noun
from ..errors import ModelError
from .parts import part_paths
from .quantization import is_model_name

if TYPE_CHECKING:
    from .hub_requests import Hub, HubFile
    from .resolve import HubReference

_CHECK_BYTES = 1 << 20
"""Of a file that are hashed at a time."""


class PullProgress(NamedTuple):
    """How far a download is. ``file``: its name; ``is_checking``: the checksum of the whole file is computed."""

    file: str
    done_bytes: int
    total_bytes: int
    is_checking: bool = False


Progress = Callable[[PullProgress], object]


def can_pull() -> bool:
    """True if the extra ``hub`` is installed."""
    return find_spec("huggingface_hub") is not None


def pull_model(reference: HubReference, progress: Progress = lambda _: None) -> Path:
    """Download a model, all parts of a split one; returns its file, or the first part, in Hugging Face's cache.

    What is there already is not downloaded again. What an earlier call began is continued. The size of each file,
    and its SHA-256, must be those that the hub names.

    Args:
        reference: Which model.
        progress: Called again and again; what it raises ends the download, and what came so far is kept.

    Raises ``ModelError``.
    """
    if not can_pull():
        raise ModelError(f"{reference}: downloads need a Python package: pip install 'huggingface-hub>=2.4,<3'")
    from .hub_requests import Hub  # noqa: PLC0415 - it imports huggingface_hub, which is an extra

    hub = Hub(reference)
    files = {file.path: file for file in hub.list_files()}
    chosen = reference.choose(files)
    if chosen is None:
        raise ModelError(_no_such_file(reference, list(files)))
    names = [path.as_posix() for path in part_paths(Path(chosen))]
    missing = [name for name in names if name not in files]
    if missing:
        raise ModelError(f"{reference}: the repository lacks {missing[0]}, a part of the model")
    paths = [_pull_file(hub, files[name], progress) for name in names]
    return paths[0]


def _no_such_file(reference: HubReference, paths: list[str]) -> str:
    models = [path for path in paths if is_model_name(path)]
    if not models:
        return f"{reference}: the repository holds no GGUF file; look for one whose name ends in -GGUF"
    listed = ", ".join(models[:12]) + (f" and {len(models) - 12} more" if len(models) > 12 else "")
    return f"{reference}: no file fits; the repository has {listed}"


def _pull_file(hub: Hub, file: HubFile, progress: Progress) -> Path:
    """Download one file if it is not there; returns its path in the cache."""
    target = hub.snapshot / file.path
    if target.is_file() and target.stat().st_size == file.size:
        return target
    if file.size <= 0:
        raise ModelError(f"{file.path}: the hub announces no size for this file; give another one")
    blob = hub.folder / "blobs" / hub.blob_name(file)
    with hub.lock(blob.name):
        if not blob.is_file():
            with hub.errors_in_words():
                blob.parent.mkdir(parents=True, exist_ok=True)
            _fetch(hub, file, blob, progress)
    return hub.place(file)


def _fetch(hub: Hub, file: HubFile, blob: Path, progress: Progress) -> None:
    incomplete = blob.with_name(f"{blob.name}.incomplete")
    if incomplete.is_file() and incomplete.stat().st_size > file.size:
        incomplete.unlink()
    missing = file.size - (incomplete.stat().st_size if incomplete.is_file() else 0)
    free = shutil.disk_usage(blob.parent).free
    if free < missing:
        raise ModelError(
            f"{file.path}: {missing:,} bytes are to come; the disk of {blob.parent} has {free:,} free"
        )
    hub.download(file, incomplete, lambda done: progress(PullProgress(file.path, done, file.size)))
    _check(file, incomplete, progress)
    incomplete.replace(blob)


def _check(file: HubFile, path: Path, progress: Progress) -> None:
    """Compare the checksum; a file with another one is removed. Raises ``ModelError``."""
    if file.sha256 is not None:
        digest, expected = hashlib.sha256(), file.sha256
    else:  # a file that the repository holds itself: git's name of it is its checksum
        digest, expected = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False), file.git_name
    done = 0
    with path.open("rb") as stream:
        while block := stream.read(_CHECK_BYTES):
            digest.update(block)
            done += len(block)
            progress(PullProgress(file.path, done, file.size, is_checking=True))
    if digest.hexdigest() != expected:
        path.unlink()
        raise ModelError(
            f"{file.path}: what came is not what the hub has: its checksum is {digest.hexdigest()[:16]}…, and not"
            f" {expected[:16]}…; {count_noun(done, 'byte')} are removed, pull again"
        )
