"""Where the chat store is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import StoreError


def store_path() -> Path:
    """Return ``$XDG_DATA_HOME/logitsmith/chats.db`` or ``~/.local/share/logitsmith/chats.db``.

    Raises ``StoreError`` for a user without a home folder.
    """
    try:
        home: Path | None = Path.home()
    except RuntimeError:
        home = None
    data = _data_home(os.environ, home)
    if data is None:
        raise StoreError("there is no home folder to store chats in; set XDG_DATA_HOME, or give --no-log")
    return data / "logitsmith" / "chats.db"


def _data_home(environment: Mapping[str, str], home: Path | None) -> Path | None:
    configured = Path(environment.get("XDG_DATA_HOME", ""))
    # The XDG specification has relative paths ignored.
    return configured if configured.is_absolute() else home and home / ".local" / "share"
