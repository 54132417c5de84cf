"""Building of a chain from the steps of a preset, or from the compact notation.

The notation is ``temp0.8 > typical0.19 > top-p(p=0.6, min_keep=2)``. Names and parameters are checked. An error
message gives the place of the step and the allowed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import index
from typing import Any, Literal, SupportsIndex, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ..common.errors import problem_message, wrong_value
from ..common.seeds import SEED_VALUES, fixed_seed, generator_seed, is_seed
from ..common.text import short_repr, unknown_name
from .base import BuildContext, Sampler, Vocabulary
from .chain import MAX_STEPS, Chain, Phase, StepSpec, check_selection, check_step_count
from .errors import SamplingError
from .registry import find_sampler, is_known

# a step: ``name``, ``{name: value of the main parameter}``, ``{name: {parameters}}``, or a checked step
Step = str | Mapping[str, Any] | Sampler | StepSpec


def build(
    steps: str | Sequence[Step],
    seed: int = 0,
    vocab: Vocabulary | None = None,
    *,
    stop_tokens: Collection[int] = (),
) -> Chain:
    """Build a chain from the steps of a preset's ``chain:``, or from the compact notation.

    If no step is a selector, ``dist`` is appended. Steps whose parameters switch them off are left out. Raises
    ``SamplingError``, whose message names the step, the parameter, the rejected value and the allowed values.

    Args:
        steps: the steps, or one string in the compact notation. A `StepSpec` or a sampler is copied unchecked.
        seed: the seed of the random numbers, an integer of 64 bits with a sign, whose low 32 bits the samplers
            get; -1: a random seed, which the chain has as `Chain.seed`.
        vocab: the vocabulary of the model; None if no step needs it.
        stop_tokens: ids of tokens that end the text, in addition to the end-of-generation tokens of ``vocab``.
    """
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not is_seed(index(seed)):
        raise SamplingError(wrong_value(seed, SEED_VALUES), place=("seed",))
    number = fixed_seed(index(seed))
    return Chain(_read_steps(steps), BuildContext(generator_seed(number), vocab, frozenset(stop_tokens)), number)


def parse_chain(steps: str | Sequence[Step]) -> list[Sampler]:
    """Return the samplers of the steps, which are not yet part of a chain.

    Raises ``SamplingError`` for a wrong name or parameter, if two steps are selectors, or if a selector is not
    last.
    """
    samplers = [spec.sampler for spec in _read_steps(steps)]
    check_selection(samplers)
    return samplers


def _read_steps(steps: str | Sequence[Step]) -> list[StepSpec]:
    if isinstance(steps, str):
        steps = parse_notation(steps)
    if not isinstance(steps, Sequence):
        raise SamplingError(f"{steps!r} is not a list of steps", place=("chain",))
    check_step_count(len(steps), "chain")
    _reject_koboldai_order(steps, "chain")
    specs = []
    for number, step in enumerate(steps):
        if isinstance(step, StepSpec):
            specs.append(step)
            continue
        sampler = make_sampler(step, origin=f"chain[{number}]")
        specs.append(StepSpec(sampler, location=f"chain[{number}].{sampler.about.name}"))
    return specs


def make_sampler(step: str | Mapping[str, Any] | Sampler, origin: str) -> Sampler:
    """Return the sampler of one step. A step that already is a sampler is returned unchanged.

    Raises ``SamplingError`` for a wrong name or parameter.

    Args:
        step: the step, as a preset writes it.
        origin: the place of the step, with which each message begins, as in ``chain[2].top_p.p: …``.
    """
    if isinstance(step, Sampler):
        return step
    try:
        name, value = _name_and_value(step)
        cls = find_sampler(name)
        try:
            return cls(**_read_parameters(cls, value))
        except SamplingError as error:
            raise error.under(cls.about.name) from None
        except ValidationError as error:
            raise _parameter_error(cls, error).under(cls.about.name) from None
        except Exception as error:  # a validator of another package may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise SamplingError(problem, place=(cls.about.name,)) from error
    except SamplingError as error:
        raise (error.under(origin) if origin else error) from error.__cause__


def _name_and_value(step: object) -> tuple[str, Any]:
    if isinstance(step, str):
        step = _parse_list_item(step)
    if isinstance(step, str):
        return step, None
    if isinstance(step, Mapping) and len(step) == 1:
        ((name, value),) = step.items()
        if isinstance(name, str):
            return name, value
    if isinstance(step, Mapping) and len(step) > 1:
        names = " and ".join(map(str, step))
        raise SamplingError(f"{names} are in one step; write each as an item of the list")
    raise SamplingError(f"{short_repr(step)} is not a step; write name, name: value or name: {{parameters}}")


def _read_parameters(cls: type[Sampler], value: Any) -> dict[str, Any]:
    """Return the parameters of a step as a table; a single value is the main parameter."""
    main_parameter = cls.about.main_parameter
    if value is None:
        return {}
    if not isinstance(value, Mapping) or _is_main_table(cls, value):
        if main_parameter is None:
            raise SamplingError(f"accepts no single value, but got {value!r}")
        return {main_parameter: value}
    for key in value:
        if key not in cls.model_fields:
            raise SamplingError(unknown_name("parameter", key, cls.model_fields))
    return dict(value)


def _is_main_table(cls: type[Sampler], value: Mapping[Any, Any]) -> bool:
    """Return True if a table is the value of the main parameter, as in ``logit_bias: {42: -1}``."""
    main_parameter = cls.about.main_parameter
    if main_parameter is None or get_origin(cls.model_fields[main_parameter].annotation) is not dict:
        return False
    return not any(key in cls.model_fields for key in value)


def parse_notation(text: str) -> list[Any]:
    """Return the steps of a chain in the compact notation, in the form of a preset's ``chain:``.

    Users of KoboldAI write chains this way. Steps are joined by ``>``. A step is ``name``, or ``name0.8`` or
    ``name=0.8`` to set the main parameter, or ``name(parameter=value, …)``. A value is a number, ``true``,
    ``false``, ``null``, a word, or a string, list or table in JSON. Raises ``SamplingError``, whose message
    names the step.
    """
    quoted_text = repr(_quotable(text))
    _reject_koboldai_order(text, f"chain {quoted_text}")
    if text.count(">") > MAX_STEPS:  # a cheap check before the steps are read
        check_step_count(sum(1 for _ in _split_unquoted(text, ">")), f"chain {quoted_text}")
    steps = []
    for number, part in enumerate(_split_unquoted(text, ">")):
        try:
            steps.append(_parse_step(part.strip()))
        except SamplingError as error:
            raise error.under(f"chain[{number}] of {quoted_text}") from None
    return steps


def chain_notation(config: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the compact notation of a chain, which `parse_notation` reads."""
    # Parameters with their default values are left out.
    return " > ".join(_step_notation(name, values) for step in config for name, values in step.items())


