"""The fields with which clients set samplers, under the names of each tool.

A request may use names of several tools, as SillyTavern's requests do. A value that turns a sampler off changes
the chain only if the chain has the sampler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from ..common.text import short_repr
from ..jobs.bodies import StrictModel
from ..presets.errors import PresetError
from ..presets.foreign.kobold import KOBOLDCPP_SLOTS
from ..presets.overrides import ChainRearrangement, Override, read_sampler_sequence, rearrange_for_mirostat
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler

Number = float | int
Json = dict[str, Any]


def _whole(value: Number) -> Number:
    """Return a float without a fraction as an integer, since clients write 40.0. A later check reports others."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_negative(value: Number) -> Number:
    """Return the number of tokens that are kept; tools write -1 for all of them."""
    return max(_whole(value), 0)


def _cutoff(value: Number) -> Number:
    """Return a cutoff that text-generation-webui and SillyTavern write in units of 1e-4."""
    return value / 10_000


def _read_strings(value: list[str] | str) -> list[str]:
    """Return a list of strings: a JSON array, the text of one, or lines. Raises ``ValueError``."""
    if isinstance(value, list):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
            raise ValueError("this is not a JSON array of strings")
        return parsed
    return [line for line in value.split("\n") if line] if text else []


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a sampler, as requests set it.

    Attributes:
        names: the fields that set it. If several are given, the first counts.
        target: the parameter, as ``--set`` names it.
        off_values: values that turn the sampler off, or change nothing. They are not inserted into a chain.
        convert: returns our value of the parameter, given the value of the field.
        is_detail: True if no value puts the sampler into the chain.
        field_type: the type of the fields.
    """

    names: tuple[str, ...]
    target: str
    off_values: tuple[Any, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value
    is_detail: bool = False
    field_type: Any = Number


_PARAMETERS = (
    _Parameter(("temperature", "temp"), "temperature.t"),
    _Parameter(("dynatemp_range",), "dynatemp.range", (0,)),
    _Parameter(("dynatemp_exponent",), "dynatemp.exponent", is_detail=True),
    _Parameter(("smoothing_factor",), "quadratic.factor", (0,)),
    _Parameter(("smoothing_curve",), "quadratic.curve", is_detail=True),
    _Parameter(("top_k",), "top_k.k", (0, -1), _not_negative),
    _Parameter(("top_p",), "top_p.p", (1,)),
    _Parameter(("min_p",), "min_p.p", (0,)),
    _Parameter(("top_a",), "top_a.a", (0,)),
    _Parameter(("top_h",), "top_h.h", (0,)),
    _Parameter(("typical", "typical_p", "typ_p"), "typical.p", (1,)),
    _Parameter(("tfs", "tfs_z"), "tfs.z", (1,)),
    _Parameter(("top_n_sigma", "nsigma"), "top_n_sigma.n", (0, -1), lambda n: max(n, 0)),
    _Parameter(("epsilon_cutoff",), "epsilon_cutoff.epsilon", (0,), _cutoff),
    _Parameter(("eta_cutoff",), "eta_cutoff.epsilon", (0,), _cutoff),
    _Parameter(("xtc_probability",), "xtc.probability", (0,)),
    _Parameter(("xtc_threshold",), "xtc.threshold", is_detail=True),
    _Parameter(("skew",), "skew.skew", (0,)),
    _Parameter(("repeat_penalty", "repetition_penalty", "rep_pen"), "penalties.repeat", (1,)),
    _Parameter(
        ("repeat_last_n", "repetition_penalty_range", "rep_pen_range", "rep_pen_size", "penalty_range"),
        "penalties.last_n",
        convert=_whole,
        is_detail=True,
    ),
    _Parameter(("frequency_penalty",), "penalties.frequency", (0,)),
    _Parameter(("presence_penalty",), "penalties.presence", (0,)),
    _Parameter(("penalize_nl",), "penalties.penalize_newline", is_detail=True, field_type=bool),
    _Parameter(("encoder_repetition_penalty",), "encoder_repetition_penalty.penalty", (1,)),
    _Parameter(("no_repeat_ngram_size",), "no_repeat_ngram.n", (0,), _whole),
    _Parameter(("dry_multiplier",), "dry.multiplier", (0,)),
    _Parameter(("dry_base",), "dry.base", is_detail=True),
    _Parameter(("dry_allowed_length",), "dry.allowed_length", (), _whole, is_detail=True),
    _Parameter(("dry_penalty_last_n", "dry_range"), "dry.last_n", (), _whole, is_detail=True),
    _Parameter(
        ("dry_sequence_breakers",), "dry.breakers", (), _read_strings, is_detail=True, field_type=list[str] | str
    ),
    _Parameter(("min_tokens", "min_length"), "min_tokens.n", (0,), _whole),
)

if TYPE_CHECKING:
    _ParameterFields = StrictModel
else:
    _ParameterFields = create_model(
        "_ParameterFields",
        __base__=StrictModel,
        **{name: (parameter.field_type | None, None) for parameter in _PARAMETERS for name in parameter.names},
    )


class SamplerFields(_ParameterFields):
    """The fields that set samplers and their order, under the names of all tools.

    In addition to these fields there are those of `_PARAMETERS`.
    """

    dynatemp_low: Number | None = None
    dynatemp_high: Number | None = None
    dynatemp_min: Number | None = None
    dynatemp_max: Number | None = None
    dynamic_temperature: bool | None = None
    min_keep: Number | None = None
    rep_pen_slope: Number | None = None
    mirostat: Number | bool | None = None
    mirostat_mode: Number | None = None
    mirostat_tau: Number | None = None
    mirostat_eta: Number | None = None
    adaptive_target: Number | None = None
    adaptive_decay: Number | None = None
    do_sample: bool | None = None
    logit_bias: Json | list[list[Any]] | list[Json] | None = None
    ignore_eos: bool | None = None
    ban_eos_token: bool | None = None
    bypass_eos: bool | None = None
    banned_tokens: list[int | str] | str | None = None
    banned_strings: list[str] | str | None = None
    banned_regex: list[str] | str | None = None
    banned_regex_case_insensitive: list[str] | str | None = None
    bad_words: list[str] | None = None
    custom_token_bans: str | list[int] | None = None
    allowed_token_ids: list[int] | None = Field(default=None, min_length=1)
    allowed_tokens: str | list[int] | None = None
    samplers: list[str] | str | None = None
    sampler_order: list[int] | None = None
    sampler_priority: list[str] | str | None = None
    samplers_priorities: list[str] | None = None
    temperature_last: bool | None = None


def first_given(fields: StrictModel, names: Iterable[str], unused: list[str]) -> tuple[str, Any]:
    """Return the name and the value of the first field that is given; ``("", None)`` if there is none.

    Args:
        fields: the fields of a request.
        names: names of one setting, the most important first.
        unused: the names of other fields with another value are appended.
    """
    given = [(name, value) for name in names if (value := getattr(fields, name)) is not None]
    unused += [name for name, value in given[1:] if value != given[0][1]]
    return given[0] if given else ("", None)


def read_chain_changes(fields: SamplerFields, step_names: Sequence[str]) -> ChainChanges:
    """Return the changes of the chain that a request asks for.

    ``step_names``: the samplers of the chain before the changes. A value that turns a sampler off is used only if
    the chain has the sampler. Raises ``PresetError`` that begins with the name of the field, for a wrong value.
    """
    return ChainChanges(fields, step_names)


_MIN_KEEP_SAMPLERS = ("top_p", "min_p", "typical", "xtc")


class ChainChanges:
    """The changes of the chain that the fields of a request make.

    Attributes:
        overrides: the values. Later ones of one parameter replace earlier ones.
        rearrangements: the changes of the order and of the selecting step.
        unused_names: the names of fields without effect.
    """

    def __init__(self, fields: SamplerFields, step_names: Sequence[str]) -> None:
        self._fields = fields
        self._steps = dict.fromkeys(step_names)
        self.overrides: list[Override] = []
        self.rearrangements: list[ChainRearrangement] = []
        self.unused_names: list[str] = []
        self._read_parameters()
        self._read_temperature_range()
        self._read_rep_pen_slope()
        self._read_min_keep()
        self._read_biases()
        self._read_selector()
        self._read_order()

    def _value(self, *names: str) -> tuple[str, Any]:
        """Return the name and the value of the first field that is given; other values are unused."""
        return first_given(self._fields, names, self.unused_names)

    def _add(self, name: str, target: str, value: Any) -> None:
        self.overrides.append(Override(name, target, value))
        self._steps[target.partition(".")[0]] = None

    def _read_parameters(self) -> None:
        for parameter in sorted(_PARAMETERS, key=lambda parameter: parameter.is_detail):
            name, value = self._value(*parameter.names)
            is_inserted = not parameter.is_detail and value not in parameter.off_values
            if value is None or not (is_inserted or parameter.target.partition(".")[0] in self._steps):
                continue
            try:
                self._add(name, parameter.target, parameter.convert(value))
            except ValueError as error:
                raise PresetError(f"{name}: {error}") from None

    def _read_temperature_range(self) -> None:
        """Read the range of a dynamic temperature that is given by both ends."""
        low_name, low = self._value("dynatemp_low", "dynatemp_min")
        high_name, high = self._value("dynatemp_high", "dynatemp_max")
        if low is None or high is None:
            self.unused_names += [name for name in (low_name, high_name) if name]
            return
        is_on = self._fields.dynamic_temperature
        if is_on is False or (is_on is None and low == high):
            return
        if low > high:
            raise PresetError(f"{low_name}: {low} is above {high_name} {high}")
        self._add(low_name, "temperature.t", (low + high) / 2)
        self._add(high_name, "dynatemp.range", (high - low) / 2)
        name, exponent = self._value("dynatemp_exponent")
        if exponent is not None:
            self._add(name, "dynatemp.exponent", exponent)

    def _read_rep_pen_slope(self) -> None:
        """Read KoboldCpp's slope: the older half of the range gets a part of the penalty."""
        name, slope = self._value("rep_pen_slope")
        if slope is None or not 0 < slope < 1:
            return
        penalty_name, penalty = self._value("repeat_penalty", "repetition_penalty", "rep_pen")
        if penalty is None or penalty <= 1:
            return
        range_name, length = self._value("repeat_last_n", "repetition_penalty_range", "rep_pen_range")
        self._add(penalty_name, "penalties.repeat", 1)
        self._add(penalty_name, "repetition_penalty.penalty", penalty)
        self._add(name, "repetition_penalty.slope", slope)
        self._add(name, "repetition_penalty.shape", "halves")
        if length is not None:
            self._add(range_name, "repetition_penalty.range", max(_whole(length), 0))

    def _read_min_keep(self) -> None:
        name, value = self._value("min_keep")
        if value is not None and value > 1:
            for sampler in _MIN_KEEP_SAMPLERS:
                if sampler in self._steps:
                    self._add(name, f"{sampler}.min_keep", _whole(value))

    def _read_biases(self) -> None:
        fields = self._fields
        name, value = self._value("ignore_eos", "ban_eos_token")
        if value:
            self._add(name, "ignore_eos", True)
        if fields.logit_bias:
            self._add("logit_bias", "logit_bias.bias", _biases(fields.logit_bias))
        banned: Sequence[int | str] = fields.banned_tokens or ()
        if isinstance(banned, str):  # as in KoboldCpp
            banned = _strings("banned_tokens", banned)
        token_ids = _token_ids("custom_token_bans", fields.custom_token_bans)
        token_ids += [item for item in banned if isinstance(item, int)]
        if token_ids:
            name = "custom_token_bans" if fields.custom_token_bans else "banned_tokens"
            self._add(name, "ban.tokens", token_ids)
        if fields.bad_words:
            self._add("bad_words", "ban.strings", fields.bad_words)
        name, allowed = self._value("allowed_token_ids", "allowed_tokens")
        if allowed_ids := _token_ids(name, allowed):
            self._add(name, "allow.tokens", allowed_ids)

    def _read_selector(self) -> None:
        """Read the fields that choose the selecting step."""
        fields = self._fields
        name, version = self._value("mirostat", "mirostat_mode")
        if version is not None and int(version) not in (0, 1, 2):
            raise PresetError(f"{name}: {version} is not 0, 1 or 2")
        if version:
            sampler = ("mirostat", "mirostat_v2")[int(version) - 1]
            self.rearrangements.append(rearrange_for_mirostat(int(version)))
            for detail in ("tau", "eta"):
                if (value := getattr(fields, f"mirostat_{detail}")) is not None:
                    self._add(f"mirostat_{detail}", f"{sampler}.{detail}", value)
        elif version is not None:
            self.rearrangements.append(rearrange_for_mirostat(0))
        wants_adaptive = fields.adaptive_target is not None and fields.adaptive_target >= 0
        if version:
            self.unused_names += ["adaptive_target"] if wants_adaptive else []
            self.unused_names += ["do_sample"] if fields.do_sample is False else []
        elif wants_adaptive:
            self.unused_names += ["do_sample"] if fields.do_sample is False else []
            self.rearrangements.append(ChainRearrangement("adaptive_target", new_selector="adaptive_p"))
            self._add("adaptive_target", "adaptive_p.target", fields.adaptive_target)
            if fields.adaptive_decay is not None:
                self._add("adaptive_decay", "adaptive_p.decay", fields.adaptive_decay)
        elif fields.do_sample is False:
            self._add("do_sample", "temperature.t", 0)  # the most likely token, as greedy would take

    def _read_order(self) -> None:
        """Read the order of the samplers, in the notation of one of four tools."""
        name, order = self._value("samplers", "sampler_order", "sampler_priority", "samplers_priorities")
        if not order:
            name = ""
        if self._fields.mirostat or self._fields.mirostat_mode:
            # Mirostat keeps only the temperature before it, in any order.
            self.unused_names += [name] if name else []
            return
        if name == "samplers":
            sequence = order if isinstance(order, str) else ";".join(order)
            self.rearrangements.append(_arrange_as_llama_cpp(sequence, self._steps))
            return
        if name == "sampler_order":
            for number in order:
                if number not in _KOBOLD_GROUPS:
                    raise PresetError(f"sampler_order: {number} is not a number from 0 to 6")
            names = [step for number in dict.fromkeys(order) for step in _KOBOLD_GROUPS[number]]
        elif name:
            names = _names_of_slots(name, _strings(name, order))
        else:
            names = [step for step in self._steps if not _is_bias_or_selector(step)]
        if self._fields.temperature_last:
            names = [*(step for step in names if step not in _TEMPERATURES), *_TEMPERATURES]
        elif not name:
            return
        others = [step for step in self._steps if step not in names and not _is_bias_or_selector(step)]
        trailing = [step for step in others if name == "sampler_order" and step == "xtc"]
        ordered = (*(step for step in others if step not in trailing), *names, *trailing)
        self.rearrangements.append(
            ChainRearrangement(name or "temperature_last", ordered, skips_missing_steps=True)
        )


