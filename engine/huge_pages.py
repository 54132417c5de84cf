"""Huge pages for the weights: each token reads all of them, and with 4 KiB pages waits for many address look-ups.

Only Linux is asked, and only for memory that a process has to itself: a mapped file cannot have them.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPPINGS = Path("/proc/self/maps")
_PAGE_BYTES = 1 << 21
_LEAST_BYTES, _MOST_BYTES = 16_000_000, 500_000_000
"""Smaller files gain nothing. Larger ones stay mapped: processes share the memory, and it can be given back."""
_PRIVATE_FIELDS = 5
"""The fields of a mapping's line that names no file: addresses, permissions, offset, device, inode."""


def suit(file_bytes: int) -> bool:
    """Say whether a model file of this size is better read into huge pages than mapped."""
    return _LEAST_BYTES <= file_bytes <= _MOST_BYTES and are_offered()


def are_offered() -> bool:
    """Say whether the kernel gives huge pages to those who ask."""
    try:
        return "[never]" not in _SETTING.read_text()
    except OSError:
        return False


def request_when_first_called(progress: Callable[[float], bool]) -> Callable[[float], bool]:
    """Return ``progress``, a callback of a load, that asks for huge pages at its first call.

    By then llama.cpp has reserved the memory of the weights, and read none of them.
    """
    is_requested = not are_offered()

    def request_and_report(fraction: float) -> bool:
        nonlocal is_requested
        if not is_requested:
            is_requested = True
            _request()
        return progress(fraction)

    return request_and_report


def _request() -> None:
    """Ask for huge pages in every large piece of this process's own memory. Pages in use stay as they are."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in _MAPPINGS.read_text().splitlines():
        fields = line.split()
        if len(fields) != _PRIVATE_FIELDS or fields[1] != "rw-p":
            continue
        start, end = (int(address, 16) for address in fields[0].split("-"))
        if end - start >= _LEAST_BYTES:
            first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
            advise(first, (end - first) // _PAGE_BYTES * _PAGE_BYTES, mmap.MADV_HUGEPAGE)
