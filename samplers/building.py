"""Building of a chain from the steps of a preset, or from the compact notation.

The notation is ``temp0.8 > typical0.19 > top-p(p=0.6, min_keep=2)``. Names and parameters are checked. An error
message gives the place of the step and the allowed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import index
from typing import Any, Literal, NamedTuple, SupportsIndex, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ..common.errors import problem_message, wrong_value
from ..common.seeds import SEED_VALUES, fixed_seed, generator_seed, is_seed
from ..common.text import short_repr, unknown_name
from .base import BuildContext, Sampler, Vocabulary
from .chain import Chain, Phase, StepSpec, check_selection, check_step_count
from .errors import SamplingError
from .registry import find_sampler, is_known

# A step is written as ``name``, ``{name: value of the main parameter}`` or ``{name: {parameters}}``. A sampler and
# a `StepSpec` are steps whose name and parameters were checked before.
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
    is_integer = isinstance(seed, SupportsIndex) and not isinstance(seed, bool)
    if not is_integer or not is_seed(index(seed)):
        raise SamplingError(wrong_value(seed, SEED_VALUES), place=("seed",))
    chain_seed = fixed_seed(index(seed))
    context = BuildContext(generator_seed(chain_seed), vocab, frozenset(stop_tokens))
    return Chain(_read_steps(steps), context, chain_seed)


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
    return [_read_step(step, place=f"chain[{number}]") for number, step in enumerate(steps)]


def _read_step(step: Step, place: str) -> StepSpec:
    if isinstance(step, StepSpec):
        return step
    sampler = make_sampler(step, origin=place)
    return StepSpec(sampler, location=f"{place}.{sampler.about.name}")


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
        return _make_named_sampler(find_sampler(name), value)
    except SamplingError as error:
        placed_error = error.under(origin) if origin else error
        raise placed_error from error.__cause__


def _make_named_sampler(cls: type[Sampler], value: Any) -> Sampler:
    """Return a sampler with the parameters that a step has after its name."""
    name = cls.about.name
    try:
        return cls(**_read_parameters(cls, value))
    except SamplingError as error:
        raise error.under(name) from None
    except ValidationError as error:
        raise _parameter_error(cls, error).under(name) from None
    except Exception as error:  # a validator of another package may raise anything
        raise SamplingError(f"{type(error).__name__}: {error}", place=(name,)) from error


def _name_and_value(step: object) -> tuple[str, Any]:
    """Return the name of a step, and what is written after it: a single value, a table, or None for nothing."""
    if isinstance(step, str):
        step = _parse_list_item(step)
    if isinstance(step, str):
        return step, None
    if isinstance(step, Mapping) and len(step) > 1:
        names = " and ".join(str(name) for name in step)
        raise SamplingError(f"{names} are in one step; write each as an item of the list")
    if isinstance(step, Mapping):
        for name, value in step.items():
            if isinstance(name, str):
                return name, value
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
    if main_parameter is None:
        return False
    takes_table = get_origin(cls.model_fields[main_parameter].annotation) is dict
    return takes_table and value.keys().isdisjoint(cls.model_fields)


def parse_notation(text: str) -> list[Any]:
    """Return the steps of a chain in the compact notation, in the form of a preset's ``chain:``.

    Users of KoboldAI write chains this way. Steps are joined by ``>``. A step is ``name``, or ``name0.8`` or
    ``name=0.8`` to set the main parameter, or ``name(parameter=value, …)``. A value is a number, ``true``,
    ``false``, ``null``, a word, or a string, list or table in JSON. Raises ``SamplingError``, whose message
    names the step.
    """
    quoted_text = repr(_quotable(text))
    _reject_koboldai_order(text, f"chain {quoted_text}")
    step_texts = list(_split_unquoted(text, ">"))
    check_step_count(len(step_texts), f"chain {quoted_text}")
    steps = []
    for number, step_text in enumerate(step_texts):
        try:
            steps.append(_parse_step(step_text.strip()))
        except SamplingError as error:
            raise error.under(f"chain[{number}] of {quoted_text}") from None
    return steps


def chain_notation(config: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the compact notation of a chain, which `parse_notation` reads."""
    step_texts = []
    for step in config:
        for name, parameters in step.items():
            step_texts.append(_step_notation(name, parameters))
    return " > ".join(step_texts)