_TEMPERATURES = ("temperature", "quadratic")


def _is_bias_or_selector(name: str) -> bool:
    about = find_sampler(name).about
    return about.is_bias or about.is_selector


_ONLY_LISTED_BY_CLIENTS = {"tfs_z": "tfs", "tfs": "tfs", "typical_p": "typical", "top_a": "top_a"}
"""Names that clients list among llama.cpp's samplers, although llama.cpp does not have them."""


def _arrange_as_llama_cpp(sequence: str, present: Mapping[str, None]) -> ChainRearrangement:
    """Return the order of llama-server's ``samplers``: names, or letters. Samplers that it leaves out are off."""
    names: list[str] = []
    for part in (part.strip() for part in sequence.split(";")):
        known = _ONLY_LISTED_BY_CLIENTS.get(part.lower())
        if known is None:
            names += read_sampler_sequence(part, "samplers")
        elif known in present:
            names.append(known)
    # adaptive_p selects only if its target is given; llama.cpp lists it anyway.
    steps = dict.fromkeys(name for name in names if not find_sampler(name).about.is_selector)
    return ChainRearrangement("samplers", tuple(steps))


_KOBOLD_GROUPS = {**KOBOLDCPP_SLOTS, 6: ("repetition_penalty", "penalties")}
"""The samplers of each number of KoboldCpp's ``sampler_order``."""


