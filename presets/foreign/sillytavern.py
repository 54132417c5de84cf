"""Import and export of SillyTavern's text-completion presets: a JSON object, or an older ``*.settings`` file.

SillyTavern serves several back ends, and each of them has a different order of steps. The imported chain is the
one of text-generation-webui's transformers loaders, because only these support everything that the file can
contain. A step that is missing in ``sampler_priority`` is inserted at its index in the default order. An absent
key keeps its value of the session. In a new session, temperature_last is true, the range is 0, and all other steps
are off.

An export has the steps that text-generation-webui supports, after biases and bans. Every key is written, even of
steps that are off, because SillyTavern keeps the session's value of an absent key
(public/scripts/textgen-settings.js, ``setSettingByName``). The orders for the other back ends are written, too,
with the steps that each of them supports. Settings that SillyTavern does not save in presets are not written:
models, servers and global bans. Two lengths keep their value: the length of the context, and the length of an
answer if the preset does not set it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..overrides import LLAMA_CPP_SAMPLERS, read_sampler_sequence
from ..parameter_names import BREAKERS, spellings
from . import lists, sillytavern_chat
from .conversion import DECODING_KEYS, Imported, ImportedChainBuilder, read_decoding
from .exporter import PresetExporter, entries_in_order
from .kobold import KOBOLDCPP_ORDER, SAMPLERS_BY_NUMBER
from .other_keys import other_keys
from .preset_file import PresetFile, known_share
from .registry import Format
from .sampler_keys import keys_by_sampler, off_values, sampler_keys
from .table import UNLIMITED_WINDOW_TOKENS, ForeignTable, read_window, unify_newlines
from .webui import (
    EXPORT_SAMPLER_KEYS,
    LEADING_SLOTS,
    arrange_chain,
    chain_values,
    looks_at_all_tokens,
    read_steps,
    replace_unlimited_window,
    samplers_of_step,
)

TOOL = "SillyTavern"
_SETTING_KEYS = {"max_tokens": "genamt", "seed": "seed"}
_GRAMMAR_KEYS = {"gbnf": "grammar_string", "json_schema": "json_schema"}
_TOOL_DEFAULTS = {"dynatemp_low": 0.0, "dynatemp_high": 2.0}
_STEP_ORDER = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "dry", "temperature", "dynamic_temperature"),
    *("quadratic_sampling", "top_n_sigma", "top_k", "top_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "tfs"),
    *("top_a", "min_p", "adaptive_p", "mirostat", "xtc", "encoder_repetition_penalty", "no_repeat_ngram"),
)
# SillyTavern's names of text-generation-webui's keys
KEY_SPELLINGS = {
    **spellings("webui", own_tool="sillytavern"),
    "dynamic_temperature": ("dynatemp",),
    "dynatemp_low": ("min_temp",),
    "dynatemp_high": ("max_temp",),
    "ban_eos_token": ("ban_eos_token", "ignore_eos_token", "ignore_eos_token_aphrodite"),
}


def recognize(file: PresetFile) -> float:
    if sillytavern_chat.is_chat_preset(file.json_object):
        return 1.0
    return known_share(_text_completion(file.json_object), _ALL_KEYS) if len(file.json_objects) == 1 else 0.0


def read(file: PresetFile) -> Imported:
    """Read a preset of text completion, or of chat completion if the keys are that one's."""
    data = file.json_table()
    is_chat = sillytavern_chat.is_chat_preset(data)
    builder = sillytavern_chat.convert(data, file.origin) if is_chat else convert(data, file.origin)
    return builder.imported()


