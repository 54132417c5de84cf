"""The cache with a limit."""

import pytest
from logitsmith.common.cache import LimitedCache


@pytest.mark.parametrize("size", [None, lambda key, value: key + len(value)], ids=["number", "size"])
def test_the_entry_that_was_not_used_for_the_longest_time_is_dropped(size):
    cache = LimitedCache(3 if size is None else 11, size)
    for key in range(3):
        cache.put(key, "ab")
    cache.get(0)
    cache.put(3, "a")
    assert [cache.get(key) for key in range(4)] == ["ab", None, "ab", "a"]
    cache.put(3, "b")
    assert [cache.get(key) for key in range(4)] == ["ab", None, "ab", "b"]


def test_the_last_entry_stays_whatever_its_size():
    cache = LimitedCache(2, lambda key, value: len(value))
    cache.put("x", "a")
    cache.put("y", "abc")
    assert (cache.get("x"), cache.get("y")) == (None, "abc")