_SLOT_NAMES: Mapping[str, tuple[str, ...]] = {
    "dynamic_temperature": ("temperature",),
    "quadratic_sampling": ("quadratic",),
    "repetition_penalty": ("repetition_penalty", "penalties"),
    "presence_penalty": ("penalties",),
    "frequency_penalty": ("penalties",),
    "top_p_top_k": ("top_p", "top_k"),
    "mirostat": (),
    "adaptive_p": (),
}
"""The samplers of the names in the lists of text-generation-webui and Aphrodite, where our names differ."""


def _names_of_slots(field: str, slots: Sequence[str]) -> list[str]:
    """Return the samplers that a list of text-generation-webui or Aphrodite names, in its order."""
    names: dict[str, None] = {}
    for slot in slots:
        if slot in _SLOT_NAMES:
            names.update(dict.fromkeys(_SLOT_NAMES[slot]))
            continue
        try:
            names[find_sampler(slot).about.name] = None
        except SamplingError as error:
            raise PresetError(f"{field}: {error}") from None
    return list(names)


def _biases(value: Json | list[Any]) -> dict[int | str, float]:
    """Return biases by token, from an object, from pairs, or from SillyTavern's objects. Raises ``PresetError``.

    Keys are ids or texts; false bans a token.
    """
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif all(isinstance(item, list) and len(item) == 2 for item in value):
        pairs = [tuple(item) for item in value]
    else:
        raise PresetError("logit_bias: this is neither an object nor a list of pairs")
    biases: dict[int | str, float] = {}
    for key, bias in pairs:
        if type(key) not in (int, str):  # bool is a subclass of int, but True is not an id
            raise PresetError(f"logit_bias: {short_repr(key)} is not a token's id or text")
        if bias is not False and (isinstance(bias, bool) or not isinstance(bias, (int, float))):
            raise PresetError(f"logit_bias: {short_repr(bias)} is not a number or false")
        token = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() else key
        biases[token] = float("-inf") if bias is False else float(bias)
    return biases


