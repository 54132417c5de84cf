"""How notes on the steps of a chain write numbers, and the words that several samplers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stage_candidates import StageCandidates


_DIGITS, _MOST_DIGITS = 3, 9
"""Significant digits of a number; nine tell any two float32 apart."""


def short_number(value: float, digits: int = _DIGITS) -> str:
    """A number with three significant digits: ``0.0105``, ``12.3``, ``49,152``."""
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.{digits}g}"


def comparison(left: float, sign: str, right: float) -> str:
    """Two numbers with a sign between them, as ``0.71 > 0.5``, and so many digits that they differ if they do."""
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        texts = short_number(left, digits), short_number(right, digits)
        if texts[0] != texts[1] or left == right:
            break
    return f"{texts[0]} {sign} {texts[1]}"


def token_count(count: int) -> str:
    """A number of tokens: ``1 token``, ``12 tokens``."""
    return f"{count:,} token{'' if count == 1 else 's'}"


def mass_at(before: StageCandidates, after: StageCandidates) -> str:
    """The mass that was kept, as ``mass 0.953 at 12 tokens``."""
    mass = before.mass_of(after)
    text = short_number(mass)
    if mass < 1 and text == "1":  # nearly all of it
        text = short_number(mass, _MOST_DIGITS)
    return f"mass {text} at {token_count(len(after))}"


def logit_changes(before: StageCandidates, after: StageCandidates) -> str:
    """How many tokens got another logit, and by how much: ``3 tokens lowered by up to 1.2``."""
    changes = after.changes_since(before)
    parts = []
    for verb, distances in (("raised", changes[changes > 0]), ("lowered", -changes[changes < 0])):
        if distances.size:
            parts.append(f"{token_count(distances.size)} {verb} by up to {short_number(distances.max())}")
    return ", ".join(parts) or "no token changed"


def dropped_tokens(before: StageCandidates, after: StageCandidates, what: str) -> str:
    """How many tokens were dropped, and what they are: ``2 end tokens dropped``, ``no end token``."""
    dropped = len(before) - len(after)
    return f"{dropped:,} {what}{'' if dropped == 1 else 's'} dropped" if dropped else f"no {what}"
