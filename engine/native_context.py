"""Thin handles over llama.cpp's C functions for contexts, which raise ModelError."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from .errors import ModelError
from .native import NativeModel, last_complaint

# What llama_decode returns when its abort callback stopped it.
_ABORTED = 2

# llama.cpp rounds the length of a sequence up to this.
_CELLS = 256

# The binding returns a pointer object; a plain address is what a view needs, and costs a tenth.
_logits_address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(
    ctypes.cast(lib.llama_get_logits_ith, ctypes.c_void_p).value or 0
)


@dataclass(frozen=True)
class ContextOptions:
    """The size of a context and how it computes."""

    length: int
    threads: int
    batch: int = 512
    sequences: int = 1


class Part(NamedTuple):
    """Tokens of one sequence, which stand there from ``position`` on."""

    tokens: Sequence[int]
    position: int
    sequence: int = 0


class NativeContext:
    """A llama_context, and one batch that is filled again and again.

    Each sequence has memory of its own, of ``length`` tokens.
    """

    def __init__(
        self, model: NativeModel, options: ContextOptions, adapters: Sequence[tuple[object, float]] = ()
    ) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx = (
            options.length if options.sequences == 1 else -(-options.length // 256) * 256 * options.sequences
        )
        params.n_seq_max = options.sequences
        params.n_batch = params.n_ubatch = options.batch
        params.n_threads = params.n_threads_batch = options.threads
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            said = last_complaint()
            raise ModelError(
                f"llama.cpp could not make a context of {options.sequences} x {options.length:,} tokens"
                f"{': ' + said if said else ''}; try a smaller -c"
            )
        # llama.cpp rounds the length up; what was asked for is what the user gets.
        self.length = min(options.length, int(lib.llama_n_ctx_seq(self.handle)))
        self.goes_back = model.goes_back
        self._alone = options.sequences == 1
        self._memory = lib.llama_get_memory(self.handle)
        self.width = model.size
        self._address = 0
        self._view: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._batch = lib.llama_batch_init(options.batch, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, (options.batch,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (options.batch,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, (options.batch,))
        for i in range(options.batch):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
        if adapters:
            self._attach(adapters)

    def close(self) -> None:
        """Free the context and its batch."""
        if self.handle:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self.handle)
            self.handle = None

    def _attach(self, adapters: Sequence[tuple[object, float]]) -> None:
        handles = (lib.llama_adapter_lora_p_ctypes * len(adapters))(*(handle for handle, _ in adapters))
        scales = (ctypes.c_float * len(adapters))(*(scale for _, scale in adapters))
        if lib.llama_set_adapters_lora(self.handle, handles, len(adapters), scales) != 0:
            raise ModelError(f"llama.cpp could not attach the LoRA adapter: {last_complaint()}")

    def decode(self, tokens: Sequence[int], position: int, every: bool = False) -> bool:
        """Run tokens through the model from ``position`` on; the logits of the last one are kept, or of ``every``.

        Returns False when the work was broken off, see `break_off_when`.
        """
        count = len(tokens)
        if count == 1:
            self._tokens[0], self._positions[0], self._wanted[0] = tokens[0], position, 1
        else:
            self._tokens[:count] = tokens
            self._positions[:count] = range(position, position + count)
            self._wanted[:count] = every
            self._wanted[count - 1] = 1
        return self._run(count)

    def decode_parts(self, parts: Sequence[Part], every: bool = True) -> bool:
        """Run tokens of several sequences through the model at once.

        The logits of ``every`` one are kept, in order, else those of each part's last one.
        """
        count = 0
        for tokens, position, sequence in parts:
            end = count + len(tokens)
            self._tokens[count:end] = tokens
            self._positions[count:end] = range(position, position + len(tokens))
            self._wanted[count:end] = every
            self._wanted[end - 1] = 1
            for i in range(count, end):
                self._batch.seq_id[i][0] = sequence
            count = end
        return self._run(count)

    def _run(self, count: int) -> bool:
        self._batch.n_tokens = count
        code = lib.llama_decode(self.handle, self._batch)
        if code == _ABORTED:
            return False
        if code != 0:
            said = last_complaint()
            raise ModelError(f"llama.cpp could not decode (code {code}){': ' + said if said else ''}")
        return True

    @contextmanager
    def break_off_when(self, wanted: Callable[[], bool] | None) -> Iterator[None]:
        """While inside, ``wanted`` is asked at each node of the graph, and stops the work by returning True.

        A batch of a prompt can take many seconds, in which Python could not hear a Ctrl-C. For single tokens
        it would cost more than it is worth.
        """
        if wanted is None:
            yield
            return
        callback = lib.ggml_abort_callback(lambda _data: wanted())
        lib.llama_set_abort_callback(self.handle, callback, None)
        try:
            yield
        finally:
            lib.llama_set_abort_callback(self.handle, lib.ggml_abort_callback(), None)

    def logits(self) -> NDArray[np.float32]:
        """The logits of the last token, float32 (V,), in place: the next `decode` overwrites them."""
        address = _logits_address(self.handle, -1)
        if address is None:
            raise ModelError("llama.cpp holds no logits; decode a token first")
        if address != self._address:  # nearly always the same place as before
            self._address = address
            self._view = np.ctypeslib.as_array((ctypes.c_float * self.width).from_address(address))
            self._view.flags.writeable = False
        return self._view

    def logits_at(self, index: int) -> NDArray[np.float32]:
        """The logits of one token of the last `decode`, where every one was wanted; as `logits` otherwise."""
        address = _logits_address(self.handle, index)
        if address is None:
            raise ModelError(f"llama.cpp holds no logits for token {index} of the batch")
        view = np.ctypeslib.as_array((ctypes.c_float * self.width).from_address(address))
        view.flags.writeable = False
        return view

    def forget(self, position: int, sequence: int = 0) -> bool:
        """Drop the cached keys and values from ``position`` on; False if this model cannot, save from 0."""
        if position == 0 and self._alone:
            lib.llama_memory_clear(self._memory, False)
            return True
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, position, -1))

    def copy(self, source: int, target: int) -> None:
        """Make one sequence what another one is."""
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)
