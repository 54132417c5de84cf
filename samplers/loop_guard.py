"""The loop guard: it finds a text that repeats itself, by the period of its last tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..common.errors import problem_message, wrong_value
from ..common.text import unknown_name
from .errors import SamplingError

# The greatest period that can be set. Each token takes time proportional to the greatest period.
_MAX_PERIOD = 4_096

LoopAction = Literal["stop", "end-thinking", "rewind"]


class LoopGuard(BaseModel):
    """The settings of the loop guard.

    The last max(repeats * p, min_tokens) tokens of the text are a loop if they have the period p: each token
    equals the token p places before it, if that token is one of them. The smallest such p counts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    action: LoopAction = Field(
        default="stop",
        description="end the text, end the phase of thinking, or go back to the second repetition",
    )
    min_period: int = Field(default=1, ge=1, le=_MAX_PERIOD, description="least number of tokens that repeat")
    max_period: int = Field(default=512, ge=1, le=_MAX_PERIOD, description="greatest number of tokens that repeat")
    repeats: int = Field(default=4, ge=2, le=1_000, description="number of times that the tokens occur")
    min_tokens: int = Field(default=32, ge=2, le=1_000_000, description="least number of tokens of a loop")

    @model_validator(mode="after")
    def _check_periods(self) -> LoopGuard:
        if self.min_period > self.max_period:
            raise ValueError(f"min_period {self.min_period} is greater than max_period {self.max_period}")
        return self


def parse_loop_guard(value: object) -> LoopGuard:
    """Return the loop guard that a preset writes: a table, or only the action."""
    # Raises ``SamplingError`` that names the key and the allowed values.
    if isinstance(value, LoopGuard):
        return value
    table: Any = {"action": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        problem = wrong_value(value, "stop, end-thinking, rewind, or a table")
        raise SamplingError(problem, place=("loop_guard",))
    for key in table:
        if key not in LoopGuard.model_fields:
            raise SamplingError(unknown_name("key", key, LoopGuard.model_fields), place=("loop_guard",))
    try:
        return LoopGuard.model_validate(dict(table))
    except ValidationError as error:
        first_problem = error.errors()[0]
        place = ("loop_guard", *first_problem["loc"][:1])
        raise SamplingError(problem_message(first_problem), place=place) from None


class LoopState(NamedTuple):
    """The state of a `LoopDetector`."""

    token_count: int  # number of tokens so far
    # for each period, the number of last tokens that equal the token one period before, int64
    run_lengths: NDArray[np.int64]


class LoopDetector:
    """A search for loops in a text, token by token. A token takes the same time at any length of the text."""

    def __init__(self, guard: LoopGuard) -> None:
        self._min_period = guard.min_period
        self._max_period = guard.max_period
        periods = np.arange(guard.min_period, guard.max_period + 1)
        # The first p tokens of a loop need not equal the tokens before them.
        self._min_run_lengths = np.maximum(guard.repeats * periods, guard.min_tokens) - periods
        # The tokens of the text follow after padding, which no token equals. The array may be longer than the
        # text.
        self._tokens = np.full(2 * self._max_period, -1, dtype=np.int64)
        # The state after the tokens so far. It may be saved and set again, since it is never changed in place.
        self.state = LoopState(0, np.zeros(periods.size, dtype=np.int64))

    def push(self, token: int) -> int | None:
        """Append one token; return the smallest period of a loop that it completes, None if there is none."""
        token_count, run_lengths = self.state
        position = self._max_period + token_count
        if position >= self._tokens.size:
            self._tokens = np.concatenate([self._tokens, np.full(self._tokens.size, -1, dtype=np.int64)])
        # For each period, from the smallest to the greatest, the token one period before
        earlier_tokens = self._tokens[position - self._max_period : position - self._min_period + 1][::-1]
        self._tokens[position] = token
        run_lengths = (run_lengths + 1) * (earlier_tokens == token)
        self.state = LoopState(token_count + 1, run_lengths)
        is_loop = run_lengths >= self._min_run_lengths
        if not is_loop.any():
            return None
        return self._min_period + int(is_loop.argmax())

    def second_block_start(self, period: int) -> int:
        """Return the index of the token at which the second repetition begins, if the last tokens are a loop."""
        return self.state.token_count - int(self.state.run_lengths[period - self._min_period])

    def live_starts(self) -> set[int]:
        """Return the values that `second_block_start` can have for a loop that later tokens complete."""
        token_count, run_lengths = self.state
        return {token_count - length for length in set(run_lengths[run_lengths > 0].tolist())}
