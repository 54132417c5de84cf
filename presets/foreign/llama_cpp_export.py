"""Export of presets as command lines and requests of llama.cpp."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ..preset import make_step
from .exporter import PresetExporter
from .llama_cpp import (
    BODY_KEYS,
    OPTIONS_WITH_ESCAPES,
    SAMPLER_KEYS,
    escape,
)

_SETTING_OPTIONS = {"max_tokens": "n-predict", "seed": "seed", "stop": "reverse-prompt", "grammar": "grammar"}


def to_command(exporter: PresetExporter) -> str:
    # Biases of strings are reported, and so is a grammar that is neither text, a JSON Schema nor a file.
    values = _write_chain_values(exporter)
    values |= exporter.convert_other_settings({**_SETTING_OPTIONS, "system": "system-prompt"}, unlimited_value=-1)
    values |= _grammar_option(exporter, values.pop("grammar", None), has_grammar_file_option=True)
    for key in OPTIONS_WITH_ESCAPES:
        if key in values:
            values[key] = [escape(text) for text in values[key]]
    if values.get("dry-sequence-breaker") == []:
        values["dry-sequence-breaker"] = ["none"]
    if "logit-bias" in values:
        values["logit-bias"] = _bias_option_values(exporter, values["logit-bias"])
    words = ["llama-cli"]
    for key, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            words += (
                [f"--{key}"]
                if item is True
                else [f"--{key}", shlex.quote(item if isinstance(item, str) else json.dumps(item))]
            )
    return " ".join(words) + "\n"


def to_body(exporter: PresetExporter) -> str:
    # A system message, which belongs to the request's messages, is reported.
    # A key that the body does not have keeps the value that the server was started with
    # (tools/server/server-task.cpp, params_from_json_cmpl). The list of samplers turns off all other samplers,
    # except mirostat and the range of a dynamic temperature. So the body always sets these two.
    values = _write_chain_values(exporter)
    if "temp" in values:
        values.setdefault("dynatemp-range", 0.0)
    values.setdefault("mirostat", 0)
    values |= exporter.convert_other_settings(_SETTING_OPTIONS, unlimited_value=-1)
    values |= _grammar_option(exporter, values.pop("grammar", None), has_grammar_file_option=False)
    if "logit-bias" in values:
        bias = values["logit-bias"]
        values["logit-bias"] = [
            [key, False if number == float("-inf") else number] for key, number in bias.items()
        ]
    if "samplers" in values:
        values["samplers"] = values["samplers"].split(";")
    body = {BODY_KEYS[key]: value for key, value in values.items()}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _write_chain_values(exporter: PresetExporter) -> dict[str, Any]:
    """Write the chain into the exporter, and return the values of the options that express the chain."""
    _replace_bans_by_biases(exporter)
    exporter.replace_greedy()
    if exporter.mirostat_version:
        reason = "llama.cpp applies only the temperature before mirostat"
        exporter.remove_steps_without_slot(SAMPLER_KEYS, ("ignore_eos", "logit_bias", "temperature"), reason)
    exporter.write_steps(SAMPLER_KEYS)
    leading_slots = exporter.leading_slots(("ignore_eos", "logit_bias"))
    exporter.written_slots = [slot for slot in exporter.written_slots if slot not in leading_slots]
    if "ignore_eos" in leading_slots:
        exporter.values["ignore-eos"] = True
    if exporter.mirostat_version:
        exporter.values["mirostat"] = exporter.mirostat_version
    elif exporter.selector_name == "adaptive_p":
        exporter.written_slots.append("adaptive_p")
    elif exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.write_selector(SAMPLER_KEYS)
    exporter.write_unlimited_window("repeat-last-n", "penalties.last_n")
    exporter.write_unlimited_window("dry-penalty-last-n", "dry.last_n")
    if not exporter.written_slots:
        # llama.cpp reads an empty list as its default list. A temperature of 1 changes nothing.
        exporter.written_slots, exporter.values["temp"] = ["temperature"], 1.0
    if exporter.mirostat_version:
        return exporter.values
    return {
        "samplers": ";".join("typ_p" if slot == "typical" else slot for slot in exporter.written_slots),
        **exporter.values,
    }


def _replace_bans_by_biases(exporter: PresetExporter) -> None:
    """Replace a ban of token ids by biases of -inf, if the chain has no biases and the ban has no strings."""
    for index, sampler in enumerate(exporter.steps):
        if sampler.about.name == "ban" and not any(step.about.name == "logit_bias" for step in exporter.steps):
            tokens = getattr(sampler, "tokens", ())
            if tokens and not getattr(sampler, "strings", ()):
                exporter.steps[index] = make_step(
                    "logit_bias", {"bias": dict.fromkeys(tokens, float("-inf"))}, "ban"
                )
                exporter.report_unsupported("ban", "llama.cpp has no bans; biases of -inf were written instead")


def _bias_option_values(exporter: PresetExporter, bias: dict[int | str, float]) -> list[str]:
    words = []
    for key, number in bias.items():
        if isinstance(key, str):
            exporter.report_unsupported(f"logit_bias.bias {key!r}", "llama.cpp's option takes token ids only")
        else:
            words.append(f"{key}{number:+}" if number != float("-inf") else f"{key}-inf")
    return words


def _grammar_option(exporter: PresetExporter, grammar: Any, has_grammar_file_option: bool) -> dict[str, Any]:
    # A grammar that is neither text, a JSON Schema nor a file is reported.
    if grammar is None:
        return {}
    table = {"gbnf": grammar} if isinstance(grammar, str) and "::=" in grammar else grammar
    keys = {"gbnf": "grammar", "json_schema": "json-schema"}
    keys |= {"file": "grammar-file", "json_schema_file": "json-schema-file"} if has_grammar_file_option else {}
    if isinstance(table, dict) and len(table) == 1:
        ((kind, value),) = table.items()
        if kind in keys:
            is_text = has_grammar_file_option and not isinstance(value, str)
            return {keys[kind]: json.dumps(value) if is_text else value}
    exporter.report_unsupported("grammar", f"{exporter.tool} takes a grammar or a JSON Schema as text")
    return {}
