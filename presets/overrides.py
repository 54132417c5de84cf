"""The effect of one flag on a chain: it sets a parameter of a step, or rearranges the steps.

Every parameter can be set by ``--set``, and many by a separate flag. llama.cpp's flags ``--samplers``,
``--mirostat`` and ``--adaptive-target`` rearrange the chain: they determine which steps it has, and in which
order. ``--samplers`` takes llama.cpp's notation: names joined by semicolons, or letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.errors import Advice, Word, wrong_value
from ..common.text import count_noun, join_alternatives, short_repr, unknown_name
from ..samplers.base import Sampler, Stage
from ..samplers.chain import StepSpec
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .errors import PresetError
from .preset import make_step
from .setting_table import SETTINGS, find_setting_name
from .yaml_reader import parse_yaml_scalar

# The sampler that marks the text. Its place is directly before the selecting step, whatever the order of the steps
# before it: it is not one of llama.cpp's samplers, so an order of llama.cpp's does not leave it out.
WATERMARK = "synthid"

_TARGET_PATTERN = re.compile(r"(?P<name>[^.#]+)(?:#(?P<occurrence>[1-9][0-9]{0,8}))?(?:\.(?P<parameter>[^#]+))?")


@dataclass(frozen=True)
class Override:
    """A value that takes precedence over the preset's value.

    Attributes:
        origin: the flag that the user typed, such as ``--top-k``.
        target: ``sampler.parameter``; ``sampler`` for the sampler's main parameter; ``sampler#2.parameter`` for
            the second step of that name; or one of `SETTINGS`.
        value: the value to set. For a sampler without parameters, such as ``ignore_eos``, True turns the step on,
            and False turns the step off. None, as in ``--set ignore_eos=``, means True. For a setting that has
            parts, a table sets only the keys that it has.
    """

    origin: str
    target: str
    value: Any


@dataclass(frozen=True)
class _StepTarget:
    """The parameter of a step that an override sets."""

    name: str
    # number of the step among the steps of that name, counted from 1; None if the chain must have only one such
    # step
    occurrence: int | None
    # name of the parameter; None for a sampler without parameters, which is turned on or off
    parameter: str | None

    def __str__(self) -> str:
        number = "" if self.occurrence is None else f"#{self.occurrence}"
        parameter = "" if self.parameter is None else f".{self.parameter}"
        return f"{self.name}{number}{parameter}"


def parse_set(text: str, door: str = "--set") -> Override:
    """Return the override for an argument of ``--set``, or of the field ``door``. Raises ``PresetError``."""
    # Forms are ``top_k.k=20``, ``top_k=20``, ``top_p#2.p=0.5``, ``seed=7``, and ``name.key=2`` for a setting that
    # has parts. The value is YAML. Names may be aliases, and may be written with dashes.
    name, sign, value = text.partition("=")
    name = name.strip()
    if not sign or not name:
        problem = "write name.parameter=value, such as top_k.k=20 or seed=7"
        raise PresetError(problem, origin=f"{door} {text}")
    origin = f"{door} {name}"
    scalar = parse_yaml_scalar(value, origin)
    first_name, dot, key = name.partition(".")
    setting = find_setting_name(first_name)
    if dot and setting is not None and SETTINGS[setting].kind.has_parts:
        return Override(origin, setting, {key.strip().replace("-", "_"): scalar})
    target = find_setting_name(name) or str(_parse_step_target(name, origin))
    return Override(origin, target, scalar)


def _parse_step_target(text: str, origin: str) -> _StepTarget:
    # A target without a parameter is an error if the sampler has parameters but no main parameter.
    match = _TARGET_PATTERN.fullmatch(text.strip())
    if match is None:
        problem = wrong_value(text, "name, name.parameter or name#2.parameter (from #1)")
        raise PresetError(problem, origin=origin)
    try:
        cls = find_sampler(match["name"])
    except SamplingError as error:
        advice = f"other settings: {', '.join(SETTINGS)}"
        raise PresetError(str(error), origin=origin, advice=advice) from None
    parameter = match["parameter"].strip().replace("-", "_") if match["parameter"] else cls.about.main_parameter
    if parameter is None and cls.model_fields:
        problem = f"choose a parameter of {cls.about.name}: {', '.join(cls.model_fields)}"
        raise PresetError(problem, origin=origin)
    return _StepTarget(cls.about.name, int(match["occurrence"]) if match["occurrence"] else None, parameter)


Steps = Sequence[StepSpec]

_OTHER_CHAIN: Advice = ("choose another preset or give a ", Word.CHAIN)
# for flags that set a parameter of a selecting step: the flag that puts this step into the chain
_SELECTING_FLAGS = {
    "--mirostat-lr": "--mirostat 2",
    "--mirostat-ent": "--mirostat 2",
    "--adaptive-decay": "--adaptive-target N",
}


def override_step(steps: Steps, override: Override) -> list[StepSpec]:
    """Return the steps with one parameter changed. A sampler that is not in the chain is inserted at its stage."""
    # Raises ``PresetError`` that begins with the origin of the override, also if the chain has several steps of
    # the sampler and the target does not number one, and if the chain ends in a step such as greedy, which would
    # ignore the sampler.
    origin = override.origin
    target = _redirect_target(steps, _parse_step_target(override.target, origin))
    steps = _convert_step(steps, target)
    position = _find_position(steps, target, origin)
    if target.parameter is None:
        return _turn_on_or_off(steps, target, position, override)
    if position is None:
        sampler = make_step(target.name, {target.parameter: override.value}, origin, target.parameter)
        _reject_unused_step(steps, sampler, origin)
        return _insert_step(steps, StepSpec.from_origin(sampler, origin), origin)
    changed_step = _set_parameter(steps[position], target.parameter, override)
    _reject_unused_step(steps, changed_step.sampler, origin)
    return [*steps[:position], changed_step, *steps[position + 1 :]]


def _redirect_target(steps: Steps, target: _StepTarget) -> _StepTarget:
    """Return the target, redirected to the chain's step of the same family if this step covers the sampler."""
    # As in llama.cpp, temperature and dynatemp are one step, and the mirostat flags set either version of
    # mirostat.
    family_steps = _steps_of_family(steps, target)
    if len(family_steps) != 1:
        return target
    about = family_steps[0].sampler.about
    if target.name not in about.covered_samplers:
        return target
    parameter = target.parameter and about.covered_samplers[target.name].get(target.parameter, target.parameter)
    return replace(target, name=about.name, parameter=parameter)