def _step_notation(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the notation of one step. Parameters with their default values are left out."""
    cls = find_sampler(name)
    defaults = {key: field.get_default(call_default_factory=True) for key, field in cls.model_fields.items()}
    changed = {key: value for key, value in parameters.items() if value != defaults[key]}
    if not changed:
        return name
    main_parameter = cls.about.main_parameter or ""
    if changed.keys() == {main_parameter}:
        main_value = changed[main_parameter]
        if isinstance(main_value, (int, float)):
            return f"{name}={_value_notation(main_value)}"
        if isinstance(main_value, Mapping) and _is_main_table(cls, main_value):
            changed = dict(main_value)
    pairs = [f"{_key_notation(key)}={_value_notation(value)}" for key, value in changed.items()]
    return f"{name}({', '.join(pairs)})"


def _key_notation(key: str | int) -> str:
    needs_quotes = isinstance(key, str) and not key.isidentifier()
    return json.dumps(key) if needs_quotes else str(key)


def _value_notation(value: Any) -> str:
    return str(value) if isinstance(value, float) else json.dumps(value)


def _parse_list_item(text: str) -> Any:
    """Return one step of a list, such as ``temp0.8``; a name alone is returned unchanged."""
    if is_known(text):
        return text
    if len(list(_split_unquoted(text, ">"))) > 1:
        raise SamplingError(f"{_quotable(text)!r} is a chain of several steps; write each as an item of the list")
    step = _parse_step(text.strip())
    if isinstance(step, Mapping) and not any(is_known(name) for name in step):
        return text  # the caller rejects the entire string, and suggests the nearest name
    return step


# These patterns match a step in which `_reduce_spaces` has reduced each run of spaces to one. On longer runs they
# would take quadratic time.
_NAME_PATTERN = r"(?P<name> [A-Za-z][A-Za-z0-9_\-]* (?:[ ][A-Za-z0-9_\-]+)* )"  # words with single spaces between
_BARE_NAME_PATTERN = re.compile(_NAME_PATTERN, re.VERBOSE)
_CALL_PATTERN = re.compile(
    rf"""
    {_NAME_PATTERN} [ ]?
    \( (?P<parameters>.*) \)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT_PATTERN = re.compile(
    rf"""
    {_NAME_PATTERN} [ ]?
    (?: =[ ]? | (?=["\[]) )  # an equals sign, which may be left out before a string and before a list
    (?P<value>[^ ].*)
    """,
    re.VERBOSE | re.DOTALL,
)
# Python refuses to convert very long integers. No parameter needs more than 40 digits.
_INTEGER_PATTERN = re.compile(r"[-+]?\d{1,40}")
_NUMBER_PATTERN = re.compile(
    r"""
    [-+]?
    (?: \d{1,40}\.?\d* | \.\d+ )  # 1, 1., 1.5 or .5
    (?: [eE][-+]?\d+ )?
    """,
    re.VERBOSE,
)


def _parse_step(step: str) -> Any:
    text = _reduce_spaces(step)
    call = _CALL_PATTERN.fullmatch(text)
    if call and _is_balanced(call["parameters"]):
        return {call["name"]: _parse_parentheses(call["name"], call["parameters"].strip())}
    assignment = _ASSIGNMENT_PATTERN.fullmatch(text)
    if assignment:
        return {assignment["name"]: _parse_or_raise(assignment["value"], _parse_value)}
    if _BARE_NAME_PATTERN.fullmatch(text) and is_known(text):
        return text
    return _parse_joined_number(text)


def _parse_parentheses(name: str, text: str) -> Any:
    """Return the value or the table that a step has in parentheses, as ``40`` or ``p=0.6, min_keep=2``."""
    if not text:
        return {}
    if _NUMBER_PATTERN.fullmatch(text):  # top_k(40), as in a program
        return _parse_number(text)
    parameter_names = _parameter_names(name)
    return _make_table([_parse_pair(pair, parameter_names) for pair in _split_unquoted(text, ",")])


def _parse_joined_number(text: str) -> Any:
    """Read a name directly followed by a number."""
    name, number = _split_joined_number(text)
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


_MAX_NUMBER_CHARACTERS = 99  # greatest length of a number after a name


def _split_joined_number(text: str) -> tuple[str, str]:
    """Split ``temp0.8`` into its name and its number. The number is empty if the text does not end with one."""
    # Several splits may be possible, such as mirostat_v2 and 5, or mirostat_v and 25. The longest known name is
    # taken. If no name is known, the shortest name is taken.
    name, number = text, ""
    first_start = max(len(text) - _MAX_NUMBER_CHARACTERS, 1)
    for start in reversed(range(first_start, len(text))):
        possible_name = text[:start].rstrip()
        if _NUMBER_PATTERN.fullmatch(text, start) and _BARE_NAME_PATTERN.fullmatch(possible_name):
            name, number = possible_name, text[start:]
            if is_known(name):
                break
    return name, number


_WRONG_SEPARATORS = re.compile(r"(?:,|;|\||->|→| )+")  # people write these between steps in place of ">"
_VALUE_AFTER_NAME = re.compile(r"=?[-+]?\.?\d.*")  # as in ``top_k=40`` and ``temp.8``


def _is_several_steps(text: str) -> bool:
    """Return True if the steps have a wrong separator between them, as in ``top_k40, temp0.8``."""
    parts = _WRONG_SEPARATORS.split(text)
    names = [_VALUE_AFTER_NAME.sub("", part) for part in parts]
    return len(names) > 1 and all(is_known(name) for name in names)


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


def _parse_pair(pair: str, parameter_names: Collection[str]) -> tuple[str | int, Any]:
    text = pair.strip()
    quoted_key = _QUOTED_PATTERN.match(text)
    if quoted_key:  # the quotes may contain an equals sign
        key = quoted_key.group()
        _, equals_sign, value = text[quoted_key.end() :].partition("=")
    else:
        key, equals_sign, value = text.partition("=")
    if not equals_sign or not key.strip() or not value.strip():
        raise SamplingError(f"{_quotable(pair)!r} is not key=value")
    parsed_key = _parse_or_raise(key.strip(), lambda text: _parse_key(text, parameter_names))
    return parsed_key, _parse_or_raise(value.strip(), _parse_value)


def _parse_key(key: str, parameter_names: Collection[str]) -> str | int:
    if key.startswith('"'):
        return str(json.loads(key, strict=False))
    if key.isdecimal():  # a bare number is a token id
        return int(key)
    # A dash is read as an underscore only in the name of a parameter, not in the text of a token.
    name = key.replace("-", "_")
    return name if name in parameter_names else key


def _parse_or_raise(text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
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


# The samplers of the numbers 0 to 6 in ``sampler_order`` of KoboldAI and KoboldCpp
_KOBOLDAI_NAMES = ("top_k", "top_a", "top_p", "tfs", "typical", "temp", "rep_pen")
_KOBOLDAI_NAME_OF_NUMBER = {str(number): name for number, name in enumerate(_KOBOLDAI_NAMES)}
_BETWEEN_NUMBERS = re.compile(r"[\s,;>]+")


def _reject_koboldai_order(chain: str | Sequence[object], place: str) -> None:
    """Raise ``SamplingError`` if a chain is KoboldAI's ``sampler_order``: a list of numbers without values."""
    # The message has the ``place`` of the chain, and the names of the samplers to write instead.
    items = _BETWEEN_NUMBERS.split(chain.strip(" []")) if isinstance(chain, str) else chain
    numbers = [str(item) for item in items if isinstance(item, (str, int))]
    is_order = len(numbers) == len(items) and all(number in _KOBOLDAI_NAME_OF_NUMBER for number in numbers)
    if not is_order or len(numbers) < 2:
        return
    distinct_names = dict.fromkeys(_KOBOLDAI_NAME_OF_NUMBER[number] for number in numbers)
    steps = " > ".join(f"{name}=…" for name in distinct_names)
    problem = "these numbers are KoboldAI's sampler_order, which has no values"
    raise SamplingError(problem, place=(place,), advice=f"write names and values: {steps!r}")


_MAX_SHOWN_CHARACTERS = 200  # greatest length of the part of a chain that a message quotes


def _quotable(text: str) -> str:
    """Return the text as messages quote it: on one line, and shortened."""
    line = " ".join(text.split())
    if len(line) <= _MAX_SHOWN_CHARACTERS:
        return line
    return line[: _MAX_SHOWN_CHARACTERS - 1] + "…"


# A quoted string, in which a backslash escapes the next character
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
    end_of_quote = {quoted.start(): quoted.end() for quoted in _quoted_strings(text)}
    part_start = 0
    depth = 0  # number of open brackets
    position = 0
    while position < len(text):
        if position in end_of_quote:
            position = end_of_quote[position]
            continue
        character = text[position]
        depth = max(depth + _DEPTH_BY_BRACKET.get(character, 0), 0)
        if character == separator and depth == 0:
            yield text[part_start:position]
            part_start = position + 1
        position += 1
    yield text[part_start:]


def _is_balanced(text: str) -> bool:
    """Return True if the text closes every bracket and quote that it opens."""
    unquoted = "".join(part.text for part in _cut_at_quotes(text) if not part.is_quoted)
    if '"' in unquoted:
        return False
    return all(unquoted.count(opening) == unquoted.count(closing) for opening, closing in ("()", "[]", "{}"))


def _reduce_spaces(text: str) -> str:
    """Return the text with each run of spaces reduced to one, except in quotes."""
    parts = _cut_at_quotes(text)
    return "".join(part.text if part.is_quoted else re.sub(r"\s+", " ", part.text) for part in parts)


class _TextPart(NamedTuple):
    """A quoted string, or the text between two quoted strings."""

    text: str
    is_quoted: bool


def _cut_at_quotes(text: str) -> Iterator[_TextPart]:
    """Yield the parts of a text in their order."""
    position = 0
    for quoted in _quoted_strings(text):
        yield _TextPart(text[position : quoted.start()], is_quoted=False)
        yield _TextPart(quoted.group(), is_quoted=True)
        position = quoted.end()
    yield _TextPart(text[position:], is_quoted=False)


# The bounds that pydantic stores for a parameter, by name, and the sign of each
_SIGN_OF_BOUND = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def allowed_values(field: FieldInfo) -> str:
    """Return the allowed values of a parameter, such as ``0..1`` or ``include or exclude``; empty: all values."""
    bounds = _bounds(field)
    if bounds.keys() == {"ge", "le"}:
        return f"{_bound_text(bounds['ge'])}..{_bound_text(bounds['le'])}"
    if bounds:
        return " and ".join(f"{_SIGN_OF_BOUND[name]} {_bound_text(bound)}" for name, bound in bounds.items())
    if get_origin(field.annotation) is not Literal:
        return ""
    words = [str(choice).lower() if isinstance(choice, bool) else choice for choice in get_args(field.annotation)]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _bounds(field: FieldInfo) -> dict[str, float]:
    """Return the bounds of a parameter by name, as ``{"ge": 0, "le": 1}``, the lower bound first."""
    bounds = {}
    for name in _SIGN_OF_BOUND:
        for rule in field.metadata:
            bound = getattr(rule, name, None)
            if bound is not None:
                bounds[name] = bound
    return bounds


def _bound_text(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _parameter_error(cls: type[Sampler], error: ValidationError) -> SamplingError:
    """Return the error for the first parameter that pydantic rejected: ``p: 1.5 is not within 0..1``."""
    problems = error.errors()
    first_problem = problems[0]
    path = first_problem["loc"]
    value_problems = [first_problem]
    # For a value of several types, pydantic lists a problem per type. The type's name follows after the path.
    if path and path[-1] in ("int", "str"):
        path = path[:-1]
        value_problems = [problem for problem in problems if problem["loc"][:-1] == path]
    # For the key of a table, pydantic puts the key and "[key]" after the path of the table.
    is_key = path[-1:] == ("[key]",)
    if is_key:
        path = path[:-2]
    field = cls.model_fields.get(str(path[0])) if path else None
    message = problem_message(*value_problems, allowed="" if field is None else allowed_values(field))
    rejected_value = first_problem["input"]
    if first_problem["type"] == "dict_type" and cls.about.example is not None:
        message += f" such as {cls.about.example}"
    # The message of a validator does not contain the value.
    has_validator_message = any(problem["type"] == "value_error" for problem in value_problems)
    if has_validator_message and not isinstance(rejected_value, Mapping):
        message = f"{short_repr(rejected_value)}: {message}"
    if is_key:
        message = f"the key {message}"
    return SamplingError(message, place=tuple(str(part) for part in path))


def build_phases(phases: Sequence[Mapping[str, Any]] | None) -> tuple[Phase, ...]:
    """Return the phases before the last one."""
    phases_before_last = phases[:-1] if phases else ()
    return tuple(
        Phase(
            steps=_phase_steps(phase["chain"], number) if "chain" in phase else None,
            until=phase.get("until"),
            max_tokens=phase.get("max_tokens"),
            then=phase.get("then", ""),
            adds_end=phase.get("adds_end", False),
        )
        for number, phase in enumerate(phases_before_last)
    )


def _phase_steps(chain: Any, phase_number: int) -> tuple[StepSpec, ...]:
    specs = []
    for step_number, sampler in enumerate(parse_chain(chain)):
        location = f"phases[{phase_number}].chain[{step_number}].{sampler.about.name}"
        specs.append(StepSpec.from_origin(sampler, "phases", location))
    return tuple(specs)
