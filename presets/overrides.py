"""The effect of a single flag on a chain: a parameter of a step that it sets, or an arrangement of the steps.

A parameter is set by a flag of its own or by ``--set``. llama.cpp's ``--samplers``, ``--mirostat`` and
``--adaptive-target`` arrange: they say which steps a chain has, and in which order. An order has llama.cpp's
own notation: names joined by semicolons, or letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.text import join_alternatives, short_repr
from ..samplers.base import Sampler, Stage
from ..samplers.chain import StepSpec
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .errors import PresetError
from .preset import make_step
from .yaml_reader import parse_yaml_scalar

SETTINGS = ("seed", "max_tokens", "stop", "system", "grammar")
"""The settings beside the samplers' parameters."""

_TARGET = re.compile(r"(?P<name>[^.#]+)(?:#(?P<occurrence>[1-9][0-9]{0,8}))?(?:\.(?P<parameter>[^#]+))?")


@dataclass(frozen=True)
class Override:
    """A value that goes before the preset's.

    Attributes:
        origin: what the user typed, such as ``--top-k``.
        target: ``sampler.parameter``, ``sampler`` for its main parameter, ``sampler#2.parameter`` for the second
            step of that name, or one of `SETTINGS`.
        value: the value. A sampler without parameters, such as ``ignore_eos``, takes true, false, or None, which
            means true.
    """

    origin: str
    target: str
    value: Any


@dataclass(frozen=True)
class _StepTarget:
    """A parameter of a step.

    Attributes:
        name: the sampler.
        occurrence: which step of that name, from 1; None: the only one.
        parameter: None for a sampler without parameters, which is on or off.
    """

    name: str
    occurrence: int | None
    parameter: str | None

    def __str__(self) -> str:
        number = "" if self.occurrence is None else f"#{self.occurrence}"
        parameter = "" if self.parameter is None else f".{self.parameter}"
        return f"{self.name}{number}{parameter}"


def parse_set(text: str) -> Override:
    """Return the override of a ``--set``: ``top_k.k=20``, ``top_k=20``, ``top_p#2.p=0.5``, ``seed=7``.

    The value is YAML. Dashes and aliases are accepted. Raises ``PresetError`` for a text of another form, an
    unknown sampler, and a value that is not YAML.
    """
    name, sign, value = text.partition("=")
    name = name.strip()
    if not sign or not name:
        raise PresetError(f"--set {text}: write name.parameter=value, such as top_k.k=20 or seed=7")
    origin = f"--set {name}"
    target = setting_of(name) or str(_step_target(name, origin))
    return Override(origin, target, parse_yaml_scalar(value, origin))


def setting_of(target: str) -> str | None:
    """The setting of that name, or None if the target is no setting."""
    name = target.strip().lower().replace("-", "_")
    return name if name in SETTINGS else None


def _step_target(text: str, origin: str) -> _StepTarget:
    """Return the step and the parameter that a target names.

    Raises ``PresetError`` that begins with ``origin``, for another form, an unknown sampler, and a sampler that
    has no main parameter if none is named.
    """
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise PresetError(
            f"{origin}: {short_repr(text)} is not name, name.parameter or name#2.parameter (from #1)"
        )
    try:
        cls = find_sampler(match["name"])
    except SamplingError as error:
        raise PresetError(f"{origin}: {error}; other settings: {', '.join(SETTINGS)}") from None
    parameter = match["parameter"].strip().replace("-", "_") if match["parameter"] else cls.about.main_parameter
    if parameter is None and cls.model_fields:
        raise PresetError(f"{origin}: say which parameter of {cls.about.name}: {', '.join(cls.model_fields)}")
    return _StepTarget(cls.about.name, int(match["occurrence"]) if match["occurrence"] else None, parameter)


Steps = Sequence[StepSpec]

_SELECTING_FLAGS = {
    "--mirostat-lr": "--mirostat 2",
    "--mirostat-ent": "--mirostat 2",
    "--adaptive-decay": "--adaptive-target N",
}
"""By the flag of a selector's parameter, the flag that lets the selector select."""


def override_step(steps: Steps, override: Override) -> list[StepSpec]:
    """Return the steps with one parameter changed; a missing sampler is put in at its stage.

    The last step selects. Raises ``PresetError``, prefixed with the origin, if

    - the sampler or the parameter is unknown,
    - the value is not allowed,
    - the sampler occurs several times,
    - the chain ends in a step such as greedy, which would ignore the sampler.
    """
    origin = override.origin
    target = _redirect(steps, _step_target(override.target, origin))
    steps = _convert(steps, target)
    position = _find_position(steps, target, origin)
    if target.parameter is None:
        return _switch(steps, target, position, override)
    if position is None:
        sampler = make_step(target.name, {target.parameter: override.value}, origin, target.parameter)
        _check_used(steps, sampler, origin)
        return _insert(steps, StepSpec.from_origin(sampler, origin), origin)
    changed = _change(steps[position], target.parameter, override)
    _check_used(steps, changed.sampler, origin)
    return [*steps[:position], changed, *steps[position + 1 :]]


