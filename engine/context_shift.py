"""Context shift: a text goes on when the context is full, without its older tokens."""

from __future__ import annotations

from ..models.errors import ModelError
from .context import Context


class ContextShift:
    """The capacity of a context that discards older tokens when it is full.

    As llama.cpp's ``--context-shift``: the context counts as full when one more token fits. Its first ``keep``
    tokens stay, half of those after them are discarded, and the others move up. Their keys and values are not
    computed again, so they still depend on what was discarded. Raises ``ModelError`` if the model cannot shift.

    Attributes: ``keep``; ``count``: how often tokens were discarded; ``max_rows``: see `Context`.
    """

    def __init__(self, context: Context, keep: int) -> None:
        if keep < -1:
            raise ModelError(f"keep_on_shift: {keep} is not ≥ -1")
        if context.why_it_cannot_shift is not None:
            raise ModelError(
                f"context shift: this model cannot drop the older tokens of a text: {context.why_it_cannot_shift}"
            )
        self._context = context
        self.keep = keep
        self.count = 0
        self.max_rows = context.max_rows

    def keep_of_prompt(self, prompt_tokens: int, adds_bos: bool) -> None:
        """Resolve ``keep`` as llama.cpp does: -1, or more than there are, is the whole prompt; BOS stays too."""
        if self.keep < 0 or self.keep > prompt_tokens:
            self.keep = prompt_tokens
        else:
            self.keep += adds_bos

    @property
    def remaining(self) -> int:
        """How many more tokens fit before older ones are discarded."""
        return self._context.remaining - 1

    def make_room(self, rejected: int) -> bool:
        """Remove the last ``rejected`` tokens, and discard half of those after ``keep``.

        Returns False if there is nothing to discard.
        """
        context = self._context
        context.truncate(len(context.tokens) - rejected)
        discarded = (len(context.tokens) - self.keep) // 2
        if discarded < 1:
            return False
        context.discard(self.keep, discarded)
        self.count += 1
        return True
