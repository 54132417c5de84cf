"""What llama.cpp's --samplers, --mirostat and --adaptive-target make of a chain: other steps, another end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .author import read_sequence
from .complaints import make_step
from .errors import PresetError
from .steps import ResolvedStep, another_chain, resolved

MIROSTATS = ("mirostat", "mirostat_v2")

# What forbids or favours tokens is no part of llama.cpp's list of samplers, and always goes first there.
_BIASES = ("ignore_eos", "min_tokens", "ban", "logit_bias")
_TEMPERATURES = ("temperature", "dynatemp")


@dataclass(frozen=True)
class Arrangement:
    """``origin`` asks for these steps in this order, and for this one to select; None leaves it as it is.

    ``optional``: a step of ``names`` that the chain lacks is not put in. ``replaces``: only such an end is
    replaced; empty: any.
    """

    origin: str
    names: tuple[str, ...] | None = None
    selector: str | None = None
    optional: bool = False
    replaces: tuple[str, ...] = ()


def arrange_by_samplers(text: str) -> Arrangement:
    """llama.cpp's ``--samplers "top_k;top_p;temperature"``, or its letters; raises ``PresetError``."""
    names = read_sequence(text, "--samplers")
    rest = tuple(name for name in names if name != "adaptive_p")
    return Arrangement("--samplers", rest, "adaptive_p" if "adaptive_p" in names else None)


def arrange_by_mirostat(version: int) -> Arrangement:
    """llama.cpp's ``--mirostat``: of the other samplers only the temperature stays; 0 leaves mirostat out."""
    if version == 0:
        return Arrangement("--mirostat", selector="dist", replaces=MIROSTATS)
    return Arrangement("--mirostat", ("temperature",), MIROSTATS[version - 1], optional=True)


def arrange_by_adaptive_p() -> Arrangement:
    """``--adaptive-target``: the chain draws by adaptive_p."""
    return Arrangement("--adaptive-target", selector="adaptive_p")


def end(steps: Sequence[ResolvedStep], wish: Arrangement) -> list[ResolvedStep]:
    """Return the steps with the end that is asked for; raises ``PresetError`` where a --chain wrote another."""
    last = steps[-1]
    if wish.selector in (None, last.name) or (wish.replaces and last.name not in wish.replaces):
        return list(steps)
    if last.origin == "--chain":
        raise PresetError(another_chain(wish.origin, wish.selector, steps))
    return [*steps[:-1], resolved(make_step(wish.selector, {}, wish.origin), wish.origin)]


def order(steps: Sequence[ResolvedStep], wish: Arrangement) -> list[ResolvedStep]:
    """Return the steps that are asked for, in that order, between the biases and the end."""
    if wish.names is None:
        return list(steps)
    arranged = [step for step in steps[:-1] if step.name in _BIASES]
    for name in wish.names:
        same = _TEMPERATURES if name in _TEMPERATURES else (name,)
        there = [step for step in steps[:-1] if step.name in same][:1]
        if not there and not wish.optional:
            there = [resolved(make_step(name, {}, wish.origin), wish.origin)]
        arranged += there
    return [*arranged, steps[-1]]
