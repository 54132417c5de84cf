"""Files that workers need: found there, or sent to them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from .connection import import_ray
from .tasks import ClusterError, first_line

_CHUNK_BYTES = 64 * 2**20
_SAMPLES, _SAMPLE_BYTES = 64, 2**14
"""So many pieces of a file, from its beginning to its end, tell it from another one."""
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

    Attributes: ``samples``: the `_sample_digest` of each, by the path where the driver has it; ``published``: the
    same files in the object store; None: they are not there.
    """

    samples: dict[Path, str]
    published: tuple[PublishedFile, ...] | None = None

    def find(self, path: Path) -> Path:
        """Return where this node has a file, which is written if it is in the object store.

        Raises ``MissingFileError`` if it is nowhere, ``ClusterError`` if it cannot be written.
        """
        if self.published is None:
            with suppress(OSError):
                if _sample_digest(path) == self.samples[path]:
                    return path
            raise MissingFileError
        return _write_to_cache(self.published) / _relative_path(path, self.published)


def needed_files(paths: Sequence[Path]) -> NeededFiles:
    """Return files of this machine as what services need. Raises ``ClusterError``."""
    try:
        return NeededFiles({path: _sample_digest(path) for path in paths})
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None


def _sample_digest(path: Path) -> str:
    """Return SHA-256, in hexadecimal, of a file's size and of samples of its bytes: a gigabyte takes milliseconds.

    It tells another model at the same path. The copies that are sent are checked whole. Raises ``OSError``.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = hashlib.sha256(str(size).encode())
        for sample in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def publish(files: NeededFiles) -> NeededFiles:
    """Put the files into the object store. Raises ``ClusterError``."""
    try:
        return NeededFiles(files.samples, tuple(_publish(path) for path in files.samples))
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None
    except import_ray().exceptions.RayError as error:
        raise ClusterError(f"the model does not go into Ray's object store: {first_line(error)}") from None


def _publish(path: Path) -> PublishedFile:
    ray = import_ray()
    digest, chunks = hashlib.sha256(), []
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            chunks.append(ray.put(chunk))
    return PublishedFile(path, digest.hexdigest(), tuple(chunks))


def _relative_path(path: Path, files: Sequence[PublishedFile]) -> Path:
    """Where a file lies in the folder of all: the parts of a split model stay together, under their names."""
    folders = sorted({file.path.parent for file in files})
    return Path(str(folders.index(path.parent)), path.name)


def _write_to_cache(files: Sequence[PublishedFile]) -> Path:
    """Write the files into a folder of this node that their checksums name, unless it is there; return it."""
    names = "\n".join(f"{_relative_path(file.path, files)} {file.digest}" for file in files)
    folder = _cache_folder() / hashlib.sha256(names.encode()).hexdigest()
    partial = folder.with_name(folder.name + _PARTIAL)
    try:
        with _locked(folder):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)  # what a worker left that died
                for file in files:
                    _write(file, partial / _relative_path(file.path, files))
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
        raise ClusterError(f"{file.path.name} did not arrive whole on a node; start again")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "logitsmith" / "cluster"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process of this node write the folder at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("wb") as lock:
        flock(lock, LOCK_EX)
        yield
