"""The probabilities of options, computed anew: with llama.cpp's tokenizer, single decodes, and sums in float64."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from itertools import takewhile

import llama_cpp.llama_cpp as lib
import numpy as np

from ..oracle.native_logits import log_softmax


class Reference:
    """``path``: a GGUF file."""

    def __init__(self, path, length=1024):
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        # with them, llama.cpp crashes on processors with AMX
        params.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        self._model = lib.llama_model_load_from_file(str(path).encode(), params)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.size = lib.llama_vocab_n_tokens(self._vocab)
        params = lib.llama_context_default_params()
        params.n_ctx = length
        params.n_threads = params.n_threads_batch = 1
        self._context = lib.llama_init_from_model(self._model, params)
        self._held = ((), ())  # the prompt in the context, and what follows it
        self._rows = {}

    def tokenize(self, text, *, special=True, adds_bos=True):
        data = text.encode()
        buffer = (lib.llama_token * (len(data) + 8))()
        count = lib.llama_tokenize(self._vocab, data, len(data), buffer, len(buffer), adds_bos, special)
        assert count > 0
        return list(buffer[:count])

    @cache  # noqa: B019 - a reference lives as long as its test
    def piece(self, token):
        buffer = ctypes.create_string_buffer(256)
        count = lib.llama_token_to_piece(self._vocab, token, buffer, 256, 0, False)
        return buffer.raw[:count]

    def is_eog(self, token):
        return lib.llama_vocab_is_eog(self._vocab, token)

    def row(self, prompt, path):
        """float64 (V,): ln of the probabilities of the next token after a prompt, read in one call, and a path."""
        key = (tuple(prompt), tuple(path))
        if key not in self._rows:
            pairs = zip(self._held[1], path[:-1], strict=False) if self._held[0] == tuple(prompt) else ()
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            memory = lib.llama_get_memory(self._context)
            if self._held[0] == tuple(prompt) and path:
                lib.llama_memory_seq_rm(memory, 0, len(prompt) + shared, -1)
            else:
                shared = 0
                lib.llama_memory_clear(memory, True)
                self._decode(prompt)
            for token in path[shared:]:
                self._decode([token])
            self._held = key
            pointer = lib.llama_get_logits_ith(self._context, ctypes.c_int32(-1))
            self._rows[key] = log_softmax(np.ctypeslib.as_array(pointer, (self.size,)))
        return self._rows[key]

    def _decode(self, ids):
        tokens = (lib.llama_token * len(ids))(*ids)
        assert lib.llama_decode(self._context, lib.llama_batch_get_one(tokens, len(ids))) == 0

    def ends(self, *, plain):
        return [
            token
            for token in range(self.size)
            if self.is_eog(token) or (plain and self.piece(token).startswith((b"\n", b"\r")))
        ]

    def logprob(self, prompt, spelling, *, plain):
        """ln of the probability of a spelling and of the end after it."""
        ids = self.tokenize(prompt)
        all_ids = self.tokenize(prompt + spelling)
        # Some texts share a token with the prompt's end, such as :" - then they are divided by themselves.
        path = all_ids[len(ids) :] if all_ids[: len(ids)] == ids else self.tokenize(spelling, adds_bos=False)
        total = sum(self.row(ids, path[:place])[token] for place, token in enumerate(path))
        return total + math.log(np.exp(self.row(ids, path)[self.ends(plain=plain)]).sum())

    def option_logprobs(self, prompt, spellings, *, plain):
        self._rows.clear()  # a large vocabulary has rows of a megabyte
        return [
            math.log(math.fsum(math.exp(self.logprob(prompt, text, plain=plain)) for text in texts))
            for texts in spellings
        ]

    def grammar_probabilities(self, prompt, spellings):
        """What a run under a grammar of these texts draws: every division into tokens is followed."""
        self._rows.clear()
        options = {text.encode(): number for number, texts in enumerate(spellings) for text in texts}
        totals = [0.0] * len(spellings)
        ids = self.tokenize(prompt)
        pieces = {token: self.piece(token) for token in range(self.size)}
        pieces = {token: piece for token, piece in pieces.items() if piece and not self.is_eog(token)}
        eog = [token for token in range(self.size) if self.is_eog(token)]

        def follow(path, written, probability):
            allowed = [
                token
                for token, piece in pieces.items()
                if any(text.startswith(written + piece) for text in options)
            ]
            if written in options and not allowed:
                totals[options[written]] += probability
                return
            ends = eog if written in options else []
            row = self.row(ids, path)
            weights = np.exp(row[[*allowed, *ends]])
            weights /= weights.sum()
            for token, weight in zip([*allowed, *ends], weights, strict=True):
                if token in ends:
                    totals[options[written]] += probability * weight
                else:
                    follow([*path, token], written + pieces[token], probability * weight)

        follow([], b"", 1.0)
        return totals

    def close(self):
        lib.llama_free(self._context)
        lib.llama_model_free(self._model)
