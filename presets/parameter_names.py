"""The names of samplers' parameters in other tools, for imports, exports and fields of requests; and their flags.

What a tool makes of a value, such as other limits or another place in the chain, stands in the module of the tool,
and so do keys that hold more than one parameter. The first row of a sampler is the main one, which messages name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from ..common.flags import CompletionKind, Flag, Limit, declare_flag, within
from .setting_table import SAMPLING

# The tools whose names requests may use. ``clients``: names that clients of several servers write.
_REQUEST_TOOLS = frozenset(
    ("openai", "llama-server", "vllm", "webui", "koboldai", "koboldcpp", "sillytavern", "tabbyapi", "clients")
)
# Tools of the table that are parts of another one: another file, another version, or names that only files have.
_PARTS = (
    *("webui-export", "sillytavern-export", "sillytavern-chat", "lmstudio-0.2", "lmstudio-mirostat", "yals"),
    *("koboldcpp-file", "sillytavern-file", "tabbyapi-file"),
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

    @cached_property
    def request_names(self) -> tuple[str, ...]:
        """The fields of requests that set the parameter."""
        return request_names(self.names)

    @property
    def request_digits(self) -> int:
        """The N of the units of 1e-N that the fields of requests have."""
        return next((digits for tool, digits in self.digits.items() if tool in _REQUEST_TOOLS), 0)


# DRY's default sequence breakers in all tools
BREAKERS = ["\n", ":", '"', "*"]

_MOST_TOOLS = "llama-server koboldai koboldcpp webui tabbyapi sillytavern-chat ollama transformers lmstudio-0.2"

PARAMETERS = (
    Parameter(
        "temperature.t",
        1.0,
        {
            "temperature": (
                "openai llama-server webui tabbyapi sillytavern-chat ollama transformers lmstudio koboldcpp-file"
            ),
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
            "typ_s": "koboldcpp-file",
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
            "tfs_s": "koboldcpp-file",
        },
        maximum=1.0,
    ),
    Parameter(
        "top_n_sigma.n",
        0.0,
        {
            "top_n_sigma": "llama-server webui",
            "nsigma": "koboldcpp yals sillytavern-file",
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
            "rep_pen": "koboldcpp sillytavern tabbyapi-file",
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
            "presence_pen": "sillytavern-file",
            "presence-penalty": "llama.cpp",
            "llama.presencePenalty": "lmstudio",
        },
    ),
    Parameter(
        "penalties.frequency",
        0.0,
        {
            "frequency_penalty": "openai llama-server webui tabbyapi sillytavern-chat ollama lmstudio-0.2",
            "freq_pen": "sillytavern-file",
            "frequency-penalty": "llama.cpp",
            "llama.frequencyPenalty": "lmstudio",
        },
    ),
    Parameter(
        "penalties.last_n",
        64,
        {
            "repeat_last_n": "llama-server ollama lmstudio-0.2",
            "repetition_range": "tabbyapi-file",
            "repetition_penalty_range": "webui tabbyapi-file",
            "rep_pen_range": "koboldcpp sillytavern tabbyapi-file",
            "rep_pen_size": "clients",
            "penalty_range": "tabbyapi",
            "repeat-last-n": "llama.cpp",
        },
    ),
    Parameter("penalties.penalize_newline", True, {"penalize_nl": "llama-server"}),
    Parameter("repetition_penalty.penalty", 1.0, {"rep_pen": "koboldai koboldcpp"}),
    Parameter("repetition_penalty.range", 1024, {"rep_pen_range": "koboldai koboldcpp"}),
    Parameter("repetition_penalty.slope", 0.0, {"rep_pen_slope": "koboldai koboldcpp"}),
    Parameter(
        "encoder_repetition_penalty.penalty",
        1.0,
        {"encoder_repetition_penalty": "webui transformers", "encoder_rep_pen": "sillytavern-file"},
    ),
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
            "miro_tau": "koboldcpp-file",
            "mirostat-ent": "llama.cpp",
            "targetEntropy": "lmstudio-mirostat",
        },
    ),
    Parameter(
        "mirostat.eta",
        0.1,
        {
            "mirostat_eta": "llama-server koboldai koboldcpp lmstudio-0.2",
            "miro_eta": "koboldcpp-file",
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
        {
            "adaptive_target": "llama-server koboldcpp webui tabbyapi",
            "adaptivep_target": "koboldcpp-file",
            "adaptive-target": "llama.cpp",
        },
    ),
    Parameter(
        "adaptive_p.decay",
        0.9,
        {
            "adaptive_decay": "llama-server koboldcpp webui tabbyapi",
            "adaptivep_decay": "koboldcpp-file",
            "adaptive-decay": "llama.cpp",
        },
    ),
    Parameter(
        "min_tokens.n",
        0,
        {
            "min_tokens": "tabbyapi",
            "min_length": "sillytavern tabbyapi-file",
            "min_new_tokens": "transformers",
        },
    ),
    Parameter(
        "ban.tokens",
        [],
        {
            "banned_tokens": "tabbyapi",
            "custom_token_bans": "tabbyapi-file",
            "tokens": "sillytavern-export",
            "bad_words_ids": "transformers",
        },
    ),
    Parameter(
        "ban.strings",
        [],
        {
            "banned_tokens": "koboldcpp-file",
            "banned_strings": "tabbyapi-file",
            "strings": "sillytavern-export",
        },
    ),
    Parameter(
        "logit_bias.bias",
        {},
        {
            "logit_bias": "openai llama-server koboldcpp tabbyapi sillytavern lmstudio-0.2",
            "logit-bias": "llama.cpp",
            "llama.logitBias": "lmstudio",
        },
    ),
)


def _flag(panel: str, names: str, target: str | None, value_type: Any, text: str, **facts: Any) -> Flag:
    """Return a flag that sets a parameter; without a target, it chooses the samplers."""
    return declare_flag(
        *names.split(), help=text, setting_name=target, value_type=value_type, panel=panel, **facts
    )


_sampling = partial(_flag, SAMPLING)
_more = partial(_flag, "More samplers (all of them: gen samplers)")

# The flags of the parameters that are set most often, in the order of the help
MAIN_SAMPLER_FLAGS = (
    _sampling(
        "--temp --temperature",
        "temperature.t",
        float,
        "Temperature; 0 = always select the most likely token.",
        limit=Limit("≥ 0; 0 = the most likely token", 0),
    ),
    _sampling("--top-k", "top_k.k", int, "Keep the k most likely tokens; 0 = off."),
    _sampling(
        "--top-p",
        "top_p.p",
        float,
        "Keep the most likely tokens up to this total probability; 1 = off.",
        limit=Limit("within 0..1; 1 = off", 0, 1),
    ),
    _sampling(
        "--min-p", "min_p.p", float, "Keep tokens with at least this fraction of the highest probability; 0 = off."
    ),
    _sampling(
        "--repeat-penalty", "penalties.repeat", float, "Penalty factor for tokens that occurred before; 1 = off."
    ),
)
# The other flags of parameters, and those that choose the samplers, in the order of the help. A flag has the name
# of llama.cpp's option, if there is one.
SAMPLER_FLAGS = (
    _sampling(
        "--repeat-last-n",
        "penalties.last_n",
        int,
        "Apply the penalties to the last N tokens; 0 = off, -1 = all tokens.",
    ),
    _sampling(
        "--presence-penalty",
        "penalties.presence",
        float,
        "Subtract this from the logits of tokens that occurred before; 0 = off.",
    ),
    _sampling(
        "--frequency-penalty",
        "penalties.frequency",
        float,
        "Subtract this from a token's logit for each earlier occurrence; 0 = off.",
    ),
    _more(
        "--typical --typical-p",
        "typical.p",
        float,
        "Keep tokens of about the expected surprise, up to this total probability; 1 = off.",
    ),
    _more(
        "--top-n-sigma --top-nsigma",
        "top_n_sigma.n",
        float,
        "Keep tokens within N standard deviations of the highest logit; 0 = off.",
    ),
    _more("--xtc-probability", "xtc.probability", float, "Probability of dropping the top choices; 0 = off."),
    _more(
        "--xtc-threshold", "xtc.threshold", float, "Minimum probability of a top choice that XTC may drop. [0.1]"
    ),
    _more(
        "--dynatemp-range",
        "dynatemp.range",
        float,
        "Vary the temperature by up to this amount, depending on the entropy; 0 = off.",
    ),
    _more("--dynatemp-exp", "dynatemp.exponent", float, "Exponent of the relative entropy in dynatemp. [1]"),
    _more(
        "--dry-multiplier",
        "dry.multiplier",
        float,
        "Strength of the DRY penalty on repetitions; 0 = off, 0.8 is usual.",
    ),
    _more("--dry-base", "dry.base", float, "Growth factor of the DRY penalty for each repeated token. [1.75]"),
    _more(
        "--dry-allowed-length",
        "dry.allowed_length",
        int,
        "Number of repeated tokens after which DRY penalizes the next repeated one. [2]",
    ),
    _more(
        "--dry-penalty-last-n",
        "dry.last_n",
        int,
        "Search the last N tokens for repetitions (DRY); -1 = all tokens. [-1]",
    ),
    _more(
        "--dry-sequence-breaker",
        "dry.breakers",
        list[str],
        "Text that ends a repetition in DRY; 'none' = no text; repeatable. [newline : \" *]",
        has_escapes=True,
    ),
    _more(
        "--mirostat",
        None,
        int,
        "Select by Mirostat version 1 or 2; keeps only biases and temperature; 0 = off.",
        limit=within(0, 2),
    ),
    _more("--mirostat-lr", "mirostat.eta", float, "Learning rate of Mirostat (eta). [0.1]"),
    _more("--mirostat-ent", "mirostat.tau", float, "Target surprise of Mirostat, in bits (tau). [5]"),
    _more(
        "--adaptive-target",
        "adaptive_p.target",
        float,
        "Select tokens near this probability (adaptive-p); negative = no target.",
    ),
    _more("--adaptive-decay", "adaptive_p.decay", float, "Memory of adaptive-p: about 1 / (1 - N) tokens. [0.9]"),
    _more(
        "--samplers --sampler-seq --sampling-seq",
        None,
        str,
        "Use only these samplers, in this order: 'top_k;top_p;temperature' or 'kpt'.",
        metavar="A;B;C",
        completion_kind=CompletionKind.LLAMA_CPP_SAMPLERS,
    ),
    _sampling(
        "-l --logit-bias",
        "logit_bias.bias",
        list[str],
        "Add a bias to a token's logit: ID+1, ID-1, ID=-inf or TEXT=2; repeatable.",
        metavar="TOKEN=BIAS",
        display_name="--logit-bias",
    ),
    _sampling("--ignore-eos", "ignore_eos", bool, "Never select an end-of-generation token."),
)


_PARAMETER_BY_TARGET = {row.target: row for row in PARAMETERS}


def find_parameter(target: str) -> Parameter | None:
    """Return the row of a parameter, such as ``top_p.p``; None if it has none."""
    return _PARAMETER_BY_TARGET.get(target)


def names_by_option(tool: str) -> dict[str, str]:
    """Return the name in a tool of each parameter that it has, by llama.cpp's option."""
    names = ((row.name_in("llama.cpp"), row.name_in(tool)) for row in PARAMETERS)
    return {option: name for option, name in names if option is not None and name is not None}


