"""What the answers of a batch depend on beside its requests, in a file beside the results.

So `--resume` does not mix answers of two models or of other flags in one file without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...common.files import read_bounded, write_whole_file
from ...common.strict_json import parse_strict_json
from .journal import JournalError

_SUFFIX = ".settings.json"
_SHOWN_CHARACTERS = 40
"""Longer values are not shown in a message."""
_NAME = "name"
"""The key under which the name of the model stands: only for people, a file may be moved."""


def keep_settings(results: Path, settings: Mapping[str, Any], *, has_results: bool, is_forced: bool) -> None:
    """Write the settings beside the results, unless results are there that were made with others.

    Args:
        results: the file of results.
        settings: those of this run.
        has_results: True if the file holds results of an earlier run.
        is_forced: write them all the same.

    Raises ``JournalError``. Results without such a file are told apart by their own ``request_id``.
    """
    path = settings_path(results)
    before = read_settings(path) if has_results and not is_forced else None
    changed = [] if before is None else settings_differences(before, settings)
    if changed:
        raise JournalError(
            f"{results} was made with {'; '.join(changed)}; give the same, or --force to go on with both"
        )
    write_settings(path, settings)


def settings_path(results: Path) -> Path:
    """Return the file for the settings of these results."""
    return results.with_name(results.name + _SUFFIX)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return SHA-256, in hexadecimal, of all settings but the model's name."""
    values = {key: value for key, value in settings.items() if key != _NAME}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings that a file holds; None if there is no file. Raises ``JournalError``."""
    try:
        with path.open("rb") as file:
            data = read_bounded(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    try:
        settings = parse_strict_json(data)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise JournalError(f"{path}: it holds no settings of a batch; --force writes it anew")
    return settings


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings, whole or not at all. Raises ``JournalError``."""
    text = json.dumps(settings, ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole_file(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None


def settings_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what has changed, a few words for each, such as ``seed 0, now 7``."""
    if before.get("chain") != now["chain"]:  # then its parameters say no more
        before, now = _without_parameters(before), _without_parameters(now)
    names = [name for name in {**before, **now} if name != _NAME and before.get(name) != now.get(name)]
    return [_difference(name, before, now) for name in names]


def _without_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if "." not in name}


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if name == "model":
        name = _NAME if before.get(_NAME) != now.get(_NAME) else name
    values = [before.get(name), now.get(name)]
    shown = ["none" if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    if max(map(len, shown)) > _SHOWN_CHARACTERS:
        return f"another {'model' if name == _NAME else name}"
    return f"{'model' if name == _NAME else name} {shown[0]}, now {shown[1]}"
