"""A wrapper of llama_context: decoding, logits in llama.cpp's memory, and the state of sequences."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.errors import Word
from ...models.errors import AbortedError, ModelError, NoMemoryError
from .binding import (
    bind_function,
    discard_last_messages,
    last_error_suffix,
    lib,
    load_error,
    pop_last_error,
)
from .model import NativeModel
from .options import ContextSize, native_context_params

Logits = NDArray[np.float32]  # one row of logits, float32 (V,)

# codes that llama_decode returns: its abort callback stopped it; and ggml's GGML_STATUS_ALLOC_FAILED
_ABORTED = 2
_NO_MEMORY = -2

# The binding returns a pointer object. A view needs only the address, which is read in a tenth of the time.
_logits_address = bind_function(
    lib, "llama_get_logits_ith", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
)


class SequenceSpan(NamedTuple):
    """Consecutive tokens of one sequence."""

    tokens: Sequence[int]
    position: int  # position of the first token in the sequence, from 0
    sequence: int = 0  # number of the sequence


class NativeContext:
    """A llama_context, and a llama_batch that every decode overwrites. Each sequence has separate memory."""

    def __init__(self, model: NativeModel, size: ContextSize) -> None:
        discard_last_messages()
        params = native_context_params(model.options, size, model.abort_flag)
        self.handle = lib.llama_init_from_model(model.handle, params)  # the llama_context; None after `close`
        if not self.handle:
            raise load_error(
                f"llama.cpp could not make a context of {size.sequence_count} x {size.length:,} tokens",
                advice=("try a smaller ", Word.N_CTX),
            )
        discard_last_messages()  # otherwise a warning about the new context would explain a later failure
        # Maximum number of tokens per sequence. llama.cpp may round it up, but the requested length counts: a run
        # must end where -c says.
        self.length = min(size.length, int(lib.llama_n_ctx_seq(self.handle)))
        self.can_truncate = model.can_truncate  # see `NativeModel.can_truncate`
        self._model = model
        model.open_contexts += 1
        self._abort_flag = model.abort_flag
        self._has_one_sequence = size.sequence_count == 1
        self._memory = lib.llama_get_memory(self.handle)
        self.vocab_size = model.vocabulary.size  # number of logits per row
        self._state_width = model.state_width
        # Arrays of logits by memory address. llama.cpp allocates new memory only when it needs more.
        self._views_by_address: dict[int, Logits] = {}
        self._batch = lib.llama_batch_init(size.batch_tokens, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, (size.batch_tokens,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (size.batch_tokens,))
        self._logits_flags = np.ctypeslib.as_array(self._batch.logits, (size.batch_tokens,))
        for i in range(size.batch_tokens):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
        # the sequence number of each token in the batch, to write only those that change
        self._sequence_by_index = [0] * size.batch_tokens
        if model.adapters:
            self._attach_adapters(model.adapters)

    def close(self) -> None:
        if self.handle:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self.handle)
            self.handle = None
            self._model.open_contexts -= 1

    def check_open(self) -> None:
        """Raise ``ModelError`` after `close`, because llama.cpp would read freed memory."""
        if not self.handle:
            raise ModelError("the context is closed")

    def _attach_adapters(self, adapters: Sequence[tuple[object, float]]) -> None:
        handles = (lib.llama_adapter_lora_p_ctypes * len(adapters))(*(handle for handle, _ in adapters))
        scales = (ctypes.c_float * len(adapters))(*(scale for _, scale in adapters))
        if lib.llama_set_adapters_lora(self.handle, handles, len(adapters), scales) != 0:
            raise ModelError(f"llama.cpp could not attach the LoRA adapter: {pop_last_error()}")

    def decode(self, tokens: Sequence[int], position: int, all_logits: bool = False) -> None:
        """Read tokens, and keep the logits of the last one, or of all with ``all_logits``."""
        # ``position``: of the first token in the sequence. Raises ``ModelError``; ``AbortedError`` when the call
        # was aborted.
        self.check_open()
        token_count = len(tokens)
        if token_count == 1:
            self._tokens[0] = tokens[0]
            self._positions[0] = position
            self._logits_flags[0] = 1
        else:
            self._tokens[:token_count] = tokens
            self._positions[:token_count] = range(position, position + token_count)
            self._logits_flags[:token_count] = all_logits
            self._logits_flags[token_count - 1] = 1
        self._decode_batch(token_count)

    def decode_spans(self, spans: Sequence[SequenceSpan], all_logits: bool = True) -> None:
        """Read tokens of several sequences in one call, and keep the logits of all tokens."""
        # Without ``all_logits``, only the logits of each span's last token are kept.
        self.check_open()
        token_count = 0
        sequence_by_index = self._sequence_by_index
        for tokens, position, sequence in spans:
            end = token_count + len(tokens)
            if end - token_count == 1:  # the usual case: a single item is written faster than a slice
                self._tokens[token_count] = tokens[0]
                self._positions[token_count] = position
            else:
                self._tokens[token_count:end] = tokens
                self._positions[token_count:end] = range(position, position + len(tokens))
                self._logits_flags[token_count:end] = all_logits
            self._logits_flags[end - 1] = 1
            for i in range(token_count, end):
                if sequence_by_index[i] != sequence:
                    self._batch.seq_id[i][0] = sequence
                    sequence_by_index[i] = sequence
            token_count = end
        self._decode_batch(token_count)

    def _decode_batch(self, token_count: int) -> None:
        self._batch.n_tokens = token_count
        code = lib.llama_decode(self.handle, self._batch)
        if code == _ABORTED:
            self._abort_flag.clear()
            discard_last_messages()  # llama.cpp logs an abort as an error
            raise AbortedError
        if code == _NO_MEMORY:
            raise NoMemoryError(
                f"llama.cpp has no memory left for the next tokens{last_error_suffix()}",
                advice=("try a smaller ", Word.N_CTX, " or ", Word.GPU_LAYERS),
            )
        if code != 0:
            raise ModelError(f"llama.cpp could not decode (code {code}){last_error_suffix()}")

    @contextmanager
    def abort_when(self, is_interrupted: Callable[[], bool] | None) -> Iterator[None]:
        """Abort each `decode` in the block once ``is_interrupted`` returns True."""
        # llama.cpp calls ``is_interrupted`` at each node of the graph. A batch of a prompt can take many seconds,
        # in which Python cannot react to Ctrl-C. For a single token these calls would take more time than they
        # save, so only the abort flag is read.
        if is_interrupted is None:
            yield
            return
        flag = self._abort_flag
        callback = lib.ggml_abort_callback(lambda _data: flag.is_set or is_interrupted())
        lib.llama_set_abort_callback(self.handle, callback, None)
        try:
            yield
        finally:
            lib.llama_set_abort_callback(self.handle, flag.callback, flag.address)

    def logits(self) -> Logits:
        """Return the logits of the last token, float32 (V,), in llama.cpp's memory."""
        # The next decode overwrites them.
        address = _logits_address(self.handle, -1)
        if address is None:
            raise ModelError("llama.cpp has no logits; decode a token first")
        return self._view_at(address)

    def logits_at(self, index: int) -> Logits:
        """Return the logits of one token of the last decode; the next decode overwrites them."""
        # The decode must have kept all logits. ``index``: the place of the token in the batch.
        address = _logits_address(self.handle, index)
        if address is None:
            raise ModelError(f"llama.cpp has no logits for token {index} of the batch")
        return self._view_at(address)

    def _view_at(self, address: int) -> Logits:
        view = self._views_by_address.get(address)
        if view is None:
            view = np.ctypeslib.as_array((ctypes.c_float * self.vocab_size).from_address(address))
            view.flags.writeable = False
            self._views_by_address[address] = view
        return view

    def state_at(self, index: int) -> Logits:
        """Return the last hidden state of one token of the last decode, float32; empty if llama.cpp keeps none."""
        # The next decode overwrites it. The context must have been made with ``keeps_states``.
        pointer = lib.llama_get_embeddings_ith(self.handle, index)
        return np.ctypeslib.as_array(pointer, (self._state_width if pointer else 0,))

    def truncate_sequence(self, position: int, sequence: int = 0) -> bool:
        """Remove a sequence's tokens from ``position`` on; return False if only all tokens can be removed."""
        self.check_open()
        if position == 0 and self._has_one_sequence:
            lib.llama_memory_clear(self._memory, False)
            return True
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, position, -1))

    @property
    def shift_unsupported_reason(self) -> str | None:
        """The reason why `remove_span` is not supported, as a clause about the model; None if it is supported."""
        if not self.can_truncate:
            return "it is recurrent"
        if not lib.llama_memory_can_shift(self._memory):
            return "llama.cpp cannot change the positions of its tokens (M-RoPE and others)"
        return None

    def remove_span(self, start: int, end: int, length: int) -> None:
        """Remove the tokens from ``start`` to ``end`` of the only sequence, which has ``length`` tokens."""
        # Later tokens move up: llama.cpp rotates their keys, and computes nothing else again.
        lib.llama_memory_seq_rm(self._memory, 0, start, end)
        lib.llama_memory_seq_add(self._memory, 0, end, length, start - end)

    def state(self, sequence: int = 0) -> memoryview:
        """Return the complete state of a sequence, as bytes for `set_state`."""
        size_bytes = int(lib.llama_state_seq_get_size(self.handle, sequence))
        buffer = (ctypes.c_uint8 * size_bytes)()
        written_bytes = int(lib.llama_state_seq_get_data(self.handle, buffer, size_bytes, sequence))
        return memoryview(buffer)[:written_bytes]

    def set_state(self, state: bytes, sequence: int = 0) -> bool:
        """Set the state of an empty sequence; return False if llama.cpp rejects it."""
        # After a rejection the sequence is empty.
        buffer = ctypes.cast(ctypes.c_char_p(state), ctypes.POINTER(ctypes.c_uint8))  # may be gigabytes: no copy
        if lib.llama_state_seq_set_data(self.handle, buffer, len(state), sequence) == len(state):
            return True
        self.truncate_sequence(0, sequence)
        discard_last_messages()
        return False

    def copy_sequence(self, source: int, target: int) -> None:
        """Copy all tokens of the sequence ``source`` into the empty sequence ``target``."""
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)
