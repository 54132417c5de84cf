"""A chain of samplers: logits in, a token out.

A `StepSpec` is a checked step that is not yet part of a chain. `ApplyingStep` and `SelectingStep` are the
protocols that a chain requires of its steps. A recorder of traces implements both, and so can wrap each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .base import BuildContext, Sampler, SamplerInfo, Selector, Vocabulary
from .candidates import Candidates
from .errors import SamplingError, StepError
from .kernels import Floats, describe
from .methods.dist import Dist
from .methods.ignore_eos import IgnoreEos, TopKWithoutEnds
from .methods.min_tokens import MinTokens
from .methods.top_k import TopK

# Greatest number of steps in a chain. Usual chains have about ten; reading a thousand takes 0.1 s.
MAX_STEPS = 1000


def check_step_count(count: int, place: str) -> None:
    """Raise ``SamplingError``, with the place of the chain, if it has too many steps."""
    if count > MAX_STEPS:
        raise SamplingError(f"{count:,} steps; at most {MAX_STEPS:,} are allowed", place=(place,))


class Chain:
    """Samplers that run one after the other; the last one selects the token. Built by `build`.

    Steps that are switched off are left out. A chain has separate copies of its samplers, which hold the state:
    random numbers and past tokens. `reset` clears the state, and `accept` updates it. Apart from these, only a
    draw changes it.

    Attributes:
        seed: the seed of the random numbers, an integer of 64 bits, whose low 32 bits the samplers got.
        vocabulary: the vocabulary of the model; None if the chain was built without a model.
        steps: copies of the samplers that are switched on; the selector is the last one.
        allowed_tokens: the tokens that the model does not suppress, bool (V,); None if it suppresses no token.
            A suppressed token is never drawn, as in llama.cpp, whose chain begins with biases of -inf on these
            tokens.
        min_token_count: the number of tokens before which the text does not end, from the steps ``min_tokens``.

    Raises ``SamplingError`` if two steps are selectors, or if a selector is not the last step.
    """

    def __init__(self, specs: Sequence[StepSpec], context: BuildContext, seed: int | None = None) -> None:
        """Copy the samplers of ``specs``, and bind each copy to the seed and vocabulary of ``context``.

        ``seed``: the seed of which ``context`` has the low 32 bits; None: the one of ``context``.
        """
        check_selection([spec.sampler for spec in specs])
        has_selector = bool(specs) and specs[-1].sampler.about.is_selector
        if not has_selector:
            specs = [*specs, StepSpec(Dist(), location=f"chain[{len(specs)}].dist")]
        self.seed = context.seed if seed is None else seed
        self.vocabulary = context.vocabulary
        self.allowed_tokens = _allowed_tokens(context.vocabulary)
        specs = [spec for spec in specs if not spec.is_off]
        # A sampler is copied because its state must not be shared with other chains.
        self.steps: tuple[Sampler, ...] = tuple(spec.sampler.model_copy() for spec in specs)
        selector = self.steps[-1]
        if not isinstance(selector, Selector):
            raise SamplingError(f"{selector.about.name} has is_selector=True, but is not a Selector")
        self._selector: SelectingStep = selector
        self._applying_steps = _join_steps(self.steps[:-1])
        self.min_token_count = max((step.n for step in self.steps if isinstance(step, MinTokens)), default=0)
        self._has_top_k = any(isinstance(step, TopK) for step in self.steps)
        self._accepting_steps = [step for step in self.steps if type(step).accept is not Sampler.accept]
        for step, spec in zip(self.steps, specs, strict=True):
            _bind(step, spec, context)
        self.reset()

    def reset(self, prompt_ids: Iterable[int] = ()) -> None:
        """Clear all state, and start with the tokens of a prompt. The same calls then return the same tokens."""
        prompt = list(prompt_ids)
        for step in self.steps:
            try:
                step.reset(prompt)
            except Exception as error:
                raise step_error(step, "reset", error) from error

    # The difference of two finite logits may exceed float32. Each step handles the overflow.
    @np.errstate(over="ignore")
    def apply(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> Candidates:
        """Run every step except the selector, and return the remaining candidates, at least one.

        Raises ``SamplingError`` for NaN, +inf, a row of -inf only, a wrong shape, or a mask that allows no token.
        If a step is the cause, the message names the step.

        Args:
            logits: one logit per token, float32 (V,), in nats up to a constant; not written to.
            mask: which tokens are allowed, bool (V,). It is applied before the first step. None allows all tokens.
        """
        return self._apply(logits, mask)

    @np.errstate(over="ignore")
    def draw(self, candidates: Candidates) -> int:
        """Return the token id that the selector chooses from the candidates. The token is not accepted yet."""
        return self._select(candidates)

    @np.errstate(over="ignore")
    def sample(self, logits: Floats, mask: NDArray[np.bool_] | None = None) -> int:
        """Run all steps of the chain, and return the id of the next token. The token is not accepted yet."""
        return self._select(self._apply(logits, mask))

    def _apply(self, logits: Floats, mask: NDArray[np.bool_] | None) -> Candidates:
        candidates = Candidates(logits, expects_top=self._has_top_k)
        if mask is not None:
            _apply_mask(candidates, mask, self.allowed_tokens)
        elif self.allowed_tokens is not None:
            _mask_suppressed(candidates, self.allowed_tokens)
        for step in self._applying_steps:
            try:
                step.apply(candidates)
                max_logit = candidates.max
            except Exception as error:
                if not len(candidates):
                    raise SamplingError(f"{step.about.name}: left no candidate") from error
                raise step_error(step, "apply", error) from error
            if not isfinite(max_logit):
                raise SamplingError(f"{step.about.name}: left no finite logit")
        return candidates

    def _select(self, candidates: Candidates) -> int:
        step = self._selector
        try:
            token = step.select(candidates)
        except Exception as error:
            raise step_error(step, "select", error) from error
        if not 0 <= token < candidates.vocab_size:
            raise SamplingError(f"{step.about.name}: selected {token}, not within 0..{candidates.vocab_size - 1}")
        return token

    def accept(self, token: int) -> None:
        """Update the state of every sampler for a token that was appended to the text."""
        for step in self._accepting_steps:
            try:
                step.accept(token)
            except Exception as error:
                raise step_error(step, "accept", error) from error

    def with_steps(self, applying_steps: tuple[ApplyingStep, ...], selector: SelectingStep) -> Chain:
        """Return a chain that runs other steps. The two chains share everything else."""
        chain = copy(self)
        chain._applying_steps = applying_steps
        chain._selector = selector
        return chain

    @property
    def config(self) -> list[dict[str, dict[str, Any]]]:
        """The steps as a preset writes them, with the values of all parameters."""
        return [{step.about.name: step.model_dump()} for step in self.steps]

    def __repr__(self) -> str:
        return f"Chain({' > '.join(step.about.name for step in self.steps)}, seed={self.seed})"


def check_selection(samplers: Sequence[Sampler]) -> None:
    """Raise ``SamplingError`` if two samplers are selectors, or if a selector is not the last sampler."""
    places = [f"chain[{index}] {sampler.about.name}" for index, sampler in enumerate(samplers)]
    selector_indexes = [index for index, sampler in enumerate(samplers) if sampler.about.is_selector]
    if len(selector_indexes) > 1:
        first, second, *_ = selector_indexes
        raise SamplingError(
            f"{places[first]} and {places[second]} both select a token; a chain has one, its last step"
        )
    if selector_indexes and selector_indexes[0] < len(samplers) - 1:
        index = selector_indexes[0]
        problem = f"{places[index]} selects a token, so it must be the last step; {places[index + 1]} follows"
        raise SamplingError(problem)


def step_error(step: ApplyingStep | SelectingStep, method_name: str, error: Exception) -> Exception:
    """Return an exception of a step as a ``SamplingError`` that names the step."""
    # A step of another package may raise any exception. A `SamplingError` names the step already.
    if isinstance(error, SamplingError):
        return error
    return SamplingError(f"{step.about.name}: {method_name} failed: {type(error).__name__}: {error}")


def _join_steps(steps: tuple[Sampler, ...]) -> tuple[ApplyingStep, ...]:
    """Return the steps, with an ignore_eos at the beginning and a top_k after it as one step."""
    match steps:
        case (IgnoreEos() as ignore_eos, TopK() as top_k, *others):
            return (TopKWithoutEnds(ignore_eos, top_k), *others)
    return steps


def _bind(step: Sampler, spec: StepSpec, context: BuildContext) -> None:
    try:
        step.bind(context)
    except SamplingError as error:
        parameter = str(error.place[0]) if error.place else ""
        raise StepError.of(error.at(spec.location_of(parameter))) from None
    except Exception as error:
        raise step_error(step, "bind", error) from error


def _allowed_tokens(vocabulary: Vocabulary | None) -> NDArray[np.bool_] | None:
    """Return the tokens that the vocabulary does not suppress, bool (V,); None if it suppresses no token."""
    suppressed_ids = getattr(vocabulary, "suppressed", ())
    if vocabulary is None or not suppressed_ids:
        return None
    is_allowed = np.ones(vocabulary.size, dtype=np.bool_)
    is_allowed[list(suppressed_ids)] = False
    is_allowed.flags.writeable = False
    return is_allowed


def _mask_suppressed(candidates: Candidates, allowed_tokens: NDArray[np.bool_]) -> None:
    """Mask the tokens that the model suppresses. llama.cpp's later steps count them, at -inf."""
    if allowed_tokens.shape != (len(candidates),):
        raise SamplingError(f"logits: expected {allowed_tokens.size}, one per token, got {len(candidates)}")
    if not allowed_tokens.any():
        raise SamplingError(f"{_SUPPRESSED_KEY}: the model suppresses all its tokens")
    candidates.mask_except(allowed_tokens)
    if not isfinite(candidates.max):
        raise SamplingError(f"{_SUPPRESSED_KEY}: every token that it allows has a logit of -inf")


