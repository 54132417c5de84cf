"""The logits after prompts that were read lately, so that another chain needs no decode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ..samplers.kernels import Floats

_MAX_BYTES = 32_000_000


class RowCache:
    """Rows of logits by the tokens of their prompt. Rows that were not used for the longest time are dropped.

    Args:
        max_bytes: maximum size of all rows together.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes, self._byte_count = max_bytes, 0
        self._rows: OrderedDict[tuple[int, ...], Floats] = OrderedDict()

    def get(self, prompt_ids: Sequence[int]) -> Floats | None:
        """Return the logits after a prompt, float32 (V,); None if they are not stored."""
        key = tuple(prompt_ids)
        if key in self._rows:
            self._rows.move_to_end(key)
        return self._rows.get(key)

    def put(self, prompt_ids: Sequence[int], row: Floats) -> None:
        """Store the logits after a prompt, float32 (V,), which must not be changed afterwards."""
        key = tuple(prompt_ids)
        previous = self._rows.pop(key, None)
        self._byte_count += _size(key, row) - (0 if previous is None else _size(key, previous))
        self._rows[key] = row
        while self._byte_count > self._max_bytes and len(self._rows) > 1:
            self._byte_count -= _size(*self._rows.popitem(last=False))


def _size(key: tuple[int, ...], row: Floats) -> int:
    return row.nbytes + 36 * len(key)  # a tuple's slot, and an integer
