"""What an answer is made with, and how that is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .store.records import AnswerRecipe

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...samplers.chain import StepSpec


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


def recipe_of(
    settings: AnswerSettings, chain: Sequence[object], model: dict[str, Any], dropped: int
) -> AnswerRecipe:
    """What is stored of an answer to make it again.

    Args:
        settings: what it is made with.
        chain: the steps with their parameters, as a preset writes them.
        model: the `model_record` of the model.
        dropped: how many messages after the system message are left out of its prompt.
    """
    from ...engine.generation import versions

    return AnswerRecipe(
        model=model,
        chain=list(chain),
        seed=settings.seed,
        grammar=None if settings.grammar is None else asdict(settings.grammar),
        stop=list(settings.stop),
        max_tokens=settings.max_tokens,
        versions=versions(),
        dropped=dropped,
        options={
            "complete_sentence": settings.complete_sentence,
            "jump": settings.jump,
            "lookup": settings.lookup,
        },
    )
