"""The names of samplers' parameters in other tools: one table for imports, exports and the fields of requests.

What a tool makes of a value, such as other limits or another place in the chain, stands in the module of the tool,
and so do keys that hold more than one parameter. The first row of a sampler is the main one, which messages name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .llama_cpp_flags import find_llama_cpp_flag

# The tools whose names requests may use. ``clients``: names that clients of several servers write.
_REQUEST_TOOLS = frozenset(
    ("openai", "llama-server", "vllm", "webui", "koboldai", "koboldcpp", "sillytavern", "tabbyapi", "clients")
)
# Tools of the table that are parts of another one: another file, another version, or imports that differ from
# requests.
_PARTS = (
    *("webui-export", "sillytavern-export", "sillytavern-chat", "lmstudio-0.2", "lmstudio-mirostat", "yals"),
    *("koboldcpp-import", "tabbyapi-import"),
)


def name_in(tool: str, names: Mapping[str, str]) -> str | None:
    """Return the name of a setting in a tool; None if it has none there."""
    return next((name for name, tools in names.items() if tool in tools.split()), None)


def request_names(names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fields of requests among the names of a setting, which are the keys."""
    return tuple(name for name, tools in names.items() if not _REQUEST_TOOLS.isdisjoint(tools.split()))


def names_by_tool(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of a setting that each tool has."""
    found: dict[str, list[str]] = {}
    for name, tools in names.items():
        for tool in tools.split():
            if tool not in _PARTS:
                found.setdefault(tool, []).append(name)
    return found


@dataclass(frozen=True)
class Parameter:
    """A sampler's parameter with its names in other tools.

    Attributes:
        target: the parameter, as ``--set`` names it.
        off_value: the value with which the step changes nothing; the tools' usual value if the parameter cannot
            switch the step off. An integer means that only integers are allowed.
        names: for each name the tools that have it, separated by spaces. ``llama.cpp``: the options of its
            programs, without dashes. Of several names in a request the first counts.
        minimum: a lower value is read as this one; None: no limit.
        maximum: a higher value is read as this one; None: no limit.
        digits: for each tool that gives the value in units of 1e-N: the N.
    """

    target: str
    off_value: Any
    names: Mapping[str, str]
    minimum: float | None = None
    maximum: float | None = None
    digits: Mapping[str, int] = field(default_factory=dict)

    @property
    def sampler(self) -> str:
        return self.target.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the parameter in its sampler."""
        return self.target.partition(".")[2]

    def name_in(self, tool: str) -> str | None:
        """Return the name of the parameter in a tool; None if it has none there."""
        return name_in(tool, self.names)

    @property
    def request_names(self) -> tuple[str, ...]:
        """The fields of requests that set the parameter."""
        return request_names(self.names)

    @property
    def request_digits(self) -> int:
        """The N of the units of 1e-N that the fields of requests have."""
        return next((digits for tool, digits in self.digits.items() if tool in _REQUEST_TOOLS), 0)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that set the parameter, which have llama.cpp's names; empty if there is none."""
        option = self.name_in("llama.cpp")
        flag = None if option is None else find_llama_cpp_flag(f"--{option}")
        return () if flag is None else flag.names


# DRY's default sequence breakers in all tools
BREAKERS = ["\n", ":", '"', "*"]

_MOST_TOOLS = "llama-server koboldai koboldcpp webui tabbyapi sillytavern-chat ollama transformers lmstudio-0.2"

PARAMETERS = (
    Parameter(
        "temperature.t",
        1.0,
        {
            "temperature": "openai llama-server webui tabbyapi sillytavern-chat ollama transformers lmstudio",
            "temp": "llama.cpp koboldai koboldcpp sillytavern lmstudio-0.2",
        },
    ),
    Parameter(
        "dynatemp.temperature",
        1.0,
        {"temperature": "llama-server", "temp": "llama.cpp koboldcpp", "middle": "webui-export"},
    ),
    Parameter(
        "dynatemp.range",
        0.0,
        {"dynatemp_range": "llama-server koboldcpp", "dynatemp-range": "llama.cpp", "reach": "webui-export"},
    ),
    Parameter(
        "dynatemp.exponent",
        1.0,
        {"dynatemp_exponent": "llama-server koboldcpp webui-export", "dynatemp-exp": "llama.cpp"},
    ),
    Parameter("quadratic.factor", 0.0, {"smoothing_factor": "koboldcpp webui"}),
    Parameter("quadratic.curve", 1.0, {"smoothing_curve": "koboldcpp webui"}),
    Parameter(
        "top_k.k",
        0,
        {
            "top_k": _MOST_TOOLS,
            "top-k": "llama.cpp",
            "topKSampling": "lmstudio",
        },
        minimum=0,
    ),
    Parameter(
        "top_p.p",
        1.0,
        {
            "top_p": f"openai {_MOST_TOOLS}",
            "top-p": "llama.cpp",
            "topPSampling": "lmstudio",
        },
        maximum=1.0,
    ),
    Parameter(
        "min_p.p",
        0.0,
        {
            "min_p": _MOST_TOOLS,
            "min-p": "llama.cpp",
            "minPSampling": "lmstudio",
        },
    ),
    Parameter("top_a.a", 0.0, {"top_a": "koboldai koboldcpp webui sillytavern-chat"}),
    Parameter("top_h.h", 0.0, {"top_h": "transformers clients"}),
    Parameter(
        "typical.p",
        1.0,
        {
            "typical": "llama.cpp koboldai koboldcpp",
            "typical_p": "llama-server webui ollama transformers lmstudio-0.2",
            "typ_p": "clients",
            "llama.locallyTypicalSampling": "lmstudio",
        },
        maximum=1.0,
    ),
    Parameter(
        "tfs.z",
        1.0,
        {
            "tfs": "koboldai koboldcpp webui",
            "tfs_z": "clients",
        },
        maximum=1.0,
    ),
    Parameter(
        "top_n_sigma.n",
        0.0,
        {
            "top_n_sigma": "llama-server webui",
            "nsigma": "koboldcpp yals",
            "top_nsigma": "clients",
            "top-n-sigma": "llama.cpp",
        },
        minimum=0.0,
    ),
    Parameter("epsilon_cutoff.epsilon", 0.0, {"epsilon_cutoff": "webui transformers"}, digits={"webui": 4}),
    Parameter("eta_cutoff.epsilon", 0.0, {"eta_cutoff": "webui transformers"}, digits={"webui": 4}),
    Parameter(
        "xtc.probability",
        0.0,
        {
            "xtc_probability": "llama-server koboldcpp webui tabbyapi",
            "xtc-probability": "llama.cpp",
            "llama.xtcProbability": "lmstudio",
        },
    ),
    Parameter(
        "xtc.threshold",
        0.1,
        {
            "xtc_threshold": "llama-server koboldcpp webui tabbyapi",
            "xtc-threshold": "llama.cpp",
            "llama.xtcThreshold": "lmstudio",
        },
    ),
    Parameter("skew.skew", 0.0, {"skew": "clients"}),
    Parameter(
        "penalties.repeat",
        1.0,
        {
            "repeat_penalty": "llama-server ollama lmstudio-0.2",
            "repetition_penalty": "webui tabbyapi sillytavern-chat transformers",
            "rep_pen": "koboldcpp sillytavern",
            "repeat-penalty": "llama.cpp",
            "repeatPenalty": "lmstudio",
        },
    ),
    Parameter(
        "penalties.presence",
        0.0,
        {
            "presence_penalty": (
                "openai llama-server koboldcpp webui tabbyapi sillytavern-chat ollama lmstudio-0.2"
            ),
            "presence-penalty": "llama.cpp",
            "llama.presencePenalty": "lmstudio",
        },
    ),
    Parameter(
        "penalties.frequency",
        0.0,
        {
            "frequency_penalty": "openai llama-server webui tabbyapi sillytavern-chat ollama lmstudio-0.2",
            "frequency-penalty": "llama.cpp",
            "llama.frequencyPenalty": "lmstudio",
        },
    ),
    Parameter(
        "penalties.last_n",
        64,
        {
            "repeat_last_n": "llama-server ollama lmstudio-0.2",
            "repetition_penalty_range": "webui",
            "rep_pen_range": "koboldcpp sillytavern",
            "rep_pen_size": "clients",
            "penalty_range": "tabbyapi",
            "repeat-last-n": "llama.cpp",
        },
    ),
    Parameter("penalties.penalize_newline", True, {"penalize_nl": "llama-server"}),
    Parameter("repetition_penalty.penalty", 1.0, {"rep_pen": "koboldai koboldcpp"}),
    Parameter("repetition_penalty.range", 1024, {"rep_pen_range": "koboldai koboldcpp"}),
    Parameter("repetition_penalty.slope", 0.0, {"rep_pen_slope": "koboldai koboldcpp"}),
    Parameter("encoder_repetition_penalty.penalty", 1.0, {"encoder_repetition_penalty": "webui transformers"}),
    Parameter("no_repeat_ngram.n", 0, {"no_repeat_ngram_size": "webui transformers"}),
    Parameter(
        "dry.multiplier",
        0.0,
        {"dry_multiplier": "llama-server koboldcpp webui", "dry-multiplier": "llama.cpp"},
    ),
    Parameter("dry.base", 1.75, {"dry_base": "llama-server koboldcpp webui", "dry-base": "llama.cpp"}),
    Parameter(
        "dry.allowed_length",
        2,
        {"dry_allowed_length": "llama-server koboldcpp webui", "dry-allowed-length": "llama.cpp"},
    ),
    Parameter(
        "dry.last_n",
        64,
        {
            "dry_penalty_last_n": "llama-server koboldcpp",
            "dry_range": "clients webui-export",
            "dry-penalty-last-n": "llama.cpp",
        },
    ),
    Parameter(
        "dry.breakers",
        BREAKERS,
        {
            "dry_sequence_breakers": "llama-server koboldcpp webui",
            "dry-sequence-breaker": "llama.cpp",
        },
    ),
    Parameter(
        "mirostat.tau",
        5.0,
        {
            "mirostat_tau": "llama-server koboldai koboldcpp lmstudio-0.2",
            "mirostat-ent": "llama.cpp",
            "targetEntropy": "lmstudio-mirostat",
        },
    ),
    Parameter(
        "mirostat.eta",
        0.1,
        {
            "mirostat_eta": "llama-server koboldai koboldcpp lmstudio-0.2",
            "mirostat-lr": "llama.cpp",
            "learningRate": "lmstudio-mirostat",
        },
    ),
    Parameter(
        "mirostat_v2.tau",
        5.0,
        {"mirostat_tau": "llama-server koboldai koboldcpp webui", "mirostat-ent": "llama.cpp"},
    ),
    Parameter(
        "mirostat_v2.eta",
        0.1,
        {"mirostat_eta": "llama-server koboldai koboldcpp webui", "mirostat-lr": "llama.cpp"},
    ),
    Parameter(
        "adaptive_p.target",
        -1.0,
        {"adaptive_target": "llama-server koboldcpp webui tabbyapi", "adaptive-target": "llama.cpp"},
    ),
    Parameter(
        "adaptive_p.decay",
        0.9,
        {"adaptive_decay": "llama-server koboldcpp webui tabbyapi", "adaptive-decay": "llama.cpp"},
    ),
    Parameter(
        "min_tokens.n",
        0,
        {"min_tokens": "tabbyapi", "min_length": "sillytavern", "min_new_tokens": "transformers"},
    ),
    Parameter(
        "ban.tokens",
        [],
        {"banned_tokens": "tabbyapi", "tokens": "sillytavern-export", "bad_words_ids": "transformers"},
    ),
    Parameter(
        "ban.strings",
        [],
        {
            "banned_tokens": "koboldcpp-import",
            "banned_strings": "tabbyapi-import",
            "strings": "sillytavern-export",
        },
    ),
    Parameter(
        "logit_bias.bias",
        {},
        {
            "logit_bias": "openai llama-server koboldcpp tabbyapi sillytavern",
            "logit-bias": "llama.cpp",
            "llama.logitBias": "lmstudio",
        },
    ),
)


_PARAMETER_BY_TARGET = {row.target: row for row in PARAMETERS}


def find_parameter(target: str) -> Parameter | None:
    """Return the row of a parameter, such as ``top_p.p``; None if it has none."""
    return _PARAMETER_BY_TARGET.get(target)


def names_by_option(tool: str) -> dict[str, str]:
    """Return the name in a tool of each parameter that it has, by llama.cpp's option."""
    names = ((row.name_in("llama.cpp"), row.name_in(tool)) for row in PARAMETERS)
    return {option: name for option, name in names if option is not None and name is not None}
