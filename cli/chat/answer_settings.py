"""What an answer is made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...grammars import GrammarSpec
    from ...samplers import StepSpec


@dataclass(frozen=True)
class AnswerSettings:
    """What an answer is made with. The fields mean what the arguments of `generate` mean.

    Attributes:
        steps: the chain, as `Settings.steps` has it.
        seed: the seed.
        max_tokens: None: until the model ends its answer or the context is full.
        stop: the stop texts.
        grammar: None: without one.
        complete_sentence: complete what ``max_tokens`` would cut off.
        jump: read forced tokens in one batch.
        lookup: guess up to so many tokens.
        top_logprobs: how many logprobs the events have; None: none.
        trace: how many candidates the events' traces have; None: they have none.
    """

    steps: Sequence[StepSpec]
    seed: int
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    grammar: GrammarSpec | None = None
    complete_sentence: bool = False
    jump: bool = True
    lookup: int = 0
    top_logprobs: int | None = None
    trace: int | None = None
