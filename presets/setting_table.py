"""The settings of a run that are no parameters of samplers: each is declared here, once.

The keys of presets, their JSON Schema, ``--set``, the settings of a run with their origins, and what is shown,
recorded and exported of them follow from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from ..common.seeds import RANDOM_SEED, SEED_MAX, SEED_MIN, SEED_VALUES
from ..common.text import short_repr

_MAX_BAN_RETRIES = 1000
# the number of tokens to generate if no setting limits it; their text fits on a terminal
_DEFAULT_MAX_TOKENS = 256


# Where settings can be set: the command line, a chat, lines of a batch, requests to the server, presets.
DOORS = ("run", "chat", "batch", "serve", "preset")


@dataclass(frozen=True)
class Kind:
    """How the values of a setting are checked.

    Attributes:
        allowed: the allowed values, as a noun phrase for messages.
        type: the type of a value, as an annotation.
        minimum: the smallest integer; None: no limit.
        maximum: the largest integer; None: no limit.
        other: another allowed value, such as -1 for no limit; None: no other.
        check: returns a value as a preset writes it, before its type is checked; raises ``ValueError`` with a
            whole sentence. None: the type says it all.
        schema: the JSON Schema, if it differs from that of ``type``.
        empty: the value of a preset without this key.
        request_type: the type of a value in requests, which the preset's rules check afterwards; None: ``type``.
    """

    allowed: str
    type: Any
    minimum: int | None = None
    maximum: int | None = None
    other: int | None = None
    check: Callable[[object], object] | None = None
    schema: dict[str, Any] | None = None
    empty: Any = None
    request_type: Any = None

    @property
    def field_type(self) -> Any:
        """The type of a field of requests; None is left out."""
        return (self.request_type or self.type) | None


@dataclass(frozen=True)
class Setting:
    """A setting that is no parameter of a sampler.

    Attributes:
        name: the key of presets, the name for ``--set``, the field of our own routes.
        kind: its values.
        help: what it is, in one line, as the JSON Schema describes it.
        default: the value of a run if nothing sets it; None: that of a preset without this key.
        is_rule: whether it is a rule of the text, which is shown and recorded only if something sets it.
        flags: the flags that set it, or a part of it.
        names: its names in other tools, see `Parameter.names`.
        doors: where it can be set.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    is_rule: bool = False
    flags: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    doors: tuple[str, ...] = DOORS

    @property
    def unset_value(self) -> Any:
        """The value of a run if nothing sets it."""
        return copy(self.kind.empty) if self.default is None else self.default


def _seed(value: object) -> object:
    return None if type(value) is int and value == RANDOM_SEED else value


