"""Huge pages for the weights: each token reads all of them, and with 4 KiB pages waits for many address look-ups.

Only Linux is asked, and only for memory that a process has to itself: a mapped file cannot have them.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPPINGS = Path("/proc/self/maps")
_PAGE_BYTES = 1 << 21
_LEAST_BYTES, _MOST_BYTES = 16_000_000, 500_000_000
"""Smaller files gain nothing. Larger ones stay mapped: processes share the memory, and it can be given back."""
_FIELDS_WITHOUT_FILE = 5
"""The fields of a mapping's line that names no file: addresses, permissions, offset, device, inode."""


def are_for_models_of(file_bytes: int) -> bool:
    """Say whether a model of this size is read into huge pages rather than mapped."""
    return _LEAST_BYTES <= file_bytes <= _MOST_BYTES and are_offered()


def are_offered() -> bool:
    """Say whether the kernel gives huge pages to those who ask."""
    try:
        return hasattr(mmap, "MADV_HUGEPAGE") and "[never]" not in _SETTING.read_text()
    except OSError:
        return False


def request_when_first_called(progress: Callable[[float], bool]) -> Callable[[float], bool]:
    """Return ``progress``, a callback of a load that begins now, that asks for huge pages at its first call.

    By then llama.cpp has reserved the memory of the weights, and read none of them. If the kernel does not say
    where that is, the pages stay small.
    """
    if not are_offered():
        return progress
    before = set(_large_mappings())
    is_requested = False

    def request_and_report(fraction: float) -> bool:
        nonlocal is_requested
        if not is_requested:
            is_requested = True
            _request(set(_large_mappings()) - before)
        return progress(fraction)

    return request_and_report


def _large_mappings() -> Iterator[tuple[int, int]]:
    """The addresses of the large pieces of this process's own memory, each from its start to its end."""
    lines: list[bytes] = []
    with suppress(OSError):
        lines = _MAPPINGS.read_bytes().splitlines()  # a file's name may be no UTF-8
    for line in lines:
        fields = line.split()
        if len(fields) == _FIELDS_WITHOUT_FILE and fields[1] == b"rw-p":
            start, end = (int(address, 16) for address in fields[0].split(b"-"))
            if end - start >= _LEAST_BYTES:
                yield start, end


def _request(mappings: set[tuple[int, int]]) -> None:
    """Ask for huge pages in these pieces of memory. Pages that are in use stay as they are."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in mappings:
        first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
        advise(first, (end - first) // _PAGE_BYTES * _PAGE_BYTES, mmap.MADV_HUGEPAGE)
