"""Tokenizes a prompt together with a continuation."""

from __future__ import annotations

from typing import NamedTuple

from ..models.errors import ModelError
from .vocabulary import Vocabulary


class Continuation(NamedTuple):
    """The tokens of a prompt and of a choice after it.

    ``is_separate``: the choice was tokenized separately, because in the whole text its first characters would
    share a token with the prompt's last ones.
    """

    prompt_ids: list[int]
    choice_ids: list[int]
    is_separate: bool


def tokenize_continuation(vocabulary: Vocabulary, prompt: str, choice: str) -> Continuation:
    """Tokenize a prompt and a choice after it.

    If the tokens of the whole text begin with those of the prompt, the choice has the rest; otherwise the choice
    is tokenized separately. Raises ``ModelError`` if it cannot be.
    """
    prompt_ids = vocabulary.tokenize_prompt(prompt.encode())
    text_ids = vocabulary.tokenize_prompt((prompt + choice).encode())
    if text_ids[: len(prompt_ids)] == prompt_ids:
        return Continuation(prompt_ids, text_ids[len(prompt_ids) :], False)
    data = choice.encode()
    # SentencePiece puts a space before a text, but not after a line feed.
    for ids in (vocabulary.tokenize(data, special=True), vocabulary.tokenize(b"\n" + data, special=True)[1:]):
        if b"".join(map(vocabulary.piece, ids)) == data:
            return Continuation(prompt_ids, ids, True)
    raise ModelError(
        f"{choice!r} cannot be tokenized by itself, and after the prompt it shares a token with the prompt's end"
    )
