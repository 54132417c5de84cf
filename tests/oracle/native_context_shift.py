"""The loop of llama.cpp's completion program (tools/completion) with ``--context-shift``, through ctypes.

It makes a context of its own for a model that is loaded, and draws with llama.cpp's own samplers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

_BATCH_TOKENS = 512


@dataclass(frozen=True)
class NativeRun:
    """The result of a run.

    Attributes: ``tokens``, those that were drawn; ``logprobs``, the model's of each; ``shifts``, how often older
    ones were discarded.
    """

    tokens: list[int]
    logprobs: list[float]
    shifts: int


@dataclass(frozen=True)
class ShiftedRun:
    """The arguments of a run.

    Attributes: ``keep``, llama.cpp's n_keep; ``banned``, tokens that are never drawn; ``follow``, tokens that are
    taken instead of drawing.
    """

    prompt: Sequence[int]
    count: int
    context_tokens: int
    keep: int
    seed: int
    banned: Sequence[int] = ()
    repeat_penalty: float = 1.0
    temperature: float = 0.8
    """0: the most likely token."""
    follow: Sequence[int] = ()


def run_with_context_shift(model: Any, run: ShiftedRun) -> NativeRun:
    """Draw ``run.count`` tokens; ``model``: a llama_model."""
    with ExitStack() as stack:
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = run.context_tokens, _BATCH_TOKENS, _BATCH_TOKENS
        params.n_threads = params.n_threads_batch = 1
        context = lib.llama_init_from_model(model, params)
        stack.callback(lib.llama_free, context)
        samplers = _samplers(model, run)
        stack.callback(lib.llama_sampler_free, samplers)
        return _run(model, context, samplers, run)


def _run(model: Any, context: Any, samplers: Any, run: ShiftedRun) -> NativeRun:
    memory = lib.llama_get_memory(context)
    if run.keep < 0 or run.keep > len(run.prompt):
        keep = len(run.prompt)
    else:
        keep = run.keep + bool(lib.llama_vocab_get_add_bos(lib.llama_model_get_vocab(model)))
    drawn: list[int] = []
    logprobs: list[float] = []
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    shifts, past, unread = 0, 0, list(run.prompt)
    for prompt_token in run.prompt:
        lib.llama_sampler_accept(samplers, prompt_token)
    while len(drawn) < run.count:
        if past + len(unread) >= run.context_tokens:
            discard = (past - keep) // 2
            assert lib.llama_memory_seq_rm(memory, 0, keep, keep + discard)
            lib.llama_memory_seq_add(memory, 0, keep + discard, past, -discard)
            past -= discard
            shifts += 1
        tokens = (lib.llama_token * len(unread))(*unread)  # the batch points to it
        assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(unread))) == 0
        past += len(unread)
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (size,)).astype(np.float64)
        token = run.follow[len(drawn)] if run.follow else int(lib.llama_sampler_sample(samplers, context, -1))
        unread = [token]
        drawn.append(token)
        logprobs.append(float(logits[token] - np.logaddexp.reduce(logits)))
    return NativeRun(drawn, logprobs, shifts)


def _samplers(model: Any, run: ShiftedRun) -> Any:
    vocabulary_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    banned = (lib.llama_logit_bias * len(run.banned))(*((token, -math.inf) for token in run.banned))
    steps = [
        lib.llama_sampler_init_logit_bias(vocabulary_size, len(banned), banned),
        lib.llama_sampler_init_penalties(vocabulary_size, 64, run.repeat_penalty, 0.0, 0.0),
    ]
    if not run.temperature:
        steps.append(lib.llama_sampler_init_greedy())
    else:
        steps += [
            lib.llama_sampler_init_top_k(40),
            lib.llama_sampler_init_temp(run.temperature),
            lib.llama_sampler_init_dist(run.seed),
        ]
    for step in steps:
        lib.llama_sampler_chain_add(chain, step)
    return chain
