"""The settings of a run that are no parameters of samplers: each is declared here, once.

The keys of presets, their JSON Schema, ``--set``, the flags and their help, the fields of requests, the settings
of a run with their origins, and what is shown, recorded and exported of them follow from this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from ..common.errors import Place, wrong_value
from ..common.flags import CompletionKind, Flag, Limit, OptionalValue, at_least, declare_flag
from ..common.seeds import RANDOM_SEED, SEED_MAX, SEED_MIN, SEED_VALUES
from ..common.text import join_alternatives
from ..grammars.ban_actions import BAN_ACTIONS, DEFAULT_BAN_ACTION, DEFAULT_BAN_RETRIES, BanAction
from .errors import PresetError

_MAX_BAN_RETRIES = 1000
# the number of tokens to generate if no setting limits it; their text fits on a terminal
_DEFAULT_MAX_TOKENS = 256
# llama.cpp's value of ``-n`` that ends a text when the context is full, even with ``--context-shift``.
# Without ``--context-shift``, -1 (no limit) has the same effect.
UNTIL_CONTEXT_IS_FULL = -2

# The sections of the help that have the flags. A flag of another section needs an options class in `cli/options/`.
PROMPT, SAMPLING, LENGTH = "Prompt", "Sampling", "Length"
GRAMMAR = "Grammar (use one of the first six)"
BANS, REASONING, GUIDANCE = "Bans and loops", "Reasoning", "Guidance"

# Where settings can be set: the command line, a chat, lines of a batch, requests to the server, presets.
DOORS = ("run", "chat", "batch", "serve", "preset")
_STORY_DOORS = ("chat", "batch", "serve", "preset")  # gen run takes them from presets and --set, without flags


@dataclass(frozen=True)
class Kind:
    """How the values of a setting are checked.

    Attributes:
        allowed: the allowed values, as a noun phrase for messages.
        type: the type of a value, as an annotation.
        minimum: the smallest integer; None: no limit.
        maximum: the largest integer; None: no limit.
        other: another allowed value, such as -1 for no limit; None: no other.
        check: returns a value as a preset writes it, before its type is checked; raises ``LogitsmithError`` with
            its place. None: the type says it all.
        schema: the JSON Schema, if it differs from that of ``type``.
        empty: the value of a preset without this key.
        request_type: the type of a value in requests, which the preset's rules check afterwards; None: ``type``.
        has_parts: whether the value is a table whose keys are set one by one, as in ``--set guidance.scale=2``.
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
    has_parts: bool = False

    @property
    def field_type(self) -> Any:
        """The type of a field of requests; None is left out."""
        return (self.request_type or self.type) | None


# rules of the text, variables of chat templates, and what the model reads besides the prompt
Group = Literal["rule", "switch", "story"]


