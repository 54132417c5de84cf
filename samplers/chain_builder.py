"""From the steps of a preset to a chain: names and parameters checked, each complaint with its place."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Literal, SupportsIndex, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from .base import BuildContext, Sampler
from .chain import Chain, check_selection
from .compact_notation import parse_notation
from .errors import SamplingError
from .mersenne_twister import SEED_MAX
from .registry import find_sampler
from .vocabulary import Vocabulary

Step = str | Mapping[str, Any] | Sampler
"""A step: ``name``, ``{name: main value}``, ``{name: {parameters}}``, or a sampler."""


def build(steps: str | Sequence[Step], seed: int = 0, vocab: Vocabulary | None = None) -> Chain:
    """Build a chain from the steps of a preset's ``chain:``, or from the compact notation.

    A chain without a selecting sampler gets ``dist``. Steps whose parameters switch them off are dropped.
    Raises ``SamplingError`` that names the step and the parameter, what is allowed and what came.
    """
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not 0 <= index(seed) <= SEED_MAX:
        raise SamplingError(f"seed: {seed!r} is not a whole number within 0..{SEED_MAX}")
    return Chain(parse_chain(steps), BuildContext(index(seed), vocab))


def parse_chain(steps: str | Sequence[Step]) -> list[Sampler]:
    """Return the samplers that the steps name, not yet part of a chain.

    Parameters are checked, and that at most one step selects, the last. Raises ``SamplingError``.
    """
    if isinstance(steps, str):
        steps = parse_notation(steps)
    if not isinstance(steps, Sequence):
        raise SamplingError(f"chain: a list of steps is needed, not {steps!r}")
    samplers = [make_sampler(step, place=f"chain[{number}]") for number, step in enumerate(steps)]
    check_selection(samplers)
    return samplers


def make_sampler(step: Step, place: str) -> Sampler:
    """Return one sampler; ``place`` begins each complaint, as in ``chain[2].top_p.p: …``."""
    if isinstance(step, Sampler):
        return type(step)(**step.model_dump()).written_at(step.places)
    name, value = _name_and_value(step, place)
    try:
        cls = find_sampler(name)
    except SamplingError as error:
        raise SamplingError(f"{place}: {error}") from None
    place = f"{place}.{cls.about.name}"
    params = _parameters(cls, value, place)
    try:
        return cls(**params)
    except ValidationError as error:
        raise SamplingError(f"{place}{_complaint(cls, error)}") from None
    except Exception as error:  # what another package's validator may raise
        raise SamplingError(f"{place}: {type(error).__name__}: {error}") from error


def allowed_values(field: FieldInfo) -> str:
    """The range of a parameter in words: ``0..1``, ``≥ 0``, ``include or exclude``; empty: any value."""
    bounds = {name: getattr(rule, name) for rule in field.metadata for name in _BOUNDS if hasattr(rule, name)}
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is not None and high is not None:
        if "ge" in bounds and "le" in bounds:
            return f"{low:g}..{high:g}"
        return f"{'≥' if 'ge' in bounds else '>'} {low:g} and {'≤' if 'le' in bounds else '<'} {high:g}"
    if low is not None:
        return f"{'≥' if 'ge' in bounds else '>'} {low:g}"
    if high is not None:
        return f"{'≤' if 'le' in bounds else '<'} {high:g}"
    if get_origin(field.annotation) is not Literal:
        return ""
    words = [str(choice).lower() if isinstance(choice, bool) else choice for choice in get_args(field.annotation)]
    return f"{', '.join(words[:-1])} or {words[-1]}"


_BOUNDS = ("ge", "gt", "le", "lt")
_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "a table",
    "list_type": "a list",
    "finite_number": "a finite number",
}


def _name_and_value(step: Step, place: str) -> tuple[str, Any]:
    if isinstance(step, str):
        return step, None
    if isinstance(step, Mapping) and len(step) == 1:
        ((name, value),) = step.items()
        if isinstance(name, str):
            return name, value
    raise SamplingError(f"{place}: {step!r} is not a step; write name, name: value or name: {{parameters}}")


def _parameters(cls: type[Sampler], value: Any, place: str) -> dict[str, Any]:
    """The parameters as a table; a bare value is the main one."""
    main = cls.about.main
    if value is None:
        return {}
    if not isinstance(value, Mapping) or _is_main_table(cls, value):
        if main is None:
            raise SamplingError(f"{place}: takes no single value, and {value!r} came")
        return {main: value}
    for key in value:
        if key not in cls.model_fields:
            near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.4)
            known = f"did you mean {near[0]}?" if near else f"known: {', '.join(cls.model_fields) or 'none'}"
            raise SamplingError(f"{place}: unknown parameter {key!r}; {known}")
    return dict(value)


def _is_main_table(cls: type[Sampler], value: Mapping[Any, Any]) -> bool:
    """Is this table the main parameter itself, as in ``logit_bias: {42: -1}``?"""
    main = cls.about.main
    takes_table = main is not None and get_origin(cls.model_fields[main].annotation) is dict
    return takes_table and not any(key in cls.model_fields for key in value)


def _complaint(cls: type[Sampler], error: ValidationError) -> str:
    """One sentence for the first thing that pydantic found: ``.p: 1.5 is not within 0..1``."""
    first = error.errors()[0]
    # Of a union pydantic complains once for each kind that it takes, behind the same place.
    place, union = first["loc"], first["loc"][-1:] in (("int",), ("str",))
    if union:
        place = place[:-1]
    kinds = [_KINDS.get(other["type"]) for other in error.errors() if union and other["loc"][:-1] == place]
    of_key = place[-1:] == ("[key]",)
    path = "".join(f".{part}" for part in (place[:-2] if of_key else place))
    got = first["input"]
    field = cls.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    scope = allowed_values(field) if field is not None else ""
    kind = " or ".join(dict.fromkeys(filter(None, kinds))) or _KINDS.get(first["type"])
    if kind and cls.about.example is not None and first["type"] == "dict_type":
        kind += f" such as {cls.about.example}"
    if kind:
        return f"{path}: {'the key ' if of_key else ''}{got!r} is not {kind}" + (f" ({scope})" if scope else "")
    if first["type"].startswith(("greater_than", "less_than")) and scope:
        return f"{path}: {got!r} is not {'within ' if '..' in scope else ''}{scope}"
    if first["type"] == "literal_error":
        return f"{path}: {got!r} is not {scope}"
    message = first["msg"].removeprefix("Value error, ")
    came = "" if isinstance(got, Mapping) else f"{got!r}: "
    return f"{path}: {came}{message[:1].lower()}{message[1:]}"