def _convert_step(steps: Steps, target: _StepTarget) -> Steps:
    """Convert the chain's only step of the target's family to the target's sampler, with the same values."""
    # If the target's sampler does not cover the step, the steps are returned unchanged.
    family_steps = _steps_of_family(steps, target)
    about = find_sampler(target.name).about
    if about.is_selector or len(family_steps) != 1 or family_steps[0].name not in about.covered_samplers:
        return steps
    (old_step,) = family_steps
    names = about.covered_samplers[old_step.name]
    parameters = {name: names.get(name, name) for name in type(old_step.sampler).model_fields}
    values = {new: getattr(old_step.sampler, old) for old, new in parameters.items()}
    sampler = make_step(target.name, values, old_step.origin)
    origins = dict.fromkeys(type(sampler).model_fields, "default")
    origins.update({new: old_step.origins[old] for old, new in parameters.items()})
    converted = replace(old_step, sampler=sampler, origins=origins)
    return [converted if step is old_step else step for step in steps]


def _steps_of_family(steps: Steps, target: _StepTarget) -> list[StepSpec]:
    """Return the steps of the target's family of samplers; an empty list if the target has no family."""
    family = find_sampler(target.name).about.family
    return [step for step in steps if _is_of_family(step, family)]


def _is_of_family(step: StepSpec, family: str) -> bool:
    return bool(family) and step.sampler.about.family == family


def _find_position(steps: Steps, target: _StepTarget, origin: str) -> int | None:
    positions = [number for number, step in enumerate(steps) if step.name == target.name]
    if target.occurrence is not None:
        if target.occurrence > len(positions):
            problem = f"there is no {target.name}#{target.occurrence}; {_count_steps(target.name, len(positions))}"
            raise PresetError(problem, origin=origin)
        return positions[target.occurrence - 1]
    if len(positions) > 1:
        advice = ("choose one, as in ", Word.SET, f" {replace(target, occurrence=1)}=VALUE")
        raise PresetError(_count_steps(target.name, len(positions)), origin=origin, advice=advice)
    return positions[0] if positions else None


def _count_steps(name: str, count: int) -> str:
    return f"the chain has {count_noun(count, f'{name} step')}"


def _turn_on_or_off(steps: Steps, target: _StepTarget, position: int | None, override: Override) -> list[StepSpec]:
    # The value None means True, as ``name:`` does in a preset.
    is_on = True if override.value is None else override.value
    if not isinstance(is_on, bool):
        raise PresetError(wrong_value(override.value, "true or false"), origin=override.origin)
    if is_on == (position is not None):
        return list(steps)
    if position is None:
        return _insert_step(steps, _new_step(target.name, override.origin), override.origin)
    if steps[position].sampler.about.is_selector:
        problem = f"{target.name} selects the token"
        raise PresetError(problem, origin=override.origin, advice=_OTHER_CHAIN)
    return [*steps[:position], *steps[position + 1 :]]


