"""The phases of a request, with their chains and forced tokens, for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_reversible
from ..logprobs.events import Reasoning, ReasoningTags
from ..models.errors import ModelError
from ..samplers.chain import Chain, Phase
from ..samplers.chain_state import ChainStates
from .model import Model
from .phase_tracker import RunningPhase, spelling_mask
from .request import GenerationRequest
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from ..samplers.building import Step

# The end of a phase that names none, if the model's chat template has no reasoning
DEFAULT_THINKING_END = "</think>"


def build_phases(
    model: Model,
    request: GenerationRequest,
    chain: Chain,
    constraint: Constraint | None,
    build: Callable[[Sequence[Step]], Chain],
) -> list[RunningPhase]:
    """Return the phases of a text. The last one is the answer, with the chain of the request.

    Without phases of its own, a request has a phase for the reasoning if its chat template shows one. The prompt
    may have ended that phase already.
    """
    reasoning = request.reasoning
    states = ChainStates(chain)
    answer = RunningPhase(chain, states)
    phases: Sequence[Phase] = request.rules.phases
    if reasoning is not None:
        phases = phases or [Phase(adds_end=request.complete_sentence)]
        if reasoning.place != "after":
            answer.starts = _encoded(reasoning.tags.answer_prefixes)
    built: list[RunningPhase] = []
    for phase in phases:
        until = phase.until or _thinking_end(model, reasoning)
        running = RunningPhase(chain, states, until=until.encode(), max_tokens=phase.max_tokens)
        if reasoning is not None and until == reasoning.tags.end:
            # A constraint that cannot go back must know which token is its first.
            is_undecidable = constraint is not None and as_reversible(constraint) is None
            if reasoning.place == "after" or (reasoning.place == "before" and is_undecidable):
                continue
            if reasoning.place == "before" and not built:
                running.starts = _encoded(reasoning.tags.starts)
            if constraint is not None:
                running.opening_of_next = _opening_token_ids(model.vocabulary, reasoning)
        if phase.steps is not None:
            running.chain = build(phase.steps)
            running.states = ChainStates(running.chain)
        running.then = forced_token_ids(model.vocabulary, phase.then + (until if phase.adds_end else ""))
        built.append(running)
    if answer.starts and reasoning is not None and built and built[-1].until == reasoning.tags.end.encode():
        answer.starts_of_previous = _encoded(reasoning.tags.starts)
    return [*built, answer]


def _encoded(tags: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(tag.encode() for tag in tags)


def reasoning_of_phases(reasoning: Reasoning | None, phases: Sequence[RunningPhase]) -> Reasoning | None:
    """Return the reasoning of a text with these phases, of which an earlier one may have an end of its own."""
    if reasoning is None or len(phases) == 1:
        return reasoning
    end = phases[-2].until.decode()
    if end == reasoning.tags.end:
        return reasoning
    return replace(reasoning, tags=replace(reasoning.tags, end=end), place="inside")


def leave_opening_to_grammar(
    phases: Sequence[RunningPhase], constraint: Constraint, vocabulary: Vocabulary
) -> None:
    """Force no blanks before the answer where the constraint itself allows them."""
    for phase in phases:
        opening = phase.opening_of_next
        is_blank = not b"".join(map(vocabulary.piece, opening)).strip()
        if opening and is_blank and constraint.mask()[opening[0]]:
            phase.opening_of_next = ()


def first_mask(vocabulary: Vocabulary, reasoning: Reasoning | None, constraint: Constraint) -> NDArray[np.bool_]:
    """Return the tokens that may begin a text, bool (V,): its reasoning, or its answer under a constraint."""
    if reasoning is None or reasoning.place == "after":
        return constraint.mask()
    prefixes = reasoning.tags.answer_prefixes
    opening_mask = spelling_mask(vocabulary, _encoded((*reasoning.tags.starts, *prefixes)))
    return opening_mask if prefixes else opening_mask | constraint.mask()


def tag_tokens(vocabulary: Vocabulary, tags: ReasoningTags) -> frozenset[int]:
    """Return the control tokens that tags consist of. They are part of the text."""
    names = (tags.start, tags.end, *tags.answer_prefixes)
    tokens = {token for name in names for token in vocabulary.tokenize(name.encode(), special=True)}
    return frozenset(token for token in tokens if vocabulary.is_control(token) and not vocabulary.is_eog(token))


def _thinking_end(model: Model, reasoning: Reasoning | None) -> str:
    from .templates import open_chat_template  # noqa: PLC0415 - most runs have no template

    if reasoning is not None:
        return reasoning.tags.end
    try:
        tags = open_chat_template(model).reasoning_tags
    except ModelError:  # the model has no chat template
        tags = None
    return DEFAULT_THINKING_END if tags is None else tags.end


def _opening_token_ids(vocabulary: Vocabulary, reasoning: Reasoning) -> tuple[int, ...]:
    with suppress(ModelError):  # a vocabulary without these tokens can write an answer, too
        return forced_token_ids(vocabulary, reasoning.answer_opening)
    return ()


def forced_token_ids(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """Return tokens with exactly the bytes of a text, although some tokenizers add a space before a text."""
    # Raises ``ModelError`` if the vocabulary has no such tokens.
    data = text.encode()
    if not data:
        return ()
    for tokens in (
        vocabulary.tokenize(data, special=True),
        vocabulary.tokenize(b"\n" + data, special=True)[1:],
        _tokenize_characters(vocabulary, text),
    ):
        if b"".join(map(vocabulary.piece, tokens)) == data:
            return tuple(tokens)
    raise ModelError(f"the vocabulary has no tokens for exactly {text!r}", origin="then")


def _tokenize_characters(vocabulary: Vocabulary, text: str) -> list[int]:
    """Return the tokens of each character by itself, without the space that the tokenizer adds before a text."""
    tokens: list[int] = []
    for character in text:
        newline_and_character = vocabulary.tokenize(b"\n" + character.encode(), special=False)
        tokens += newline_and_character[1:]
    return tokens
