"""Logits straight from llama.cpp, through ctypes: tokens decoded one at a time, in a context of their own."""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np


def log_softmax(row):
    row = row.astype(np.float64)
    below = row - row.max()
    return below - np.log(np.exp(below).sum())


class NativeLogits:
    """``handle``: llama.cpp's model."""

    def __init__(self, handle, size, length=512):
        params = lib.llama_context_default_params()
        params.n_ctx = length
        params.n_threads = params.n_threads_batch = 1
        self._context = lib.llama_init_from_model(handle, params)
        self._size = size
        self._one = (lib.llama_token * 1)()

    def logprobs(self, ids):
        """float64 (len(ids), V): row i is what may follow tokens 0 to i."""
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        rows = []
        for token in ids:
            self._one[0] = token
            assert lib.llama_decode(self._context, lib.llama_batch_get_one(self._one, 1)) == 0
            pointer = lib.llama_get_logits_ith(self._context, ctypes.c_int32(-1))
            rows.append(log_softmax(np.ctypeslib.as_array(pointer, (self._size,))))
        return np.array(rows)

    def close(self):
        lib.llama_free(self._context)
