"""The arms of a comparison: presets, chains and points of a grid, with the command's model or another one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ..common.errors import UsageError
from ..presets.overrides import parse_set
from ..presets.search import is_file_reference, list_presets
from ..requests.asked import AskedRequest
from ..samplers.building import parse_chain
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler

MAX_ARMS = 64
_NAME = re.compile(r"[\w.+-]+(?: [\w.+-]+)*")


@dataclass(frozen=True)
class Arm:
    """One of the settings that are compared."""

    name: str
    preset: str | None = None  # name or file of a preset; None with a chain
    chain: str | None = None  # a chain in the compact notation; None with a preset
    sets: tuple[str, ...] = ()  # settings of a grid, as ``--set`` accepts them
    model: str | None = None  # the model, as ``-m`` accepts it; None: the command's model

    def apply_to(self, asked: AskedRequest, seed: int) -> AskedRequest:
        """Return what is asked for with the settings of this arm."""
        sets = (parse_set(text, "set") for text in self.sets)
        overrides = (*sets, *asked.overrides, parse_set(f"seed={seed}"))
        return replace(asked, overrides=overrides, preset=self.preset, chain=self.chain)


def make_arms(texts: Iterable[str], base: str | None, grids: Sequence[str]) -> list[Arm]:
    """Return all arms: those of ``--arm`` (``NAME=SOURCE@MODEL``), in order, then the points of the grid."""
    # SOURCE is a preset or a chain. Name, source and model may be left out; without a source, the arm has the
    # base, by default the preset ``default``. Each combination of values of the grids (``NAME.PARAM=VALUE,VALUE``)
    # is an arm. Raises ``UsageError`` for texts of another form, equal names, fewer than two arms, or too many.
    base_arm = _read_source(base or "default", "--base")
    arms = [_parse_arm(text, base_arm) for text in texts]
    if base is not None and not grids and all(arm.preset or arm.chain for arm in map(_without_base, texts)):
        raise UsageError("--base has no effect without --grid, or an arm without a chain such as --arm q4=@FILE")
    if grids:
        arms += [
            replace(base_arm, name=" ".join(values), sets=values)
            for values in product(*(_parse_grid(grid) for grid in grids))
        ]
    if len(arms) < 2:
        raise UsageError("a comparison needs two arms or more: --arm default --arm 'hot=temp1.5 > min-p0.05'")
    if len(arms) > MAX_ARMS:
        raise UsageError(f"there are {len(arms)} arms, and at most {MAX_ARMS} can be compared")
    names = [arm.name for arm in arms]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise UsageError(f"--arm: two arms are named {doubled!r}; name one of them: --arm NAME={doubled}")
    return arms


def _without_base(text: str) -> Arm:
    """Return an arm as it is written, without the source that the base would give."""
    return _parse_arm(text, Arm(""))


def _parse_arm(text: str, base: Arm) -> Arm:
    name, sign, rest = text.partition("=")
    if not sign or not _NAME.fullmatch(name) or _is_sampler(name.split()[0]):  # top_k=40 is a chain
        name, rest = text, text
    source, has_model, model = rest.rpartition("@")
    if not has_model:
        source, model = rest, ""
    if not source.strip() and not model:
        raise UsageError(f"--arm {text}: write NAME=CHAIN, NAME=PRESET, or NAME=PRESET@MODEL")
    arm = _read_source(source.strip(), f"--arm {name}") if source.strip() else base
    return replace(arm, name=name, model=model or None)


def _is_sampler(name: str) -> bool:
    try:
        find_sampler(name)
    except SamplingError:
        return False
    return True


def _read_source(source: str, origin: str) -> Arm:
    """Return the arm of a preset, or of a chain if no preset has this name."""
    # Raises ``UsageError`` if the source is neither. Errors of a preset's file are raised when it is opened.
    if source == "model" or is_file_reference(source) or source in {entry.name for entry in list_presets()}:
        return Arm(source, preset=source)
    try:
        parse_chain(source)
    except SamplingError as error:
        raise UsageError(f"{origin}: {source!r} is not a preset or a chain: {error}") from None
    return Arm(source, chain=source)


def _parse_grid(text: str) -> list[str]:
    """Return the settings of one parameter, as ``--set`` accepts them. Raises ``UsageError``, ``PresetError``."""
    name, sign, values = text.partition("=")
    if not sign or not values:
        raise UsageError(f"--grid {text}: write NAME.PARAM=VALUE,VALUE, such as min_p.p=0.02,0.05")
    settings = [f"{name.strip()}={value.strip()}" for value in values.split(",")]
    for setting in settings:
        parse_set(setting)
    return settings
