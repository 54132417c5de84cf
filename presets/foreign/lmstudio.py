"""Import and export of LM Studio's ``*.preset.json``.

The program is closed source, so its order of steps, and its defaults for absent keys, are unknown. It runs
llama.cpp. So the imported chain has llama.cpp's order, and only the steps that the file sets. Up to version 0.2,
the settings are in ``inference_params``. From version 0.3 on, they are in ``operation.fields``, a list of {key,
value}. A value may be {checked, value}; unchecked means off.

An export has the newer form. Every field is written, even of steps that are off, because an absent field has the
default of the model or of LM Studio. LM Studio's defaults turn on top_k, top_p, min_p, the repeat penalty and a
temperature of 0.8 (lmstudio-js, packages/lms-kv-config/src/schema.ts).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from ..parameter_names import name_in, names_by_option
from ..setting_table import SETTINGS
from . import llama_cpp as llama_chain
from .conversion import Imported, ImportedChainBuilder
from .exporter import PresetExporter
from .other_keys import other_keys
from .preset_file import PresetFile
from .registry import Format
from .sampler_keys import SamplerKeys, ToolKey, rename_keys
from .table import ForeignTable

TOOL = "LM Studio"
_ORDER = (
    *("logit_bias", "penalties", "dry", "top_n_sigma", "top_k", "tfs", "typical", "top_p", "min_p", "xtc"),
    "temperature",
)


_KEY_PREFIX = "llm.prediction."


def _names(version: str, tfs: str) -> dict[str, str]:
    """Return LM Studio's names in a version by llama.cpp's options, and by ours of the other settings."""
    names = names_by_option(version) | {"tfs": tfs}
    for setting in ("max_tokens", "seed", "stop", "system"):
        names[setting] = str(name_in(version, SETTINGS[setting].names))
    return names


_OLD_NAMES, _NEW_NAMES = _names("lmstudio-0.2", "tfs_z"), _names("lmstudio", "llama.tailFreeSampling")
_GRAMMAR_KEYS = {"gbnf": "gbnfGrammar", "json_schema": "jsonSchema"}
_MAX_TOKENS_FIELD = _NEW_NAMES["max_tokens"]
_MIROSTAT_FIELD = "llama.mirostatSampling"
_TFS_KEYS = SamplerKeys("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}, fixed_parameters={"pad": False})
_IGNORED_KEYS = other_keys("lmstudio")
# fields that are not part of a preset, and the flag of `gen run` for each
_FLAGS_OF_RUN = {
    "speculativeDecoding.draftModel": "-md FILE",
    "speculativeDecoding.maxTokensToDraft": "--spec-draft-n-max N",
    "speculativeDecoding.numDraftTokensExact": "--spec-draft-n-max N",
    "speculativeDecoding.minDraftLengthToConsider": "--spec-draft-n-min N",
    "speculativeDecoding.minContinueDraftingProbability": "--spec-draft-p-min P",
    "reasoning.effort": "--reasoning-effort LEVEL",
    "reasoning.enabled": "--reasoning on|off",
}
_SPECULATION_PREFIX, _REASONING_PREFIX = "speculativeDecoding.", "reasoning."


def recognize(file: PresetFile) -> float:
    """Return 1 for a file that has the structure of either version, and otherwise 0."""
    data = file.json_object
    return float("inference_params" in data or isinstance(data.get("operation"), dict) or "fields" in data)


def read(file: PresetFile) -> Imported:
    return convert(file.json_table(), file.origin).imported()


def convert(data: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    old_values = data.get("inference_params")
    if isinstance(old_values, dict):
        return _convert_old(old_values, origin)
    operation = data.get("operation")
    fields = operation.get("fields") if isinstance(operation, dict) else data.get("fields")
    if not isinstance(fields, list) or not all(isinstance(entry, dict) and "key" in entry for entry in fields):
        raise PresetError(f"{origin}: operation.fields is needed, a list of {{key, value}}")
    return _convert_new(fields, origin)


def _convert_old(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(values, origin, {key: (name,) for key, name in _OLD_NAMES.items()})
    builder = ImportedChainBuilder(TOOL, table)
    if str(table.raw_value("penalize_nl")).lower() == "false":
        builder.report_unsupported("penalize_nl", "the penalties would not have applied to the newline")
    bias = table.raw_value("logit-bias")
    if isinstance(bias, dict) and bias and all(str(key).isdecimal() for key in bias):
        builder.read_step(llama_chain.SAMPLER_KEYS["logit_bias"])
    elif bias:
        builder.report_unsupported("logit-bias", "it is not a table of token ids and numbers")
    builder.read_seed("seed")
    builder.report_unknown(other_keys("lmstudio-0.2"))
    return _read_common_settings(builder)


def _convert_new(fields: list[dict[str, Any]], origin: str) -> ImportedChainBuilder:
    values: dict[str, Any] = {}
    for entry in fields:
        value = entry.get("value")
        if isinstance(value, dict) and "checked" in value:
            # An unchecked maximum number of tokens means no limit.
            unchecked_value = -1 if entry["key"] == _KEY_PREFIX + _MAX_TOKENS_FIELD else None
            value = value.get("value") if value["checked"] else unchecked_value
        values[str(entry["key"])] = value
    spellings = {key: (_KEY_PREFIX + name,) for key, name in _NEW_NAMES.items()}
    mirostat = values.get(_KEY_PREFIX + _MIROSTAT_FIELD)
    if isinstance(mirostat, dict):
        values |= {_KEY_PREFIX + _MIROSTAT_FIELD: mirostat.get("version")}
        values |= {"targetEntropy": mirostat.get("targetEntropy"), "learningRate": mirostat.get("learningRate")}
        spellings |= {"mirostat-ent": ("targetEntropy",), "mirostat-lr": ("learningRate",)}
    spellings |= {"mirostat": (_KEY_PREFIX + _MIROSTAT_FIELD,)}
    table = ForeignTable(values, origin, spellings)
    builder = ImportedChainBuilder(TOOL, table)
    builder.read_seed("seed")
    structured = values.get(_KEY_PREFIX + "structured")
    if isinstance(structured, dict) and structured.get("type") == "json" and structured.get("jsonSchema"):
        builder.other_settings["grammar"] = {"json_schema": structured["jsonSchema"]}
    elif isinstance(structured, dict) and structured.get("type") == "gbnf" and structured.get("gbnfGrammar"):
        builder.other_settings["grammar"] = structured["gbnfGrammar"]
    known_keys = {_KEY_PREFIX + name for name in (*_IGNORED_KEYS, "structured")}
    known_keys |= {key for key in table.values if not key.startswith(_KEY_PREFIX)}
    known_keys |= _report_flags_of_run(builder)
    if table.raw_value("logit-bias"):
        builder.read_step(llama_chain.SAMPLER_KEYS["logit_bias"])
    builder.report_unknown(known_keys)
    return _read_common_settings(builder)


def _report_flags_of_run(builder: ImportedChainBuilder) -> set[str]:
    """Report the fields of drafts and of the reasoning, which no preset holds, and return their keys."""
    found = set()
    for key, value in builder.table.values.items():
        name = key.removeprefix(_KEY_PREFIX)
        if name in _IGNORED_KEYS or not name.startswith((_SPECULATION_PREFIX, _REASONING_PREFIX)):
            continue
        found.add(key)
        if value in (None, "", False) and name != "reasoning.enabled":
            continue
        flag = _FLAGS_OF_RUN.get(name)
        advice = f"; gen run has it as {flag}" if flag is not None else ", and gen has no such setting"
        if flag is None and name.startswith(_REASONING_PREFIX):
            advice = "; gen run has --reasoning-budget N, and --chat-template-kwargs for what the template reads"
        builder.report_unsupported(key, f"not part of a preset{advice}")
    return found


def _read_common_settings(builder: ImportedChainBuilder) -> ImportedChainBuilder:
    """Read the settings that both forms of a preset have, set the chain, and return the builder."""
    builder.notes.append("order: llama.cpp's; LM Studio's order is not known")
    builder.notes.append("only the steps that the file sets; LM Studio's defaults are not known")
    builder.defaults_owner = "llama.cpp"
    llama_chain.read_steps(builder)
    llama_chain.report_negative_windows(builder, "LM Studio has no such setting since version 0.3")
    builder.read_step(_TFS_KEYS)
    llama_chain.arrange_chain(builder, _ORDER)
    builder.read_settings({name: name for name in ("max_tokens", "stop", "system")}, unlimited_values=(-1,))
    return builder


_MIROSTAT_NAMES = {"mirostat": "version", **names_by_option("lmstudio-mirostat")}
_SAMPLER_KEYS = rename_keys({**llama_chain.SAMPLER_KEYS, "tfs": _TFS_KEYS}, {**_NEW_NAMES, **_MIROSTAT_NAMES})
# fields without a checkbox, and the value of each with which it has no effect
_OFF_VALUES_OF_PLAIN_FIELDS: dict[str, Any] = {
    "temperature": 1.0,
    "topKSampling": 0,
    "stopStrings": [],
    "structured": {"type": "none"},
}
# fields with a checkbox, {checked, value}, and the value that LM Studio writes for each unchecked one
_CHECKBOXES_OFF = {
    "repeatPenalty": 1.1,
    "minPSampling": 0.05,
    "topPSampling": 0.95,
    "seed": -1,
    "llama.presencePenalty": 0.0,
    "llama.frequencyPenalty": 0.0,
    "llama.xtcProbability": 0.5,
    "llama.xtcThreshold": 0.1,
    "llama.tailFreeSampling": 0.95,
    "llama.locallyTypicalSampling": 0.9,
}
_UNCHECKED_LENGTH = 1000  # the value that LM Studio writes for an unchecked length


def to_preset(exporter: PresetExporter) -> str:
    mirostat = {"version": 0, "learningRate": 0.1, "targetEntropy": 5.0}
    exporter.replace_greedy()
    if exporter.mirostat_version:
        exporter.write_selector(_SAMPLER_KEYS)
        mirostat |= {"version": exporter.mirostat_version, **exporter.values}
        exporter.values = {}
        reason = "mirostat leaves only the temperature before it"
        exporter.remove_steps_without_slot(_SAMPLER_KEYS, ("temperature",), reason)
    elif exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.write_steps(_SAMPLER_KEYS)
    exporter.report_order(_ORDER)
    values = {**_OFF_VALUES_OF_PLAIN_FIELDS, **exporter.values}
    grammar = exporter.take_grammar(_GRAMMAR_KEYS, "a grammar as text, or a JSON Schema")
    keys = {name: _NEW_NAMES[name] for name in ("max_tokens", "seed", "stop", "system")}
    values |= exporter.convert_other_settings(keys, unlimited_value=-1)
    for key in grammar:
        values["structured"] = {"type": "gbnf" if key == _GRAMMAR_KEYS["gbnf"] else "json", **grammar}
    checkbox_fields = {key: _checkbox_value(values.pop(key, None), off) for key, off in _CHECKBOXES_OFF.items()}
    if _MAX_TOKENS_FIELD in values:
        max_tokens = values.pop(_MAX_TOKENS_FIELD)
        limit = None if max_tokens == -1 else max_tokens
        checkbox_fields[_MAX_TOKENS_FIELD] = _checkbox_value(limit, _UNCHECKED_LENGTH)
    fields = {**values, **checkbox_fields, _MIROSTAT_FIELD: mirostat}
    preset = {
        "identifier": f"@local:{exporter.name}",
        "name": exporter.name,
        "changed": False,
        "operation": {"fields": [{"key": _KEY_PREFIX + key, "value": value} for key, value in fields.items()]},
        "load": {"fields": []},
    }
    return json.dumps(preset, indent=2, ensure_ascii=False) + "\n"


def _checkbox_value(value: Any, unchecked_value: Any) -> dict[str, Any]:
    """Return the value of a field with a checkbox, which is unchecked if ``value`` is None."""
    return {"checked": value is not None, "value": unchecked_value if value is None else value}


FORMATS = (
    Format(
        name="lmstudio",
        tool=TOOL,
        description="a preset of LM Studio",
        read=read,
        write=to_preset,
        recognize=recognize,
        aliases=("lm-studio",),
    ),
)
