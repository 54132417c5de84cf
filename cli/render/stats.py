"""What `--stats` prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...engine import Done


def show(done: Done, seed: int) -> None:
    """Print speeds and counts to stderr."""
    times = done.timings
    made = done.completion_tokens
    share = times.chain / times.generation if times.generation else 0.0
    each = times.chain / made * 1e6 if made else 0.0
    lines = (
        f"prompt      {done.prompt_tokens:6,} tokens  {_rate(done.prompt_tokens, times.prompt)}",
        f"generation  {made:6,} tokens  {_rate(made, times.generation)}",
        f"chain       {each:6,.0f} µs a token, {share:.1%} of the generation",
        f"finish      {done.finish_reason}{f' at {done.stop!r}' if done.stop is not None else ''}, seed {seed}",
    )
    print("\n" + "\n".join(lines), file=sys.stderr)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"
