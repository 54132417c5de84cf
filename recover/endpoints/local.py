"""A model of our own behind a window, as an API would show it: for study and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ...engine import Model
from ..errors import RecoverError
from ..numerics import Float64s, logsumexp
from .base import Bias, EndpointAnswer, EndpointLimits


class LocalEndpoint:
    """The next token of a GGUF model: the ``window`` likeliest logprobs after the biases; 0: only the token.

    Its answers are float64, out of logits that are computed once a prompt. Close it, or use it in a ``with``, if
    it was given a path; a `Model` stays open.
    """

    def __init__(self, path_or_model: str | Path | Model, window: int = 5) -> None:
        if window < 0:
            raise RecoverError(f"window: {window} is not ≥ 0")
        self._own = not isinstance(path_or_model, Model)
        self.model = path_or_model if isinstance(path_or_model, Model) else Model.load(path_or_model)
        self.limits = EndpointLimits(min(window, self.vocab_size), precision=1e-14, lowest=-700.0, spend=False)
        self._lock = Lock()
        self._rows: dict[str, Float64s] = {}

    @property
    def vocab_size(self) -> int:
        """How many tokens the model has."""
        return self.model.vocabulary.size

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model's file with its adapters, and the window."""
        named = {"api": "local", "model": str(self.model.path.resolve()), "window": self.limits.window}
        lora = [[str(path.resolve()), scale] for path, scale in self.model.lora]
        return named | ({"lora": lora} if lora else {})

    @cached_property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token."""
        return self.model.vocabulary.pieces

    def count_tokens(self, prompt: str) -> int:
        """How many tokens a prompt has."""
        return len(self.model.vocabulary.tokenize_prompt(prompt.encode()))

    def row(self, prompt: str) -> Float64s:
        """The model's own logprobs, float64 (V,): what a recovery should find. Raises ``ModelError``."""
        with self._lock:
            found = self._rows.get(prompt)
            if found is None:
                self.model.context.read(self.model.vocabulary.tokenize_prompt(prompt.encode()))
                logits = self.model.context.logits().astype(np.float64)
                found = self._rows[prompt] = logits - logsumexp(logits)
        return found

    def query(self, prompt: str, logit_bias: Bias) -> EndpointAnswer:
        """The window after the biases; the token is the likeliest one."""
        row = self.row(prompt).copy()
        ids = np.fromiter(logit_bias, dtype=np.intp, count=len(logit_bias))
        row[ids] += np.fromiter(logit_bias.values(), dtype=np.float64, count=len(logit_bias))
        token = int(row.argmax())
        if not self.limits.window:
            return EndpointAnswer(token)
        row -= logsumexp(row)
        top = np.argpartition(-row, self.limits.window - 1)[: self.limits.window]
        return EndpointAnswer(token, float(row[token]), dict(zip(top.tolist(), row[top].tolist(), strict=True)))

    def close(self) -> None:
        """Close the model, if this endpoint loaded it."""
        if self._own:
            self.model.close()

    def __enter__(self) -> LocalEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
