"""The notations that name samplers: ``--set``, ``--chain`` and ``--samplers``."""

from __future__ import annotations

import re

from .reply import Candidate, Reply, matching
from .sampler_names import (
    SamplerName,
    built_in_samplers,
    find_sampler_name,
    normal,
    sampler_candidates,
    setting_names,
)

_OCCURRENCE = re.compile(r"(?P<name>[^#]*)(?P<number>#\d+)?")


def complete_setting(value: str) -> Reply:
    """Complete ``name.parameter=value``, first the name, then the parameter, then the value."""
    target, sign, typed = value.partition("=")
    if sign:
        return Reply(_prefixed(f"{target}=", matching(map(Candidate, _choices(target)), typed)))
    name, dot, parameter = target.partition(".")
    if not dot:
        return Reply(_setting_names(name))
    sampler = _find(name)
    names = {} if sampler is None else sampler.parameters
    candidates = [Candidate(f"{as_typed(key, parameter)}=", about) for key, about in names.items()]
    return Reply(_prefixed(f"{name}.", matching(candidates, parameter)))


def complete_chain(value: str) -> Reply:
    """Complete the last step of ``top_k=40 > top_p(p=0.9)``: its name, or a parameter in its brackets."""
    before, arrow, step = value.rpartition(">")
    blanks = step[: len(step) - len(step.lstrip())]
    start, step = f"{before}{arrow}{blanks}", step.lstrip()
    name, bracket, inside = step.partition("(")
    if not bracket:
        names = [Candidate(as_typed(text, step), about) for text, about in sampler_candidates()]
        return Reply(_prefixed(start, matching(names, step)), adds_space=False)
    done, comma, typed = inside.rpartition(",")
    typed_blanks = typed[: len(typed) - len(typed.lstrip())]
    sampler = _find(name)
    names = [] if sampler is None else [Candidate(f"{key}=", about) for key, about in sampler.parameters.items()]
    prefix = f"{start}{name}({done}{comma}{typed_blanks}"
    return Reply(_prefixed(prefix, matching(names, typed.lstrip())), adds_space=False)


def complete_sequence(value: str) -> Reply:
    """Complete the last name of ``top_k;top_p``."""
    from ...presets.overrides import LLAMA_CPP_SAMPLERS

    before, semicolon, name = value.rpartition(";")
    names = [Candidate(known) for known in LLAMA_CPP_SAMPLERS]
    return Reply(_prefixed(before + semicolon, matching(names, name)), adds_space=False)


def as_typed(name: str, typed: str) -> str:
    """The name with dashes if what is typed has one: both forms are taken."""
    return name.replace("_", "-") if "-" in typed else name


def _setting_names(typed: str) -> list[Candidate]:
    """Samplers with a dot behind them if they have parameters, and the other settings."""
    switches = {name for name, sampler in built_in_samplers().items() if not sampler.parameters}
    found = [
        Candidate(f"{as_typed(name, typed)}{'=' if name in switches else '.'}", summary)
        for name, summary in sampler_candidates()
    ]
    found.extend(Candidate(f"{as_typed(name, typed)}=") for name in setting_names())
    return matching(found, typed)


def _choices(target: str) -> list[str]:
    """The values of a parameter if they are a fixed few."""
    name, _, parameter = target.partition(".")
    sampler = _find(name)
    if sampler is None:
        return []
    if not sampler.parameters:
        return ["true", "false"]
    return sampler.choices.get(normal(parameter) or sampler.main or "", [])


def _find(name: str) -> SamplerName | None:
    match = _OCCURRENCE.fullmatch(name)
    return None if match is None else find_sampler_name(match["name"])


def _prefixed(prefix: str, candidates: list[Candidate]) -> list[Candidate]:
    return [Candidate(prefix + text, about) for text, about in candidates]
