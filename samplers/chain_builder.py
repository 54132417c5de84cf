"""From the steps of a preset to a chain: names and parameters are checked, and messages say where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, get_origin

from pydantic import ValidationError

from .base import BuildContext, Sampler
from .chain import Chain, check_selection
from .compact_notation import parse_notation, parse_step, reject_koboldai_order
from .errors import SamplingError
from .mersenne_twister import SEED_MAX
from .near_names import nearest_name
from .parameter_messages import parameter_message, shown_value
from .registry import find_sampler
from .step_spec import StepSpec, check_step_count
from .vocabulary import Vocabulary

Step = str | Mapping[str, Any] | Sampler | StepSpec
"""A step: ``name``, ``{name: main value}``, ``{name: {parameters}}``, or one that was checked before."""

_PARAMETER_SIMILARITY = 0.4
"""From this similarity on, a parameter's name is suggested (see `difflib`). Parameters are few and short."""


def build(steps: str | Sequence[Step], seed: int = 0, vocab: Vocabulary | None = None) -> Chain:
    """Build a chain from the steps of a preset's ``chain:``, or from the compact notation.

    A chain without a selecting sampler gets ``dist``. Steps whose parameters switch them off are dropped. A
    `StepSpec` or a sampler is copied, not checked again. Raises ``SamplingError`` that names the step and the
    parameter, what is allowed and what came.
    """
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not 0 <= index(seed) <= SEED_MAX:
        raise SamplingError(f"seed: {shown_value(seed)} is not a whole number within 0..{SEED_MAX}")
    return Chain(_read_steps(steps), BuildContext(index(seed), vocab))


def parse_chain(steps: str | Sequence[Step]) -> list[Sampler]:
    """Return the samplers that the steps name, not yet part of a chain.

    Parameters are checked, and that at most one step selects, the last. Raises ``SamplingError``.
    """
    samplers = [spec.sampler for spec in _read_steps(steps)]
    check_selection(samplers)
    return samplers


def _read_steps(steps: str | Sequence[Step]) -> list[StepSpec]:
    if isinstance(steps, str):
        steps = parse_notation(steps)
    if not isinstance(steps, Sequence):
        raise SamplingError(f"chain: a list of steps is needed, not {steps!r}")
    check_step_count(len(steps), "chain")
    reject_koboldai_order(steps, "chain")
    specs = []
    for number, step in enumerate(steps):
        if isinstance(step, StepSpec):
            specs.append(step)
            continue
        sampler = make_sampler(step, origin=f"chain[{number}]")
        specs.append(StepSpec(sampler, location=f"chain[{number}].{sampler.about.name}"))
    return specs


def make_sampler(step: str | Mapping[str, Any] | Sampler, origin: str) -> Sampler:
    """Return the sampler of one step; a sampler itself is returned as it is.

    ``origin`` begins each message, as in ``chain[2].top_p.p: …``. Raises ``SamplingError``.
    """
    if isinstance(step, Sampler):
        return step
    name, value = _name_and_value(step, origin)
    try:
        cls = find_sampler(name)
    except SamplingError as error:
        raise SamplingError(f"{origin}: {error}") from None
    origin = f"{origin}.{cls.about.name}"
    params = _parameters(cls, value, origin)
    try:
        return cls(**params)
    except ValidationError as error:
        raise SamplingError(f"{origin}{parameter_message(cls, error)}") from None
    except Exception as error:  # what another package's validator may raise
        raise SamplingError(f"{origin}: {type(error).__name__}: {error}") from error


def _name_and_value(step: object, origin: str) -> tuple[str, Any]:
    if isinstance(step, str):
        step = parse_step(step, origin)
    if isinstance(step, str):
        return step, None
    if isinstance(step, Mapping) and len(step) == 1:
        ((name, value),) = step.items()
        if isinstance(name, str):
            return name, value
    if isinstance(step, Mapping) and len(step) > 1:
        names = " and ".join(map(str, step))
        raise SamplingError(f"{origin}: {names} are in one step; write each as an item of the list")
    shown = shown_value(step)
    raise SamplingError(f"{origin}: {shown} is not a step; write name, name: value or name: {{parameters}}")


def _parameters(cls: type[Sampler], value: Any, origin: str) -> dict[str, Any]:
    """The parameters as a table; a bare value is the main one."""
    main = cls.about.main
    if value is None:
        return {}
    if not isinstance(value, Mapping) or _is_main_table(cls, value):
        if main is None:
            raise SamplingError(f"{origin}: takes no single value, and {value!r} came")
        return {main: value}
    for key in value:
        if key not in cls.model_fields:
            near = nearest_name(str(key), cls.model_fields, _PARAMETER_SIMILARITY)
            hint = f"did you mean {near}?" if near else f"known: {', '.join(cls.model_fields) or 'none'}"
            raise SamplingError(f"{origin}: unknown parameter {key!r}; {hint}")
    return dict(value)


def _is_main_table(cls: type[Sampler], value: Mapping[Any, Any]) -> bool:
    """True if this table is the main parameter itself, as in ``logit_bias: {42: -1}``."""
    main = cls.about.main
    takes_table = main is not None and get_origin(cls.model_fields[main].annotation) is dict
    return takes_table and not any(key in cls.model_fields for key in value)
