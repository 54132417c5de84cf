"""Repeat, frequency and presence penalties over a window of past tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..array_types import Positions
from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..history import check_token, check_tokens
from ..stage import Stage

Counts = NDArray[np.int32]


class Penalties(Sampler):
    """Make tokens of the last n less likely.

    Formula, for a token that stands ``count`` times in the window, float32: logit <= 0: logit * repeat, else
    logit / repeat; then minus count * frequency + presence. Once a token, whatever its count. The window is
    the last ``last_n`` tokens (-1: all) of the prompt and the output. ``scope: output`` counts frequency and
    presence over the output only (vLLM, Aphrodite, OpenAI), repeat still over both (MindIE).
    ``penalize_newline: false`` leaves the newline token alone. Neutral at repeat 1, frequency 0, presence 0,
    or at last_n 0. Source: Keskar et al. 2019 (CTRL), OpenAI's API. Equals llama.cpp's ``penalties``
    with scope all and penalize_newline true. A step costs what the window's distinct tokens cost, however long it
    is.
    """

    about: ClassVar[About] = About(
        name="penalties",
        summary="make tokens that stand in the last n less likely",
        formula="l > 0: l / repeat, else l * repeat;  then l - (count * frequency + presence)",
        reference="Keskar et al. 2019, CTRL; OpenAI API `frequency_penalty`, `presence_penalty`",
        llama_cpp="equal with scope: all and penalize_newline: true",
        main="repeat",
        example=1.1,
        neutral={"repeat": 1.0, "frequency": 0.0, "presence": 0.0},
        aliases=("penalty", "repeat_penalty"),
        stage=Stage.PENALTIES,
    )

    repeat: float = Field(default=1.0, gt=0, description="divides logits > 0, multiplies the others; 1 = off")
    frequency: float = Field(default=0.0, description="subtracted for each occurrence; 0 = off")
    presence: float = Field(default=0.0, description="subtracted once if the token occurs; 0 = off")
    last_n: int = Field(default=64, ge=-1, description="tokens to look back; 0 = off, -1 = all")
    scope: Literal["all", "output"] = Field(
        default="all", description="do frequency and presence count the prompt too?"
    )
    penalize_newline: bool = Field(default=True, description="false leaves the newline token alone")

    __slots__ = ("_counts", "_newline", "_penalised", "_prompt_left", "_window")

    @property
    def is_neutral(self) -> bool:
        """Also off when the window is empty."""
        return super().is_neutral or self.last_n == 0

    def bind(self, context: BuildContext) -> None:
        """Look up the newline token, if it is to be spared."""
        self._newline: int | None = None
        if not self.penalize_newline:
            vocabulary = need_vocabulary(context, "penalties.penalize_newline: false")
            self._newline = vocabulary.newline

    def reset(self, prompt: Sequence[int]) -> None:
        """Start the window with the end of the prompt."""
        tail = prompt if self.last_n < 0 else prompt[max(0, len(prompt) - self.last_n) :]
        self._window = deque(tail)
        self._prompt_left = len(self._window)
        self._counts: tuple[Counts, Counts] | None = None
        self._penalised: Positions | None = None

    def accept(self, token: int) -> None:
        """Move the window on by one token."""
        if self._counts is not None:
            seen, made = self._counts
            check_token("penalties", token, seen.size)
            if self._penalised is not None and not seen[token]:
                self._penalised = np.append(self._penalised, token)
            seen[token] += 1
            made[token] += 1
        self._window.append(token)
        if 0 <= self.last_n < len(self._window):
            self._drop(self._window.popleft())

    def apply(self, candidates: Candidates) -> None:
        """Lower the logits of the tokens in the window."""
        if self._counts is None or self._counts[0].size != candidates.vocabulary:
            self._counts = self._count(candidates.vocabulary)
        seen, made = self._counts
        touched = self._touched(candidates, seen)
        if not touched.size:
            return
        new = old = candidates.logits[touched]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.repeat != 1:
                repeat = np.float32(self.repeat)
                new = np.where(old <= 0, old * repeat, old / repeat)
            if self.frequency or self.presence:
                counts = (seen if self.scope == "all" else made)[candidates.tokens(touched)].astype(np.float32)
                new = new - (counts * np.float32(self.frequency) + (counts > 0) * np.float32(self.presence))
        candidates.change(touched, new)

    def _touched(self, candidates: Candidates, seen: Counts) -> Positions:
        """Positions of the rows that are penalised; those of a whole row are kept, in any order."""
        if not candidates.is_whole:
            touched = candidates.where(seen)
        elif self._penalised is None:
            touched = self._penalised = candidates.where(seen)
        else:
            touched = self._penalised
        return touched if self._newline is None else touched[candidates.tokens(touched) != self._newline]

    def _count(self, size: int) -> tuple[Counts, Counts]:
        """How often each token stands in the window, and how often in the part of it that is output."""
        check_tokens("penalties", self._window, size)
        window = np.array(self._window, dtype=np.int64)
        seen = np.bincount(window, minlength=size)
        made = np.bincount(window[self._prompt_left :], minlength=size)
        return seen.astype(np.int32), made.astype(np.int32)

    def _drop(self, token: int) -> None:
        from_prompt = self._prompt_left > 0
        self._prompt_left -= from_prompt
        if self._counts is not None:
            seen, made = self._counts
            seen[token] -= 1
            if self._penalised is not None and not seen[token]:
                self._penalised = self._penalised[self._penalised != token]
            made[token] -= not from_prompt
