"""Files that targets read and write, in a folder that lies in memory where there is one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ..target import TOP

_IN_MEMORY = Path("/dev/shm")
RECORDED = TOP / "tests" / "recorded" / "inputs"


@cache
def folder() -> Path:
    """A folder that is removed at the end."""
    made = Path(tempfile.mkdtemp(prefix="fuzz-target-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def file(name: str, data: bytes) -> Path:
    """A file with this content."""
    path = folder() / name
    path.write_bytes(data)
    return path


def contents(*patterns: str, base: Path = TOP) -> list[bytes]:
    """What the project's own files hold."""
    return [path.read_bytes() for pattern in patterns for path in sorted(base.glob(pattern))]
