"""The texts along which distributions are compared: the model's greedy texts, and the texts of the arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..engine.batch import BatchAnswer, generate_many
from ..engine.model import Model
from ..engine.request import GenerationRequest
from .distribution_measures import TokenPath
from .plan import Plan, TextTable


def greedy_paths(
    model: Model,
    requests: Sequence[GenerationRequest],
    should_stop: Callable[[], bool] | None = None,
) -> list[TokenPath]:
    """Return the text of each request that greedy decoding writes, without a grammar or bans.

    Args:
        model: the model.
        requests: one request of each prompt.
        should_stop: once it returns True, no more texts are generated.

    Raises the error of a request.
    """
    plain = [_plain_request(request) for request in requests]
    paths: dict[object, TokenPath] = {}
    for outcome in generate_many(model, plain, model.default_parallel, should_stop=should_stop):
        if not isinstance(outcome, BatchAnswer):
            raise outcome.error
        tokens = (*outcome.start.prompt_ids, *(token.id for token in outcome.tokens))
        if len(tokens) > len(outcome.start.prompt_ids):
            paths[outcome.id] = TokenPath(f"prompt {outcome.id}", tokens, len(outcome.start.prompt_ids))
    return [paths[request.id] for request in requests if request.id in paths]


def arm_paths(
    model: Model, requests: Sequence[GenerationRequest], plan: Plan, table: TextTable
) -> list[TokenPath]:
    """Return the texts of all arms.

    Args:
        model: the model.
        requests: one request of each prompt of the plan.
        plan: the design of the comparison.
        table: the texts.
    """
    paths = []
    for prompt, request in zip(plan.prompts, requests, strict=True):
        prompt_ids = _prompt_ids(model, request)
        for arm in plan.arms:
            for seed, text in zip(plan.seeds(prompt), table.texts(plan, arm, prompt), strict=True):
                if text is not None and text.tokens:
                    label = f"prompt {prompt.id}, {arm.name}, seed {seed}"
                    paths.append(TokenPath(label, (*prompt_ids, *text.tokens), len(prompt_ids)))
    return paths


def _plain_request(request: GenerationRequest) -> GenerationRequest:
    """Return a greedy request without rules."""
    return replace(
        request,
        chain="greedy",
        constraint=None,
        complete_sentence=False,
        bans=(),
        loop_guard=None,
        phases=(),
        heal=False,
    )


def _prompt_ids(model: Model, request: GenerationRequest) -> Sequence[int]:
    (outcome,) = generate_many(model, [replace(_plain_request(request), max_tokens=0)], 1)
    if not isinstance(outcome, BatchAnswer):
        raise outcome.error
    return outcome.start.prompt_ids
