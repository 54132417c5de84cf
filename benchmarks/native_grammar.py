"""llama.cpp's grammar sampler, called through ctypes: the peer of benchmarks, and the reference of tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

_ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Rows:
    """A llama_token_data_array that fits the entire vocabulary."""

    def __init__(self, size: int) -> None:
        self.rows = np.zeros(size, dtype=_ROW)
        self.ids = np.arange(size, dtype=np.int32)
        self.array = lib.llama_token_data_array()
        self.array.data = ctypes.cast(self.rows.ctypes.data, ctypes.POINTER(lib.llama_token_data))

    def fill(self, logits: object, ids: NDArray[np.int32] | None = None) -> NDArray[Any]:
        """Write tokens with these logits, and return their rows.

        Args:
            logits: the logits, one per token.
            ids: the tokens; None for the entire vocabulary.
        """
        ids = self.ids if ids is None else ids
        rows = self.rows[: len(ids)]
        rows["id"] = ids
        rows["logit"] = logits
        self.array.size, self.array.selected, self.array.sorted = len(ids), -1, False
        return rows


class NativeGrammar:
    """The state of llama.cpp's grammar after a text.

    Args:
        vocabulary: llama.cpp's handle of the vocabulary.
        size: number of tokens in the vocabulary.
        source: the grammar, in GBNF.
        root: name of the root rule.

    Attributes:
        is_rejected: whether llama.cpp rejects the grammar.
    """

    def __init__(self, vocabulary: object, size: int, source: str, root: str = "root") -> None:
        self._handle = lib.llama_sampler_init_grammar(vocabulary, source.encode(), root.encode())
        self.is_rejected = not self._handle
        self._rows = Rows(size)

    def __enter__(self) -> NativeGrammar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def mask(self, ids: Sequence[int] | None = None) -> Any:
        """Return the tokens that the grammar allows next, bool (V,), or for these ids only."""
        rows = self._rows.fill(0.0, None if ids is None else np.asarray(ids, dtype=np.int32))
        self.restrict(self._rows)
        return rows["logit"] == 0

    def restrict(self, rows: Rows) -> None:
        """Set the logits of tokens that the grammar does not allow to -inf."""
        lib.llama_sampler_apply(self._handle, ctypes.byref(rows.array))

    def allows(self, token: int) -> bool:
        """Return whether the grammar allows this token."""
        return bool(self.mask([token])[0])

    def accept(self, token: int) -> None:
        """Accept a token that the grammar allows; llama.cpp ends the process for another token."""
        lib.llama_sampler_accept(self._handle, token)

    def close(self) -> None:
        """Free the sampler."""
        if self._handle:
            lib.llama_sampler_free(self._handle)
            self._handle = None
