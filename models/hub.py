"""Hugging Face's HubRepository: what a repository holds, and downloads that can be resumed.

``huggingface_hub`` lists the repository, finds the user's token, makes the requests and lays out the cache. Its
own download starts from nothing in each process, and compares no checksum of what it gets by HTTP. Both are
done here: a file that is not complete is kept, and is continued by a request for the rest of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..common.files import write_file_atomically
from ..common.text import count_noun, without_error_number
from .errors import ModelError
from .listing import repository_folder
from .names import is_model_file_name, part_paths

if TYPE_CHECKING:
    from .resolve import HubReference

if find_spec("huggingface_hub") is not None:  # without the extra, `pull_model` says how to install it
    import huggingface_hub
    from huggingface_hub import constants, errors
    from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status, logging

_MAX_TRIES_WITHOUT_PROGRESS = 5
"""Tries in a row that bring no byte, before the download gives up."""
_RETRY_SECONDS = 1.0
_READ_TIMEOUT_SECONDS = 30.0
"""Time without a byte after which a connection counts as broken, and is replaced by a new one."""
_STALL_SECONDS = 60.0
"""Time without a byte, over all connections, after which a download ends with an error. The manual names it."""
_MIN_TIMEOUT_SECONDS = 0.01
_MAX_SIZE_DIGITS = 18
_LOCK_SECONDS = 0.5
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""Names of commits and of files' contents; they become names of files here, so nothing else is taken."""
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416


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
    hub = HubRepository(reference)
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
    models = [path for path in paths if is_model_file_name(path)]
    if not models:
        return f"{reference}: the repository holds no GGUF file; look for one whose name ends in -GGUF"
    listed = ", ".join(models[:12]) + (f" and {len(models) - 12} more" if len(models) > 12 else "")
    return f"{reference}: no file fits; the repository has {listed}"


def _pull_file(hub: HubRepository, file: HubFile, progress: Progress) -> Path:
    """Download one file if it is not there; returns its path in the cache."""
    target = hub.snapshot / file.path
    if target.is_file() and target.stat().st_size == file.size:
        return target
    if file.size <= 0:
        raise ModelError(f"{file.path}: the hub announces no size for this file; give another one")
    blob = hub.folder / "blobs" / hub.blob_name(file)
    with hub.lock(blob.name):
        if not blob.is_file():
            with hub.as_model_errors():
                blob.parent.mkdir(parents=True, exist_ok=True)
            _download_blob(hub, file, blob, progress)
    return hub.link_into_snapshot(file)


def _download_blob(hub: HubRepository, file: HubFile, blob: Path, progress: Progress) -> None:
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
    _verify_checksum(file, incomplete, progress)
    incomplete.replace(blob)


_CHECK_BYTES = 1 << 20
"""Of a file that are hashed at a time."""


def _verify_checksum(file: HubFile, path: Path, progress: Progress) -> None:
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


class HubFile(NamedTuple):
    """A file of a repository.

    ``path``: in it; ``size``: bytes; ``sha256``: None for a file that is not in large-file storage; ``git_name``:
    git's name of the file, of a large one that of its pointer.
    """

    path: str
    size: int
    sha256: str | None
    git_name: str


