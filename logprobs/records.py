"""Records of tokens and of the distributions that they were drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .trace import Trace

LogprobSource = Literal["model", "chain"]
"""``model``: log-softmax of the untouched logits; ``chain``: of what the chain left, which was drawn from."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token by id and bytes, with its log-probability in nats; None where there is none."""

    id: int
    data: bytes
    logprob: float | None

    @property
    def text(self) -> str:
        """The bytes as text; see `display_text` for bytes that are not."""
        return display_text(self.data)

    def as_json(self) -> dict[str, object]:
        """``id, token, bytes, logprob``."""
        return {
            "id": self.id,
            "token": self.text,
            "bytes": list(self.data),
            "logprob": finite_or_none(self.logprob),
        }


@dataclass(frozen=True, slots=True)
class Distribution:
    """What was read of one distribution over the vocabulary; logprobs and entropy in nats.

    Attributes:
        source: which distribution it is.
        logprob: the chosen token's; None if the chain removed it.
        top: the likeliest tokens, from high to low.
        named: the tokens whose logprobs were requested by id.
        entropy: the entropy; None if it was not computed.
        row: every token's logprob by id, float32 in little-endian bytes; -inf for tokens that the chain removed.
    """

    source: LogprobSource
    logprob: float | None
    top: tuple[TokenLogprob, ...] = ()
    named: tuple[TokenLogprob, ...] = ()
    entropy: float | None = None
    row: bytes | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of a text, with the distributions that it came from, if they were read.

    Attributes:
        index: its position in the text, from 0.
        id: its id.
        data: its bytes.
        text: the text that can be shown once the token is there; it may lag behind the bytes.
        special: True for a control token that is not part of the text.
        distributions: one per source.
        added_bytes: how many of the first bytes the tokenizer added: the space that SentencePiece puts before a
            text.
        trace: how it was chosen; None if the run is not traced.
    """

    index: int
    id: int
    data: bytes
    text: str
    special: bool
    distributions: tuple[Distribution, ...] = ()
    added_bytes: int = 0
    trace: Trace | None = None

    @property
    def own_data(self) -> bytes:
        """The token's bytes without those that the tokenizer added."""
        return self.data[self.added_bytes :]

    def without_added_bytes(self) -> TokenRecord:
        """Return the token with its own bytes alone."""
        return replace(self, data=self.own_data, added_bytes=0) if self.added_bytes else self

    @property
    def chosen(self) -> TokenLogprob:
        """The token with its logprob in the first distribution, None if there is none."""
        return TokenLogprob(self.id, self.data, self.distributions[0].logprob if self.distributions else None)

    @property
    def top(self) -> tuple[TokenLogprob, ...]:
        """The likeliest tokens of the first distribution."""
        return self.distributions[0].top if self.distributions else ()


def display_text(data: bytes) -> str:
    """A token as text. Bytes that are not UTF-8 become ``bytes:`` and hexadecimal escapes, as with OpenAI."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def finite_or_none(value: float | None) -> float | None:
    """The number if it is finite; else None, since JSON has no NaN and no Infinity."""
    return value if value is not None and math.isfinite(value) else None
