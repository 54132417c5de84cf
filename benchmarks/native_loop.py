"""The peers of the benchmarks: loops in which llama.cpp's chain and grammar choose the tokens."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
from logitsmith.engine import Model
from logitsmith.engine.native.context import NativeContext

from .native_grammar import NativeGrammar, Rows


class DecodeClock:
    """While inside, records the seconds of every llama_decode; ``now``: the clock that is used."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now

    def __enter__(self) -> DecodeClock:
        self.seconds: list[float] = []
        self._decode = decode = lib.llama_decode

        def timed(context: object, batch: object) -> int:
            began = self._now()
            code: int = decode(context, batch)
            self.seconds.append(self._now() - began)
            return code

        lib.llama_decode = timed
        return self

    def __exit__(self, *_: object) -> None:
        lib.llama_decode = self._decode


class NativeLoop:
    """llama.cpp's chain for the preset ``default``, which samples from the context of a loaded model."""

    def __init__(self, model: Model, seed: int) -> None:
        params = lib.llama_sampler_chain_default_params()
        self._chain = lib.llama_sampler_chain_init(params)
        for sampler in (
            lib.llama_sampler_init_top_k(40),
            lib.llama_sampler_init_top_p(0.95, 1),
            lib.llama_sampler_init_min_p(0.05, 1),
            lib.llama_sampler_init_temp(0.8),
            lib.llama_sampler_init_dist(seed),
        ):
            lib.llama_sampler_chain_add(self._chain, sampler)
        self._model = model

    def run(
        self, prompt: list[int], count: int, ends: frozenset[int] = frozenset()
    ) -> tuple[list[int], list[float]]:
        """Generate ``count`` tokens, or up to one of ``ends``. Return the tokens and the time of each."""
        context = self._model.context
        context.read(prompt)
        lib.llama_sampler_reset(self._chain)
        native: Any = context._native
        assert isinstance(native, NativeContext)
        one = (lib.llama_token * 1)()
        tokens, moments = [], []
        while True:
            token = lib.llama_sampler_sample(self._chain, native.handle, ctypes.c_int32(-1))
            tokens.append(token)
            moments.append(perf_counter())
            if len(tokens) == count or token in ends:
                break
            one[0] = token
            lib.llama_decode(native.handle, lib.llama_batch_get_one(one, 1))
        # The context does not know what was decoded here, so it must not reuse anything.
        native.truncate_sequence(0)
        context.tokens.clear()
        return tokens, moments

    def close(self) -> None:
        """Free the chain."""
        lib.llama_sampler_free(self._chain)


class NativeGrammarLoop(NativeLoop):
    """llama.cpp's chain under a grammar. A token is drawn and checked; if rejected, it is drawn under a mask."""

    def __init__(self, model: Model, seed: int, grammar: str) -> None:
        super().__init__(model, seed)
        self._grammar = NativeGrammar(model._native.vocabulary.handle, model.vocabulary.size, grammar)
        assert not self._grammar.is_rejected
        self._rows = Rows(model.vocabulary.size)

    def __enter__(self) -> NativeGrammarLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._grammar.__exit__()
        self.close()

    def write(self, prompt: list[int], max_tokens: int) -> int:
        """Generate until the text ends, or up to ``max_tokens`` tokens. Return the number of tokens."""
        context = self._model.context
        context.read(prompt)
        native: Any = context._native
        one = (lib.llama_token * 1)()
        count = 0
        while count < max_tokens:
            count += 1
            token = self._draw(native.logits())
            if lib.llama_vocab_is_eog(self._model._native.vocabulary.handle, token):
                break
            self._grammar.accept(token)
            lib.llama_sampler_accept(self._chain, token)
            one[0] = token
            lib.llama_decode(native.handle, lib.llama_batch_get_one(one, 1))
        native.truncate_sequence(0)
        context.tokens.clear()
        return count

    def _draw(self, logits: object) -> int:
        self._rows.fill(logits)
        lib.llama_sampler_apply(self._chain, ctypes.byref(self._rows.array))
        token = int(self._rows.rows["id"][self._rows.array.selected])
        if self._grammar.allows(token):
            return token
        self._rows.fill(logits)
        self._grammar.restrict(self._rows)
        lib.llama_sampler_apply(self._chain, ctypes.byref(self._rows.array))
        return int(self._rows.rows["id"][self._rows.array.selected])
