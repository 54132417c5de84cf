"""A cache with a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LimitedCache(Generic[_Key, _Value]):
    """Values by their keys. Beyond the limit, the values that were not used for the longest time are dropped."""

    # Threads may share a cache. ``limit``: maximum size of all entries together. The newest entry is kept,
    # whatever its size. ``size``: returns the size of an entry, such as its bytes; None: each entry has the size
    # 1.

    def __init__(self, limit: int, size: Callable[[_Key, _Value], int] | None = None) -> None:
        self._limit = limit
        self._size = size or (lambda key, value: 1)
        self._entries: OrderedDict[_Key, _Value] = OrderedDict()
        self._total_size = 0
        self._lock = Lock()

    def get(self, key: _Key) -> _Value | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        with self._lock:
            if key in self._entries:
                replaced_value = self._entries.pop(key)
                self._total_size -= self._size(key, replaced_value)
            self._entries[key] = value
            self._total_size += self._size(key, value)
            while self._total_size > self._limit and len(self._entries) > 1:
                oldest_key, oldest_value = self._entries.popitem(last=False)
                self._total_size -= self._size(oldest_key, oldest_value)