def _step_notation(name: str, values: Mapping[str, Any]) -> str:
    cls = find_sampler(name)
    main = cls.about.main_parameter or ""
    changed = {
        key: value
        for key, value in values.items()
        if value != cls.model_fields[key].get_default(call_default_factory=True)
    }
    if not changed:
        return name
    if changed.keys() == {main} and isinstance(changed[main], (int, float)):
        return f"{name}={_value_notation(changed[main])}"
    is_main_table = changed.keys() == {main} and isinstance(changed[main], Mapping)
    if is_main_table and changed[main].keys().isdisjoint(cls.model_fields):
        changed = changed[main]
    pairs = (f"{_key_notation(key)}={_value_notation(value)}" for key, value in changed.items())
    return f"{name}({', '.join(pairs)})"


def _key_notation(key: str | int) -> str:
    return str(key) if isinstance(key, int) or key.isidentifier() else json.dumps(key)


def _value_notation(value: Any) -> str:
    return str(value) if isinstance(value, float) else json.dumps(value)


def _parse_list_item(text: str) -> Any:
    """Return one step of a list, such as ``temp0.8``; a name alone stays. Raises ``SamplingError``."""
    if is_known(text):
        return text
    if next(_split_unquoted(text, ">")) != text:
        raise SamplingError(f"{_quotable(text)!r} is a chain of several steps; write each as an item of the list")
    step = _parse_step(text.strip())
    if isinstance(step, Mapping) and not any(is_known(name) for name in step):
        return text  # the caller rejects the entire string, and suggests the nearest name
    return step


