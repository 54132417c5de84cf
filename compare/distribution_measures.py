"""Distances between the distributions of two arms along the same texts, over the whole vocabulary.

The measures draw no token, so they do not depend on chance. The exception is a chain with one of `CHANCE_STEPS`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError
from ..engine.batch import BatchAnswer, generate_many
from ..engine.generation import negative_prompt_ids
from ..engine.guidance import guidance_model, guide
from ..engine.next_token import Probabilities, distance, probabilities
from ..engine.request import GenerationRequest
from ..engine.text_rules import TextRules
from ..logprobs.records import display_text
from ..samplers.building import build
from ..samplers.kernels import Floats

if TYPE_CHECKING:
    from ..engine.context import Context
    from ..engine.model import Model
    from ..engine.vocabulary import Vocabulary
    from ..samplers.chain import StepSpec
    from .plan import Plan, TextTable

# steps that change the distribution by random numbers; these are drawn with the first seed
CHANCE_STEPS = frozenset({"xtc", "mirostat", "mirostat_v2", "adaptive_p"})
WORST_PLACES = 5  # number of places that are shown for an arm
_SHOWN_TOKENS = 4  # number of likely tokens that are shown for a place
_SHOWN_CONTEXT_TOKENS = 12  # number of tokens before a place that are shown


class TokenPath(NamedTuple):
    """A text along which distributions are compared."""

    label: str  # where the text is from, for the places that are shown
    tokens: Sequence[int]
    first: int  # index of the first token whose distribution is measured
    # the request whose prompt precedes this token; None: tokens of a file precede it
    request: GenerationRequest | None = None


class MeasuredArm(NamedTuple):
    name: str
    model: Model
    steps: Sequence[StepSpec]
    rules: TextRules = TextRules()  # its guidance changes the logits before the chain


class TokenShare(NamedTuple):
    """A likely token at a place, with its probability in the first arm and in the other one."""

    token: str
    first: float
    other: float


class Place(NamedTuple):
    """A place where two distributions are far apart."""

    total_variation: float
    label: str  # where the text is from
    position: int  # index of the token in its text, without the prompt
    before: str  # the end of the text before it
    tokens: tuple[TokenShare, ...]  # the most likely tokens of both arms

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``total_variation, label, position, before, tokens``."""
        return {**self._asdict(), "tokens": [token._asdict() for token in self.tokens]}


@dataclass
class PathValues:
    """The values of an arm at each token of all paths. Distances are those from the first arm."""

    path_starts: list[int] = field(default_factory=list)  # for each path, the number of values before it
    # the model's probability of all tokens that the chain drops
    dropped_mass: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)  # number of tokens that the chain keeps
    total_variation: list[float] = field(default_factory=list)  # total variation distance, 0 to 1
    jensen_shannon: list[float] = field(default_factory=list)  # Jensen-Shannon divergence, nats, 0 to ln 2
    # KL(first || arm), nats; inf if the arm drops a token of the first one
    kl: list[float] = field(default_factory=list)
    reverse_kl: list[float] = field(default_factory=list)  # KL(arm || first), nats
    same_top: list[bool] = field(default_factory=list)  # whether the most likely token is the same
    # KL of the model's own distributions, without chains, nats; empty if both arms have one model
    model_kl: list[float] = field(default_factory=list)
    # whether the most likely token of the models is the same
    model_same_top: list[bool] = field(default_factory=list)
    # difference of the probability of the text's next token, other minus first model
    model_token_change: list[float] = field(default_factory=list)
    # surprise of the text's next token, nats: of the first and of the other model
    model_surprises: list[tuple[float, float]] = field(default_factory=list)
    # the places with the largest total variation, the largest first
    worst: list[Place] = field(default_factory=list)


