"""Which question an answer belongs to, and that question's name in a checkpoint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from .endpoints.base import Bias, QuestionKind

_FIRST_DRIFT_CHECK = 1 << 20
"""In a checkpoint file drift checks are numbered from here on: more than any question is repeated."""


@dataclass(frozen=True, slots=True)
class QuestionKey:
    """Identifies a question to one endpoint about one prompt.

    Args:
        biases: pairs of token id and bias, by id.
        kind: what is asked for.
        repetition: how many times the same question was asked before.
        drift_check: number of the drift check that asks it, from 1; 0: none.
    """

    biases: tuple[tuple[int, float], ...]
    kind: QuestionKind = QuestionKind.NEXT_TOKEN
    repetition: int = 0
    drift_check: int = 0

    @classmethod
    def of(
        cls,
        bias: Bias,
        kind: QuestionKind = QuestionKind.NEXT_TOKEN,
        repetition: int = 0,
        drift_check: int = 0,
    ) -> QuestionKey:
        """Return the key of the question with these biases, in any order.

        Args:
            bias: token id -> bias.
            kind: what is asked for.
            repetition: how many times the same question was asked before.
            drift_check: number of the drift check that asks it, from 1; 0: none.
        """
        return cls(
            tuple(sorted((int(token), float(value)) for token, value in bias.items())),
            kind,
            repetition,
            drift_check,
        )

    @property
    def digest(self) -> str:
        """The question's name in a checkpoint file, version 1: 32 hexadecimal digits of SHA-256 of a JSON text.

        The JSON holds the biases and one number. Questions for the likeliest token count it down from -1, so that
        all questions have different names.
        """
        number = _FIRST_DRIFT_CHECK + self.drift_check if self.drift_check else self.repetition
        if self.kind is QuestionKind.LIKELIEST_TOKEN:
            number = -1 - number
        return hashlib.sha256(json.dumps([self.biases, number]).encode()).hexdigest()[:32]
