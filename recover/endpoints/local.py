"""An endpoint for a local model, which shows only a few logprobs, as an API would: for study and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np

from ...engine.model import Model
from ..errors import require_at_least
from ..numerics import Float64s, logsumexp
from .base import Bias, Endpoint, EndpointLimits, EndpointResponse

_RELATIVE_ERROR = 1e-14  # Error of float64 with a sum over the vocabulary
_MIN_LOGPROB_NATS = -700.0  # e to a lower power is not a normal float64


class LocalEndpoint(Endpoint):
    """A GGUF model of which only a few logprobs are shown, computed after the biases in float64.

    The logits are computed once per prompt. An endpoint that was created from a path must be closed, or used
    in a ``with`` statement. A `Model` that was passed stays open.

    Args:
        path_or_model: the path of a GGUF file, or a loaded model.
        window: number of shown logprobs per call; 0: only the most likely token.

    Attributes:
        model: the model.
        vocab_size: number of tokens.
        limits: the number of shown logprobs, and their accuracy.
        identity: the path of the model, its LoRA adapters, and the number of shown logprobs.
    """

    def __init__(self, path_or_model: str | Path | Model, window: int = 5) -> None:
        require_at_least(0, window=window)
        self._owns_model = not isinstance(path_or_model, Model)
        self.model = path_or_model if isinstance(path_or_model, Model) else Model.load(path_or_model)
        vocabulary = self.model.vocabulary
        self.vocab_size = vocabulary.size
        self.limits = EndpointLimits(
            min(window, vocabulary.size), relative_error=_RELATIVE_ERROR, min_reliable_logprob=_MIN_LOGPROB_NATS
        )
        self.identity = {"api": "local", "model": str(self.model.path.resolve()), "window": self.limits.window}
        if self.model.lora:
            self.identity["lora"] = [[str(path.resolve()), scale] for path, scale in self.model.lora]
        self._lock = Lock()
        self._logprobs_by_prompt: dict[str, Float64s] = {}

    @cached_property
    def token_bytes(self) -> Sequence[bytes | None]:  # type: ignore[override] # a cached_property can be set
        """The bytes of every token."""
        return self.model.vocabulary.pieces

    def count_tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt."""
        return len(self.model.vocabulary.tokenize_prompt(prompt.encode()))

    def row(self, prompt: str) -> Float64s:
        """Return the model's logprobs, float64 (V,), which a recovery should reproduce.

        Raises ``ModelError``.
        """
        with self._lock:
            row = self._logprobs_by_prompt.get(prompt)
            if row is None:
                self.model.context.read(self.model.vocabulary.tokenize_prompt(prompt.encode()))
                logits = self.model.context.logits().astype(np.float64)
                row = self._logprobs_by_prompt[prompt] = logits - logsumexp(logits)
        return row

    def query(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return the shown logprobs after the biases. The token is the most likely one."""
        row = self.row(prompt).copy()
        ids = np.fromiter(logit_bias, dtype=np.intp, count=len(logit_bias))
        row[ids] += np.fromiter(logit_bias.values(), dtype=np.float64, count=len(logit_bias))
        token = int(row.argmax())
        if not self.limits.window:
            return EndpointResponse(token)
        row -= logsumexp(row)
        top_ids = np.argpartition(-row, self.limits.window - 1)[: self.limits.window]
        return EndpointResponse(
            token, float(row[token]), dict(zip(top_ids.tolist(), row[top_ids].tolist(), strict=True))
        )

    def close(self) -> None:
        """Close the model, if this endpoint loaded it."""
        if self._owns_model:
            self.model.close()

    def __enter__(self) -> LocalEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
