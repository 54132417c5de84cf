"""Logprob records and their shapes as JSON."""

from .jsonl import done_line, prompt_line, start_line, token_line
from .records import TokenLogprob

__all__ = ["TokenLogprob", "done_line", "prompt_line", "start_line", "token_line"]
