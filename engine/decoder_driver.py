"""Runs a decoder step by step, for whoever provides its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..logprobs.events import Token
from .decoder import Decoding, NeedLogits
from .native_context import Logits


class DecoderDriver:
    """Runs a decoder until it needs logits or ends.

    Attributes: ``finish_reason``, None until the decoder ends; before that, ``drop_count``, how many tokens are to
    be removed from the end of the sequence, and ``needed_tokens``, those to be read then.
    """

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self.finish_reason: str | None = None
        self.needed_tokens: Sequence[int] = ()
        self.drop_count = 0

    def resume(self, rows: Sequence[Logits] | None = None) -> Iterator[Token]:
        """Send the logits that the decoder needs, None at first; yields the tokens that it makes of them."""
        reply = rows
        try:
            while True:
                output = self._decoding.send(reply)
                reply = None
                if isinstance(output, NeedLogits):
                    self.needed_tokens, self.drop_count = output
                    return
                yield output
        except StopIteration as end:
            self.finish_reason = end.value
