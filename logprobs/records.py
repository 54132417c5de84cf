"""A token with its logprob."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token by id and bytes, with its log-probability in nats; None where it was not asked for."""

    id: int
    data: bytes
    logprob: float | None

    @property
    def text(self) -> str:
        """The bytes as text; a part of a character becomes U+FFFD, which is why the bytes stand beside it."""
        return self.data.decode("utf-8", "replace")

    def as_json(self) -> dict[str, object]:
        """``id, token, bytes, logprob``; a logprob of -inf is null, since JSON has no such number."""
        finite = self.logprob is not None and math.isfinite(self.logprob)
        return {
            "id": self.id,
            "token": self.text,
            "bytes": list(self.data),
            "logprob": self.logprob if finite else None,
        }