def _stop_strings(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError(f"stop: {short_repr(value)} is not {_STOP.allowed}")
    for number, text in enumerate(texts):
        origin = "stop" if isinstance(value, str) else f"stop[{number}]"
        if not isinstance(text, str):
            raise ValueError(f"{origin}: {short_repr(text)} is not a string")
        if not text:
            raise ValueError(f"{origin}: '' is empty; a stop string has at least one character")
    return texts


def _bans(value: object) -> object:
    from .text_rules import check_bans  # noqa: PLC0415 - its checks need NumPy, and names of settings do not

    return check_bans(value)


def _loop_guard(value: object) -> object:
    from .text_rules import check_loop_guard  # noqa: PLC0415

    return check_loop_guard(value)


def _phases(value: object) -> object:
    from .text_rules import check_phases  # noqa: PLC0415

    return check_phases(value)


def _guidance(value: object) -> object:
    from .text_rules import check_guidance  # noqa: PLC0415

    return check_guidance(value)


_TEXT = {"type": "string", "minLength": 1}
_STOP = Kind(
    "a string or a list of strings",
    list[str],
    check=_stop_strings,
    schema={"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    empty=[],
    request_type=str | list[str],
)
_TABLE = dict[str, Any]
_BANS = Kind(
    "a string, a table, or a list of them",
    list[Any],
    check=_bans,
    empty=[],
    request_type=str | _TABLE | list[str | _TABLE],
)
_LOOP_GUARD = Kind(
    "stop, end-thinking, rewind, or a table",
    str | _TABLE,
    check=_loop_guard,
    request_type=str | _TABLE | bool,
)

_DECLARED = (
    Setting(
        "seed",
        Kind(SEED_VALUES, int, SEED_MIN, SEED_MAX, check=_seed),
        "seed of the random numbers; none or -1: a new seed for each run",
        flags=("-s", "--seed"),
        names={
            "seed": "openai llama-server webui koboldcpp sillytavern tabbyapi ollama lmstudio lmstudio-0.2",
            "sampler_seed": "koboldai koboldcpp",
        },
    ),
    Setting(
        "max_tokens",
        Kind("an integer ≥ 1, or -1 for no limit", int, 1, other=-1),
        "maximum number of tokens; -1: no limit",
        default=_DEFAULT_MAX_TOKENS,
        flags=("-n", "--predict", "--n-predict"),
        names={
            "max_completion_tokens": "openai",
            "max_tokens": "openai tabbyapi",
            "max_new_tokens": "webui transformers",
            "n_predict": "llama-server lmstudio-0.2",
            "max_length": "koboldai koboldcpp",
            "num_predict": "clients ollama",
            "maxPredictedTokens": "lmstudio",
        },
    ),
    Setting(
        "stop",
        _STOP,
        "strings that end the generation; they are not part of the output",
        flags=("--stop", "-r", "--reverse-prompt"),
        names={
            "stop": "openai llama-server tabbyapi ollama",
            "stopStrings": "lmstudio",
            "antiprompt": "lmstudio-0.2",
            "stop_sequence": "koboldai koboldcpp",
            "stopping_strings": "webui",
            "custom_stopping_strings": "webui",
        },
    ),
    Setting(
        "system",
        Kind("a string", str),
        "system message of a chat",
        flags=("--system", "--system-prompt", "-sys"),
        names={"system": "ollama", "systemPrompt": "lmstudio", "pre_prompt": "lmstudio-0.2"},
        doors=("run", "chat", "batch", "preset"),  # in a request, it is one of the messages
    ),
    Setting(
        "grammar",
        Kind("a string or a table", str | _TABLE),
        "the grammar that the output must match: a name, GBNF text, or a table",
        flags=(
            "--grammar",
            "--grammar-file",
            "-j",
            "--json-schema",
            "-jf",
            "--json-schema-file",
            "--regex",
            "--lark-file",
        ),
        names={
            "grammar": "llama-server koboldai koboldcpp",
            "grammar_string": "webui tabbyapi",
            "json_schema": "llama-server tabbyapi",
            "response_format": "openai",
            "structured_outputs": "vllm",
            "guided_json": "vllm",
            "guided_regex": "vllm",
            "guided_choice": "vllm",
            "guided_grammar": "vllm",
            "regex": "clients",
            "ebnf": "clients",
        },
    ),
    Setting(
        "bans",
        _BANS,
        "phrases and regular expressions that the output must not contain",
        flags=("--ban-phrase", "--ban-regex", "--ban-file", "--banned-string-file"),
        names={"banned_strings": "koboldcpp tabbyapi", "banned_regex": "clients"},
        is_rule=True,
    ),
    Setting(
        "ban_retries",
        Kind(f"an integer within 0..{_MAX_BAN_RETRIES}", int, 0, _MAX_BAN_RETRIES),
        "number of times that the text returns to one place; none: 20",
        flags=("--ban-retries",),
        names={"rewind_count_max": "clients"},
        is_rule=True,
    ),
    Setting(
        "ban_then",
        Kind("step_back, keep or stop", Literal["step_back", "keep", "stop"], request_type=str),
        "what happens then: return to the token before, keep the text, or stop",
        flags=("--ban-then",),
        is_rule=True,
    ),
    Setting(
        "loop_guard",
        _LOOP_GUARD,
        "what happens when the text repeats itself: an action, or a table of settings",
        flags=("--loop-guard",),
        is_rule=True,
    ),
    Setting(
        "phases",
        Kind("a list of tables", list[_TABLE], check=_phases),
        "parts of the text with different chains, in place of chain",
        flags=("--thinking-chain", "--thinking-end", "--reasoning-budget", "--reasoning-budget-message"),
        is_rule=True,
    ),
    Setting(
        "heal",
        Kind("true or false", bool),
        "whether the first tokens may replace the last tokens of the prompt",
        flags=("--heal",),
        is_rule=True,
    ),
    Setting(
        "guidance",
        Kind("a table", _TABLE, check=_guidance),
        "a scale, and a negative prompt or another model, that the text moves away from",
        flags=("--cfg-scale", "--cfg-negative-prompt", "--cfg-negative-prompt-file", "--cfg-model"),
        names={
            "guidance_scale": "webui koboldcpp transformers",
            "cfg_scale": "tabbyapi",
            "negative_prompt": "koboldcpp tabbyapi",
        },
        is_rule=True,
    ),
)
SETTINGS = {setting.name: setting for setting in _DECLARED}
RULE_NAMES = tuple(setting.name for setting in _DECLARED if setting.is_rule)


def find_setting_name(text: str) -> str | None:
    """Return the name of a setting, which may be written with dashes and capitals; None if there is none."""
    name = text.strip().lower().replace("-", "_")
    return name if name in SETTINGS else None
