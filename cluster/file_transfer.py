"""Files that workers need: a node that lacks them gets them through Ray's object store, once for all workers."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .connection import import_ray
from .errors import ClusterError

try:
    from fcntl import LOCK_EX, flock
except ImportError:  # Windows has no flock: there two workers may write the same folder, each its own
    flock = None  # type: ignore[assignment]

_CHUNK_BYTES = 64 * 2**20
_PARTIAL = ".partial"


class MissingFileError(Exception):
    """A file that a worker needs is not on its node."""


@dataclass(frozen=True)
class PublishedFile:
    """A file in the object store.

    Attributes: ``path``: where the driver has it; ``digest``: its SHA-256, in hexadecimal; ``chunks``: references
    of its bytes, in order.
    """

    path: Path
    digest: str
    chunks: tuple[Any, ...]


@dataclass(frozen=True)
class NeededFiles:
    """The files that services need.

    Attributes: ``sizes``: in bytes, by the path where the driver has them; ``published``: the same files in the
    object store; None: they are not there.
    """

    sizes: dict[Path, int]
    published: tuple[PublishedFile, ...] | None = None

    def find(self, path: Path) -> Path:
        """Return where this node has a file, which is written if it is in the object store.

        Raises ``MissingFileError`` if it is nowhere, ``ClusterError`` if it cannot be written.
        """
        if self.published is None:
            if path.is_file() and path.stat().st_size == self.sizes[path]:
                return path
            raise MissingFileError
        return _write_once(self.published) / _place(path, self.published)


def needed_files(paths: Sequence[Path]) -> NeededFiles:
    """Return files of this machine as what services need."""
    return NeededFiles({path: path.stat().st_size for path in paths})


def publish(files: NeededFiles) -> NeededFiles:
    """Put the files into the object store. Raises ``ClusterError``."""
    try:
        return NeededFiles(files.sizes, tuple(_publish(path) for path in files.sizes))
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None


def _publish(path: Path) -> PublishedFile:
    ray = import_ray()
    digest, chunks = hashlib.sha256(), []
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            chunks.append(ray.put(chunk))
    return PublishedFile(path, digest.hexdigest(), tuple(chunks))


def _place(path: Path, files: Sequence[PublishedFile]) -> Path:
    """Where a file lies in the folder of all: the parts of a split model stay together, under their names."""
    folders = sorted({file.path.parent for file in files})
    return Path(str(folders.index(path.parent)), path.name)


def _write_once(files: Sequence[PublishedFile]) -> Path:
    """Write the files into a folder of this node that their checksums name, unless it is there; return it."""
    names = "\n".join(f"{_place(file.path, files)} {file.digest}" for file in files)
    folder = _cache_folder() / hashlib.sha256(names.encode()).hexdigest()
    partial = folder.with_name(folder.name + _PARTIAL)
    try:
        with _locked(folder):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)  # what a worker left that died
                for file in files:
                    _write(file, partial / _place(file.path, files))
                partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise ClusterError(f"the model cannot be written on a node: {folder}: {error.strerror}") from None
    return folder


def _write(file: PublishedFile, path: Path) -> None:
    ray = import_ray()
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as output:
        for chunk in file.chunks:
            data = ray.get(chunk)
            digest.update(data)
            output.write(data)
        output.flush()
        os.fsync(output.fileno())
    if digest.hexdigest() != file.digest:
        raise ClusterError(f"{file.path.name} changed while it was sent to a node; start again")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "logitsmith" / "cluster"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process of this node write the folder at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("wb") as lock:
        if flock is not None:
            flock(lock, LOCK_EX)
        yield