def _insert_step(steps: Steps, new_step: StepSpec, origin: str) -> list[StepSpec]:
    """Insert a step before the first step of a later stage, or before the selecting step if there is none."""
    # A watermark before the selecting step stays there.
    about = new_step.sampler.about
    if about.is_selector:
        raise _other_selector_error(origin, new_step.name, steps)
    position = len(steps) - 1
    while new_step.name != WATERMARK and position > 0 and steps[position - 1].name == WATERMARK:
        position -= 1
    if about.stage is not None:
        is_first = about.stage <= Stage.IGNORE_EOS  # before steps without a stage, too
        later_positions = (number for number, step in enumerate(steps) if _is_of_later_stage(step, about.stage))
        position = 0 if is_first else next(later_positions, position)
    return [*steps[:position], new_step, *steps[position:]]


def _is_of_later_stage(step: StepSpec, stage: int) -> bool:
    return step.sampler.about.stage is not None and step.sampler.about.stage > stage


def _other_selector_error(origin: str, name: str, steps: Steps) -> PresetError:
    flag = _SELECTING_FLAGS.get(origin)
    advice = (f"add {flag}",) if flag else (*_OTHER_CHAIN, f" that ends in {name}")
    problem = f"the chain selects by {steps[-1].name}, not by {name}"
    return PresetError(problem, origin=origin, advice=advice)


def _reject_unused_step(steps: Steps, sampler: Sampler, origin: str) -> None:
    """Raise ``PresetError`` if the last step is greedy and would ignore the sampler."""
    # A sampler that is off is allowed, and so is a temperature of 0, which takes the most likely token, too.
    name, last = sampler.about.name, steps[-1]
    if not last.sampler.about.is_greedy or not sampler.about.keeps_top_token or sampler.is_neutral:
        return
    if name == "temperature" and getattr(sampler, "t", None) == 0:
        return
    raise PresetError(f"the chain ends in {last.name}, which ignores {name}", origin=origin, advice=_OTHER_CHAIN)


def _set_parameter(step: StepSpec, parameter: str, override: Override) -> StepSpec:
    # A table of biases is merged with the existing table.
    value, origin = override.value, override.origin
    existing_value = getattr(step.sampler, parameter, None)
    if parameter in step.sampler.about.mergeable_parameters and existing_value and isinstance(value, Mapping):
        value = {**existing_value, **value}
        origin = ", ".join(dict.fromkeys([*step.origins[parameter].split(", "), origin]))
    values: dict[str, Any] = {name: getattr(step.sampler, name) for name in step.sampler.model_fields_set}
    sampler = make_step(step.name, {**values, parameter: value}, override.origin, parameter)
    return replace(step, sampler=sampler, origins={**step.origins, parameter: origin})


# the sampler for each value of llama.cpp's ``--mirostat``, except 0
MIROSTAT_VERSIONS = {1: "mirostat", 2: "mirostat_v2"}


@dataclass(frozen=True)
class ChainRearrangement:
    """A change of the steps of a chain and of their order, which a flag requests."""

    origin: str
    # names of the samplers before the selecting step, in the new order; None: these steps are kept
    step_names: tuple[str, ...] | None = None
    new_selector: str | None = None  # name of the sampler that selects the token; None: the selecting step is kept
    # True if samplers of ``step_names`` that the chain does not have are not inserted
    skips_missing_steps: bool = False
    # the selecting step is replaced only if it is of this family of samplers; empty: the selecting step is always
    # replaced
    replaceable_selector_family: str = ""


def rearrange_by_samplers(text: str, origin: str = "--samplers") -> ChainRearrangement:
    """Return the rearrangement that llama.cpp's ``--samplers "top_k;top_p;temperature"`` requests."""
    # ``text``: names joined by semicolons, or letters
    names = read_sampler_sequence(text, origin)
    selectors = [name for name in names if find_sampler(name).about.is_selector]
    steps = tuple(name for name in names if name not in selectors)
    return ChainRearrangement(origin, steps, selectors[-1] if selectors else None)


def rearrange_for_mirostat(version: int, origin: str = "--mirostat") -> ChainRearrangement:
    # 1 and 2 keep only the biases and the temperature before mirostat. 0 replaces mirostat by a plain draw.
    if version == 0:
        return ChainRearrangement(origin, new_selector="dist", replaceable_selector_family="mirostat")
    return ChainRearrangement(origin, ("temperature",), MIROSTAT_VERSIONS[version], skips_missing_steps=True)


def rearrange_by_adaptive_p() -> ChainRearrangement:
    """Return the rearrangement that ``--adaptive-target`` requests: adaptive_p selects the token."""
    return ChainRearrangement("--adaptive-target", new_selector="adaptive_p")


