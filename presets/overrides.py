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

# The sampler that marks the text. It always stays directly before the selecting step. llama.cpp does not have it,
# so an order in llama.cpp's notation does not remove it.
WATERMARK = "synthid"

# such as ``top_p``, ``top_p.p`` or ``top_p#2.p``
_TARGET_PATTERN = re.compile(
    r"""
    (?P<name>[^.#]+)
    (?:\#(?P<occurrence>[1-9][0-9]{0,8}))?
    (?:\.(?P<parameter>[^#]+))?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Override:
    """A value that takes precedence over the preset's value.

    Attributes:
        origin: the flag that the user typed, such as ``--top-k``.
        target: ``sampler.parameter``; ``sampler`` for the sampler's main parameter; ``sampler#2.parameter`` for
            the second step of that name; or one of `SETTINGS`.
        value: the value to set. For a sampler without parameters, such as ``ignore_eos``, True turns the step on,
            and False turns the step off. None, as in ``--set ignore_eos=``, means True. A table for a setting that
            has parts sets these parts only.
    """

    origin: str
    target: str
    value: Any


@dataclass(frozen=True)
class _StepTarget:
    """The parameter of a step that an override sets."""

    name: str
    # number of the step among the steps of that name, counted from 1; None: the chain must have only one of them
    occurrence: int | None
    # name of the parameter; None for a sampler without parameters, which is turned on or off
    parameter: str | None

    def __str__(self) -> str:
        number = "" if self.occurrence is None else f"#{self.occurrence}"
        parameter = "" if self.parameter is None else f".{self.parameter}"
        return f"{self.name}{number}{parameter}"


def parse_set(text: str, door: str = "--set") -> Override:
    """Return the override for an argument of ``--set``, or of the field ``door``. Raises ``PresetError``."""
    # Forms are ``top_k.k=20``, ``top_k=20``, ``top_p#2.p=0.5``, ``seed=7``, and ``guidance.scale=2`` for a setting
    # that has parts. The value is YAML. Names may be aliases, and may be written with dashes.
    name, equals_sign, value_text = text.partition("=")
    name = name.strip()
    if not equals_sign or not name:
        problem = "write name.parameter=value, such as top_k.k=20 or seed=7"
        raise PresetError(problem, origin=f"{door} {text}")
    origin = f"{door} {name}"
    value = parse_yaml_scalar(value_text, origin)
    first_name, dot, part = name.partition(".")
    setting = find_setting_name(first_name)
    if dot and setting is not None and SETTINGS[setting].kind.has_parts:
        part_name = part.strip().replace("-", "_")
        return Override(origin, setting, {part_name: value})
    target = find_setting_name(name) or str(_parse_step_target(name, origin))
    return Override(origin, target, value)


def _parse_step_target(text: str, origin: str) -> _StepTarget:
    # A target without a parameter is an error if the sampler has parameters but no main parameter.
    match = _TARGET_PATTERN.fullmatch(text.strip())
    if match is None:
        problem = wrong_value(text, "name, name.parameter or name#2.parameter (from #1)")
        raise PresetError(problem, origin=origin)
    try:
        sampler_class = find_sampler(match["name"])
    except SamplingError as error:
        advice = f"other settings: {', '.join(SETTINGS)}"
        raise PresetError(str(error), origin=origin, advice=advice) from None
    about = sampler_class.about
    parameter = match["parameter"].strip().replace("-", "_") if match["parameter"] else about.main_parameter
    if parameter is None and sampler_class.model_fields:
        problem = f"choose a parameter of {about.name}: {', '.join(sampler_class.model_fields)}"
        raise PresetError(problem, origin=origin)
    occurrence = int(match["occurrence"]) if match["occurrence"] else None
    return _StepTarget(about.name, occurrence, parameter)


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
    # Raises ``PresetError``, which begins with the origin of the override. It is also raised if the chain has
    # several steps of the sampler and the target has no number, and if the chain ends in a step such as greedy,
    # which would ignore the sampler.
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
    covering = family_steps[0].sampler.about
    if target.name not in covering.covered_samplers:
        return target
    renamed_parameters = covering.covered_samplers[target.name]
    parameter = target.parameter
    if parameter is not None:
        parameter = renamed_parameters.get(parameter, parameter)
    return replace(target, name=covering.name, parameter=parameter)


def _convert_step(steps: Steps, target: _StepTarget) -> Steps:
    """Convert the chain's only step of the target's family to the target's sampler, with the same values."""
    # If the target's sampler does not cover the step, the steps are returned unchanged.
    family_steps = _steps_of_family(steps, target)
    about = find_sampler(target.name).about
    if about.is_selector or len(family_steps) != 1 or family_steps[0].name not in about.covered_samplers:
        return steps
    (old_step,) = family_steps
    renamed_parameters = about.covered_samplers[old_step.name]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for old_name in type(old_step.sampler).model_fields:
        new_name = renamed_parameters.get(old_name, old_name)
        values[new_name] = getattr(old_step.sampler, old_name)
        origins[new_name] = old_step.origins[old_name]
    sampler = make_step(target.name, values, old_step.origin)
    for name in type(sampler).model_fields:
        origins.setdefault(name, "default")
    converted = replace(old_step, sampler=sampler, origins=origins)
    return [converted if step is old_step else step for step in steps]


def _steps_of_family(steps: Steps, target: _StepTarget) -> list[StepSpec]:
    """Return the steps of the target's family of samplers; an empty list if the target has no family."""
    family = find_sampler(target.name).about.family
    return [step for step in steps if _is_of_family(step, family)]


def _is_of_family(step: StepSpec, family: str) -> bool:
    return bool(family) and step.sampler.about.family == family


def _find_position(steps: Steps, target: _StepTarget, origin: str) -> int | None:
    """Return the index of the step that a target names; None if the chain has no step of the sampler."""
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
    turns_on = True if override.value is None else override.value
    if not isinstance(turns_on, bool):
        raise PresetError(wrong_value(override.value, "true or false"), origin=override.origin)
    is_on = position is not None
    if is_on == turns_on:
        return list(steps)
    if position is None:
        return _insert_step(steps, _new_step(target.name, override.origin), override.origin)
    if steps[position].sampler.about.is_selector:
        problem = f"{target.name} selects the token"
        raise PresetError(problem, origin=override.origin, advice=_OTHER_CHAIN)
    return [*steps[:position], *steps[position + 1 :]]


def _insert_step(steps: Steps, new_step: StepSpec, origin: str) -> list[StepSpec]:
    """Insert a step before the first step of a later stage, or before the selecting step if there is none."""
    if new_step.sampler.about.is_selector:
        raise _other_selector_error(origin, new_step.name, steps)
    position = _position_of_new_step(steps, new_step)
    return [*steps[:position], new_step, *steps[position:]]


def _position_of_new_step(steps: Steps, new_step: StepSpec) -> int:
    stage = new_step.sampler.about.stage
    if stage is not None:
        if stage <= Stage.IGNORE_EOS:
            return 0  # a step of the first stages comes before steps without a stage, too
        for position, step in enumerate(steps):
            other_stage = step.sampler.about.stage
            if other_stage is not None and other_stage > stage:
                return position
    position = len(steps) - 1
    if new_step.name != WATERMARK:
        while (
            position > 0 and steps[position - 1].name == WATERMARK
        ):  # the watermark stays before the selecting step
            position -= 1
    return position


def _other_selector_error(origin: str, name: str, steps: Steps) -> PresetError:
    flag = _SELECTING_FLAGS.get(origin)
    advice = (f"add {flag}",) if flag else (*_OTHER_CHAIN, f" that ends in {name}")
    problem = f"the chain selects by {steps[-1].name}, not by {name}"
    return PresetError(problem, origin=origin, advice=advice)


def _reject_unused_step(steps: Steps, sampler: Sampler, origin: str) -> None:
    """Raise ``PresetError`` if the last step is greedy and would ignore the sampler."""
    name = sampler.about.name
    selector = steps[-1]
    is_ignored = selector.sampler.about.is_greedy and sampler.about.keeps_top_token
    # A temperature of 0 is allowed, because it takes the most likely token, as greedy does.
    is_greedy_temperature = name == "temperature" and getattr(sampler, "t", None) == 0
    if is_ignored and not sampler.is_neutral and not is_greedy_temperature:
        problem = f"the chain ends in {selector.name}, which ignores {name}"
        raise PresetError(problem, origin=origin, advice=_OTHER_CHAIN)


def _set_parameter(step: StepSpec, parameter: str, override: Override) -> StepSpec:
    value = override.value
    origin = override.origin
    existing_value = getattr(step.sampler, parameter, None)
    is_mergeable = parameter in step.sampler.about.mergeable_parameters
    if is_mergeable and existing_value and isinstance(value, Mapping):  # such as a table of biases
        value = {**existing_value, **value}
        origins_of_entries = [*step.origins[parameter].split(", "), origin]
        origin = ", ".join(dict.fromkeys(origins_of_entries))
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
    # If given, the selecting step is replaced only if it is of this family of samplers.
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
    old_selector = steps[-1]
    new_name = rearrangement.new_selector
    replaceable_family = rearrangement.replaceable_selector_family
    is_replaceable = not replaceable_family or old_selector.sampler.about.family == replaceable_family
    if new_name is None or new_name == old_selector.name or not is_replaceable:
        return list(steps)
    if old_selector.origin == fixed_origin:
        raise _other_selector_error(rearrangement.origin, new_name, steps)
    return [*steps[:-1], _new_step(new_name, rearrangement.origin)]


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


# logitsmith's name of the sampler for each of llama.cpp's letters (common/sampling.cpp)
_NAME_BY_LETTER = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typical",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}
_LLAMA_CPP_NAMES = {"typical": "typ_p"}  # where llama.cpp has another name than logitsmith

# llama.cpp's names of samplers, for ``--samplers``
LLAMA_CPP_SAMPLERS = tuple(_LLAMA_CPP_NAMES.get(name, name) for name in _NAME_BY_LETTER.values())

# logitsmith's name of the sampler for each name that llama.cpp takes
_NAME_BY_SPELLING = {"nucleus": "top_p", "temp": "temperature", "typ": "typical"}
for _name, _llama_cpp_name in zip(_NAME_BY_LETTER.values(), LLAMA_CPP_SAMPLERS, strict=True):
    for _separator in ("_", "-", ""):  # such as top_k, top-k and topk
        _NAME_BY_SPELLING[_llama_cpp_name.replace("_", _separator)] = _name

# Flags that take only letters in llama.cpp. Here they take names, too.
_LETTER_FLAGS = ("--sampler-seq", "--sampling-seq")


def _reject_unknown_letters(sequence: str, origin: str) -> None:
    """Raise ``PresetError`` if the sequence is a single word with letters that stand for no sampler."""
    word = sequence.strip().lower()
    unknown_letters = [letter for letter in dict.fromkeys(word) if letter not in _NAME_BY_LETTER]
    if unknown_letters and word not in _NAME_BY_SPELLING and ";" not in word:
        letters_and_names = zip(_NAME_BY_LETTER, LLAMA_CPP_SAMPLERS, strict=True)
        known = ", ".join(f"{letter} ({name})" for letter, name in letters_and_names)
        letters = join_alternatives([short_repr(letter) for letter in unknown_letters])
        raise PresetError(f"llama.cpp has no sampler with the letter {letters}; known: {known}", origin=origin)


def read_sampler_sequence(sequence: str, origin: str) -> list[str]:
    """Return logitsmith's names of the samplers in a sequence such as ``top_k;top_p`` or ``kp``."""
    if origin in _LETTER_FLAGS:
        _reject_unknown_letters(sequence, origin)
    words = [word.strip().lower() for word in sequence.split(";") if word.strip()]
    if len(words) == 1 and _are_letters(words[0]):
        return [_NAME_BY_LETTER[letter] for letter in words[0]]
    for word in words:
        if word not in _NAME_BY_SPELLING:
            raise PresetError(unknown_name("sampler of llama.cpp", word, LLAMA_CPP_SAMPLERS), origin=origin)
    return [_NAME_BY_SPELLING[word] for word in words]


def _are_letters(word: str) -> bool:
    """Return whether a word consists of letters for samplers, and is no name of a sampler."""
    return word not in _NAME_BY_SPELLING and all(letter in _NAME_BY_LETTER for letter in word)