# Each run of spaces is reduced to one space before. On longer runs these patterns would take quadratic time.
_NAME_PATTERN = r"(?P<name>[A-Za-z][A-Za-z0-9_\-]*(?: [A-Za-z0-9_\-]+)*)"
_CALL_PATTERN = re.compile(rf"{_NAME_PATTERN} ?\((?P<params>.*)\)", re.DOTALL)
_ASSIGNMENT_PATTERN = re.compile(rf"{_NAME_PATTERN} ?(?:= ?|(?=[\"\[]))(?P<main>[^ ].*)", re.DOTALL)
_BARE_NAME_PATTERN = re.compile(_NAME_PATTERN)
_MAIN_VALUE_PATTERN = re.compile(r"[-+]?(?:\d{1,40}\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_INTEGER_PATTERN = re.compile(r"[-+]?\d{1,40}")


def _parse_step(step: str) -> Any:
    text = _reduce_spaces(step)
    call_match = _CALL_PATTERN.fullmatch(text)
    if call_match and _is_balanced(call_match["params"]):
        if _MAIN_VALUE_PATTERN.fullmatch(call_match["params"].strip()):  # top_k(40), as in a program
            return {call_match["name"]: _parse_number(call_match["params"].strip())}
        pairs = list(_split_unquoted(call_match["params"], ",")) if call_match["params"].strip() else []
        fields = _parameter_names(call_match["name"])
        return {call_match["name"]: _make_table([_parse_pair(pair, fields) for pair in pairs])}
    assignment = _ASSIGNMENT_PATTERN.fullmatch(text)
    if assignment:
        return {assignment["name"]: _parse_or_raise(assignment["main"])}
    if _BARE_NAME_PATTERN.fullmatch(text) and is_known(text):
        return text
    return _parse_joined_number(text)


def _parse_joined_number(text: str) -> Any:
    """Read a name directly followed by a number."""
    # Of all possible splits, take the one with the longest known name.
    starts = [
        start
        for start in range(len(text) - 1, max(len(text) - 100, 0), -1)
        if _MAIN_VALUE_PATTERN.fullmatch(text, start)
    ]
    splits = [(text[:start].rstrip(), text[start:]) for start in starts]
    splits = [(name, number) for name, number in splits if _BARE_NAME_PATTERN.fullmatch(name)]
    name, number = next((split for split in splits if is_known(split[0])), splits[-1] if splits else (text, ""))
    if not is_known(name) and _is_several_steps(text):
        raise SamplingError(f"{_quotable(text)!r} is not one step; write > between steps")
    if is_known(f"{name}_v{number}"):
        raise SamplingError(f"{text!r} may be {name}_v{number} or {name}={number}; write one of these")
    if number:
        return {name: _parse_number(number)}
    if not _BARE_NAME_PATTERN.fullmatch(name):
        problem = f"{_quotable(text)!r} is not a step" if text else "a step is missing"
        raise SamplingError(f"{problem}; write name, name0.8, name=value or name(key=value, …)")
    return name


# Wrong separators that people write between steps; a space alone is one, too
_OTHER_SEPARATORS = re.compile(r"(?:,|;|\||->|→| )+")
_NUMBER_AT_THE_END = re.compile(r"=?[-+]?\.?\d.*")


def _is_several_steps(text: str) -> bool:
    """Return True if the steps have a wrong separator between them, as in ``top_k40, temp0.8``."""
    parts = _OTHER_SEPARATORS.split(text)
    return len(parts) > 1 and all(is_known(_NUMBER_AT_THE_END.sub("", part)) for part in parts)


def _parameter_names(name: str) -> Collection[str]:
    """Return the parameters of a sampler; none for an unknown name, which `make_sampler` rejects later."""
    try:
        return find_sampler(name).model_fields
    except SamplingError:
        return ()


def _make_table(pairs: list[tuple[str | int, Any]]) -> dict[str | int, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise SamplingError("a parameter appears twice")
    return table


def _parse_pair(pair: str, fields: Collection[str]) -> tuple[str | int, Any]:
    quoted = _QUOTED_PATTERN.match(pair.strip())
    key, sign, value = pair.strip()[quoted.end() if quoted else 0 :].partition("=")
    key = quoted.group() if quoted else key.strip()
    if not sign or not key or not value.strip():
        raise SamplingError(f"{_quotable(pair)!r} is not key=value")
    parsed_key = _parse_or_raise(key, lambda text: _parse_key(text, fields))
    return parsed_key, _parse_or_raise(value.strip())


def _parse_key(key: str, fields: Collection[str]) -> str | int:
    if key.startswith('"'):
        return str(json.loads(key, strict=False))
    if key.isdecimal():  # a bare number is a token id
        return int(key)
    # A dash is read as an underscore only in the name of a parameter, not in the text of a token.
    name = key.replace("-", "_")
    return name if name in fields else key


def _parse_or_raise(text: str, read: Callable[[str], Any] | None = None) -> Any:
    try:
        return (read or _parse_value)(text)
    except (ValueError, RecursionError):
        raise SamplingError(f"{_quotable(text)!r} is not a string, list or table") from None


_VALUE_OF_WORD = {"true": True, "false": False, "null": None}


def _parse_value(text: str) -> Any:
    if text in _VALUE_OF_WORD:
        return _VALUE_OF_WORD[text]
    if text[0] in '"[{':
        return json.loads(text, strict=False)
    try:
        return _parse_number(text)
    except ValueError:
        return text


def _parse_number(text: str) -> int | float:
    return int(text) if _INTEGER_PATTERN.fullmatch(text) else float(text)


_KOBOLDAI_NAMES = ("top_k", "top_a", "top_p", "tfs", "typical", "temp", "rep_pen")
# The sampler of each number in ``sampler_order`` of KoboldAI and KoboldCpp. Keys: the number and its string.
_KOBOLDAI_NUMBERS: Mapping[str | int, str] = {
    **dict(enumerate(_KOBOLDAI_NAMES)),
    **{str(number): name for number, name in enumerate(_KOBOLDAI_NAMES)},
}
_BETWEEN_NUMBERS = re.compile(r"[\s,;>]+")


def _reject_koboldai_order(chain: str | Sequence[object], place: str) -> None:
    """Raise ``SamplingError`` if a chain is KoboldAI's ``sampler_order``: a list of numbers without values."""
    # The message has the ``place`` of the chain, and the names of the samplers to write instead.
    parts = _BETWEEN_NUMBERS.split(chain.strip(" []")) if isinstance(chain, str) else chain
    names = [
        _KOBOLDAI_NUMBERS.get(part) for part in parts if isinstance(part, (str, int)) and type(part) is not bool
    ]
    if len(names) < 2 or len(names) < len(parts) or None in names:
        return
    steps = " > ".join(f"{name}=…" for name in dict.fromkeys(names))
    problem = "these numbers are KoboldAI's sampler_order, which has no values"
    raise SamplingError(problem, place=(place,), advice=f"write names and values: {steps!r}")


_MAX_SHOWN_CHARACTERS = 200  # greatest length of the part of a chain that a message quotes


def _quotable(text: str) -> str:
    """Return the text as messages quote it: on one line, and shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARACTERS else f"{line[: _MAX_SHOWN_CHARACTERS - 1]}…"


# A quoted string is not searched for separators. A backslash in it escapes the next character.
_QUOTED_PATTERN = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DEPTH_BY_BRACKET = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def _quoted_strings(text: str) -> Iterator[re.Match[str]]:
    """Yield the quoted strings from left to right. Yields none after a quote that is never closed."""
    start = text.find('"')
    while start >= 0:
        quoted = _QUOTED_PATTERN.match(text, start)
        if quoted is None:
            return
        yield quoted
        start = text.find('"', quoted.end())


def _split_unquoted(text: str, separator: str) -> Iterator[str]:
    """Yield the parts between separators. A separator in quotes or brackets is part of the text."""
    part_start = position = depth = 0
    quote_ends = {quoted.start(): quoted.end() for quoted in _quoted_strings(text)}
    while position < len(text):
        if position in quote_ends:
            position = quote_ends[position]
            continue
        depth = max(depth + _DEPTH_BY_BRACKET.get(text[position], 0), 0)
        if text[position] == separator and not depth:
            yield text[part_start:position]
            part_start = position + 1
        position += 1
    yield text[part_start:]


def _is_balanced(text: str) -> bool:
    """Return True if the text closes every bracket and quote that it opens."""
    unquoted = "".join(_cut_at_quotes(text)[::2])
    if '"' in unquoted:
        return False
    return all(unquoted.count(opening) == unquoted.count(closing) for opening, closing in ("()", "[]", "{}"))


def _reduce_spaces(text: str) -> str:
    """Return the text with each run of spaces reduced to one, except in quotes."""
    parts = _cut_at_quotes(text)
    return "".join(part if number % 2 else re.sub(r"\s+", " ", part) for number, part in enumerate(parts))


def _cut_at_quotes(text: str) -> list[str]:
    """Return the parts of a text: those with an odd index are quoted strings, the other parts are between them."""
    parts, end = [], 0
    for quoted in _quoted_strings(text):
        parts += [text[end : quoted.start()], quoted.group()]
        end = quoted.end()
    return [*parts, text[end:]]


_BOUND_NAMES = ("ge", "gt", "le", "lt")


def allowed_values(field: FieldInfo) -> str:
    """Return the allowed values of a parameter, such as ``0..1`` or ``include or exclude``; empty: all values."""
    bounds = {name: getattr(rule, name) for rule in field.metadata for name in _BOUND_NAMES if hasattr(rule, name)}
    lower_bound, upper_bound = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if lower_bound is not None and upper_bound is not None and "ge" in bounds and "le" in bounds:
        return f"{_bound_text(lower_bound)}..{_bound_text(upper_bound)}"
    limit_texts = []
    if lower_bound is not None:
        limit_texts.append(f"{'≥' if 'ge' in bounds else '>'} {_bound_text(lower_bound)}")
    if upper_bound is not None:
        limit_texts.append(f"{'≤' if 'le' in bounds else '<'} {_bound_text(upper_bound)}")
    if limit_texts or get_origin(field.annotation) is not Literal:
        return " and ".join(limit_texts)
    words = [str(choice).lower() if isinstance(choice, bool) else choice for choice in get_args(field.annotation)]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _bound_text(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _parameter_error(cls: type[Sampler], error: ValidationError) -> SamplingError:
    """Return the error for the first parameter that pydantic rejected: ``p: 1.5 is not within 0..1``."""
    problems = error.errors()
    first_problem = problems[0]
    # For a parameter of several types, pydantic lists an error per type. The last part of `loc` is the type's
    # name.
    is_union = first_problem["loc"][-1:] in (("int",), ("str",))
    path_parts = first_problem["loc"][:-1] if is_union else first_problem["loc"]
    is_key = path_parts[-1:] == ("[key]",)
    place = tuple(map(str, path_parts[:-2] if is_key else path_parts))
    field = cls.model_fields.get(str(first_problem["loc"][0])) if first_problem["loc"] else None
    allowed = allowed_values(field) if field is not None else ""
    value_problems = (
        [problem for problem in problems if problem["loc"][:-1] == path_parts] if is_union else [first_problem]
    )
    message = problem_message(*value_problems, allowed=allowed)
    if first_problem["type"] == "dict_type" and cls.about.example is not None:
        message += f" such as {cls.about.example}"
    if "value_error" in (problem["type"] for problem in value_problems) and not isinstance(
        first_problem["input"], Mapping
    ):
        message = f"{short_repr(first_problem['input'])}: {message}"
    return SamplingError(f"the key {message}" if is_key else message, place=place)


def build_phases(phases: Sequence[Mapping[str, Any]] | None, steps: Sequence[StepSpec]) -> tuple[Phase, ...]:
    """Return the phases before the last one; phases without a chain use ``steps``."""
    return tuple(
        Phase(
            steps=_phase_steps(phase["chain"], number) if "chain" in phase else tuple(steps),
            until=phase.get("until"),
            max_tokens=phase.get("max_tokens"),
            then=phase.get("then", ""),
            adds_end=phase.get("adds_end", False),
        )
        for number, phase in enumerate((phases or ())[:-1])
    )


def _phase_steps(chain: Any, number: int) -> tuple[StepSpec, ...]:
    samplers = parse_chain(chain)
    return tuple(
        StepSpec.from_origin(sampler, "phases", f"phases[{number}].chain[{index}].{sampler.about.name}")
        for index, sampler in enumerate(samplers)
    )
