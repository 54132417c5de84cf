"""Transfer of files, such as models, to the nodes of a cluster that do not have them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from .connection import import_ray
from .tasks import ClusterError, first_error_line

_CHUNK_BYTES = 64 * 2**20
# Number and size of the samples of a file that identify it. They are spread evenly over the file.
_SAMPLE_COUNT = 64
_SAMPLE_BYTES = 2**14
_PARTIAL_SUFFIX = ".partial"  # Ending of the name of a cache folder that is still being written


class MissingFileError(Exception):
    """A file that a worker needs does not exist on the worker's node."""


@dataclass(frozen=True)
class PublishedFile:
    path: Path  # path of the file on the driver's machine
    digest: str  # SHA-256 of the content, in hexadecimal
    chunks: tuple[Any, ...]  # references of the content's parts in the object store, in the order of the file


@dataclass(frozen=True)
class NeededFiles:
    """The files that services need."""

    sample_digests: dict[Path, str]  # the `_sample_digest` of each file, by its path on the driver's machine
    # the same files in the object store; None before they are put there
    published_files: tuple[PublishedFile, ...] | None = None

    def find(self, path: Path) -> Path:
        """Return the path of a file on this node, after copying it from the object store if necessary."""
        # Raises ``MissingFileError`` if the file exists neither on this node nor in the object store, and
        # ``ClusterError`` if it cannot be written.
        if self.published_files is None:
            with suppress(OSError):
                if _sample_digest(path) == self.sample_digests[path]:
                    return path
            raise MissingFileError
        return _write_to_cache(self.published_files) / _relative_path(path, self.published_files)


def needed_files(paths: Sequence[Path]) -> NeededFiles:
    """Return the description of these files, so that workers can find them. Raises ``ClusterError``."""
    try:
        return NeededFiles({path: _sample_digest(path) for path in paths})
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None


def _sample_digest(path: Path) -> str:
    """Return SHA-256, in hexadecimal, of a file's size and of samples of its bytes."""
    # The digest shows whether another model has the same path on a node. Reading samples takes milliseconds, even
    # for gigabytes. Copies that are sent to a node are checked by the digest of all bytes. Raises ``OSError``.
    with path.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        last_offset = max(0, size_bytes - _SAMPLE_BYTES)
        digest = hashlib.sha256(str(size_bytes).encode())
        for sample_number in range(_SAMPLE_COUNT):
            file.seek(last_offset * sample_number // (_SAMPLE_COUNT - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def publish_files(files: NeededFiles) -> NeededFiles:
    """Put the files into the object store, and return their description. Raises ``ClusterError``."""
    try:
        published_files = tuple(_publish_file(path) for path in files.sample_digests)
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None
    except import_ray().exceptions.RayError as error:
        raise ClusterError(f"the model cannot be put into Ray's object store: {first_error_line(error)}") from None
    return replace(files, published_files=published_files)


def _publish_file(path: Path) -> PublishedFile:
    ray = import_ray()
    digest = hashlib.sha256()
    chunks: list[Any] = []
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            chunks.append(ray.put(chunk))
    return PublishedFile(path, digest.hexdigest(), tuple(chunks))


def _relative_path(path: Path, files: Sequence[PublishedFile]) -> Path:
    """Return the path of a file in the cache folder of these files, relative to this folder."""
    # The parts of a split model stay in one folder and keep their names, because llama.cpp finds them by their
    # names.
    folders = sorted({file.path.parent for file in files})
    return Path(str(folders.index(path.parent)), path.name)


def _write_to_cache(files: Sequence[PublishedFile]) -> Path:
    """Return the cache folder of these files on this node, after writing the folder if it does not exist."""
    # The name of the folder is a digest of the files' digests.
    file_list = "\n".join(f"{_relative_path(file.path, files)} {file.digest}" for file in files)
    folder = _cache_folder() / hashlib.sha256(file_list.encode()).hexdigest()
    partial_folder = folder.with_name(folder.name + _PARTIAL_SUFFIX)
    try:
        with _folder_lock(folder):
            if not folder.is_dir():
                # A worker may have crashed while it wrote the folder.
                shutil.rmtree(partial_folder, ignore_errors=True)
                for file in files:
                    _write_file(file, partial_folder / _relative_path(file.path, files))
                partial_folder.rename(folder)
    except OSError as error:
        shutil.rmtree(partial_folder, ignore_errors=True)
        raise ClusterError(f"the model cannot be written on a node: {folder}: {error.strerror}") from None
    return folder


def _write_file(file: PublishedFile, path: Path) -> None:
    """Write a file from the object store and check its digest. Raises ``ClusterError`` and ``OSError``."""
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
        raise ClusterError(f"{file.path.name} arrived damaged on a node; start the command again")


def _cache_folder() -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "logitsmith" / "cluster"


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Hold a lock while inside, so that only one process of this node writes the folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("wb") as lock:
        flock(lock, LOCK_EX)
        yield