def spellings(tool: str, own_tool: str = "") -> dict[str, tuple[str, ...]]:
    """Return for parameters of a tool all names that its files may have, the one that it writes first."""
    # ``own_tool``: for a tool whose files have their own names for the parameters of another one
    found = {}
    for row in PARAMETERS:
        own = own_tool or tool
        names = [name for name in (row.name_in(own), *_all_names(row, f"{own}-file")) if name is not None]
        main_name = row.name_in(tool)
        if main_name is not None and names and names != [main_name]:
            found[main_name] = tuple(names)
    return found


def _all_names(row: Parameter, tool: str) -> list[str]:
    return [name for name, tools in row.names.items() if tool in tools.split()]


def flags_of(target: str) -> tuple[str, ...]:
    """Return the flags that set a parameter, or turn on a sampler without parameters, such as ``ignore_eos``."""
    # Both versions of mirostat have the same flags, which are one option of llama.cpp.
    row = find_parameter(target)
    option = None if row is None else row.name_in("llama.cpp")
    targets = {target, *(each.target for each in PARAMETERS if option and each.name_in("llama.cpp") == option)}
    flags = (flag for flag in (*MAIN_SAMPLER_FLAGS, *SAMPLER_FLAGS) if flag.setting_name in targets)
    return tuple(name for flag in flags for name in flag.names)