def _token_ids(field: str, value: str | list[int] | None) -> list[int]:
    """Return the ids in a list, or in a text with commas."""
    if not isinstance(value, str):
        return list(value or ())
    try:
        return [int(part) for part in value.replace("[", "").replace("]", "").split(",") if part.strip()]
    except ValueError:
        raise PresetError(f"{field}: {short_repr(value)} is not a list of token ids") from None


def banned_texts(fields: SamplerFields) -> list[Any]:
    """Return the bans of the fields of other servers, as a preset writes them.

    KoboldCpp and SillyTavern send phrases, ik_llama.cpp also regular expressions.
    """
    banned: Sequence[int | str] = fields.banned_tokens or ()
    if isinstance(banned, str):  # as in KoboldCpp
        banned = _strings("banned_tokens", banned)
    bans: list[Any] = [text for text in _strings("banned_strings", fields.banned_strings) if text]
    bans += [item for item in banned if isinstance(item, str) and item]
    bans += [{"regex": pattern} for pattern in _strings("banned_regex", fields.banned_regex)]
    bans += [
        {"regex": pattern, "case": False}
        for pattern in _strings("banned_regex_case_insensitive", fields.banned_regex_case_insensitive)
    ]
    return bans


def _strings(field: str, value: list[str] | str | None) -> list[str]:
    try:
        return [] if value is None else [text for text in _read_strings(value) if text]
    except ValueError as error:
        raise PresetError(f"{field}: {error}") from None
