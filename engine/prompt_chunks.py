"""How the prompts of a batch are divided into chunks, which other slots may copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .prompt_pieces import PIECE_TOKENS

_ALIGNED_TOKENS = 16
"""llama.cpp's kernels take rows in groups of at most so many, and compute what is left by others."""


@dataclass(frozen=True)
class PromptChunks:
    """Divides prompts where llama.cpp computes the same as for a `Context`: at its batches, and between them.

    The last chunk of a batch and those before it, as far as they are read together, have at least `PIECE_TOKENS`.

    Attributes:
        batch: the most tokens that a `Context` reads at once.
        isolated: only whole batches are chunks, so that the calls are those of a `Context`.
        is_divisible: it makes no difference where a batch is divided. So chunks are short, and several are read at
            once; otherwise, each is read by itself.
    """

    batch: int
    isolated: bool = False
    is_divisible: bool = False

    def ends(self, length: int) -> list[int]:
        """Where the chunks of a prompt end."""
        ends: list[int] = []
        step = _ALIGNED_TOKENS if self.is_divisible else PIECE_TOKENS
        for start in range(0, length, self.batch):
            end = min(start + self.batch, length)
            if not self.isolated:
                ends += range(start + step, end - PIECE_TOKENS + 1, step)
            ends.append(end)
        return ends

    def read_ends(self, ends: Sequence[int]) -> Sequence[int]:
        """Where the tokens end that are read at once, of chunks with these ``ends``."""
        if not self.is_divisible:
            return ends
        return [end for end in ends if end % self.batch == 0 or end == ends[-1]]


def shared_tokens(
    held: Sequence[int], held_ends: Sequence[int], prompt: Sequence[int], ends: Sequence[int]
) -> int:
    """Return how many tokens at the start of a prompt are held, in chunks that the prompt would be read in.

    Args:
        held: the tokens that are held.
        held_ends: where their chunks end.
        prompt: the tokens of the prompt.
        ends: where its chunks would end.
    """
    shared = 0
    for held_end, end in zip(held_ends, ends, strict=False):
        if held_end != end or end >= len(prompt) or held[shared:end] != prompt[shared:end]:
            break
        shared = end
    return shared
