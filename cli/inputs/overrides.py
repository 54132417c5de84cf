"""From the flags of a command line to the settings that they change.

The tables of `presets/` name the setting of each flag. The value of most flags is the value of the setting. The
other flags have a function in `_CONVERSIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...common.errors import UsageError
from ...common.text import join_alternatives
from ...presets.setting_table import UNTIL_CONTEXT_IS_FULL
from ..flags import Options, flag_values, iterate_flags

if TYPE_CHECKING:
    from ...presets.overrides import ChainRearrangement, Override


class _GivenFlag(NamedTuple):
    """A typed flag that sets a setting, or a part of a setting."""

    name: str  # in messages
    part: str  # see `Flag.part`
    value: Any


def flag_overrides(options: Options) -> Iterator[Override]:
    """Yield the settings that flags set."""
    from ...presets.overrides import Override

    for setting, flags in _given_flags(options).items():
        if setting in _CONVERSIONS:
            for flag_name, value in _CONVERSIONS[setting](flags):
                yield Override(flag_name, setting, value)
        else:
            for flag in flags:
                yield Override(flag.name, setting, _setting_value(flag))


def _given_flags(options: Options) -> Mapping[str, list[_GivenFlag]]:
    """Return the flags that were typed, by the name of the setting."""
    is_mirostat_off = flag_values(options).get("--mirostat") == 0
    flags_of_setting: dict[str, list[_GivenFlag]] = {}
    for flag, value in iterate_flags(options):
        setting = flag.setting_name
        if setting is None or value is None:
            continue
        if is_mirostat_off and setting.startswith("mirostat."):
            continue
        flags_of_setting.setdefault(setting, []).append(_GivenFlag(flag.name, flag.part, value))
    return flags_of_setting


def _setting_value(flag: _GivenFlag) -> Any:
    value = str(flag.value) if isinstance(flag.value, Path) else flag.value
    return {flag.part: value} if flag.part else value


def given_grammar(options: Options) -> Override | None:
    """Return the grammar that a flag of these options gives; None if there is none."""
    return next((override for override in flag_overrides(options) if override.target == "grammar"), None)


def chain_rearrangements(options: Options) -> Iterator[ChainRearrangement]:
    """Yield the changes of the chain's order that flags request."""
    from ...presets.overrides import rearrange_by_adaptive_p, rearrange_by_samplers, rearrange_for_mirostat

    values = flag_values(options)
    if values["--adaptive-target"] is not None:
        yield rearrange_by_adaptive_p()
    if values["--samplers"] is not None:
        yield rearrange_by_samplers(values["--samplers"], "--samplers")
    if values["--mirostat"] is not None:
        yield rearrange_for_mirostat(values["--mirostat"])


_Conversion = Iterator[tuple[str, Any]]  # the name of a flag in messages, and the value of the setting


def _max_tokens(flags: Iterable[_GivenFlag]) -> _Conversion:
    for flag in flags:
        yield flag.name, -1 if flag.value == UNTIL_CONTEXT_IS_FULL else flag.value


def _sequence_breakers(flags: Iterable[_GivenFlag]) -> _Conversion:
    """Yield the sequence breakers. As in llama.cpp, ``none`` removes the breakers before it."""
    for flag in flags:
        breakers: list[str] = []
        for text in flag.value:
            if text == "none":
                breakers.clear()
            else:
                breakers.append(text)
        yield flag.name, breakers


def _logit_biases(flags: Iterable[_GivenFlag]) -> _Conversion:
    for flag in flags:
        for text in flag.value:
            yield f"{flag.name} {text}", _parse_bias(text)


_BIAS_PATTERN = re.compile(
    r"""
      (?P<id>\d+) (?P<signed>[+-].+)    # 15043+1
    | (?P<key>.+) = (?P<value>[^=]+)    # 15043=1, hello=1, a=b=1
    """,
    re.DOTALL | re.VERBOSE,
)


def _parse_bias(text: str) -> dict[int | str, Any]:
    """Return the bias by token. ``15043+1`` and ``15043=-inf`` name a token by id, ``hello=2`` by its text."""
    match = _BIAS_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"--logit-bias: {text!r} is not ID+BIAS, ID-BIAS, ID=BIAS or TEXT=BIAS")
    key = match["id"] or match["key"]
    value = match["signed"] or match["value"]
    try:
        bias = float("-inf") if value == "false" else float(value)
    except ValueError:
        raise UsageError(f"--logit-bias: {value!r} in {text!r} is not a number") from None
    token = int(key) if key.isdecimal() else key
    return {token: bias}


