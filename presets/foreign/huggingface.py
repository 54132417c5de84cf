"""Import and export of ``generation_config.json`` of Hugging Face's transformers.

Without ``do_sample: true``, transformers takes the most likely token, whatever the temperature; only the penalties
and a watermark have an effect. The steps always have the order of transformers 5.24's logits processors. With
``do_sample: true``, an absent top_k means 50.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...common.text import short_repr
from ...samplers.methods.synthid import Synthid
from .conversion import DECODING_KEYS, ForeignStep, ImportedChainBuilder, read_decoding
from .exporter import ExportedPreset, PresetExporter
from .sampler_keys import SamplerKeys, ToolKey, keys_by_sampler
from .table import ForeignTable

TOOL = "transformers"
_SAMPLER_KEYS = keys_by_sampler(
    SamplerKeys("logit_bias", {"bias": ToolKey("sequence_bias", [])}),
    SamplerKeys("encoder_repetition_penalty", {"penalty": ToolKey("encoder_repetition_penalty", 1.0)}),
    SamplerKeys(
        "penalties",
        {"repeat": ToolKey("repetition_penalty", 1.0)},
        slot="repetition_penalty",
        fixed_parameters={"last_n": -1},
        comment="the prompt counts too",
    ),
    SamplerKeys("no_repeat_ngram", {"n": ToolKey("no_repeat_ngram_size", 0)}, slot="no_repeat_ngram_size"),
    SamplerKeys("ban", {"tokens": ToolKey("bad_words_ids", [])}, slot="bad_words_ids"),
    SamplerKeys("min_tokens", {"n": ToolKey("min_new_tokens", 0)}, slot="min_new_tokens"),
    SamplerKeys("temperature", {"t": ToolKey("temperature", 1.0)}),
    SamplerKeys("top_h", {"h": ToolKey("top_h", 0.0)}),
    SamplerKeys("top_k", {"k": ToolKey("top_k", 0, minimum=0)}),
    SamplerKeys("top_p", {"p": ToolKey("top_p", 1.0, maximum=1.0)}),
    SamplerKeys("min_p", {"p": ToolKey("min_p", 0.0)}),
    SamplerKeys("typical", {"p": ToolKey("typical_p", 1.0, maximum=1.0)}, slot="typical_p"),
    SamplerKeys("epsilon_cutoff", {"epsilon": ToolKey("epsilon_cutoff", 0.0)}),
    SamplerKeys("eta_cutoff", {"epsilon": ToolKey("eta_cutoff", 0.0)}),
    SamplerKeys(
        "synthid",
        {name: ToolKey(name, field.default) for name, field in Synthid.model_fields.items()},
        slot="watermarking_config",
    ),
)
SLOTS_BEFORE_SAMPLING = (
    *("logit_bias", "encoder_repetition_penalty", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids"),
    *("min_new_tokens", "suppress_tokens"),
)
SAMPLING_SLOTS = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
_LAST_SLOT = "watermarking_config"
_ACTIVE_DEFAULTS = {"top_k": 50}
"""The defaults of transformers with which a step is on (GenerationConfig)."""

# Keys that affect sampling, but are not supported: the value without an effect, and the effect of other values.
_UNSUPPORTED_KEYS = {
    "min_length": (0, "it counts the prompt; min_new_tokens would carry over"),
    "encoder_no_repeat_ngram_size": (0, "it would have kept the prompt's n-grams out"),
    "begin_suppress_tokens": (None, "it would have banned tokens as the first one only, and a ban is for all"),
    "forced_bos_token_id": (
        None,
        "it would have forced the token after a decoder's first one; a prompt has its own tokens there",
    ),
    "forced_eos_token_id": (None, "it would have forced the last token"),
    "forced_decoder_ids": (None, "it would have forced tokens at the start"),
    "exponential_decay_length_penalty": (None, "it would have made the end token more and more likely"),
    "constraints": (None, "it would have constrained a beam search"),
    "force_words_ids": (None, "it would have forced words in a beam search"),
    "dola_layers": (
        None,
        "it would have contrasted layers; llama.cpp computes the logits of the last one only",
    ),
}
_IGNORED_KEYS = (
    *("max_length", "max_time", "use_cache", "cache_implementation", "cache_config", "return_legacy_cache"),
    *("prefill_chunk_size", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores"),
    *("output_logits", "return_dict_in_generate", "num_assistant_tokens", "num_assistant_tokens_schedule"),
    *("assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size", "is_assistant"),
    *("assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "compile_config", "disable_compile"),
    *("transformers_version", "_from_model_config", "_commit_hash", "token_healing", "remove_invalid_values"),
    *("renormalize_logits", "low_memory", "generation_kwargs", "trust_remote_code", "eos_token_id"),
    *("bos_token_id", "pad_token_id", "decoder_start_token_id", "continuous_batching_config"),
)


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder for a configuration; raise ``PresetError`` for a value that cannot be read."""
    table = ForeignTable(values, origin)
    builder = ImportedChainBuilder(TOOL, table, _ACTIVE_DEFAULTS)
    _read_penalties_and_bans(builder)
    _read_sampling_steps(builder)
    _read_watermark(builder)
    first_steps, last_steps = builder.steps_in_order(SLOTS_BEFORE_SAMPLING), builder.steps_in_order([_LAST_SLOT])
    if table.boolean("do_sample", False):
        builder.set_chain([*first_steps, *builder.steps_in_order(SAMPLING_SLOTS), *last_steps])
    else:
        builder.report_inactive_steps(builder.steps_in_order(SAMPLING_SLOTS), "do_sample is not true")
        keys = ("do_sample",) if table.is_set("do_sample") else ()
        comment = "false: the most likely token" if keys else "do_sample is absent: the most likely token"
        builder.set_chain([*first_steps, *last_steps, ForeignStep("greedy", comment=comment, keys=keys)])
    builder.read_max_tokens("max_new_tokens")
    builder.read_strings("stop_strings", "stop")
    read_decoding(builder)
    _report_unsupported_keys(builder)
    return builder