def _redirect(steps: Steps, target: _StepTarget) -> _StepTarget:
    """Return the target in the chain's step that stands for the target's sampler, or else the target itself.

    As in llama.cpp, temperature and dynatemp are one step, and its mirostat flags set either version.
    """
    family = _of_family(steps, target)
    if len(family) != 1:
        return target
    about = family[0].sampler.about
    if target.name not in about.covered_samplers:
        return target
    parameter = target.parameter and about.covered_samplers[target.name].get(target.parameter, target.parameter)
    return replace(target, name=about.name, parameter=parameter)


def _convert(steps: Steps, target: _StepTarget) -> Steps:
    """Turn the chain's only step of the target's family into the target, if the target stands for it."""
    family = _of_family(steps, target)
    about = find_sampler(target.name).about
    if about.is_selector or len(family) != 1 or family[0].name not in about.covered_samplers:
        return steps
    (former,) = family
    names = about.covered_samplers[former.name]
    parameters = {name: names.get(name, name) for name in type(former.sampler).model_fields}
    values = {new: getattr(former.sampler, old) for old, new in parameters.items()}
    sampler = make_step(target.name, values, former.origin)
    origins = dict.fromkeys(type(sampler).model_fields, "default")
    origins.update({new: former.origins[old] for old, new in parameters.items()})
    converted = replace(former, sampler=sampler, origins=origins)
    return [converted if step is former else step for step in steps]


def _of_family(steps: Steps, target: _StepTarget) -> list[StepSpec]:
    """Return the steps of the target's family; none if it has no family."""
    family = find_sampler(target.name).about.family
    return [step for step in steps if _is_of_family(step, family)]


def _is_of_family(step: StepSpec, family: str) -> bool:
    return bool(family) and step.sampler.about.family == family


def _find_position(steps: Steps, target: _StepTarget, origin: str) -> int | None:
    """Return the position of the target's step; None if the chain has none of that name."""
    positions = [number for number, step in enumerate(steps) if step.name == target.name]
    if target.occurrence is not None:
        if target.occurrence > len(positions):
            raise PresetError(
                f"{origin}: there is no {target.name}#{target.occurrence}; "
                f"{target.name} stands {_times(len(positions))} in the chain"
            )
        return positions[target.occurrence - 1]
    if len(positions) > 1:
        first = replace(target, occurrence=1)
        raise PresetError(
            f"{origin}: {target.name} stands {_times(len(positions))} in the chain; "
            f"say which one, as in --set {first}=VALUE"
        )
    return positions[0] if positions else None


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _switch(steps: Steps, target: _StepTarget, position: int | None, override: Override) -> list[StepSpec]:
    """Put in a step without parameters, or take it out.

    Args:
        steps: the chain.
        target: the sampler.
        position: where the chain has it; None: it has not.
        override: true or false; None means true, as ``name:`` in a preset does.
    """
    is_on = True if override.value is None else override.value
    if not isinstance(is_on, bool):
        raise PresetError(f"{override.origin}: {short_repr(override.value)} is not true or false")
    if is_on == (position is not None):
        return list(steps)
    if position is None:
        return _insert(steps, _new_step(target.name, override.origin), override.origin)
    if steps[position].sampler.about.is_selector:
        raise PresetError(
            f"{override.origin}: {target.name} selects the token; choose another preset or give a --chain"
        )
    return [*steps[:position], *steps[position + 1 :]]


def _insert(steps: Steps, new: StepSpec, origin: str) -> list[StepSpec]:
    """Put a step before the first one of a later stage, or else before the one that selects."""
    about = new.sampler.about
    if about.is_selector:
        raise PresetError(_other_selector_message(origin, new.name, steps))
    position = len(steps) - 1
    if about.stage is not None:
        is_first = about.stage <= Stage.IGNORE_EOS  # in front of steps without a stage, too
        later = (number for number, step in enumerate(steps) if _is_later(step, about.stage))
        position = 0 if is_first else next(later, position)
    return [*steps[:position], new, *steps[position:]]


def _is_later(step: StepSpec, stage: int) -> bool:
    """True if the step belongs behind this stage."""
    return step.sampler.about.stage is not None and step.sampler.about.stage > stage


