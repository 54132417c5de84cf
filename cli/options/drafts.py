"""The flags of drafts: guesses of the next tokens, which the model checks in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...common.errors import UsageError
from ...common.flags import CompletionKind, at_least, within
from ..flags import Options, flag

_draft = partial(flag, panel="Drafts")
_DEFAULT_MAX_TOKENS = 3  # of ``DraftOptions.n_max``, as the help says


@dataclass(frozen=True, kw_only=True)
class DraftingOptions(Options):
    """The sources of drafts: the text so far, and a smaller model."""

    lookup: int = _draft(
        "--lookup",
        metavar="N",
        help="Guess up to N next tokens from the text so far, to save time; 0 = off. [0]",
        default=0,
        limit=at_least(0),
    )
    draft_model: str | None = _draft(
        "-md",
        "--model-draft",
        "--spec-draft-model",
        metavar="FILE",
        help="Smaller model with the same vocabulary that guesses the next tokens, to save time.",
        is_path=True,
        completion_kind=CompletionKind.MODEL,
    )
    max_draft_tokens: int | None = _draft(
        "--spec-draft-n-max",
        metavar="N",
        help="Maximum number of tokens that -md guesses at a time. [3]",
        limit=at_least(1),
    )
    min_draft_tokens: int | None = _draft(
        "--spec-draft-n-min",
        metavar="N",
        help="Ignore guesses of -md with fewer tokens. [0]",
        limit=at_least(0),
    )
    min_draft_probability: float | None = _draft(
        "--spec-draft-p-min",
        "--draft-p-min",
        metavar="P",
        help="End a guess of -md before a token that is less probable than P; 0 = off. [0]",
        limit=within(0, 1),
    )

    def check(self) -> None:
        """Raise ``UsageError`` for limits without a draft model, and for limits that no draft meets."""
        limits = {
            "--spec-draft-n-max": self.max_draft_tokens,
            "--spec-draft-n-min": self.min_draft_tokens,
            "--spec-draft-p-min": self.min_draft_probability,
        }
        typed = [name for name, value in limits.items() if value is not None]
        if typed and self.draft_model is None:
            raise UsageError(f"{typed[0]} limits the guesses of a draft model; name the model with -md FILE")
        if self.max_draft_tokens is None:
            n_max = _DEFAULT_MAX_TOKENS
            maximum = f"the default of {n_max}"
        else:
            n_max = self.max_draft_tokens
            maximum = f"--spec-draft-n-max, {n_max}"
        n_min = self.min_draft_tokens
        if n_min is not None and n_min > n_max:
            raise UsageError(
                f"--spec-draft-n-min: {n_min} is more than {maximum}, so that no guess is used;"
                f" add --spec-draft-n-max {n_min}, or a larger number"
            )

    @property
    def is_off(self) -> bool:
        """True if no flag asks for drafts."""
        return self.draft_model is None and not self.lookup
