"""llama.cpp's own grammar sampler, through ctypes: the peer of the benchmarks, and the oracle of the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

_ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Rows:
    """A llama_token_data_array with room for the whole vocabulary."""

    def __init__(self, size: int) -> None:
        self.rows = np.zeros(size, dtype=_ROW)
        self.ids = np.arange(size, dtype=np.int32)
        self.array = lib.llama_token_data_array()
        self.array.data = ctypes.cast(self.rows.ctypes.data, ctypes.POINTER(lib.llama_token_data))

    def fill(self, logits: object, ids: NDArray[np.int32] | None = None) -> NDArray[Any]:
        """Put tokens in, all of them in order or these, with these logits; returns the rows that are filled."""
        ids = self.ids if ids is None else ids
        rows = self.rows[: len(ids)]
        rows["id"] = ids
        rows["logit"] = logits
        self.array.size, self.array.selected, self.array.sorted = len(ids), -1, False
        return rows


class NativeGrammar:
    """One text under a grammar. ``vocabulary`` is llama.cpp's handle; ``refused``: it is wrong there."""

    def __init__(self, vocabulary: object, size: int, source: str, root: str = "root") -> None:
        self._handle = lib.llama_sampler_init_grammar(vocabulary, source.encode(), root.encode())
        self.refused = not self._handle
        self._rows = Rows(size)

    def __enter__(self) -> NativeGrammar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def mask(self, ids: Sequence[int] | None = None) -> Any:
        """The tokens allowed next, bool (V,), or for these ids only."""
        rows = self._rows.fill(0.0, None if ids is None else np.asarray(ids, dtype=np.int32))
        self.restrict(self._rows)
        return rows["logit"] == 0

    def restrict(self, rows: Rows) -> None:
        """Set the logits of what is not allowed to -inf."""
        lib.llama_sampler_apply(self._handle, ctypes.byref(rows.array))

    def allows(self, token: int) -> bool:
        """Is this one token allowed?"""
        return bool(self.mask([token])[0])

    def accept(self, token: int) -> None:
        """Move on by a token that is allowed; any other would end the process."""
        lib.llama_sampler_accept(self._handle, token)

    def close(self) -> None:
        """Free it."""
        if self._handle:
            lib.llama_sampler_free(self._handle)
            self._handle = None
