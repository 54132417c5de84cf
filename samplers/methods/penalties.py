"""Repeat, frequency and presence penalties on the last tokens of the text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import BuildContext, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..kernels import Floats, Positions
from ..stages import logit_changes
from ..tokens import check_token, check_tokens

if TYPE_CHECKING:
    from ..stages import StageCandidates

Counts = NDArray[np.int32]


class _WindowCounts(NamedTuple):
    """The number of occurrences of each token of the vocabulary in the penalty window."""

    in_window: Counts  # Occurrences in the penalty window, int32 (V,)
    in_output: Counts  # Occurrences in the part of the penalty window that is output, int32 (V,)


class Penalties(Sampler):
    """Lower the logits of the tokens in the penalty window: the last tokens of the text.

    Formula, float32 (n,), for a token that occurs ``count`` times in the penalty window: logit * repeat if logit
    <= 0, else logit / repeat, once per token; then minus (count * frequency + presence). An overflow is clamped to
    float32. The penalty window is the last ``last_n`` tokens of prompt and output (-1: all). ``scope: output``
    counts frequency and presence over the output only (vLLM, Aphrodite, OpenAI), while repeat still applies to
    prompt and output (MindIE). ``penalize_newline: false`` exempts the newline token.

    Range: repeat > 0, last_n >= -1 tokens. Neutral at repeat 1, frequency 0, presence 0, or at last_n 0. Raises
    ``SamplingError`` for a token of the text outside the vocabulary, and for penalize_newline: false without a
    vocabulary. The time of a step is proportional to the number of distinct tokens in the penalty window. Source:
    Keskar et al. 2019 (CTRL), OpenAI's API. Equals llama.cpp's ``penalties`` with scope: all and
    penalize_newline: true.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="penalties",
        summary="make tokens less likely that occur in the last n tokens",
        formula="l > 0: l / repeat, else l * repeat;  then l - (count * frequency + presence)",
        reference="Keskar et al. 2019, CTRL; OpenAI API `frequency_penalty`, `presence_penalty`",
        llama_cpp="equal with scope: all and penalize_newline: true",
        main_parameter="repeat",
        example=1.1,
        off_values={"repeat": 1.0, "frequency": 0.0, "presence": 0.0},
        aliases=("penalty", "repeat_penalty"),
        stage=Stage.PENALTIES,
    )

    repeat: float = Field(
        default=1.0, gt=0, description="divides positive logits, multiplies negative ones; 1 = off"
    )
    frequency: float = Field(default=0.0, description="subtracted for each occurrence; 0 = off")
    presence: float = Field(default=0.0, description="subtracted once if the token occurs; 0 = off")
    last_n: int = Field(default=64, ge=-1, description="tokens to look back; 0 = off, -1 = all")
    scope: Literal["all", "output"] = Field(
        default="all", description="tokens that frequency and presence count: all, or only the output"
    )
    penalize_newline: bool = Field(default=True, description="apply the penalties to the newline token, too")

    __slots__ = (
        "_counts",
        "_newline_token",
        "_outdated_tokens",
        "_penalized_positions",
        "_prompt_count",
        "_subtracted_amounts",
        "_window_tokens",
    )

    @property
    def is_neutral(self) -> bool:
        """True also if the penalty window is empty."""
        return super().is_neutral or self.last_n == 0

    def bind(self, context: BuildContext) -> None:
        self._newline_token: int | None = None
        if not self.penalize_newline:
            vocabulary = need_vocabulary(context, "penalize_newline", value="false")
            self._newline_token = vocabulary.newline

    def reset(self, prompt: Sequence[int]) -> None:
        last_tokens = prompt if self.last_n < 0 else prompt[max(0, len(prompt) - self.last_n) :]
        self._window_tokens = deque(last_tokens)
        self._prompt_count = len(self._window_tokens)
        self._counts: _WindowCounts | None = None
        # What frequency and presence subtract from each logit, float32 (V,). The entries of `_outdated_tokens`
        # must be computed again.
        self._subtracted_amounts: Floats | None = None
        self._outdated_tokens: list[int] = []
        # The positions of the penalized rows in a full vocabulary; None if they are not known
        self._penalized_positions: Positions | None = None

    def accept(self, token: int) -> None:
        if self._counts is not None:
            in_window, in_output = self._counts
            check_token("penalties", token, in_window.size)
            if self._penalized_positions is not None and not in_window[token]:
                self._penalized_positions = np.append(self._penalized_positions, token)
            in_window[token] += 1
            in_output[token] += 1
            self._mark_outdated(token)
        self._window_tokens.append(token)
        if 0 <= self.last_n < len(self._window_tokens):
            self._forget_oldest(self._window_tokens.popleft())

    def rewind(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.reset([*prompt, *output])
        self._prompt_count = max(len(self._window_tokens) - len(output), 0)

    def apply(self, candidates: Candidates) -> None:
        if self._counts is None or self._counts.in_window.size != candidates.vocab_size:
            self._counts = self._count_window(candidates.vocab_size)
            self._subtracted_amounts = None
            self._outdated_tokens = []
        penalized_rows = self._penalized_rows(candidates, self._counts.in_window)
        if not penalized_rows.size:
            return
        logits = candidates.logits.take(penalized_rows)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.repeat != 1:
                logits = self._repeat_penalized(logits)
            if self.frequency or self.presence:
                logits = logits - self._subtracted_by_id(self._counts).take(candidates.tokens(penalized_rows))
        candidates.set_logits_at(penalized_rows, logits)

    def _repeat_penalized(self, logits: Floats) -> Floats:
        """Return the logits multiplied by ``repeat`` if they are 0 or below, otherwise divided by it."""
        repeat = np.float32(self.repeat)
        multiplied = logits * repeat
        divided = logits / repeat
        if 1 < repeat < np.inf:  # then the minimum is the same in less than half the time
            return np.minimum(multiplied, divided)
        return np.where(logits <= 0, multiplied, divided)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return logit_changes(before, after)

    def _penalized_rows(self, candidates: Candidates, in_window: Counts) -> Positions:
        """Return the positions of the rows with a penalty, in any order."""
        if not candidates.is_full_vocabulary:
            penalized_rows = candidates.positions_where(in_window)
        else:
            if self._penalized_positions is None:
                self._penalized_positions = candidates.positions_where(in_window)
            penalized_rows = self._penalized_positions
        if self._newline_token is None:
            return penalized_rows
        return penalized_rows[candidates.tokens(penalized_rows) != self._newline_token]

    def _subtracted_by_id(self, counts: _WindowCounts) -> Floats:
        """Return what frequency and presence subtract from each token's logit, float32 (V,); cached."""
        token_counts = counts.in_window if self.scope == "all" else counts.in_output
        frequency, presence = np.float32(self.frequency), np.float32(self.presence)
        if self._subtracted_amounts is None:
            self._subtracted_amounts = (
                token_counts.astype(np.float32) * frequency + (token_counts > 0).astype(np.float32) * presence
            )
        else:
            for token in self._outdated_tokens:
                count = token_counts[token]
                self._subtracted_amounts[token] = np.float32(count) * frequency + (count > 0) * presence
        self._outdated_tokens.clear()
        return self._subtracted_amounts

    def _count_window(self, size: int) -> _WindowCounts:
        """Count the tokens of the penalty window, for a vocabulary of ``size`` tokens."""
        check_tokens("penalties", self._window_tokens, size)
        window = np.array(self._window_tokens, dtype=np.int64)
        in_window = np.bincount(window, minlength=size)
        in_output = np.bincount(window[self._prompt_count :], minlength=size)
        return _WindowCounts(in_window.astype(np.int32), in_output.astype(np.int32))

    def _forget_oldest(self, token: int) -> None:
        """Subtract the oldest token of the penalty window from the counts."""
        is_from_prompt = self._prompt_count > 0
        if is_from_prompt:
            self._prompt_count -= 1
        if self._counts is not None:
            in_window, in_output = self._counts
            in_window[token] -= 1
            if not is_from_prompt:
                in_output[token] -= 1
            if self._penalized_positions is not None and not in_window[token]:
                self._penalized_positions = self._penalized_positions[self._penalized_positions != token]
            self._mark_outdated(token)

    def _mark_outdated(self, token: int) -> None:
        """Mark what is subtracted from the token's logit as outdated."""
        if self._subtracted_amounts is not None:
            self._outdated_tokens.append(token)
