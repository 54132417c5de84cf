"""Import and export of ``generation_config.json`` of Hugging Face's transformers.

Without ``do_sample: true``, transformers takes the most likely token, whatever the temperature; only the penalties
and a watermark have an effect. The steps always have the order of transformers 5.24's logits processors. With
``do_sample: true``, an absent top_k means 50.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...samplers.methods.ban import Ban
from ...samplers.methods.length_decay import LengthDecay
from ...samplers.methods.logit_bias import BAN, LogitBias
from ...samplers.methods.sequence_bias import SequenceBias
from ...samplers.methods.synthid import Synthid
from .conversion import DECODING_KEYS, ForeignStep, Imported, ImportedChainBuilder, read_decoding
from .exporter import PresetExporter
from .other_keys import other_keys
from .preset_file import PresetFile, known_share
from .registry import Format
from .sampler_keys import SamplerKeys, ToolKey, keys_by_sampler, sampler_keys
from .table import ForeignTable

TOOL = "transformers"
_SETTING_KEYS = {"max_tokens": "max_new_tokens", "stop": "stop_strings"}
_LENGTH_DECAY = "exponential_decay_length_penalty"
_keys = partial(sampler_keys, "transformers")
_SAMPLER_KEYS = keys_by_sampler(
    _keys("encoder_repetition_penalty"),
    _keys(
        "penalties",
        slot="repetition_penalty",
        fixed_parameters={"last_n": -1},
        comment="the prompt counts too",
    ),
    _keys("no_repeat_ngram", slot="no_repeat_ngram_size"),
    _keys("ban", slot="bad_words_ids"),
    _keys("min_tokens", slot="min_new_tokens"),
    *map(_keys, ("temperature", "top_h", "top_k", "top_p", "min_p")),
    _keys("typical", slot="typical_p"),
    *map(_keys, ("epsilon_cutoff", "eta_cutoff")),
    SamplerKeys(
        "synthid",
        {name: ToolKey(name, field.default) for name, field in Synthid.model_fields.items()},
        slot="watermarking_config",
    ),
)
_SUPPRESSED = "suppress_tokens"
_SUPPRESSED_KEYS = SamplerKeys("ban", {"tokens": ToolKey(_SUPPRESSED, [])}, slot=_SUPPRESSED)
SLOTS_BEFORE_SAMPLING = (
    *("sequence_bias", "encoder_repetition_penalty", "repetition_penalty", "no_repeat_ngram_size"),
    *("bad_words_ids", "bad_words_sequences", "min_new_tokens", _LENGTH_DECAY, _SUPPRESSED),
)
SAMPLING_SLOTS = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
_LAST_SLOT = "watermarking_config"
_ACTIVE_DEFAULTS = {"top_k": 50}  # the defaults of transformers with which a step is on (GenerationConfig)

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
    "constraints": (None, "it would have constrained a beam search"),
    "force_words_ids": (None, "it would have forced words in a beam search"),
    "dola_layers": (
        None,
        "it would have contrasted layers; llama.cpp computes the logits of the last one only",
    ),
}


_KNOWN_KEYS = frozenset(
    ("do_sample", "max_new_tokens", "stop_strings", *SAMPLING_SLOTS, *SLOTS_BEFORE_SAMPLING, _LAST_SLOT)
).union(other_keys("huggingface"), _UNSUPPORTED_KEYS, DECODING_KEYS)


def _known_keys(values: Mapping[str, Any]) -> frozenset[str]:
    return _KNOWN_KEYS.union(key for key in values if key.endswith(("_token_id", "_token_ids")))


def recognize(file: PresetFile) -> float:
    return known_share(file.json_object, _known_keys(file.json_object))


def read(file: PresetFile) -> Imported:
    return convert(file.json_table(), file.origin).imported()


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(values, origin)
    builder = ImportedChainBuilder(TOOL, table, _ACTIVE_DEFAULTS)
    _read_penalties_and_bans(builder)
    _read_sampling_steps(builder)
    _read_watermark(builder)
    first_steps = builder.steps_in_order(SLOTS_BEFORE_SAMPLING)
    sampling_steps = builder.steps_in_order(SAMPLING_SLOTS)
    last_steps = builder.steps_in_order([_LAST_SLOT])
    if table.boolean("do_sample", False):
        builder.set_chain([*first_steps, *sampling_steps, *last_steps])
    else:
        builder.report_inactive_steps(sampling_steps, "do_sample is not true")
        if table.is_set("do_sample"):
            greedy = ForeignStep("greedy", keys=("do_sample",), comment="false: the most likely token")
        else:
            greedy = ForeignStep("greedy", comment="do_sample is absent: the most likely token")
        builder.set_chain([*first_steps, *last_steps, greedy])
    builder.read_settings(_SETTING_KEYS)
    read_decoding(builder)
    _report_unsupported_keys(builder)
    return builder


def _read_penalties_and_bans(builder: ImportedChainBuilder) -> None:
    table = builder.table
    biases = _read_sequence_bias(table)
    if all(len(ids) == 1 for ids in biases):
        params: dict[str, Any] = {"bias": {ids[0]: value for ids, value in biases.items()}}
        builder.put_step("sequence_bias", "logit_bias", params, ["sequence_bias"])
    else:
        params = {"ids": [[list(ids), value] for ids, value in biases.items()]}
        builder.put_step("sequence_bias", "sequence_bias", params, ["sequence_bias"])
    builder.read_steps(_SAMPLER_KEYS, "encoder_repetition_penalty", "penalties", "no_repeat_ngram")
    banned_sequences = _read_id_lists(table, "bad_words_ids")
    single_ids = [ids[0] for ids in banned_sequences if len(ids) == 1]
    builder.put_step("bad_words_ids", "ban", {"tokens": single_ids}, ["bad_words_ids"])
    longer_sequences = dict.fromkeys(tuple(ids) for ids in banned_sequences if len(ids) > 1)
    params = {"ids": [[list(ids), False] for ids in longer_sequences]}
    builder.put_step("bad_words_sequences", "sequence_bias", params, ["bad_words_ids"])
    builder.read_steps(_SAMPLER_KEYS, "min_tokens")
    _read_length_decay(builder)
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
    # Another watermark than SynthID-Text's is reported.
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


def _read_length_decay(builder: ImportedChainBuilder) -> None:
    value = builder.table.raw_value(_LENGTH_DECAY)
    if value is None:
        return
    if not isinstance(value, list) or len(value) != 2:
        raise builder.table.value_error(_LENGTH_DECAY, "a list of two numbers, the start and the factor")
    numbers = ForeignTable({f"{_LENGTH_DECAY}.{i}": item for i, item in enumerate(value)}, builder.table.origin)
    params = {
        "start": numbers.integer(f"{_LENGTH_DECAY}.0", 0),
        "factor": numbers.number(f"{_LENGTH_DECAY}.1", 1.0),
    }
    builder.put_step(_LENGTH_DECAY, "length_decay", params, [_LENGTH_DECAY], "for all end-of-generation tokens")


def _read_sequence_bias(table: ForeignTable) -> dict[tuple[int, ...], float]:
    """Return the biases of sequences of token ids. Of equal sequences the last one counts, as in transformers."""
    entries = table.raw_value("sequence_bias") or []
    biases: dict[tuple[int, ...], float] = {}
    allowed = "a list of [token ids, number]"
    is_list_of_lists = isinstance(entries, list) and all(isinstance(entry, list) for entry in entries)
    if not is_list_of_lists or any(len(entry) != 2 for entry in entries):
        raise table.value_error("sequence_bias", allowed)
    for ids, value in entries:
        if not _are_ids(ids) or not ids:
            raise table.value_error("sequence_bias", allowed)
        biases[tuple(ids)] = ForeignTable({"sequence_bias": value}, table.origin).number("sequence_bias", 0.0)
    return biases


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
    builder.report_unknown(_known_keys(table.values))


def to_config(exporter: PresetExporter) -> str:
    """Return the JSON. Biases and bans of strings are reported, because the file holds token ids only."""
    selector_name = exporter.selector_name
    if selector_name == "greedy":
        sampling = [keys.sampler for keys in _SAMPLER_KEYS.values() if keys.slot in SAMPLING_SLOTS]
        exporter.remove_steps(sampling, "without do_sample, transformers applies the penalties only")
    elif selector_name != "dist":
        exporter.report_replaced_selector()
    values: dict[str, Any] = {"do_sample": selector_name != "greedy"}
    if selector_name != "greedy":
        values["top_k"] = 0  # 50 where it is absent
    values |= _write_steps(exporter)
    exporter.report_order([*SLOTS_BEFORE_SAMPLING, *SAMPLING_SLOTS, _LAST_SLOT])
    if "keys" in values:
        values[_LAST_SLOT] = {name: values.pop(name) for name in Synthid.model_fields}
        exporter.report_unsupported(
            "synthid",
            "transformers writes this watermarking_config, but cannot read it from a file; pass "
            "SynthIDTextWatermarkingConfig(**watermarking_config) to its generate",
        )
    values |= exporter.take_guidance("guidance_scale", None)
    values |= exporter.convert_other_settings(_SETTING_KEYS)
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _write_steps(exporter: PresetExporter) -> dict[str, Any]:
    """Write the steps, and return the values of the keys that hold them."""
    biases: dict[tuple[int, ...], float] = {}
    banned_sequences: list[list[int]] = []
    length_decays: list[LengthDecay] = []
    for step in exporter.steps:
        if isinstance(step, (LogitBias, SequenceBias)):
            _add_biases(exporter, step, biases, banned_sequences)
        elif isinstance(step, LengthDecay) and not length_decays:
            length_decays.append(step)
            exporter.written_slots.append(_LENGTH_DECAY)
        elif isinstance(step, Ban) and "bad_words_ids" in exporter.written_slots:
            _add_suppressed_tokens(exporter, step)
        else:
            exporter.write_step(step, _SAMPLER_KEYS)
    # Both slots are written to one key, whose entries have no order.
    slots = ["bad_words_ids" if slot == "bad_words_sequences" else slot for slot in exporter.written_slots]
    exporter.written_slots = list(dict.fromkeys(slots))
    values = dict(exporter.values)
    if biases:  # transformers rejects an integer as a bias
        values["sequence_bias"] = [[list(ids), float(value)] for ids, value in biases.items()]
    banned_ids = _ids_without_texts(exporter, values.pop("bad_words_ids", []))
    suppressed_ids = _ids_without_texts(exporter, values.pop(_SUPPRESSED, []))
    if suppressed_ids:
        values[_SUPPRESSED] = suppressed_ids
    banned_sequences[:0] = [[token] for token in banned_ids]
    if banned_sequences:
        values["bad_words_ids"] = banned_sequences
    for step in length_decays:
        values[_LENGTH_DECAY] = [step.start, step.factor]
    return values


_IDS_ONLY = "transformers' file holds token ids only"


def _ids_without_texts(exporter: PresetExporter, tokens: Sequence[int | str]) -> list[int]:
    """Return the ids of banned tokens, and report the tokens that are texts."""
    ids: list[int] = []
    for token in tokens:
        if isinstance(token, str):
            exporter.report_unsupported(f"ban.tokens {token!r}", _IDS_ONLY)
        else:
            ids.append(token)
    return ids


def _add_suppressed_tokens(exporter: PresetExporter, step: Ban) -> None:
    """Add the tokens of a ban that follows the ban of ``bad_words_ids``."""
    earlier_tokens = exporter.values.get(_SUPPRESSED, [])
    exporter.write_parameters(step, _SUPPRESSED_KEYS)
    exporter.values[_SUPPRESSED] = [*earlier_tokens, *exporter.values[_SUPPRESSED]]
    if _SUPPRESSED not in exporter.written_slots:
        exporter.written_slots.append(_SUPPRESSED)


def _add_biases(
    exporter: PresetExporter,
    step: LogitBias | SequenceBias,
    biases: dict[tuple[int, ...], float],
    banned_sequences: list[list[int]],
) -> None:
    """Add the biases of a step to ``biases``, those of -inf to ``banned_sequences``; report biases of strings."""
    ids_and_values: list[tuple[list[int], float]] = []
    for token, value in step.bias.items():
        if isinstance(token, int):
            ids_and_values.append(([token], value))
        else:
            exporter.report_unsupported(f"{step.about.name}.bias {token!r}", _IDS_ONLY)
    if isinstance(step, SequenceBias):
        ids_and_values += step.ids
    for ids, value in ids_and_values:
        if value == BAN:
            slot = "bad_words_sequences"
            banned_sequences.append(ids)
        else:
            slot = "sequence_bias"
            biases[tuple(ids)] = biases.get(tuple(ids), 0.0) + value
        if slot not in exporter.written_slots:
            exporter.written_slots.append(slot)


FORMATS = (
    Format(
        name="huggingface",
        tool=TOOL,
        description="a generation_config.json of Hugging Face",
        read=read,
        write=to_config,
        recognize=recognize,
        aliases=("hf", "transformers"),
    ),
)