class HubRepository:
    """A repository on the hub, at the commit that `list_files` found.

    Attributes: ``folder``, that of the repository in the cache; ``snapshot``, that of the commit.
    """

    def __init__(self, reference: HubReference) -> None:
        logging.set_verbosity_error()  # what goes wrong is said here
        self._reference = reference
        self._cache = Path(constants.HF_HUB_CACHE)
        self._commit = ""
        self.folder = repository_folder(self._cache, reference.repository)

    @property
    def snapshot(self) -> Path:
        """The folder of the commit in the cache."""
        return self.folder / "snapshots" / self._commit

    def list_files(self) -> list[HubFile]:
        """Return the files of the repository's main branch. Raises ``ModelError``."""
        with self.as_model_errors():
            info = huggingface_hub.HfApi().model_info(
                self._reference.repository, files_metadata=True, timeout=_READ_TIMEOUT_SECONDS
            )
        self._commit = self._require_checksum(str(info.sha))
        return [
            HubFile(file.rfilename, int(file.size or 0), file.lfs.sha256 if file.lfs else None, str(file.blob_id))
            for file in info.siblings or ()
        ]

    def blob_name(self, file: HubFile) -> str:
        """Return the name of a file's content in the cache: its checksum. Raises ``ModelError``.

        The hub is asked a second time, for this file alone. Its two answers must agree.
        """
        with self.as_model_errors():
            metadata = huggingface_hub.get_hf_file_metadata(
                self._url(file), token=huggingface_hub.get_token(), timeout=_READ_TIMEOUT_SECONDS
            )
        expected = self._require_checksum(file.sha256 or file.git_name)
        if metadata.size not in (None, file.size) or metadata.etag != expected:
            raise ModelError(
                f"{file.path}: the hub's answers disagree: {file.size:,} bytes with the checksum {expected[:16]}…"
                f" by its list, {metadata.size or 0:,} with {str(metadata.etag)[:16]}… by the file"
            )
        return expected

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other processes from downloading the same file. Raises ``ModelError`` if one does."""
        path = self._cache / ".locks" / self.folder.name / f"{name}.lock"
        with self.as_model_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with WeakFileLock(path, timeout=_LOCK_SECONDS):
                yield
        except TimeoutError:
            raise ModelError(f"{self._reference}: another process is downloading it; wait for that") from None

    def download(self, file: HubFile, path: Path, report: Callable[[int], object]) -> None:
        """Append what is missing of a file, by another connection where one breaks.

        Args:
            file: Which file.
            path: Where it goes; it may hold the beginning.
            report: Called with the bytes that are there.

        Raises ``ModelError``: also for a size that is not the announced one, and when no byte arrives for a while.
        """
        fruitless = most = 0
        stall_timer = _StallTimer()
        while True:
            before = path.stat().st_size if path.exists() else 0
            report(before)
            if before == file.size:
                return
            most = max(most, before)
            problem = self._download_rest(file, path, before, report, stall_timer)
            after = path.stat().st_size
            if after > file.size:
                path.unlink()
                raise _wrong_size(file, f"{after:,} were received")
            if after == file.size:
                continue
            # A hub without ranges begins again each time: only more bytes than ever before are progress.
            fruitless = 0 if after > most else fruitless + 1
            is_stalled = stall_timer.seconds_left <= 0
            if fruitless == _MAX_TRIES_WITHOUT_PROGRESS or is_stalled:
                end = f"none for {_STALL_SECONDS:g} seconds" if is_stalled else problem
                raise ModelError(
                    f"{file.path}: {after:,} of {file.size:,} bytes were received, then {end};"
                    " they are kept, and the same command continues from there"
                )
            time.sleep(_RETRY_SECONDS)

    def link_into_snapshot(self, file: HubFile) -> Path:
        """Let the snapshot name a file that is in the cache; returns its path there. Raises ``ModelError``."""
        with self.as_model_errors():
            repository = self._reference.repository
            path = huggingface_hub.hf_hub_download(repository, file.path, revision=self._commit)
        reference = self.folder / "refs" / "main"
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(reference, lambda stream: stream.write(self._commit.encode()))
        return Path(path)

    def _download_rest(
        self, file: HubFile, path: Path, start: int, report: Callable[[int], object], stall_timer: _StallTimer
    ) -> str:
        """Request what is missing once. Returns why the transfer ended, in words."""
        headers = {**build_hf_headers(library_name="logitsmith"), "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        done = start
        with path.open("ab") as target, self.as_model_errors():
            try:
                session = huggingface_hub.get_session()
                timeout = min(_READ_TIMEOUT_SECONDS, max(stall_timer.seconds_left, _MIN_TIMEOUT_SECONDS))
                with session.stream("GET", self._url(file), headers=headers, timeout=timeout) as answer:
                    if answer.status_code != _RANGE_NOT_SATISFIABLE:
                        hf_raise_for_status(answer)
                    sent_size = _response_file_bytes(answer.status_code, answer.headers)
                    if sent_size not in (None, file.size):
                        raise _wrong_size(file, f"sends {sent_size:,}")
                    if start and answer.status_code != _PARTIAL_CONTENT:
                        target.truncate(0)  # the whole file comes, or nothing fits what is there
                        done = 0
                    for chunk in answer.iter_bytes():
                        stall_timer.restart()
                        target.write(chunk)
                        done += len(chunk)
                        report(done)
                        if done > file.size:
                            break
            except errors.HTTPError as error:  # that of its HTTP library
                if getattr(error, "response", None) is not None:
                    raise
                return f"the connection broke ({_error_sentence(error)})"
        return "the connection ended"

    def _require_checksum(self, checksum: str) -> str:
        if _CHECKSUM.fullmatch(checksum) is None:
            raise ModelError(f"{self._reference}: the hub names {checksum[:80]!r} where a checksum should stand")
        return checksum

    def _url(self, file: HubFile) -> str:
        return str(huggingface_hub.hf_hub_url(self._reference.repository, file.path, revision=self._commit))

    @contextmanager
    def as_model_errors(self) -> Iterator[None]:
        """Turn what ``huggingface_hub`` raises into ``ModelError``."""
        reference, address = self._reference, constants.ENDPOINT.partition("://")[2] or "the hub"
        has_token = bool(huggingface_hub.get_token())
        try:
            yield
        except errors.OfflineModeIsEnabled:
            raise ModelError(f"{reference}: HF_HUB_OFFLINE is set, so nothing is downloaded") from None
        except errors.GatedRepoError:
            page = f"{constants.ENDPOINT}/{reference.repository}"
            login = "" if has_token else ", then set HF_TOKEN or run `hf auth login`"
            raise ModelError(f"{reference}: its author lets people in one by one: ask on {page}{login}") from None
        except errors.RepositoryNotFoundError:
            login = "your token may not read it" if has_token else "set HF_TOKEN or run `hf auth login`"
            raise ModelError(f"{reference}: {address} has no such repository, or it is private: {login}") from None
        except errors.HFValidationError as error:
            raise ModelError(f"{reference}: {error}") from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            raise ModelError(
                f"{reference}: {address} answers with HTTP status {status}; try again later"
            ) from None
        except errors.LocalEntryNotFoundError:
            raise ModelError(f"{reference}: {address} no longer names this file; try again") from None
        except errors.HTTPError as error:
            raise ModelError(f"{reference}: {address} cannot be reached ({_error_sentence(error)})") from None
        except OSError as error:
            place = error.filename or self._cache
            raise ModelError(f"{place}: {os.strerror(error.errno) if error.errno else error}") from None


class _StallTimer:
    """The time that is left until a download without a byte ends."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Restart the measurement, because bytes have arrived."""
        self._end = time.monotonic() + _STALL_SECONDS

    @property
    def seconds_left(self) -> float:
        """Seconds; negative when the time is over."""
        return self._end - time.monotonic()


def _response_file_bytes(status: int, headers: Mapping[str, str]) -> int | None:
    """Return the size of the whole file by the headers of a response, in bytes; None if they do not name it."""
    is_part = status in (_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE)
    text = headers.get("Content-Range", "").rpartition("/")[2] if is_part else headers.get("Content-Length", "")
    is_encoded = headers.get("Content-Encoding", "identity") != "identity"  # the length is then another one
    is_size = text.isascii() and text.isdecimal() and len(text) <= _MAX_SIZE_DIGITS
    return int(text) if is_size and not is_encoded else None


def _wrong_size(file: HubFile, what: str) -> ModelError:
    return ModelError(f"{file.path}: the hub announced {file.size:,} bytes, but {what}; pull again later")


def _error_sentence(error: Exception) -> str:
    """The sentence of an error of the network, without the number that Python puts before it."""
    return without_error_number(" ".join(str(error).split())) or type(error).__name__
