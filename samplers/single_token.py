"""Parameters that name a token, by its id or by a text."""

from __future__ import annotations

from .base import BuildContext, need_vocabulary
from .errors import SamplingError


def token_of(key: int | str, context: BuildContext, parameter: str, hint: str = "") -> int:
    """Return the token id that ``key`` names: an id itself, or the one token of a text.

    Args:
        key: the id or the text.
        context: the vocabulary.
        parameter: what messages begin with.
        hint: what the message on a text of several tokens ends with.

    Raises ``SamplingError`` that begins with ``parameter``, for a text of several tokens or of none, a text
    without a vocabulary, and an id outside the vocabulary.
    """
    if isinstance(key, int):
        vocabulary = context.vocabulary
        if key < 0 or (vocabulary is not None and key >= vocabulary.size):
            limit = "≥ 0" if vocabulary is None else f"within 0..{vocabulary.size - 1}"
            raise SamplingError(f"{parameter}: token id {key} is not {limit}")
        return key
    tokens = need_vocabulary(context, f"{parameter}: {key!r}").tokenize(encode_utf8(key, parameter))
    if len(tokens) != 1:
        raise SamplingError(
            f"{parameter}: {key!r} is {len(tokens)} tokens {tokens}; give one token, or its id{hint}"
        )
    return tokens[0]


def encode_utf8(text: str, parameter: str) -> bytes:
    """Return a text in UTF-8. Raises ``SamplingError`` that begins with ``parameter`` if it has no UTF-8 form."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{parameter}: {text!r} is not UTF-8") from None
