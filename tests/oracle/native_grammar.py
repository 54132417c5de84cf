"""llama.cpp's own grammar sampler, through ctypes: which tokens it allows."""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np


class NativeGrammar:
    """One text under a grammar. ``vocabulary`` is llama.cpp's handle; None in ``failed`` means it was read."""

    def __init__(self, vocabulary, size, source, root="root"):
        self.handle = lib.llama_sampler_init_grammar(vocabulary, source.encode(), root.encode())
        self.refused = not self.handle
        self._ids = np.arange(size, dtype=np.int32)
        self._dtype = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def mask(self, ids=None):
        """The tokens allowed next, bool (V,), or for these ids only."""
        ids = self._ids if ids is None else np.asarray(ids, dtype=np.int32)
        rows = np.zeros(len(ids), dtype=self._dtype)
        rows["id"] = ids
        array = lib.llama_token_data_array()
        array.data = ctypes.cast(rows.ctypes.data, ctypes.POINTER(lib.llama_token_data))
        array.size = len(ids)
        array.selected = -1
        lib.llama_sampler_apply(self.handle, ctypes.byref(array))
        return rows["logit"] == 0

    def accept(self, token):
        """Move on by a token that the mask allows: any other would end the process."""
        assert self.mask([token])[0], token
        lib.llama_sampler_accept(self.handle, token)

    def close(self):
        if self.handle:
            lib.llama_sampler_free(self.handle)
            self.handle = None
