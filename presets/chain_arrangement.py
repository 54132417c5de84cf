"""llama.cpp's --samplers, --mirostat and --adaptive-target: which steps a chain has, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..samplers.chain import StepSpec
from ..samplers.registry import find_sampler
from .errors import PresetError
from .llama_cpp_names import read_sequence
from .messages import make_step
from .step_override import other_selector_message

_MIROSTAT_VERSIONS = {1: "mirostat", 2: "mirostat_v2"}
"""The values of llama.cpp's ``--mirostat``."""


@dataclass(frozen=True)
class Arrangement:
    """Which steps a chain shall have, and which one shall select.

    Attributes:
        origin: the flag that asks for it.
        names: the samplers before the selecting one, in this order; None: as they are.
        selector: the sampler that selects; None: as it is.
        optional: True if a step of ``names`` that the chain lacks is not put in.
        replaces: only a selector of this family is replaced; empty: any.
    """

    origin: str
    names: tuple[str, ...] | None = None
    selector: str | None = None
    optional: bool = False
    replaces: str = ""


def arrange_by_samplers(text: str, origin: str = "--samplers") -> Arrangement:
    """llama.cpp's ``--samplers "top_k;top_p;temperature"``, or its letters. Raises ``PresetError``.

    ``origin``: the flag as it was typed.
    """
    names = read_sequence(text, origin)
    selectors = [name for name in names if find_sampler(name).about.selects]
    steps = tuple(name for name in names if name not in selectors)
    return Arrangement(origin, steps, selectors[-1] if selectors else None)


def arrange_by_mirostat(version: int) -> Arrangement:
    """llama.cpp's ``--mirostat``: of the other samplers only the temperature stays; 0 removes mirostat."""
    if version == 0:
        return Arrangement("--mirostat", selector="dist", replaces="mirostat")
    return Arrangement("--mirostat", ("temperature",), _MIROSTAT_VERSIONS[version], optional=True)


def arrange_by_adaptive_p() -> Arrangement:
    """``--adaptive-target``: the chain draws by adaptive_p."""
    return Arrangement("--adaptive-target", selector="adaptive_p")


def replace_selector(steps: Sequence[StepSpec], arrangement: Arrangement) -> list[StepSpec]:
    """Return the steps with the selector asked for. Raises ``PresetError`` if a --chain named another."""
    last, name = steps[-1], arrangement.selector
    if name in (None, last.name) or arrangement.replaces not in ("", last.sampler.about.family):
        return list(steps)
    if last.origin == "--chain":
        raise PresetError(other_selector_message(arrangement.origin, name, steps))
    return [*steps[:-1], _new_step(name, arrangement.origin)]


def order_steps(steps: Sequence[StepSpec], arrangement: Arrangement) -> list[StepSpec]:
    """Return the steps asked for, in that order, between the biases and the selector."""
    if arrangement.names is None:
        return list(steps)
    arranged = [step for step in steps[:-1] if step.sampler.about.is_bias]
    for name in arrangement.names:
        family = find_sampler(name).about.family
        present = [step for step in steps[:-1] if step.name == name or _is_of_family(step, family)]
        if not present and not arrangement.optional:
            present = [_new_step(name, arrangement.origin)]
        arranged += present[:1]
    return [*arranged, steps[-1]]


def _is_of_family(step: StepSpec, family: str) -> bool:
    return bool(family) and step.sampler.about.family == family


def _new_step(name: str, origin: str) -> StepSpec:
    return StepSpec.from_origin(make_step(name, {}, origin), origin)
