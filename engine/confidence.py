"""The tokens of an answer with the logprobs that the model gives them, and what they say about the answer."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from ..grammars.json_places import ScalarPlace, scalar_places
from ..logprobs.confidence import Confidence, FieldConfidence
from ..logprobs.events import Token


class _AnswerToken(NamedTuple):
    data: bytes  # its bytes of the text
    logprob: float | None  # None if the token was forced


class AnswerTokens:
    """The tokens of an answer, without those of the reasoning."""

    def __init__(self) -> None:
        self._tokens: list[_AnswerToken] = []

    def add(self, tokens: Iterable[Token]) -> None:
        """Add the next tokens of the text, whose parts are decided."""
        for token in tokens:
            if token.part != "reasoning":
                data = b"" if token.is_control else token.own_data
                self._tokens.append(_AnswerToken(data, token.model_logprob))

    @property
    def confidence(self) -> Confidence | None:
        """The confidence of the answer; None if no token was drawn."""
        return Confidence.of([token.logprob for token in self._tokens if token.logprob is not None])

    def fields(self, text: str, beginning: str) -> Mapping[str, FieldConfidence] | None:
        """Return the confidence of each scalar value of a JSON answer by its pointer; None if it is not JSON."""
        # ``text``: the answer, which may lack blanks before it and a stop string after it; ``beginning``: text
        # before it, which was given.
        spelled_tokens = [token for token in self._tokens if token.data]
        text_start = b"".join(token.data for token in spelled_tokens).find(text.encode())
        places = scalar_places((beginning + text).encode())
        if places is None or text_start < 0:
            return None
        first_start = len(beginning.encode()) - text_start
        starts = list(accumulate((len(token.data) for token in spelled_tokens), initial=first_start))

        def confidence_at(place: ScalarPlace) -> FieldConfidence:
            first = max(bisect_right(starts, place.start) - 1, 0)
            logprobs = [token.logprob for token in spelled_tokens[first : bisect_left(starts, place.end)]]
            drawn = [logprob for logprob in logprobs if logprob is not None]
            return FieldConfidence(math.fsum(drawn), len(logprobs), len(logprobs) - len(drawn))

        return {place.pointer: confidence_at(place) for place in places}