def _text_completion(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the keys of text completion; a master export contains other settings, too."""
    inner = values.get("preset")
    return inner if isinstance(inner, dict) else values


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    values = _text_completion(values)
    table = ForeignTable(values, origin, KEY_SPELLINGS)
    builder = ImportedChainBuilder(TOOL, table, _TOOL_DEFAULTS)
    builder.notes.append("as SillyTavern samples with text-generation-webui's transformers loaders")
    read_steps(builder)
    builder.read_step(replace(EXPORT_SAMPLER_KEYS["adaptive_p"], is_active_at=lambda target: target >= 0))
    if table.boolean("dynamic_temperature", False):
        _discard_temperature(builder)
    _read_biases(builder)
    builder.read_settings(_SETTING_KEYS)
    builder.read_grammar(_GRAMMAR_KEYS)
    read_decoding(builder)
    _report_settings_of_others(builder)
    order = _complete_order(table.raw_value("sampler_priority"), _STEP_ORDER)
    if table.is_set("sampler_priority") and not isinstance(table.raw_value("sampler_priority"), list):
        builder.report_changed("sampler_priority", "it is not a list, so SillyTavern takes its default order")
    if not table.is_set("temperature_last"):
        builder.notes.append("temperature_last: true, as in a fresh session")
    arrange_chain(builder, order, table.boolean("temperature_last", True))
    _report_windows(builder)
    builder.report_unknown(_ALL_KEYS)
    return builder


def _complete_order(order: Any, default_order: Sequence[str]) -> list[str]:
    """Return the order with each missing name inserted at its index in the default order."""
    # Anything but a list means the default order.
    if not isinstance(order, list):
        return list(default_order)
    names = [name for name in order if isinstance(name, str)]
    for index, name in enumerate(default_order):
        if name not in names:
            names.insert(index, name)
    return names


def _discard_temperature(builder: ImportedChainBuilder) -> None:
    step = builder.step_by_slot.pop("temperature", None)
    if step is not None:
        builder.report_unsupported(
            "temperature",
            "SillyTavern does not use it while dynatemp is on; text-generation-webui's transformers loaders"
            " would also apply the middle of the range as a temperature",
        )


def _read_biases(builder: ImportedChainBuilder) -> None:
    table = builder.table
    if any(str(table.values.get(key)).lower() == "true" for key in KEY_SPELLINGS["ban_eos_token"]):
        builder.put_step("ignore_eos", "ignore_eos", {}, ["ban_eos_token"])
    builder.read_steps(_SAMPLER_KEYS, "min_tokens")
    if table.boolean("send_banned_tokens", True):
        _read_bans(builder)
    bias_entries = table.raw_value("logit_bias") or []
    if not isinstance(bias_entries, list) or not all(isinstance(entry, dict) for entry in bias_entries):
        raise table.value_error("logit_bias", "a list of {text, value}")
    bias_by_token: dict[int | str, float] = {}
    for entry in bias_entries:
        entry_table = ForeignTable(entry, f"{table.origin}: logit_bias")
        if entry_table.is_set("text") and entry_table.is_set("value"):
            keys = _biased_tokens(builder, str(entry_table.raw_value("text")).strip())
            bias_by_token |= dict.fromkeys(keys, entry_table.number("value", 0.0))
    builder.put_step("logit_bias", "logit_bias", {"bias": bias_by_token}, ["logit_bias"])


def _biased_tokens(builder: ImportedChainBuilder, text: str) -> Sequence[int | str]:
    """Return the tokens that a bias applies to: token ids, or strings of one token."""
    # ``text``: ``[1, 2]`` for token ids, ``{text}`` for a string as it is, or a string to which SillyTavern
    # prepends a space
    if text.startswith("{") and text.endswith("}"):
        return [text[1:-1]]
    if not (text.startswith("[") and text.endswith("]")):
        return [f" {text}"] if text else []
    return _read_token_ids(builder, "logit_bias", text)


def _read_bans(builder: ImportedChainBuilder) -> None:
    """Read the bans, one per line: token ids as ``[1, 2]``, a quoted string, or the string of one token."""
    tokens: list[int | str] = []
    strings: list[str] = []
    for key in ("banned_tokens", "global_banned_tokens"):
        text = unify_newlines(builder.table.string(key) or "")
        for line in text.split("\n"):
            if line.startswith("[") and line.endswith("]"):
                tokens += _read_token_ids(builder, key, line)
            elif len(line) > 1 and line.startswith('"') and line.endswith('"'):
                strings.append(line[1:-1])
            elif line:
                tokens.append(line)
    strings = [text for text in strings if text]
    if strings:
        builder.other_settings["bans"] = list(dict.fromkeys(strings))
    params = {"tokens": list(dict.fromkeys(tokens))} if tokens else {}
    builder.put_step("ban", "ban", params, ["banned_tokens", "global_banned_tokens"])


def _read_token_ids(builder: ImportedChainBuilder, key: str, text: str) -> list[int]:
    try:
        return lists.read_token_ids(text)
    except ValueError as error:
        builder.unsupported_settings.append(f"{key}: {error}; SillyTavern skips it")
        return []


def _report_windows(builder: ImportedChainBuilder) -> None:
    """Report windows of the penalties and DRY that other back ends read in another way."""
    table = builder.table
    if looks_at_all_tokens(builder):
        builder.notes.append("rep_pen_range 0: all tokens; off to llama.cpp and TabbyAPI, one token to KoboldCpp")
    if table.integer("repetition_penalty_range", 0) < 0:
        builder.report_changed(
            "repetition_penalty_range",
            "read as all tokens, its meaning to llama.cpp until August 2026; llama.cpp now rejects it",
        )
    dry_window = read_window(table, "dry_penalty_last_n", 0)
    for step in builder.steps:
        if step.name == "dry" and dry_window not in (0, step.params["last_n"]):
            builder.report_unsupported(
                "dry_penalty_last_n", "text-generation-webui ignores it: its DRY has the range of the penalties"
            )


def _report_settings_of_others(builder: ImportedChainBuilder) -> None:
    """Report the settings that have an effect only with other back ends."""
    table = builder.table
    builder.report_unless("skew", 0, "only TabbyAPI's former back end skews the distribution by it")
    has_slope = 0 < table.number("rep_pen_slope", 1) < 1
    if has_slope and table.number("repetition_penalty", 1) != 1:
        builder.report_unsupported(
            "rep_pen_slope", "only KoboldCpp lowers the penalty for the older half of its range"
        )
    if table.integer("min_keep", 0) > 1:
        builder.report_unsupported("min_keep", "only llama.cpp keeps at least this many tokens")


_SAMPLER_KEYS = EXPORT_SAMPLER_KEYS | keys_by_sampler(
    sampler_keys("sillytavern", "ignore_eos"),
    sampler_keys("sillytavern", "min_tokens", {"n": {"minimum": 0}}, comment="text-generation-webui ignores it"),
    sampler_keys("sillytavern-export", "ban"),
    sampler_keys("sillytavern", "logit_bias"),
)
# the value of each key of a preset in which no step is on
_OFF_VALUES: Mapping[str, Any] = {
    **{
        KEY_SPELLINGS.get(key, (key,))[0]: value
        for key, value in off_values(_SAMPLER_KEYS).items()
        if key not in ("dry_range", "middle", "reach", "tokens", "strings")  # other keys hold these values
    },
    **dict.fromkeys(("dry_penalty_last_n", "min_keep", "min_temp", "penalty_alpha", "skew"), 0),
    **dict.fromkeys(("rep_pen_decay", "rep_pen_size"), 0),
    **dict.fromkeys(("guidance_scale", "length_penalty", "num_beams", "rep_pen_slope"), 1),
    **dict.fromkeys(
        ("ban_eos_token", "dynatemp", "early_stopping", "ignore_eos_token", "temperature_last"), False
    ),
    **dict.fromkeys(("json_schema_allow_empty", "speculative_ngram"), False),
    **dict.fromkeys(("add_bos_token", "do_sample", "send_banned_tokens", "skip_special_tokens"), True),
    **dict.fromkeys(("banned_tokens", "grammar_string", "negative_prompt"), ""),
    "spaces_between_special_tokens": True,
    "adaptive_target": -0.01,
    "dry_sequence_breakers": json.dumps(BREAKERS),
    "max_temp": 2,
    "seed": -1,
    "logit_bias": [],
    "json_schema": None,
    "extensions": {},
}
_APHRODITE_ORDER = (
    *("dry", "penalties", "no_repeat_ngram", "temperature", "top_nsigma", "top_p_top_k", "top_a", "min_p", "tfs"),
    *("eta_cutoff", "epsilon_cutoff", "typical_p", "quadratic", "xtc"),
)


class _StepList(NamedTuple):
    """The list of steps that a preset holds for another back end."""

    default_order: Sequence[Any]
    samplers_of: Callable[[Any], Sequence[str]]  # returns the samplers of an entry


_STEP_LISTS_OF_OTHERS: Mapping[str, _StepList] = {
    "sampler_order": _StepList(KOBOLDCPP_ORDER, SAMPLERS_BY_NUMBER.__getitem__),
    "samplers": _StepList(
        [name for name in LLAMA_CPP_SAMPLERS if name != "infill"],
        lambda name: read_sampler_sequence(name, "samplers"),
    ),
    "samplers_priorities": _StepList(_APHRODITE_ORDER, samplers_of_step),
}
_OTHER_KEYS = ("sampler_priority", "genamt", "global_banned_tokens", *DECODING_KEYS)
KNOWN_KEYS = (*_OFF_VALUES, *_STEP_LISTS_OF_OTHERS, *_OTHER_KEYS)
_IGNORED_KEYS = other_keys("sillytavern")
_ALL_KEYS = frozenset((*KNOWN_KEYS, *_IGNORED_KEYS)).union(*KEY_SPELLINGS.values())


def to_json(exporter: PresetExporter) -> str:
    """Return the JSON. SillyTavern's presets hold no system message and no stop strings, so these are reported."""
    values = chain_values(exporter, _SAMPLER_KEYS, _STEP_ORDER)
    values.setdefault("sampler_priority", list(_STEP_ORDER))
    if values.pop("dynamic_temperature", False):
        values["dynatemp"] = True
        if "temperature" in exporter.written_slots:
            exporter.report_unsupported("temperature", "SillyTavern does not use it together with dynatemp")
            values.pop("temperature", None)
    reason = "some back ends of SillyTavern read 0 as off, and reject -1"
    replace_unlimited_window(exporter, UNLIMITED_WINDOW_TOKENS, f"{reason}; {UNLIMITED_WINDOW_TOKENS} was written")
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])
        values["dry_penalty_last_n"] = values["repetition_penalty_range"]  # llama.cpp and others read this key
    _write_biases_and_bans(exporter, values)
    values |= exporter.take_guidance("guidance_scale")
    values |= exporter.take_grammar(_GRAMMAR_KEYS, "a grammar as text, or a JSON Schema")
    values |= exporter.convert_other_settings(_SETTING_KEYS)
    value_by_key_in_file = {_key_in_file(key): value for key, value in values.items()}
    value_by_key_in_file["ignore_eos_token"] = value_by_key_in_file.get("ban_eos_token", False)
    written = [sampler for slot in exporter.written_slots for sampler in samplers_of_step(slot)]
    step_lists = {
        key: entries_in_order(step_list.default_order, step_list.samplers_of, written)
        for key, step_list in _STEP_LISTS_OF_OTHERS.items()
    }
    all_values = {**_OFF_VALUES, **step_lists, **value_by_key_in_file}
    return json.dumps(all_values, indent=4, ensure_ascii=False) + "\n"


