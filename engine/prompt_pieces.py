"""Where a prompt may be divided without changing what is computed."""

from __future__ import annotations

from typing import NamedTuple

PIECE_TOKENS = 64
"""The fewest tokens for llama.cpp's tiled flash attention kernel.

What that kernel computes for a token does not depend on where a text is divided.
"""


class PromptPieces(NamedTuple):
    """How an empty context reads a prompt: in batches, which may be divided into pieces.

    ``batch``: the tokens of a batch; ``piece``: a batch that is divided at a multiple of so many tokens is
    computed alike. It is ``batch`` where only whole batches are.
    """

    batch: int
    piece: int

    def reusable(self, common: int, length: int) -> int:
        """How many of ``common`` tokens at the beginning can be kept for a prompt of ``length`` tokens.

        They end where a batch ends. Or they end between two pieces, if the prompt's batch goes on for a piece.
        """
        start = common - common % self.batch
        inside = (common - start) // self.piece * self.piece
        before_last = (min(length - start, self.batch) - self.piece) // self.piece * self.piece
        return start + max(0, min(inside, before_last))

    def end_of_batch(self, position: int) -> int:
        """Where the batch ends that a position is in."""
        return position - position % self.batch + self.batch
