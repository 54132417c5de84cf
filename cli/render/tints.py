"""Tints of tokens on a terminal: the less probable, the darker."""

from __future__ import annotations

from math import sqrt

_TINTS = ((64, 18, 92), (52, 86, 140), (46, 144, 140), (112, 200, 104), (250, 232, 96))
"""The background at probabilities 0, 1/16, 1/4, 9/16 and 1: each is brighter than the one before.

So they differ also to those who cannot tell red from green. In between they go by the root of the probability,
since most tokens have a small one."""
_DARK_LUMINANCE = 0.18
"""White text has more contrast than black on a background that is darker."""
_LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)
_UNDERLINED, _BOLD = 0.05, 0.01
"""Tokens that are less probable are underlined, and bold: marks that need no colour."""


def tint_style(probability: float) -> str:
    """The style of a token, as rich names it: a background from dark (improbable) to bright, and marks."""
    red, green, blue = color = _background(probability)
    luminance = sum(weight * (part / 255) ** 2.2 for weight, part in zip(_LUMINANCE_WEIGHTS, color, strict=True))
    styles = [
        "bold" if probability < _BOLD else "",
        "underline" if probability < _UNDERLINED else "",
        "bright_white" if luminance < _DARK_LUMINANCE else "black",
        f"on rgb({red},{green},{blue})",
    ]
    return " ".join(filter(None, styles))


def _background(probability: float) -> tuple[int, int, int]:
    position = sqrt(probability) * (len(_TINTS) - 1)
    lower = min(int(position), len(_TINTS) - 2)
    share = position - lower
    red, green, blue = (
        round(dark + (bright - dark) * share)
        for dark, bright in zip(_TINTS[lower], _TINTS[lower + 1], strict=True)
    )
    return red, green, blue
