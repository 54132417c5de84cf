"""Resumable downloads of models from Hugging Face's hub.

The package ``huggingface_hub`` lists the repository, finds the user's token, sends the requests and organizes the
cache. But its downloads restart from zero in each process, and compare no checksums. So this module downloads the
files. It keeps an incomplete file, requests the rest in a later call, and compares the checksum at the end.
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

from ..common.extras import install_command
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

_MAX_TRIES_WITHOUT_PROGRESS = 5  # maximum number of consecutive tries without a new byte; then the download fails
_RETRY_WAIT_SECONDS = 1.0
_READ_TIMEOUT_SECONDS = 30.0  # time without a byte after which a connection is replaced by a new one
# Time without a byte, over several connections, after which the download fails. The manual names this number.
_STALL_SECONDS = 60.0
_MIN_TIMEOUT_SECONDS = 0.01
_MAX_SIZE_DIGITS = 18
_LOCK_WAIT_SECONDS = 0.5
# Pattern of the names of commits and contents. They become file names, so anything else is rejected.
_CHECKSUM_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PARTIAL_CONTENT = 206  # statuses of HTTP
_RANGE_NOT_SATISFIABLE = 416
_MAX_LISTED_MODELS = 12  # maximum number of models that a message names


class PullProgress(NamedTuple):
    """The progress of a download.

    Attributes:
        file: name of the file.
        done_bytes: number of bytes that are downloaded, or checked.
        total_bytes: size of the file in bytes.
        is_checking: True if the download is complete, and the checksum is being computed.
    """

    file: str
    done_bytes: int
    total_bytes: int
    is_checking: bool = False


Progress = Callable[[PullProgress], object]


def can_pull() -> bool:
    """Return True if the extra ``hub`` is installed."""
    return find_spec("huggingface_hub") is not None


def pull_model(reference: HubReference, progress: Progress = lambda _: None) -> Path:
    """Download a model into Hugging Face's cache, and return its file, or the first part of a split model.

    Complete files are not downloaded again, and incomplete downloads are resumed. The size and the SHA-256 of each
    file must match the hub's information.

    Args:
        reference: the model.
        progress: called repeatedly with the progress. An exception that it raises ends the download; the
            downloaded bytes are kept.

    Raises ``ModelError`` if the download fails.
    """
    if not can_pull():
        raise ModelError(f"{reference}: downloads need the extra hub: {install_command('hub')}")
    hub = HubRepository(reference)
    files = {file.path: file for file in hub.list_files()}
    chosen_path = reference.choose(files)
    if chosen_path is None:
        raise ModelError(_no_fitting_file_message(reference, list(files)))
    part_names = [path.as_posix() for path in part_paths(Path(chosen_path))]
    missing_names = [name for name in part_names if name not in files]
    if missing_names:
        raise ModelError(f"{reference}: the repository lacks {missing_names[0]}, a part of the model")
    local_paths = [_pull_file(hub, files[name], progress) for name in part_names]
    return local_paths[0]


def _no_fitting_file_message(reference: HubReference, paths: list[str]) -> str:
    models = [path for path in paths if is_model_file_name(path)]
    if not models:
        return f"{reference}: the repository holds no GGUF file; look for one whose name ends in -GGUF"
    listed = ", ".join(models[:_MAX_LISTED_MODELS])
    if len(models) > _MAX_LISTED_MODELS:
        listed += f" and {len(models) - _MAX_LISTED_MODELS} more"
    return f"{reference}: no file fits; the repository has {listed}"


def _pull_file(hub: HubRepository, file: HubFile, progress: Progress) -> Path:
    """Download one file unless it is already in the cache; return its path in the cache."""
    target = hub.snapshot / file.path
    if target.is_file() and target.stat().st_size == file.size:
        return target
    if file.size <= 0:
        raise ModelError(f"{file.path}: the hub announces no size for this file; choose another file")
    blob = hub.folder / "blobs" / hub.blob_name(file)
    with hub.lock(blob.name):
        if not blob.is_file():
            with hub.as_model_errors():
                blob.parent.mkdir(parents=True, exist_ok=True)
            _download_blob(hub, file, blob, progress)
    return hub.link_into_snapshot(file)


def _download_blob(hub: HubRepository, file: HubFile, blob: Path, progress: Progress) -> None:
    partial_path = blob.with_name(f"{blob.name}.incomplete")
    partial_bytes = partial_path.stat().st_size if partial_path.is_file() else 0
    if partial_bytes > file.size:
        partial_path.unlink()
        partial_bytes = 0
    missing_bytes = file.size - partial_bytes
    free_bytes = shutil.disk_usage(blob.parent).free
    if free_bytes < missing_bytes:
        raise ModelError(
            f"{file.path}: {missing_bytes:,} bytes must be downloaded; the disk of {blob.parent} has"
            f" {free_bytes:,} bytes free"
        )
    hub.download(file, partial_path, lambda count: progress(PullProgress(file.path, count, file.size)))
    _verify_checksum(file, partial_path, progress)
    partial_path.replace(blob)


_HASHED_BLOCK_BYTES = 1 << 20  # number of bytes that are hashed at a time


def _verify_checksum(file: HubFile, path: Path, progress: Progress) -> None:
    """Compare the checksum of a file. If it differs, remove the file and raise ``ModelError``."""
    if file.sha256 is not None:
        expected_digest = file.sha256
        digest = hashlib.sha256()
    else:  # the file is in the git repository itself, and git's name of the file is its checksum
        expected_digest = file.git_name
        digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    hashed_bytes = 0
    with path.open("rb") as stream:
        while block := stream.read(_HASHED_BLOCK_BYTES):
            digest.update(block)
            hashed_bytes += len(block)
            progress(PullProgress(file.path, hashed_bytes, file.size, is_checking=True))
    if digest.hexdigest() != expected_digest:
        path.unlink()
        raise ModelError(
            f"{file.path}: the downloaded file differs from the hub's: its checksum is {digest.hexdigest()[:16]}…,"
            f" not {expected_digest[:16]}…; {count_noun(hashed_bytes, 'byte')} were removed, pull again"
        )


class HubFile(NamedTuple):
    """A file of a repository on the hub."""

    path: str  # path in the repository
    size: int
    sha256: str | None  # SHA-256 as hexadecimal digits; None for a file that is not in large-file storage
    git_name: str  # git's name (SHA-1) of the file, or of its pointer if it is in large-file storage


class HubRepository:
    """A repository on the hub, at the commit that `list_files` found."""

    def __init__(self, reference: HubReference) -> None:
        logging.set_verbosity_error()  # this module reports errors itself
        self._reference = reference
        self._cache = Path(constants.HF_HUB_CACHE)
        self._commit = ""
        self.folder = repository_folder(self._cache, reference.repository)  # folder of the repository in the cache

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
            HubFile(
                path=file.rfilename,
                size=int(file.size or 0),
                sha256=file.lfs.sha256 if file.lfs else None,
                git_name=str(file.blob_id),
            )
            for file in info.siblings or ()
        ]

    def blob_name(self, file: HubFile) -> str:
        """Return the name of a file's content in the cache, its checksum. Raises ``ModelError``."""
        # The hub's information about the single file must agree with its list of files.
        with self.as_model_errors():
            metadata = huggingface_hub.get_hf_file_metadata(
                self._url(file), token=huggingface_hub.get_token(), timeout=_READ_TIMEOUT_SECONDS
            )
        expected = self._require_checksum(file.sha256 or file.git_name)
        has_other_size = metadata.size is not None and metadata.size != file.size
        if has_other_size or metadata.etag != expected:
            raise ModelError(
                f"{file.path}: the hub contradicts itself: {file.size:,} bytes with the checksum {expected[:16]}…"
                f" in its list, {metadata.size or 0:,} with {str(metadata.etag)[:16]}… for the file"
            )
        return expected

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Prevent other processes from downloading the same file. Raises ``ModelError`` if a process does this."""
        path = self._cache / ".locks" / self.folder.name / f"{name}.lock"
        with self.as_model_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with WeakFileLock(path, timeout=_LOCK_WAIT_SECONDS):
                yield
        except TimeoutError:
            raise ModelError(
                f"{self._reference}: another process is downloading it; wait until it has finished"
            ) from None

    def download(self, file: HubFile, path: Path, report: Callable[[int], object]) -> None:
        """Append the missing bytes to a file. A connection that breaks is replaced by a new one."""
        # Raises ``ModelError`` if the download fails, if the size differs from the announced one, or if no byte
        # arrives for a while. ``report`` gets the number of bytes in the local file.
        tries_without_progress = 0
        max_bytes = 0  # largest size of the local file
        stall_timer = _StallTimer()
        while True:
            bytes_before = path.stat().st_size if path.exists() else 0
            report(bytes_before)
            if bytes_before == file.size:
                return
            max_bytes = max(max_bytes, bytes_before)
            problem = self._download_rest(file, path, bytes_before, report, stall_timer)
            bytes_after = path.stat().st_size
            if bytes_after > file.size:
                path.unlink()
                raise _wrong_size_error(file, f"{bytes_after:,} were received")
            if bytes_after == file.size:
                continue
            # A hub without range requests restarts each time, so only more bytes than ever before are progress.
            if bytes_after > max_bytes:
                tries_without_progress = 0
            else:
                tries_without_progress += 1
            is_stalled = stall_timer.seconds_left <= 0
            if tries_without_progress == _MAX_TRIES_WITHOUT_PROGRESS or is_stalled:
                reason = f"none for {_STALL_SECONDS:g} seconds" if is_stalled else problem
                raise ModelError(
                    f"{file.path}: {bytes_after:,} of {file.size:,} bytes were received, then {reason};"
                    " they are kept, and the same command continues from there"
                )
            time.sleep(_RETRY_WAIT_SECONDS)

    def link_into_snapshot(self, file: HubFile) -> Path:
        """Link a downloaded file into the snapshot of the commit; return its path there. Raises ``ModelError``."""
        with self.as_model_errors():
            repository = self._reference.repository
            path = huggingface_hub.hf_hub_download(repository, file.path, revision=self._commit)
        reference = self.folder / "refs" / "main"
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(reference, lambda stream: stream.write(self._commit.encode()))
        return Path(path)

    def _download_rest(
        self,
        file: HubFile,
        path: Path,
        start_bytes: int,
        report: Callable[[int], object],
        stall_timer: _StallTimer,
    ) -> str:
        """Request the missing bytes once; return why the transfer ended, as the end of a sentence."""
        headers = {**build_hf_headers(library_name="logitsmith"), "Accept-Encoding": "identity"}
        if start_bytes:
            headers["Range"] = f"bytes={start_bytes}-"
        done_bytes = start_bytes
        with path.open("ab") as target, self.as_model_errors():
            try:
                session = huggingface_hub.get_session()
                # The timeout must be positive, and must not exceed the time until the download fails.
                timeout = min(_READ_TIMEOUT_SECONDS, max(stall_timer.seconds_left, _MIN_TIMEOUT_SECONDS))
                with session.stream("GET", self._url(file), headers=headers, timeout=timeout) as response:
                    if response.status_code != _RANGE_NOT_SATISFIABLE:
                        hf_raise_for_status(response)
                    sent_size = _response_file_bytes(response.status_code, response.headers)
                    if sent_size not in (None, file.size):
                        raise _wrong_size_error(file, f"sends {sent_size:,}")
                    if start_bytes and response.status_code != _PARTIAL_CONTENT:
                        target.truncate(0)  # the response is the whole file, or the range does not exist
                        done_bytes = 0
                    for chunk in response.iter_bytes():
                        stall_timer.restart()
                        target.write(chunk)
                        done_bytes += len(chunk)
                        report(done_bytes)
                        if done_bytes > file.size:
                            break
            except errors.HTTPError as error:  # raised by the HTTP library of huggingface_hub
                if getattr(error, "response", None) is not None:
                    raise
                return f"the connection broke ({_network_problem(error)})"
        return "the connection ended"

    def _require_checksum(self, checksum: str) -> str:
        if _CHECKSUM_PATTERN.fullmatch(checksum) is None:
            raise ModelError(f"{self._reference}: the hub sent {checksum[:80]!r} in place of a checksum")
        return checksum

    def _url(self, file: HubFile) -> str:
        return str(huggingface_hub.hf_hub_url(self._reference.repository, file.path, revision=self._commit))

    @contextmanager
    def as_model_errors(self) -> Iterator[None]:
        """Convert exceptions of ``huggingface_hub`` to ``ModelError``."""
        reference = self._reference
        address = constants.ENDPOINT.partition("://")[2] or "the hub"
        has_token = bool(huggingface_hub.get_token())
        try:
            yield
        except errors.OfflineModeIsEnabled:
            raise ModelError(f"{reference}: HF_HUB_OFFLINE is set, so nothing is downloaded") from None
        except errors.GatedRepoError:
            page = f"{constants.ENDPOINT}/{reference.repository}"
            login = "" if has_token else ", then set HF_TOKEN or run `hf auth login`"
            raise ModelError(
                f"{reference}: its author grants access to each user: request it on {page}{login}"
            ) from None
        except errors.RepositoryNotFoundError:
            login = "your token may not read it" if has_token else "set HF_TOKEN or run `hf auth login`"
            raise ModelError(f"{reference}: {address} has no such repository, or it is private: {login}") from None
        except errors.HFValidationError as error:
            raise ModelError(f"{reference}: {error}") from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            raise ModelError(
                f"{reference}: {address} returned the HTTP status {status}; try again later"
            ) from None
        except errors.LocalEntryNotFoundError:
            raise ModelError(
                f"{reference}: {address} did not send this file, and it is not on this machine; try again"
            ) from None
        except errors.HTTPError as error:
            raise ModelError(f"{reference}: {address} cannot be reached ({_network_problem(error)})") from None
        except OSError as error:
            place = error.filename or self._cache
            problem = os.strerror(error.errno) if error.errno else str(error)
            raise ModelError(f"{place}: {problem}") from None


class _StallTimer:
    """The time that is left until a download fails because no byte has arrived."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._end_seconds = time.monotonic() + _STALL_SECONDS

    @property
    def seconds_left(self) -> float:
        """The time that is left, in seconds; negative if the download must fail."""
        return self._end_seconds - time.monotonic()


def _response_file_bytes(status: int, headers: Mapping[str, str]) -> int | None:
    """Return the size of the whole file in bytes by the headers of a response; None if they do not have it."""
    if status in (_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE):
        content_range = headers.get("Content-Range", "")  # such as ``bytes 100-199/1000``
        size_text = content_range.rpartition("/")[2]
    else:
        size_text = headers.get("Content-Length", "")
    # Content-Length is the encoded size if there is an encoding.
    is_encoded = headers.get("Content-Encoding", "identity") != "identity"
    is_size = size_text.isascii() and size_text.isdecimal() and len(size_text) <= _MAX_SIZE_DIGITS
    return int(size_text) if is_size and not is_encoded else None


def _wrong_size_error(file: HubFile, contradiction: str) -> ModelError:
    """Return the error for a wrong size; ``contradiction``: a predicate with that size, such as ``sends 5``."""
    return ModelError(f"{file.path}: the hub announced {file.size:,} bytes, but {contradiction}; pull again later")


def _network_problem(error: Exception) -> str:
    """Return the message of a network error, without the error number that Python prepends."""
    return without_error_number(" ".join(str(error).split())) or type(error).__name__