def _read_penalties_and_bans(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.put_step("logit_bias", "logit_bias", {"bias": _read_sequence_bias(builder)}, ["sequence_bias"])
    builder.read_steps(_SAMPLER_KEYS, "encoder_repetition_penalty", "penalties", "no_repeat_ngram")
    banned_sequences = _read_id_lists(table, "bad_words_ids")
    single_ids = [ids[0] for ids in banned_sequences if len(ids) == 1]
    builder.put_step("bad_words_ids", "ban", {"tokens": single_ids}, ["bad_words_ids"])
    if any(len(ids) > 1 for ids in banned_sequences):
        longer_sequences = [ids for ids in banned_sequences if len(ids) > 1]
        builder.unsupported_settings.append(
            f"bad_words_ids {short_repr(longer_sequences)}: sequences of several tokens cannot be banned by ids"
        )
    builder.read_steps(_SAMPLER_KEYS, "min_tokens")
    suppressed_ids = table.raw_value("suppress_tokens") or []
    if not _are_ids(suppressed_ids):
        raise table.value_error("suppress_tokens", "a list of token ids")
    valid_ids = [token for token in suppressed_ids if token >= 0]
    builder.put_step("suppress_tokens", "ban", {"tokens": valid_ids}, ["suppress_tokens"])


def _read_sampling_steps(builder: ImportedChainBuilder) -> None:
    temperature = _SAMPLER_KEYS["temperature"]
    builder.read_temperature(temperature)
    if builder.read_value(temperature.key_by_parameter["t"]) == 0 and builder.table.boolean("do_sample", False):
        builder.report_changed("temperature", "transformers rejects 0; here the most likely token is taken")
    builder.read_steps(
        _SAMPLER_KEYS, "top_h", "top_k", "top_p", "min_p", "typical", "epsilon_cutoff", "eta_cutoff"
    )


def _read_watermark(builder: ImportedChainBuilder) -> None:
    """Read the step of a SynthID-Text watermark. Another watermark is reported."""
    table = builder.table
    config = table.raw_value("watermarking_config")
    if config in (None, {}):
        return
    if not isinstance(config, dict):
        raise table.value_error("watermarking_config", "a table")
    if "keys" not in config:
        builder.report_unsupported(
            "watermarking_config",
            "only SynthID-Text is supported; the green list of this watermark needs torch's random permutations",
        )
        return
    params = {name: value for name, value in config.items() if name in Synthid.model_fields and value is not None}
    builder.put_step("watermarking_config", "synthid", params, ["watermarking_config"])
    if config.get("debug_mode"):
        builder.report_changed(
            "watermarking_config", "debug_mode would have made all tokens equally likely before it"
        )
    for name in config.keys() - Synthid.model_fields - {"debug_mode"}:
        builder.report_unsupported("watermarking_config", f"transformers does not know {name!r} there")


def _read_sequence_bias(builder: ImportedChainBuilder) -> dict[int, float]:
    """Return the biases of single tokens. Biases of longer sequences are reported."""
    entries = builder.table.raw_value("sequence_bias") or []
    bias_by_id: dict[int, float] = {}
    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
        raise builder.table.value_error("sequence_bias", "a list of [token ids, number]")
    for ids, value in entries:
        if not _are_ids(ids):
            raise builder.table.value_error("sequence_bias", "a list of [token ids, number]")
        if len(ids) == 1:
            bias_by_id[ids[0]] = ForeignTable({"sequence_bias": value}, builder.table.origin).number(
                "sequence_bias", 0.0
            )
        else:
            builder.unsupported_settings.append(
                f"sequence_bias {ids}: a bias on a sequence of tokens is not supported"
            )
    return bias_by_id


def _read_id_lists(table: ForeignTable, key: str) -> list[list[int]]:
    value = table.raw_value(key) or []
    if not isinstance(value, list) or not all(_are_ids(ids) and ids for ids in value):
        raise table.value_error(key, "a list of lists of token ids")
    return value


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _report_unsupported_keys(builder: ImportedChainBuilder) -> None:
    table = builder.table
    for key, (neutral_value, effect) in _UNSUPPORTED_KEYS.items():
        if table.is_set(key) and table.raw_value(key) not in (neutral_value, [], {}):
            builder.report_unsupported(key, effect)
    keys = (
        "do_sample",
        "max_new_tokens",
        "stop_strings",
        "sequence_bias",
        *SAMPLING_SLOTS,
        *SLOTS_BEFORE_SAMPLING,
        _LAST_SLOT,
    )
    known_keys = {*keys, *_IGNORED_KEYS, *_UNSUPPORTED_KEYS, *DECODING_KEYS}
    known_keys |= {key for key in table.values if key.endswith(("_token_id", "_token_ids"))}
    builder.report_unknown(known_keys)


def to_config(exporter: PresetExporter) -> ExportedPreset:
    """Return the JSON. Biases and bans of strings are reported, because the file holds token ids only."""
    selector_name = exporter.selector_name
    if selector_name == "greedy":
        sampling = [keys.sampler for keys in _SAMPLER_KEYS.values() if keys.slot in SAMPLING_SLOTS]
        exporter.remove_steps(sampling, "without do_sample, transformers applies the penalties only")
    elif selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.write_steps(_SAMPLER_KEYS)
    exporter.report_order([*SLOTS_BEFORE_SAMPLING, *SAMPLING_SLOTS, _LAST_SLOT])
    values: dict[str, Any] = {"do_sample": selector_name != "greedy"}
    if selector_name != "greedy":
        values["top_k"] = 0  # 50 where it is absent
    values |= exporter.values
    if "sequence_bias" in values:
        values["sequence_bias"] = [
            [[token], number] for token, number in exporter.finite_biases(values["sequence_bias"]).items()
        ]
    if "bad_words_ids" in values:
        banned_strings = [token for token in values["bad_words_ids"] if isinstance(token, str)]
        for banned_string in banned_strings:
            exporter.report_unsupported(f"ban.tokens {banned_string!r}", "transformers' file holds token ids only")
        values["bad_words_ids"] = [[token] for token in values["bad_words_ids"] if token not in banned_strings]
    if "keys" in values:
        values[_LAST_SLOT] = {name: values.pop(name) for name in Synthid.model_fields}
        exporter.report_unsupported(
            "synthid",
            "transformers writes this watermarking_config, but cannot read it from a file; pass "
            "SynthIDTextWatermarkingConfig(**watermarking_config) to its generate",
        )
    values |= exporter.take_guidance("guidance_scale", None)
    values |= exporter.convert_other_settings({"max_tokens": "max_new_tokens", "stop": "stop_strings"})
    return exporter.make_result(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