_MAX_BAN_FILE_BYTES = 4_000_000
_MAX_PROMPT_BYTES = 64_000_000


def _bans(flags: Sequence[_GivenFlag]) -> _Conversion:
    """Yield all bans as one list, whichever flag gives each of them."""
    bans: list[Any] = []
    for flag in flags:
        for text in flag.value:
            if flag.part == "file":
                bans += _read_ban_file(text, flag.name)
            elif flag.part == "regex":
                bans.append({"regex": text})
            elif text:
                bans.append(text)
            else:
                raise UsageError(f"{flag.name}: an empty phrase would ban every text")
    if bans:
        yield flags[0].name, bans


def _read_ban_file(path: str, flag_name: str) -> Iterator[Any]:
    """Yield the bans of a file, as a preset writes them."""
    from ...grammars.bans import parse_ban_lines
    from ...grammars.errors import GrammarError

    text = _read_file(path, flag_name, _MAX_BAN_FILE_BYTES)
    try:
        yield from (ban.as_setting() for ban in parse_ban_lines(text, f"{flag_name} {path}"))
    except GrammarError as error:
        raise UsageError.of(error) from None


_THINKING = {"on": True, "off": False, "auto": None}  # the values of ``--reasoning``


def _enable_thinking(flags: Iterable[_GivenFlag]) -> _Conversion:
    for flag in flags:
        if flag.value not in _THINKING:
            raise UsageError(f"{flag.name}: {flag.value!r} is not {join_alternatives(_THINKING)}")
        if _THINKING[flag.value] is not None:
            yield flag.name, _THINKING[flag.value]


_NO_BUDGET = -1  # the value of ``--reasoning-budget`` for reasoning without a limit


def _phases(flags: Iterable[_GivenFlag]) -> _Conversion:
    """Yield the phase of the reasoning, and the phase of the answer after it."""
    flag_of_part = {flag.part: flag for flag in flags}
    if "max_tokens" in flag_of_part and flag_of_part["max_tokens"].value == _NO_BUDGET:
        del flag_of_part["max_tokens"]
    if "then" in flag_of_part and "max_tokens" not in flag_of_part:
        raise UsageError("--reasoning-budget-message needs --reasoning-budget N")
    if flag_of_part:
        first_flag = next(iter(flag_of_part.values()))
        reasoning_phase = {part: flag.value for part, flag in flag_of_part.items()} | {"adds_end": True}
        answer_phase: dict[str, Any] = {}
        yield first_flag.name, [reasoning_phase, answer_phase]


def _guidance(flags: Iterable[_GivenFlag]) -> _Conversion:
    """Yield the parts of the setting, one by one."""
    from ...common.text import without_last_line_end

    flag_of_part = {flag.part: flag for flag in flags}
    if "negative_prompt" in flag_of_part and "negative_prompt_file" in flag_of_part:
        raise UsageError("--cfg-negative-prompt and --cfg-negative-prompt-file: give one of them")
    for part, flag in flag_of_part.items():
        if part == "negative_prompt_file":
            text = _read_file(flag.value, flag.name, _MAX_PROMPT_BYTES)
            yield flag.name, {"negative_prompt": without_last_line_end(text)}  # as in a file of the prompt
        else:
            yield flag.name, {part: flag.value}


def _read_file(path: str, flag_name: str, max_bytes: int) -> str:
    from ...common.files import TextFileError, read_text_file

    try:
        return read_text_file(Path(path), max_bytes)
    except TextFileError as error:
        raise UsageError(f"{flag_name} {path}: {error}") from None


# The settings whose flags have other values than the setting, each with the function that converts them.
_CONVERSIONS: Mapping[str, Callable[[list[_GivenFlag]], _Conversion]] = {
    "max_tokens": _max_tokens,
    "dry.breakers": _sequence_breakers,
    "logit_bias.bias": _logit_biases,
    "bans": _bans,
    "enable_thinking": _enable_thinking,
    "phases": _phases,
    "guidance": _guidance,
}