def replace_selector(steps: Steps, rearrangement: ChainRearrangement, fixed_origin: str) -> list[StepSpec]:
    # Raises ``PresetError`` if the chain ends in a different selecting step of this origin, which is that of
    # ``--chain``.
    last_step, name = steps[-1], rearrangement.new_selector
    if name in (None, last_step.name) or rearrangement.replaceable_selector_family not in (
        "",
        last_step.sampler.about.family,
    ):
        return list(steps)
    if last_step.origin == fixed_origin:
        raise _other_selector_error(rearrangement.origin, name, steps)
    return [*steps[:-1], _new_step(name, rearrangement.origin)]


def order_steps(steps: Steps, rearrangement: ChainRearrangement) -> list[StepSpec]:
    """Return the requested steps in the requested order, after the biases and before the selecting step."""
    # A watermark becomes the last step before a plain draw. Another new selecting step, such as mirostat, changes
    # the probabilities, so the watermark is left out.
    drops_watermark = rearrangement.new_selector not in (None, "dist")
    watermarks = [] if drops_watermark else [step for step in steps if step.name == WATERMARK]
    if rearrangement.step_names is None:
        return [step for step in steps if step.name != WATERMARK or not drops_watermark]
    ordered_steps = [step for step in steps[:-1] if step.sampler.about.is_bias]
    for name in rearrangement.step_names:
        if name == WATERMARK:
            continue
        family = find_sampler(name).about.family
        matching_steps = [step for step in steps[:-1] if step.name == name or _is_of_family(step, family)]
        if not matching_steps and not rearrangement.skips_missing_steps:
            matching_steps = [_new_step(name, rearrangement.origin)]
        ordered_steps += matching_steps[:1]
    return [*ordered_steps, *watermarks, steps[-1]]


def _new_step(name: str, origin: str) -> StepSpec:
    return StepSpec.from_origin(make_step(name, {}, origin), origin)


# llama.cpp's letter for each sampler, llama.cpp's name (common/sampling.cpp), and logitsmith's name
_SAMPLER_SPELLINGS = (
    ("e", "penalties", "penalties"),
    ("d", "dry", "dry"),
    ("s", "top_n_sigma", "top_n_sigma"),
    ("k", "top_k", "top_k"),
    ("y", "typ_p", "typical"),
    ("p", "top_p", "top_p"),
    ("m", "min_p", "min_p"),
    ("x", "xtc", "xtc"),
    ("t", "temperature", "temperature"),
    ("i", "infill", "infill"),
    ("a", "adaptive_p", "adaptive_p"),
)

# llama.cpp's names of samplers, for ``--samplers``
LLAMA_CPP_SAMPLERS = tuple(llama_cpp_name for _, llama_cpp_name, _ in _SAMPLER_SPELLINGS)

_NAME_BY_LETTER = {letter: name for letter, _, name in _SAMPLER_SPELLINGS}
_NAME_BY_SPELLING = {
    # llama.cpp also takes top-k and topk for top_k, and so on.
    **{
        llama_cpp_name.replace("_", separator): name
        for _, llama_cpp_name, name in _SAMPLER_SPELLINGS
        for separator in ("_", "-", "")
    },
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical",
}

# Flags that take only letters in llama.cpp. Here they take names, too.
_LETTER_FLAGS = ("--sampler-seq", "--sampling-seq")


def _reject_unknown_letters(sequence: str, origin: str) -> None:
    """Raise ``PresetError`` if the sequence is a single word with letters that stand for no sampler."""
    word = sequence.strip().lower()
    unknown_letters = [letter for letter in dict.fromkeys(word) if letter not in _NAME_BY_LETTER]
    if unknown_letters and word not in _NAME_BY_SPELLING and ";" not in word:
        known = ", ".join(f"{letter} ({name})" for letter, name, _ in _SAMPLER_SPELLINGS)
        letters = join_alternatives([short_repr(letter) for letter in unknown_letters])
        raise PresetError(f"llama.cpp has no sampler with the letter {letters}; known: {known}", origin=origin)


def read_sampler_sequence(sequence: str, origin: str) -> list[str]:
    """Return logitsmith's names of the samplers in a sequence such as ``top_k;top_p`` or ``kp``."""
    if origin in _LETTER_FLAGS:
        _reject_unknown_letters(sequence, origin)
    parts = [part.strip().lower() for part in sequence.split(";") if part.strip()]
    if (
        len(parts) == 1
        and parts[0] not in _NAME_BY_SPELLING
        and all(letter in _NAME_BY_LETTER for letter in parts[0])
    ):
        return [_NAME_BY_LETTER[letter] for letter in parts[0]]
    for part in parts:
        if part not in _NAME_BY_SPELLING:
            raise PresetError(unknown_name("sampler of llama.cpp", part, LLAMA_CPP_SAMPLERS), origin=origin)
    return [_NAME_BY_SPELLING[part] for part in parts]
