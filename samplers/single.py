"""Texts that stand for one token."""

from __future__ import annotations

from .base import BuildContext, need_vocabulary
from .errors import SamplingError


def token_of(key: int | str, surroundings: BuildContext, parameter: str) -> int:
    """Return the token id that ``key`` means: itself, or the one token that a text encodes to.

    Raises ``SamplingError`` that names the parameter, for a text of several tokens or of none, a text without a
    vocabulary, and an id outside of it.
    """
    if isinstance(key, int):
        known = surroundings.vocabulary
        if key < 0 or (known is not None and key >= known.size):
            limit = "≥ 0" if known is None else f"within 0..{known.size - 1}"
            raise SamplingError(f"{parameter}: token id {key} is not {limit}")
        return key
    tokens = need_vocabulary(surroundings, f"{parameter}: {key!r}").tokenize(utf8(key, parameter))
    if len(tokens) != 1:
        raise SamplingError(f"{parameter}: {key!r} is {len(tokens)} tokens {tokens}; give one token, or its id")
    return tokens[0]


def utf8(text: str, parameter: str) -> bytes:
    """Return the bytes of a text; raise ``SamplingError`` that names the parameter where it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{parameter}: {text!r} is not UTF-8") from None
