"""A folder of stories: NAME.txt with the text, and beside it NAME.json with what the page knows of it."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from unicodedata import normalize

from ..common.errors import UsageError
from ..common.files import (
    TextFileError,
    decode_text_file,
    file_problem,
    find_named_files,
    read_bounded,
    write_file_atomically,
)
from ..common.strict_json import encode_json, parse_strict_json
from .errors import ConflictError, EngineError, InvalidRequestError, NotFoundError

# Maximum size of each of the two files. A body has less.
MAX_STORY_BYTES = 64_000_000
_MAX_NAME_BYTES = 150
_UNNAMED = "Story"
# What file systems do not take in a name, or take for a part of a path.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\ud800-\udfff]+')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names of devices on Windows


class ListedStory(NamedTuple):
    """A story in the list of a folder. ``words`` is None if its text cannot be read."""

    name: str
    words: int | None
    # Seconds since 1970.
    modified: float


class Story(NamedTuple):
    """A story of a folder. ``data`` is None if there is only a text."""

    text: str
    data: dict[str, Any] | None
    # Changes with the files.
    version: str


def safe_name(title: str) -> str:
    """Return the name of the files of a title: without what could be a path, hidden or reserved."""
    name = " ".join(_UNSAFE.sub(" ", normalize("NFC", title)).split()).lstrip(". ")
    shortened_name = name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore").rstrip(". ")
    if _RESERVED.fullmatch(shortened_name):
        return f"_{shortened_name}"
    return shortened_name or _UNNAMED


class StoryFolder:
    """The stories of a folder, which is made if it does not exist. Raises ``UsageError`` if it cannot be used."""

    # A story is replaced or deleted only by somebody who has read its last version: another tab, another machine
    # or an editor may have changed it.

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--stories {path}: it is no folder ({error.strerror}); name another one") from None

    def stories(self) -> list[ListedStory]:
        """Return the stories, the one that was changed last first."""
        paths = [path for path in find_named_files(self._path, {".txt"}) if path.stem == safe_name(path.stem)]
        stories = [ListedStory(path.stem, _count_words(path), path.stat().st_mtime) for path in paths]
        return sorted(stories, key=lambda story: story.modified, reverse=True)

    def read(self, name: str) -> Story:
        """Return a story. Raises ``NotFoundError``, and ``InvalidRequestError`` for a file that cannot be read."""
        text_path, data_path = self._paths(name)
        text_bytes, data_bytes = _read(text_path), _read(data_path) if data_path.exists() else b""
        try:
            text = decode_text_file(text_bytes)
        except TextFileError as error:
            raise InvalidRequestError(f"{text_path.name}: {error}", "name") from None
        return Story(
            text.replace("\r\n", "\n"), _parse(data_path.name, data_bytes), _version(text_bytes, data_bytes)
        )

    def create(self, title: str, text: str, data: dict[str, Any]) -> tuple[str, str]:
        """Write a new story under a free name. Return the name and the version."""
        with self._lock:
            base = name = safe_name(title)
            number = 1
            while any(path.exists() for path in self._files(name)):
                number += 1
                name = f"{base} {number}"
            return name, self._write(name, text, data)

    def replace(self, name: str, text: str, data: dict[str, Any], version: str) -> str:
        """Write a story whose last version is known. Return the new version. Raises ``ConflictError``."""
        with self._lock:
            self._check_version(name, version)
            return self._write(name, text, data)

    def delete(self, name: str, version: str) -> None:
        """Delete a story whose last version is known. Raises ``ConflictError``."""
        with self._lock:
            self._check_version(name, version)
            try:
                for path in self._files(name):
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise EngineError(f"{name} cannot be deleted: {error.strerror}") from None

    def _check_version(self, name: str, version: str) -> None:
        text_path, data_path = self._paths(name)
        last_version = _version(_read(text_path), _read(data_path) if data_path.exists() else b"")
        if version != last_version:
            raise ConflictError(f"{name}: the files have changed since this version was read", "version")

    def _files(self, name: str) -> tuple[Path, Path]:
        return self._path / f"{name}.txt", self._path / f"{name}.json"

    def _paths(self, name: str) -> tuple[Path, Path]:
        """Return the two files of a story that exists. Raises ``NotFoundError``."""
        text_path, data_path = self._files(name)
        if name != safe_name(name) or not text_path.is_file():
            raise NotFoundError(f"{name}: there is no story of this name", "name")
        return text_path, data_path

    def _write(self, name: str, text: str, data: dict[str, Any]) -> str:
        # The text is first: should the second file fail, then the page finds a text that differs from its tokens.
        text_bytes, data_bytes = text.encode(), _readable_json(data).encode()
        text_path, data_path = self._files(name)
        _write(text_path, text_bytes)
        _write(data_path, data_bytes)
        return _version(text_bytes, data_bytes)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return read_bounded(file, MAX_STORY_BYTES)
    except OSError as error:
        raise InvalidRequestError(f"{path.name}: {file_problem(error, path)}", "name") from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_file_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise EngineError(f"{path.name} cannot be written: {error.strerror}") from None


def _count_words(path: Path) -> int | None:
    try:
        return len(decode_text_file(_read(path)).split())
    except (InvalidRequestError, TextFileError):
        return None


def _parse(name: str, data: bytes) -> dict[str, Any] | None:
    if not data:
        return None
    try:
        value = parse_strict_json(data)
    except ValueError as error:
        advice = "mend it, or move it away to open the text alone"
        raise InvalidRequestError(f"{name}: it is not JSON ({error}); {advice}", "name") from None
    return value if isinstance(value, dict) else None


def _readable_json(data: dict[str, Any]) -> str:
    """Return JSON with a line for each key, and for each item of a list below a key."""
    parts = []
    for key, value in data.items():
        items = ",\n  ".join(encode_json(item) for item in value) if isinstance(value, list) else ""
        parts.append(f"{encode_json(key)}: " + (f"[\n  {items}\n]" if items else encode_json(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _version(text: bytes, data: bytes) -> str:
    return sha256(sha256(text).digest() + sha256(data).digest()).hexdigest()[:32]