def measure_paths(
    arms: Sequence[MeasuredArm],
    paths: Sequence[TokenPath],
    *,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> list[PathValues]:
    """Return the values of each arm. The first arm has no distances."""
    # For each token of a path, every model computes the logits after the tokens before it, and the chain of every
    # arm changes these logits. The chain has accepted the tokens before it. Logits are computed in small batches,
    # as `gen score` does. An arm with guidance reads the path a second time, after its negative prompt. If that
    # does not fit into the context, the path ends earlier for all arms. The seed matters for `CHANCE_STEPS` only.
    # Raises ``ModelError`` for a path that is longer than a context, ``SamplingError``, and ``UsageError`` if two
    # models do not have the same tokens.
    check_vocabularies(arms)
    values = [PathValues() for _ in arms]
    models = list({id(arm.model): arm.model for arm in arms}.values())
    with ExitStack() as stack:
        negative_contexts = [_open_negative_context(arm, stack) for arm in arms]
        paths = [_fitting_path(arms, negative_contexts, path) for path in paths]
        total_count = sum(len(path.tokens) for path in paths)
        read_count = 0
        for path in paths:
            for arm_values in values:
                arm_values.path_starts.append(len(arm_values.kept))
            runs = [
                _ArmOnPath(arm, path, seed, negative_context)
                for arm, negative_context in zip(arms, negative_contexts, strict=True)
            ]
            rows_of_models = zip(*(model.context.read_each(path.tokens[:-1]) for model in models), strict=True)
            for position, rows in enumerate(rows_of_models, 1):
                read_count += 1
                if progress is not None:
                    progress(read_count, total_count)
                if is_interrupted is not None and is_interrupted():
                    return values
                if position >= path.first:
                    row_of_model = {id(model): row for model, row in zip(models, rows, strict=True)}
                    _measure_token(runs, row_of_model, _PathToken(path, position), values)
                    for run in runs:
                        run.chain.accept(path.tokens[position])
            read_count += 1  # the last token, which no model reads
    return values


class _ArmOnPath:
    """The state of an arm along one path."""

    def __init__(self, arm: MeasuredArm, path: TokenPath, seed: int, negative_context: Context | None) -> None:
        self.model = arm.model
        self.chain = build(arm.steps, seed=seed, vocab=arm.model.vocabulary)
        self.chain.reset(path.tokens[: path.first])
        self._guidance = arm.rules.guidance
        # the logits after the negative prompt; None without guidance
        self._negative_rows = None if negative_context is None else _negative_rows(arm, negative_context, path)

    def chain_row(self, model_row: Floats) -> Floats:
        """Return the logits that the chain gets. Called once for each measured token, in order."""
        if self._negative_rows is None or self._guidance is None:
            return model_row
        return guide(model_row, next(self._negative_rows), self._guidance.scale).guided


def _open_negative_context(arm: MeasuredArm, stack: ExitStack) -> Context | None:
    """Return a context for the negative prompts of an arm, which the stack closes; None without guidance."""
    guidance = arm.rules.guidance
    if guidance is None or guidance.is_off:
        return None
    context = guidance_model(arm.model, guidance).make_context()
    stack.callback(context.close)
    return context


def _negative_rows(arm: MeasuredArm, context: Context, path: TokenPath) -> Iterator[Floats]:
    """Yield the logits of each measured token of a path, if the negative prompt of an arm is the prompt."""
    negative_ids = _negative_ids(arm, path)
    rows = context.read_each([*negative_ids, *path.tokens[path.first : -1]])
    yield from islice(rows, len(negative_ids) - 1, None)


def _negative_ids(arm: MeasuredArm, path: TokenPath) -> list[int]:
    """Return the negative prompt, which replaces the tokens before the first measured token of a path."""
    prompt_ids = path.tokens[: path.first]
    request = path.request or GenerationRequest(tuple(prompt_ids), ())
    return negative_prompt_ids(arm.model, replace(request, rules=arm.rules), prompt_ids) or []


def _fitting_path(arms: Sequence[MeasuredArm], contexts: Sequence[Context | None], path: TokenPath) -> TokenPath:
    """Return the beginning of a path that fits into the contexts of all negative prompts."""
    # Raises ``UsageError`` if a negative prompt itself does not fit.
    for arm, context in zip(arms, contexts, strict=True):
        if context is None:
            continue
        free_count = context.length - len(_negative_ids(arm, path))
        if free_count < 0:
            raise UsageError(
                f"arm {arm.name}: the negative prompt of guidance does not fit into the context of "
                f"{context.length:,} tokens; shorten it, or give a larger -c"
            )
        path = path._replace(tokens=path.tokens[: path.first + free_count + 1])  # the last token is not read
    return path


def check_vocabularies(arms: Sequence[MeasuredArm]) -> None:
    """Raise ``UsageError`` if the models of two arms do not have the same tokens."""
    first = arms[0]
    for arm in arms[1:]:
        if arm.model is not first.model and arm.model.vocabulary.pieces != first.model.vocabulary.pieces:
            raise UsageError(
                f"the models of {first.name} and {arm.name} have different tokens, so that their distributions "
                "cannot be compared; --along none compares only texts"
            )


class _PathToken(NamedTuple):
    """A token of a path: the path, and the position of the token among its tokens."""

    path: TokenPath
    position: int

    @property
    def id(self) -> int:
        return self.path.tokens[self.position]


def _measure_token(
    runs: Sequence[_ArmOnPath],
    row_of_model: Mapping[int, Floats],
    token: _PathToken,
    values: Sequence[PathValues],
) -> None:
    """Add the values of one token to those of each arm."""
    # ``row_of_model`` has the logits by the identity of the model.
    probabilities_of_model = {model: model_probabilities(row) for model, row in row_of_model.items()}
    chain_probabilities = []
    for run, arm_values in zip(runs, values, strict=True):
        candidates = run.chain.apply(run.chain_row(row_of_model[id(run.model)]))
        run.chain.draw(candidates)  # the last step may drop candidates or change them before it draws one
        arm_probabilities = probabilities(candidates)
        kept_mass = float(probabilities_of_model[id(run.model)][arm_probabilities > 0].sum())
        arm_values.kept.append(len(candidates))
        arm_values.dropped_mass.append(max(1 - kept_mass, 0.0))
        chain_probabilities.append(arm_probabilities)
    first_run = runs[0]
    first_model_probabilities = probabilities_of_model[id(first_run.model)]
    for run, arm_probabilities, arm_values in zip(runs[1:], chain_probabilities[1:], values[1:], strict=True):
        rows = _RowPair(chain_probabilities[0], arm_probabilities)
        _add_distances(arm_values, rows, token, first_run.model.vocabulary)
        if run.model is not first_run.model:
            model_rows = _RowPair(first_model_probabilities, probabilities_of_model[id(run.model)])
            _add_model_distances(arm_values, model_rows, token.id)


class _RowPair(NamedTuple):
    """The probabilities of all tokens in the first arm and in another one, each float64 (V,)."""

    first: Probabilities
    other: Probabilities

    @property
    def has_same_top(self) -> bool:
        return bool(self.first.argmax() == self.other.argmax())


def _add_distances(values: PathValues, rows: _RowPair, token: _PathToken, vocabulary: Vocabulary) -> None:
    """Add the distances between the distributions after the chains."""
    distances = distance(rows.first, rows.other)
    values.total_variation.append(distances.total_variation)
    values.jensen_shannon.append(jensen_shannon(rows.first, rows.other))
    values.kl.append(distances.divergence)
    values.reverse_kl.append(distances.reverse_divergence)
    values.same_top.append(rows.has_same_top)
    _keep_worst(values.worst, distances.total_variation, token, vocabulary, rows)


def _add_model_distances(values: PathValues, rows: _RowPair, token_id: int) -> None:
    """Add the distances between the distributions of the models; ``token_id``: the next token of the text."""
    first_probability = rows.first[token_id]
    other_probability = rows.other[token_id]
    first_surprise, other_surprise = -np.log([first_probability, other_probability])
    values.model_kl.append(distance(rows.first, rows.other).divergence)
    values.model_same_top.append(rows.has_same_top)
    values.model_token_change.append(float(other_probability - first_probability))
    values.model_surprises.append((float(first_surprise), float(other_surprise)))


def model_probabilities(logits: Floats) -> Probabilities:
    """Return the softmax of a row of logits, float64 (V,)."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def jensen_shannon(first: Probabilities, second: Probabilities) -> float:
    """Return the Jensen-Shannon divergence, nats: (KL(p || m) + KL(q || m)) / 2, with m = (p + q) / 2."""
    middle = (first + second) / 2
    return (distance(first, middle).divergence + distance(second, middle).divergence) / 2


def _keep_worst(
    worst: list[Place],
    total_variation: float,
    token: _PathToken,
    vocabulary: Vocabulary,
    rows: _RowPair,
) -> None:
    """Insert the place of a token into ``worst`` if the distance there is one of the largest so far."""
    smallest_kept = worst[-1].total_variation if len(worst) == WORST_PLACES else 0.0
    if total_variation <= smallest_kept:
        return
    path = token.path
    context_start = max(token.position - _SHOWN_CONTEXT_TOKENS, 0)
    context = b"".join(vocabulary.piece(each) for each in path.tokens[context_start : token.position])
    place = Place(
        total_variation=total_variation,
        label=path.label,
        position=token.position - path.first,
        before=context.decode("utf-8", "replace"),
        tokens=tuple(
            TokenShare(display_text(vocabulary.piece(each)), float(rows.first[each]), float(rows.other[each]))
            for each in _most_likely_tokens(rows)
        ),
    )
    insort(worst, place, key=lambda each: -each.total_variation)
    del worst[WORST_PLACES:]


def _most_likely_tokens(rows: _RowPair) -> list[int]:
    """Return the ids of the tokens that are most likely in one of two rows, the most likely first."""
    top_ids = [row.argpartition(-_SHOWN_TOKENS)[-_SHOWN_TOKENS:] for row in rows]
    different_ids = set(np.concatenate(top_ids).tolist())
    ids = sorted(different_ids, key=lambda each: -max(rows.first[each], rows.other[each]))
    return ids[:_SHOWN_TOKENS]


def summarize(values: PathValues) -> dict[str, Any]:
    """Return the JSON fields of an arm's values: means over all tokens, and the most distant places."""
    # The ``mean`` of a divergence leaves out infinite values. ``infinite`` is their share.
    fields: dict[str, Any] = {
        "tokens": len(values.kept),
        "dropped_mass": _mean(values.dropped_mass),
        "kept": _mean(values.kept),
    }
    if not values.total_variation:
        return fields
    fields |= {
        "total_variation": _summary(values.total_variation),
        "jensen_shannon": _summary(values.jensen_shannon),
        "kl": _summary(values.kl),
        "reverse_kl": _summary(values.reverse_kl),
        "same_top": _mean(values.same_top),
        "worst": [place.as_json() for place in values.worst],
    }
    if values.model_kl:
        fields["models"] = _summarize_models(values)
    return fields


def _summarize_models(values: PathValues) -> dict[str, Any]:
    """Return the figures that llama.cpp's ``llama-perplexity --kl-divergence`` has for two models."""
    same_top = np.array(values.model_same_top, dtype=np.float64)
    changes = np.array(values.model_token_change)
    first_surprises, other_surprises = np.array(values.model_surprises).T
    return {
        "kl": _summary(values.model_kl),
        "same_top": float(same_top.mean()),
        "same_top_error": _standard_error(same_top),
        "token_probability_change": float(changes.mean()),
        "token_probability_change_rms": sqrt(float((changes**2).mean())),
        "perplexity": float(np.exp(first_surprises.mean())),
        "other_perplexity": float(np.exp(other_surprises.mean())),
    }


def _summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean, its standard error, median, 99th percentile, maximum, and the share of infinite values."""
    row = np.array(values)
    finite = row[np.isfinite(row)]
    if not finite.size:
        return {"mean": inf, "infinite": 1.0}
    return {
        "mean": float(finite.mean()),
        "standard_error": _standard_error(finite),
        "median": float(np.median(finite)),
        "p99": float(np.quantile(finite, 0.99)),
        "max": float(finite.max()),
        "infinite": 1 - finite.size / row.size,
    }


def _standard_error(row: NDArray[np.float64]) -> float:
    return float(row.std(ddof=1)) / sqrt(row.size) if row.size > 1 else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def text_windows(model: Model, ids: Sequence[int], window: int) -> Iterator[TokenPath]:
    """Yield the paths of a text that the user gives, as llama.cpp's perplexity tool reads it."""
    # The text is cut into windows of ``window`` tokens. An incomplete window at the end is left out, unless it is
    # the only one. Only the second half of each window is measured, so that half a window precedes each measured
    # token. If the model's texts begin with BOS, BOS replaces the first token of each window. Raises
    # ``UsageError`` for a text with fewer than two tokens.
    if len(ids) < 2:
        raise UsageError("--along: the file has fewer than two tokens, so that there is nothing to compare")
    bos = model.vocabulary.bos
    last_start = max(len(ids) - window, 0)
    for number, start in enumerate(range(0, last_start + 1, window), 1):
        tokens = list(ids[start : start + window])
        if model.vocabulary.adds_bos and bos is not None:
            tokens[0] = bos
        is_complete = len(tokens) == window
        first_measured = window // 2 + 1 if is_complete else max(len(tokens) // 2, 1)
        yield TokenPath(f"window {number}", tokens, first_measured)


def greedy_paths(
    model: Model,
    requests: Sequence[GenerationRequest],
    should_stop: Callable[[], bool] | None = None,
) -> list[TokenPath]:
    """Return the text that greedy decoding writes for each request, without a grammar or bans."""
    plain_requests = [_plain_request(request) for request in requests]
    path_of_request: dict[object, TokenPath] = {}
    for outcome in generate_many(model, plain_requests, model.default_parallel, should_stop=should_stop):
        if not isinstance(outcome, BatchAnswer):
            raise outcome.error
        prompt_ids = outcome.start.prompt_ids
        generated_ids = [token.id for token in outcome.tokens]
        if generated_ids:
            tokens = (*prompt_ids, *generated_ids)
            path_of_request[outcome.id] = TokenPath(f"prompt {outcome.id}", tokens, first=len(prompt_ids))
    return [
        path_of_request[request.id]._replace(request=request)
        for request in requests
        if request.id in path_of_request
    ]


def arm_paths(
    model: Model, requests: Sequence[GenerationRequest], plan: Plan, table: TextTable
) -> list[TokenPath]:
    """Return the texts of all arms."""
    paths = []
    for prompt, request in zip(plan.prompts, requests, strict=True):
        prompt_ids = _prompt_ids(model, request)
        for arm in plan.arms:
            for seed, text in zip(plan.seeds(prompt), table.texts(plan, arm, prompt), strict=True):
                if text is not None and text.tokens:
                    label = f"prompt {prompt.id}, {arm.name}, seed {seed}"
                    paths.append(TokenPath(label, (*prompt_ids, *text.tokens), len(prompt_ids), request))
    return paths


def _plain_request(request: GenerationRequest) -> GenerationRequest:
    """Return a greedy request without rules."""
    return replace(
        request,
        chain="greedy",
        constraint=None,
        complete_sentence=False,
        rules=TextRules(),
    )


def _prompt_ids(model: Model, request: GenerationRequest) -> Sequence[int]:
    (outcome,) = generate_many(model, [replace(_plain_request(request), max_tokens=0)], 1)
    if not isinstance(outcome, BatchAnswer):
        raise outcome.error
    return outcome.start.prompt_ids