def _other_selector_message(origin: str, name: str, steps: Steps) -> str:
    """Return the message about a selecting step that is not the one at the end of the chain."""
    flag = _SELECTING_FLAGS.get(origin)
    advice = f"add {flag}" if flag else f"choose another preset or give a --chain that ends in {name}"
    return f"{origin}: the chain selects by {steps[-1].name}, not by {name}; {advice}"


def _check_used(steps: Steps, sampler: Sampler, origin: str) -> None:
    """Refuse a step that greedy would ignore, unless it is off or asks for the most likely token itself."""
    name, last = sampler.about.name, steps[-1]
    if not last.sampler.about.is_greedy or not sampler.about.keeps_top_token or sampler.is_neutral:
        return
    if name == "temperature" and getattr(sampler, "t", None) == 0:
        return
    raise PresetError(
        f"{origin}: the chain ends in {last.name}, which ignores {name}; choose another preset or give a --chain"
    )


def _change(step: StepSpec, parameter: str, override: Override) -> StepSpec:
    """Return the step with another value of one parameter; a table of biases is added to the present one."""
    value, origin = override.value, override.origin
    present = getattr(step.sampler, parameter, None)
    if parameter in step.sampler.about.mergeable_parameters and present and isinstance(value, Mapping):
        value = {**present, **value}
        origin = ", ".join(dict.fromkeys([*step.origins[parameter].split(", "), origin]))
    given: dict[str, Any] = {name: getattr(step.sampler, name) for name in step.sampler.model_fields_set}
    sampler = make_step(step.name, {**given, parameter: value}, override.origin, parameter)
    return replace(step, sampler=sampler, origins={**step.origins, parameter: origin})


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
    selectors = [name for name in names if find_sampler(name).about.is_selector]
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


def replace_selector(steps: Steps, arrangement: Arrangement) -> list[StepSpec]:
    """Return the steps with the selector asked for. Raises ``PresetError`` if a --chain named another."""
    last, name = steps[-1], arrangement.selector
    if name in (None, last.name) or arrangement.replaces not in ("", last.sampler.about.family):
        return list(steps)
    if last.origin == "--chain":
        raise PresetError(_other_selector_message(arrangement.origin, name, steps))
    return [*steps[:-1], _new_step(name, arrangement.origin)]


def order_steps(steps: Steps, arrangement: Arrangement) -> list[StepSpec]:
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


def _new_step(name: str, origin: str) -> StepSpec:
    return StepSpec.from_origin(make_step(name, {}, origin), origin)


_SAMPLERS = (
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
"""llama.cpp's letter and name for a sampler (common/sampling.cpp), and the name here."""

LLAMA_CPP_SAMPLERS = tuple(theirs for _, theirs, _ in _SAMPLERS)
"""llama.cpp's names, as its ``--samplers`` takes them."""

_BY_LETTER = {letter: name for letter, _, name in _SAMPLERS}
_BY_NAME = {
    # llama.cpp also takes top-k and topk for top_k, and so on.
    **{theirs.replace("_", mark): name for _, theirs, name in _SAMPLERS for mark in ("_", "-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical",
}

_LETTER_FLAGS = ("--sampler-seq", "--sampling-seq")
"""The flags by which llama.cpp takes letters alone; their names are taken here, too."""


def _refuse_unknown_letters(sequence: str, origin: str) -> None:
    """Raise ``PresetError`` that names the letters of a single word that are no sampler's."""
    word = sequence.strip().lower()
    wrong = [letter for letter in dict.fromkeys(word) if letter not in _BY_LETTER]
    if wrong and word not in _BY_NAME and ";" not in word:
        known = ", ".join(f"{letter} ({theirs})" for letter, theirs, _ in _SAMPLERS)
        raise PresetError(
            f"{origin}: llama.cpp has no sampler with the letter "
            f"{join_alternatives([short_repr(letter) for letter in wrong])}; there are {known}"
        )


def read_sequence(sequence: str, origin: str) -> list[str]:
    """Return the names here of the samplers in a sequence of llama.cpp's, such as ``top_k;top_p`` or ``kp``.

    Raises ``PresetError`` that begins with the origin, for a name that llama.cpp does not have.
    """
    if origin in _LETTER_FLAGS:
        _refuse_unknown_letters(sequence, origin)
    parts = [part.strip().lower() for part in sequence.split(";") if part.strip()]
    if len(parts) == 1 and parts[0] not in _BY_NAME and all(letter in _BY_LETTER for letter in parts[0]):
        return [_BY_LETTER[letter] for letter in parts[0]]
    for part in parts:
        if part not in _BY_NAME:
            known = ", ".join(LLAMA_CPP_SAMPLERS)
            raise PresetError(f"{origin}: {short_repr(part)} is not a sampler of llama.cpp; known: {known}")
    return [_BY_NAME[part] for part in parts]
