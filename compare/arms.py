"""The arms of a comparison: presets, chains and points of a grid, with the command's model or another one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from ..common.errors import UsageError
from ..presets.overrides import parse_set
from ..presets.search import is_file_reference, list_presets
from ..requests.asked import AskedRequest
from ..samplers.building import parse_chain
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler

MAX_ARMS = 64
_NAME = re.compile(r"[\w.+-]+(?: [\w.+-]+)*")  # words, each separated from the next by one space


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
    # SOURCE is a preset or a chain. Name, source and model may be left out. An arm without a source has the base,
    # by default the preset ``default``. A grid is ``NAME.PARAM=VALUE,VALUE``; each combination of values of the
    # grids is an arm. Raises ``UsageError`` for texts of another form, equal names, fewer than two arms, or too
    # many.
    base_arm = _read_source(base or "default", "--base")
    arms = [_parse_arm(text, base_arm) for text in texts]
    is_base_used = bool(grids) or any(_lacks_source(text) for text in texts)
    if base is not None and not is_base_used:
        raise UsageError("--base has no effect without --grid, or an arm without a chain such as --arm q4=@FILE")
    if grids:
        settings_of_grids = [_parse_grid(grid) for grid in grids]
        for settings in product(*settings_of_grids):
            arms.append(replace(base_arm, name=" ".join(settings), sets=settings))
    if len(arms) < 2:
        raise UsageError("a comparison needs two arms or more: --arm default --arm 'hot=temp1.5 > min-p0.05'")
    if len(arms) > MAX_ARMS:
        raise UsageError(f"there are {len(arms)} arms, and at most {MAX_ARMS} can be compared")
    names = [arm.name for arm in arms]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise UsageError(f"--arm: two arms are named {duplicate!r}; name one of them: --arm NAME={duplicate}")
    return arms


class _ArmText(NamedTuple):
    """The parts of ``NAME=SOURCE@MODEL``. Source and model are empty if they are left out."""

    name: str
    source: str
    model: str


def _lacks_source(text: str) -> bool:
    return not _split_arm_text(text).source


def _parse_arm(text: str, base: Arm) -> Arm:
    name, source, model = _split_arm_text(text)
    arm = _read_source(source, f"--arm {name}") if source else base
    return replace(arm, name=name, model=model or None)


def _split_arm_text(text: str) -> _ArmText:
    name, equals_sign, source_and_model = text.partition("=")
    has_name = bool(equals_sign) and _NAME.fullmatch(name) is not None
    if not has_name or _is_sampler(name.split()[0]):  # top_k=40 is a chain
        name = text
        source_and_model = text
    source, at_sign, model = source_and_model.rpartition("@")
    if not at_sign:
        source = source_and_model
        model = ""
    source = source.strip()
    if not source and not model:
        raise UsageError(f"--arm {text}: write NAME=CHAIN, NAME=PRESET, or NAME=PRESET@MODEL")
    return _ArmText(name, source, model)


def _is_sampler(name: str) -> bool:
    try:
        find_sampler(name)
    except SamplingError:
        return False
    return True


def _read_source(source: str, origin: str) -> Arm:
    """Return the arm of a preset, or of a chain if no preset has this name."""
    # Raises ``UsageError`` if the source is neither. Errors of a preset's file are raised when it is opened.
    preset_names = {entry.name for entry in list_presets()}
    if source == "model" or is_file_reference(source) or source in preset_names:
        return Arm(source, preset=source)
    try:
        parse_chain(source)
    except SamplingError as error:
        raise UsageError(f"{origin}: {source!r} is not a preset or a chain: {error}") from None
    return Arm(source, chain=source)


def _parse_grid(text: str) -> list[str]:
    """Return the settings of one parameter, as ``--set`` accepts them. Raises ``UsageError``, ``PresetError``."""
    name, _, values = text.partition("=")
    if not values:
        raise UsageError(f"--grid {text}: write NAME.PARAM=VALUE,VALUE, such as min_p.p=0.02,0.05")
    settings = [f"{name.strip()}={value.strip()}" for value in values.split(",")]
    for setting in settings:
        parse_set(setting)
    return settings
