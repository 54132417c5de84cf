"""What llama.cpp's --samplers, --mirostat and --adaptive-target make of a chain: other steps, another end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..samplers import find_sampler
from .errors import PresetError
from .gguf_preset import read_sequence
from .messages import make_step
from .step_override import ResolvedStep, another_chain, resolved

_MIROSTAT_VERSIONS = {1: "mirostat", 2: "mirostat_v2"}


@dataclass(frozen=True)
class Arrangement:
    """``origin`` asks for these steps in this order, and for this one to select; None leaves it as it is.

    ``optional``: a step of ``names`` that the chain lacks is not put in. ``replaces``: only an end of this family
    is replaced; empty: any.
    """

    origin: str
    names: tuple[str, ...] | None = None
    selector: str | None = None
    optional: bool = False
    replaces: str = ""


def arrange_by_samplers(text: str) -> Arrangement:
    """llama.cpp's ``--samplers "top_k;top_p;temperature"``, or its letters; raises ``PresetError``."""
    names = read_sequence(text, "--samplers")
    rest = tuple(name for name in names if name != "adaptive_p")
    return Arrangement("--samplers", rest, "adaptive_p" if "adaptive_p" in names else None)


def arrange_by_mirostat(version: int) -> Arrangement:
    """llama.cpp's ``--mirostat``: of the other samplers only the temperature stays; 0 leaves mirostat out."""
    if version == 0:
        return Arrangement("--mirostat", selector="dist", replaces="mirostat")
    return Arrangement("--mirostat", ("temperature",), _MIROSTAT_VERSIONS[version], optional=True)


def arrange_by_adaptive_p() -> Arrangement:
    """``--adaptive-target``: the chain draws by adaptive_p."""
    return Arrangement("--adaptive-target", selector="adaptive_p")


def end(steps: Sequence[ResolvedStep], wish: Arrangement) -> list[ResolvedStep]:
    """Return the steps with the end that is asked for; raises ``PresetError`` where a --chain wrote another."""
    last = steps[-1]
    if wish.selector in (None, last.name) or wish.replaces not in ("", last.sampler.about.family):
        return list(steps)
    if last.origin == "--chain":
        raise PresetError(another_chain(wish.origin, wish.selector, steps))
    return [*steps[:-1], resolved(make_step(wish.selector, {}, wish.origin), wish.origin)]


def order(steps: Sequence[ResolvedStep], wish: Arrangement) -> list[ResolvedStep]:
    """Return the steps that are asked for, in that order, between the biases and the end."""
    if wish.names is None:
        return list(steps)
    arranged = [step for step in steps[:-1] if step.sampler.about.is_bias]
    for name in wish.names:
        family = find_sampler(name).about.family
        same = [
            step for step in steps[:-1] if step.name == name or (family and step.sampler.about.family == family)
        ]
        if not same and not wish.optional:
            same = [resolved(make_step(name, {}, wish.origin), wish.origin)]
        arranged += same[:1]
    return [*arranged, steps[-1]]