def _write_biases_and_bans(exporter: PresetExporter, values: dict[str, Any]) -> None:
    if "ignore_eos" in exporter.leading_slots(LEADING_SLOTS):
        values["ban_eos_token"] = True
    _write_bans(exporter, values)
    biases = values.pop("logit_bias", {})
    if biases:
        values["logit_bias"] = []
    for token, number in biases.items():
        if number == float("-inf"):
            exporter.report_unsupported(
                f"logit_bias.bias {token!r}", "SillyTavern has no bias of -inf; banned_tokens can hold it"
            )
            continue
        # SillyTavern prepends a space to a string, unless the string is in braces.
        text = f"{{{token}}}" if isinstance(token, str) else f"[{token}]"
        values["logit_bias"].append({"text": text, "value": number})


def _write_bans(exporter: PresetExporter, values: dict[str, Any]) -> None:
    """Write the bans as the lines that `_read_bans` reads."""
    tokens = values.pop("tokens", [])
    token_ids = [token for token in tokens if isinstance(token, int)]
    token_texts = [token for token in tokens if isinstance(token, str)]
    strings = [*values.pop("strings", []), *exporter.take_banned_phrases()]
    lines = [json.dumps(token_ids)] if tokens else []
    for line in [*token_texts, *(f'"{text}"' for text in strings)]:
        reads_as_other_form = line in token_texts and line[:1] in '["'
        if "\n" in line or reads_as_other_form:
            exporter.report_unsupported(f"ban {line!r}", "SillyTavern's list of bans cannot hold it")
        else:
            lines.append(line)
    if lines:
        values["banned_tokens"] = "\n".join(lines)


def _key_in_file(key: str) -> str:
    """Return the name that a preset has for a key."""
    return KEY_SPELLINGS.get(key, (key,))[0]


FORMATS = (
    Format(
        name="sillytavern",
        tool=TOOL,
        description="a preset of SillyTavern (text completion)",
        read=read,
        write=to_json,
        recognize=recognize,
        extends=("huggingface",),
    ),
)
