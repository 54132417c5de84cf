"""The size of a context, and how it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .compute_options import ComputeOptions
from .native_abort_flag import AbortFlag
from .native_binding import lib

_CONTEXT_STEP_TOKENS = 256
"""llama.cpp rounds the length of a sequence up to a multiple of this."""


@dataclass(frozen=True)
class ContextOptions:
    """The size of a context, and how it computes.

    Attributes: ``length``, tokens per sequence; ``threads``; ``batch``, the most tokens that are read at once;
    ``sequences``, how many there are; ``keeps_states``, whether the hidden states of all tokens are kept;
    ``compute``, what else llama.cpp's flags set.
    """

    length: int
    threads: int
    batch: int = 512
    sequences: int = 1
    keeps_states: bool = False
    compute: ComputeOptions = field(default_factory=ComputeOptions)


def native_context_params(options: ContextOptions, abort_flag: AbortFlag) -> Any:
    """llama.cpp's parameters of such a context, whose calls ``abort_flag`` ends."""
    params = lib.llama_context_default_params()
    params.n_ctx = options.length
    if options.sequences > 1:
        steps = -(-options.length // _CONTEXT_STEP_TOKENS)
        params.n_ctx = steps * _CONTEXT_STEP_TOKENS * options.sequences
    params.n_seq_max = options.sequences
    params.n_batch = params.n_ubatch = options.batch
    params.n_threads = params.n_threads_batch = options.threads
    params.abort_callback, params.abort_callback_data = abort_flag.callback, abort_flag.address
    options.compute.apply(params)
    if options.keeps_states:
        params.embeddings, params.pooling_type = True, lib.LLAMA_POOLING_TYPE_NONE
    return params