_SUPPRESSED_KEY = "tokenizer.ggml.suppress_tokens"  # the metadata key of the suppressed tokens in a model's file


def _apply_mask(candidates: Candidates, mask: NDArray[np.bool_], allowed_tokens: NDArray[np.bool_] | None) -> None:
    """Drop the tokens that the mask does not allow, and those that the model suppresses."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (len(candidates),):
        raise SamplingError(f"mask: expected bool of shape ({len(candidates)},), got {describe(mask)}")
    if not mask.any():
        raise SamplingError("mask: it allows no token")
    if allowed_tokens is not None:
        combined_mask = mask & allowed_tokens
        if not combined_mask.any():
            raise SamplingError(
                f"mask: it allows only tokens that the model suppresses ({_SUPPRESSED_KEY}), "
                f"such as token {int(mask.argmax())}"
            )
        mask = combined_mask
    candidates.filter_rows(mask)
    candidates.grammar_mask = mask
    if not isfinite(candidates.max):
        raise SamplingError("mask: every token it allows has a logit of -inf")


@dataclass(frozen=True)
class StepSpec:
    """A step whose name and parameters were checked, with the origin of each parameter.

    A chain copies the sampler, so one `StepSpec` can be used for any number of chains.

    Attributes:
        sampler: the sampler with its parameters. It is copied, and never part of a chain itself.
        origins: by parameter, the source of its value, such as ``default``, ``preset creative`` or ``--top-k``.
        origin: the source of the step, such as ``default``, ``preset creative`` or ``--top-k``.
        location: the place where the step is written, such as ``mine.yaml: chain[2].top_p``; empty if a flag
            inserted the step.
    """

    sampler: Sampler
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str = "default"
    location: str = ""

    @classmethod
    def from_origin(cls, sampler: Sampler, origin: str, location: str = "") -> StepSpec:
        """Return a `StepSpec` for a sampler from one source.

        Args:
            sampler: the sampler. Parameters that were not set explicitly get the origin ``default``.
            origin: the source of the step and of the parameters that were set.
            location: the place where the step is written; empty if there is none.
        """
        origins = dict.fromkeys(type(sampler).model_fields, "default")
        origins |= dict.fromkeys(sampler.model_fields_set, origin)
        return cls(sampler, origins, origin, location)

    @property
    def name(self) -> str:
        """The name of the sampler."""
        return self.sampler.about.name

    @property
    def is_off(self) -> bool:
        """True if the parameters switch the step off. A chain leaves out such a step."""
        return self.sampler.is_neutral

    def location_of(self, parameter: str) -> str:
        """Return the place where a parameter is written, for a message.

        The place is the flag that set the parameter, or the location of the step followed by the parameter's name.
        If ``parameter`` is empty, it is the place of the step.
        """
        origin = self.origins.get(parameter, "default")
        is_written_in_step = origin == self.origin and self.location
        if origin != "default" and not is_written_in_step:
            return origin  # the name of a flag identifies both the sampler and the parameter
        step_location = self.location or f"{self.origin}: {self.name}"
        return f"{step_location}.{parameter}" if parameter else step_location


@dataclass(frozen=True)
class Phase:
    """A part of a text before the last part. The last part has the chain of the run."""

    # the steps of the chain; the last step selects the token. None: the chain of the run, which goes on
    steps: tuple[StepSpec, ...] | None = None
    # The phase ends with the token that completes this text. None: the tag with which the model's chat template
    # ends the reasoning
    until: str | None = None
    max_tokens: int | None = None  # maximum number of tokens before ``then``; None: no limit
    then: str = ""  # the text that is forced after ``max_tokens`` tokens; empty: the next phase begins immediately
    adds_end: bool = False  # whether the text of ``until`` is forced after ``then``

    @property
    def needs_reasoning(self) -> bool:
        """True if the phase forces the end of the reasoning, whatever the chat template writes there."""
        return self.adds_end and self.until is None

    def as_setting(self) -> dict[str, Any]:
        """Return the phase as a preset writes it."""
        table: dict[str, Any] = {}
        if self.steps is not None:
            table["chain"] = [{step.name: step.sampler.model_dump()} for step in self.steps]
        if self.until is not None:
            table["until"] = self.until
        if self.max_tokens is not None:
            table["max_tokens"] = self.max_tokens
        if self.then:
            table["then"] = self.then
        if self.adds_end:
            table["adds_end"] = True
        return table


class ApplyingStep(Protocol):
    """A step before the selector: a `Sampler`, or a recorder that wraps one."""

    @property
    def about(self) -> SamplerInfo: ...

    def apply(self, candidates: Candidates) -> None:
        """Drop candidates or change their logits, in place."""
        ...


class SelectingStep(Protocol):
    """The last step of a chain: a `Selector`, or a recorder that wraps one."""

    @property
    def about(self) -> SamplerInfo: ...

    def select(self, candidates: Candidates) -> int:
        """Return the id of one of the candidates."""
        ...