@dataclass(frozen=True)
class Setting:
    """A setting that is no parameter of a sampler.

    Attributes:
        name: the key of presets, the name for ``--set``, the field of our own routes.
        kind: its values.
        help: what it is, in one line, as the JSON Schema describes it.
        default: the value of a run if nothing sets it; None: that of a preset without this key.
        group: the settings that are passed on with it; None: it stands alone.
        flags: the flags that set it, or a part of it. If a flag has no type, its value has the setting's type, and
            is a text for a part.
        names: its names in other tools, see `Parameter.names`.
        doors: where it can be set.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    group: Group | None = None
    flags: tuple[Flag, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    doors: tuple[str, ...] = DOORS

    @property
    def is_shown_if_set(self) -> bool:
        """Whether it is shown and recorded only if something sets it."""
        return self.group is not None

    def __post_init__(self) -> None:
        flags = (
            flag._replace(
                setting_name=self.name, value_type=flag.value_type or (str if flag.part else self.kind.type)
            )
            for flag in self.flags
        )
        object.__setattr__(self, "flags", tuple(flags))

    @property
    def flag(self) -> Flag:
        """The flag of a setting that has only one."""
        (flag,) = self.flags
        return flag

    @property
    def unset_value(self) -> Any:
        """The value of a run if nothing sets it."""
        return copy(self.kind.empty) if self.default is None else self.default


def _seed(value: object) -> object:
    return None if type(value) is int and value == RANDOM_SEED else value


def _stop_strings(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise PresetError(wrong_value(value, _STOP.allowed), place=("stop",))
    for number, text in enumerate(texts):
        place: Place = ("stop",) if isinstance(value, str) else ("stop", number)
        if not isinstance(text, str):
            raise PresetError(wrong_value(text, "a string"), place=place)
        if not text:
            raise PresetError("'' is empty; a stop string has at least one character", place=place)
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


def _authors_note(value: object) -> object:
    from .story import check_authors_note  # noqa: PLC0415

    return check_authors_note(value)


def _world_info(value: object) -> object:
    from .world_info import check_world_info  # noqa: PLC0415

    return check_world_info(value)


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
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
_REASONING_EFFORTS = join_alternatives(get_args(ReasoningEffort))
_GUARD_ACTIONS = ("stop", "end-thinking", "rewind")
_LOOP_GUARD = Kind(
    f"{', '.join(_GUARD_ACTIONS)}, or a table",
    str | _TABLE,
    check=_loop_guard,
    request_type=str | _TABLE | bool,
)

# The types are those of checked values. Presets and requests may write them in other forms, too.
_AUTHORS_NOTE = Kind(
    "a string or a table",
    _TABLE,
    check=_authors_note,
    schema={"type": ["string", "object"]},
    request_type=str | _TABLE,
)
_WORLD_INFO = Kind(
    "a list of entries, or a table with entries",
    _TABLE,
    check=_world_info,
    schema={"type": ["array", "object"]},
    request_type=_TABLE | list[Any],
)

_grammar_flag = partial(declare_flag, panel=GRAMMAR)
_ban_flag = partial(declare_flag, panel=BANS)
_phase_flag = partial(declare_flag, panel=REASONING)
_guidance_flag = partial(declare_flag, panel=GUIDANCE)

_DECLARED = (
    Setting(
        "seed",
        Kind(SEED_VALUES, int, SEED_MIN, SEED_MAX, check=_seed),
        "seed of the random numbers; none or -1: a new seed for each run",
        flags=(
            declare_flag(
                "-s",
                "--seed",
                help="Random seed: the same seed gives the same text; -1 = random. [-1]",
                display_name="--seed",
                panel=SAMPLING,
            ),
        ),
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
        flags=(
            declare_flag(
                "-n",
                "--predict",
                "--n-predict",
                help="Maximum number of tokens; 0 = only read the prompt, -1 = no limit, -2 = until the context is"
                f" full. [{_DEFAULT_MAX_TOKENS}; a grammar's sentence is completed]",
                limit=Limit("≥ 0, nor -1 or -2 for no limit", UNTIL_CONTEXT_IS_FULL),
                panel=LENGTH,
            ),
        ),
        names={
            "max_completion_tokens": "openai",
            "max_tokens": "openai tabbyapi",
            "max_output_tokens": "openai",
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
        flags=(
            declare_flag(
                "--stop",
                "-r",
                "--reverse-prompt",
                help="Stop before this text, which is not written; repeatable.",
                has_escapes=True,
                panel=LENGTH,
            ),
        ),
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
        flags=(declare_flag("--system", "--system-prompt", "-sys", help="System message.", panel=PROMPT),),
        names={"system": "ollama", "systemPrompt": "lmstudio", "pre_prompt": "lmstudio-0.2"},
        doors=("run", "chat", "batch", "preset"),  # in a request, it is one of the messages
    ),
    Setting(
        "grammar",
        Kind("a string or a table", str | _TABLE),
        "the grammar that the output must match: a name, GBNF text, or a table",
        flags=(
            _grammar_flag(
                "--grammar",
                value_type=str,
                metavar="NAME|GBNF",
                help="Grammar: a name (see gen grammars), or GBNF itself.",
                completion_kind=CompletionKind.GRAMMAR_NAME,
            ),
            _grammar_flag("--grammar-file", part="file", value_type=Path, help="Grammar: a file with GBNF."),
            _grammar_flag(
                "-j",
                "--json-schema",
                part="json_schema",
                help="Grammar: JSON that matches this JSON Schema.",
                display_name="--json-schema",
            ),
            _grammar_flag(
                "-jf",
                "--json-schema-file",
                part="json_schema_file",
                value_type=Path,
                help="Grammar: JSON that matches the JSON Schema in a file.",
                display_name="--json-schema-file",
            ),
            _grammar_flag(
                "--regex",
                part="regex",
                help="Grammar: text that this regular expression matches completely.",
            ),
            _grammar_flag(
                "--lark-file",
                part="lark_file",
                value_type=Path,
                help="Grammar: a file with llguidance's variant of Lark.",
            ),
        ),
        names={
            "grammar": "llama-server koboldai koboldcpp",
            "grammar_string": "webui tabbyapi",
            "json_schema": "llama-server tabbyapi",
            "response_format": "openai",
            "text": "openai",
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
        flags=(
            _ban_flag(
                "--ban-phrase",
                part="text",
                value_type=list[str],
                help="Go back and write something else where this text appears, in any case of letters;"
                " repeatable.",
                has_escapes=True,
            ),
            _ban_flag(
                "--ban-regex",
                part="regex",
                value_type=list[str],
                metavar="PATTERN",
                help="Go back and write something else where this regular expression matches; repeatable.",
            ),
            _ban_flag(
                "--ban-file",
                "--banned-string-file",
                part="file",
                value_type=list[str],
                metavar="FILE",
                help="Read bans from a file: a phrase on each line, a regex as /.../; repeatable.",
                is_path=True,
                completion_kind=CompletionKind.FILE,
            ),
        ),
        names={"banned_strings": "koboldcpp tabbyapi", "banned_regex": "clients"},
        group="rule",
    ),
    Setting(
        "ban_retries",
        Kind(f"an integer within 0..{_MAX_BAN_RETRIES}", int, 0, _MAX_BAN_RETRIES),
        f"number of times that the text returns to one place; none: {DEFAULT_BAN_RETRIES}",
        flags=(
            _ban_flag(
                "--ban-retries",
                help=f"Number of times that the text returns to one place. [{DEFAULT_BAN_RETRIES}]",
                limit=at_least(0),
            ),
        ),
        names={"rewind_count_max": "clients"},
        group="rule",
    ),
    Setting(
        "ban_then",
        Kind(join_alternatives(BAN_ACTIONS), BanAction, request_type=str),
        "what happens then: return to the token before, keep the text, or stop",
        flags=(
            _ban_flag(
                "--ban-then",
                value_type=str,
                metavar="ACTION",
                help=f"Action after all retries: step_back (one token), keep or stop. [{DEFAULT_BAN_ACTION}]",
            ),
        ),
        group="rule",
    ),
    Setting(
        "loop_guard",
        _LOOP_GUARD,
        "what happens when the text repeats itself: an action, or a table of settings",
        flags=(
            _ban_flag(
                "--loop-guard",
                value_type=str,
                metavar="[ACTION]",
                help=f"When the text repeats itself: {join_alternatives(_GUARD_ACTIONS)}."
                " [off; without a value, stop]",
                optional_value=OptionalValue("stop", re.compile("|".join(_GUARD_ACTIONS))),
            ),
        ),
        group="rule",
    ),
    Setting(
        "enable_thinking",
        Kind("true or false", bool),
        "whether the model thinks before it answers, if its chat template can switch that",
        flags=(
            _phase_flag(
                "-rea",
                "--reasoning",
                value_type=str,
                metavar="on|off|auto",
                help="Whether the model thinks before it answers. [auto: as the chat template decides]",
                display_name="--reasoning",
            ),
        ),
        names={"enable_thinking": "clients"},
        group="switch",
    ),
    Setting(
        "reasoning_effort",
        Kind(_REASONING_EFFORTS, ReasoningEffort, request_type=str),
        "how much the model thinks, if its chat template has such a variable; none: not at all",
        flags=(
            _phase_flag(
                "--reasoning-effort",
                value_type=str,
                metavar="LEVEL",
                help=f"How much the model thinks: {_REASONING_EFFORTS}. [as the chat template decides]",
            ),
        ),
        names={"reasoning_effort": "openai llama-server"},
        group="switch",
    ),
    Setting(
        "phases",
        Kind("a list of tables", list[_TABLE], check=_phases),
        "parts of the text with different chains, in place of chain",
        flags=(
            _phase_flag(
                "--thinking-chain",
                part="chain",
                metavar="STEPS",
                help="Samplers of the reasoning, until --thinking-end. [those of the answer]",
                completion_kind=CompletionKind.CHAIN,
            ),
            _phase_flag(
                "--thinking-end",
                part="until",
                help="Text that ends the reasoning. [that of the chat template, or </think>]",
                has_escapes=True,
            ),
            _phase_flag(
                "--reasoning-budget",
                part="max_tokens",
                value_type=int,
                help="Maximum number of tokens of the reasoning, which then ends; -1 = no limit. [-1]",
                limit=at_least(0, minus_one_meaning="no limit"),
            ),
            _phase_flag(
                "--reasoning-budget-message",
                part="then",
                help="Text before the end of the reasoning, if --reasoning-budget ends it. [none]",
                has_escapes=True,
            ),
        ),
        names={
            "reasoning_budget_tokens": "llama-server",
            "thinking_budget_tokens": "llama-server",
            "thinking_token_budget": "vllm",
            "reasoning_budget_message": "llama-server",
        },
        group="rule",
    ),
    Setting(
        "heal",
        Kind("true or false", bool),
        "whether the first tokens may replace the last tokens of the prompt",
        flags=(_ban_flag("--heal", help="Let the first tokens replace the last tokens of the prompt."),),
        group="rule",
    ),
    Setting(
        "guidance",
        Kind("a table", _TABLE, check=_guidance, has_parts=True),
        "a scale, and a negative prompt or another model, that the text moves away from",
        flags=(
            _guidance_flag(
                "--cfg-scale",
                part="scale",
                value_type=float,
                metavar="S",
                help="Move away from the negative prompt by this factor; 1 = off, 1.5 = a bit. [1]",
            ),
            _guidance_flag(
                "--cfg-negative-prompt",
                part="negative_prompt",
                help="Text in place of the prompt; in a chat, of the system message. [the prompt's last token]",
                has_escapes=True,
            ),
            _guidance_flag(
                "--cfg-negative-prompt-file",
                part="negative_prompt_file",
                metavar="FILE",
                help="Read the negative prompt from a file.",
                is_path=True,
                completion_kind=CompletionKind.FILE,
            ),
            _guidance_flag(
                "--cfg-model",
                part="model",
                metavar="FILE",
                help="Model with the same vocabulary that reads the negative prompt. [the model of -m]",
                is_path=True,
                completion_kind=CompletionKind.MODEL,
            ),
        ),
        names={
            "guidance_scale": "webui koboldcpp transformers",
            "cfg_scale": "tabbyapi",
            "negative_prompt": "koboldcpp tabbyapi",
        },
        group="rule",
    ),
    Setting(
        "field_confidence",
        Kind("true or false", bool),
        "whether the model's probability of each value of a JSON answer is measured",
        flags=(
            _grammar_flag(
                "--field-confidence",
                help="Measure the model's probability of each value of a JSON answer.",
            ),
        ),
        group="rule",
        doors=("run", "batch", "serve", "preset"),  # a chat has no place for it
    ),
    Setting(
        "memory",
        Kind("a string", str),
        "text that the model reads before everything else of a story",
        doors=_STORY_DOORS,
        group="story",
    ),
    Setting(
        "authors_note",
        _AUTHORS_NOTE,
        "text that the model reads near the end of a story",
        doors=_STORY_DOORS,
        group="story",
    ),
    Setting(
        "world_info",
        _WORLD_INFO,
        "texts that the model reads where a story has their keys",
        doors=_STORY_DOORS,
        group="story",
    ),
)
SETTINGS = {setting.name: setting for setting in _DECLARED}


def _names_of(group: Group) -> tuple[str, ...]:
    return tuple(setting.name for setting in _DECLARED if setting.group == group)


SWITCH_NAMES = _names_of("switch")
RULE_NAMES = _names_of("rule")
STORY_NAMES = _names_of("story")
NAMES_SHOWN_IF_SET = tuple(setting.name for setting in _DECLARED if setting.is_shown_if_set)


def flags_in(panel: str) -> list[Flag]:
    """Return the flags of a section of the help."""
    return [flag for setting in _DECLARED for flag in setting.flags if flag.panel == panel]


def find_setting_name(text: str) -> str | None:
    """Return the name of a setting, which may be written with dashes and capitals; None if there is none."""
    name = text.strip().lower().replace("-", "_")
    return name if name in SETTINGS else None
