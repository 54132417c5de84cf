"""Which tool wrote a file: the keys that tell the tools apart, and files that are named instead of imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from . import kobold, ollama, sillytavern_chat
from .llama_cpp_import import is_command, is_jan_model
from .registry import format_names
from .table import INI_LINE_PATTERN, first_content_line, parse_json, parse_yaml_1_1

# Keys that occur in the JSON of a tool, and with some exceptions in no other tool's JSON.
_SILLYTAVERN_KEYS = {
    *("typical_p", "freq_pen", "presence_pen", "encoder_rep_pen", "temperature_last", "sampler_priority"),
    *("samplers_priorities", "mirostat_mode", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample"),
    *("dynatemp", "rep_pen_decay", "grammar_string", "num_beams", "samplers"),
}
_KOBOLD_KEYS = {
    *("typical", "rep_pen_slope", "sampler_order", "use_default_badwordsids", "mirostat", "ikgen", "numseqs"),
}
_KOBOLDCPP_KEYS = {
    *("preset", "dynatemp_range", "presence_penalty", "max_context_length", "sampler_seed", "typ_s", "tfs_s"),
    *("miro_type", "adaptivep_target", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"),
}
# keys that occur in no other tool's JSON, whatever other keys the file has
_SILLYTAVERN_ONLY_KEYS = _SILLYTAVERN_KEYS - {
    *("typical_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample", "num_beams", "samplers"),
}
_SHARED_KEYS = {"preset", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"}
# keys that identify KoboldCpp if no key of `_KOBOLD_FAMILY_KEYS` is present
_KOBOLDCPP_ONLY_KEYS = (_KOBOLDCPP_KEYS - {"preset", "presence_penalty", "smoothing_factor"}) | {"sampler_order"}
_KOBOLD_FAMILY_KEYS = {"temp", "rep_pen", "rep_pen_range", "genamt"}
# keys that distinguish a request to KoboldCpp from a request to llama-server; both may have ``temperature``
_KOBOLDCPP_REQUEST_KEYS = _KOBOLD_FAMILY_KEYS | {"sampler_order", "max_context_length"}
_HUGGINGFACE_KEYS = {
    *("temperature", "do_sample", "top_k", "top_p", "min_p", "repetition_penalty", "transformers_version"),
    *("eos_token_id", "bos_token_id", "pad_token_id", "max_new_tokens", "max_length", "_from_model_config"),
    *("decoder_start_token_id", "num_beams", "suppress_tokens", "no_repeat_ngram_size", "typical_p", "min_length"),
    *("penalty_alpha", "epsilon_cutoff", "eta_cutoff", "stop_strings", "min_new_tokens", "use_cache"),
}
_LLAMA_SERVER_KEYS = {
    *("n_predict", "repeat_penalty", "repeat_last_n", "samplers", "top_n_sigma", "dynatemp_exponent", "messages"),
    *("cache_prompt", "n_probs", "xtc_probability", "dry_multiplier", "frequency_penalty", "presence_penalty"),
    "ignore_eos",
}
_LLAMA_SERVER_MIROSTAT_KEYS = {"temperature", "mirostat"}
_MODEL_LIST_KEYS = {"Model Type", "Model Name", "Model Size", "Model Category", "Preset Category", "uid"}

_INSTRUCTION_PATTERN = re.compile(rf"[ \t]*(?:{'|'.join(ollama.INSTRUCTIONS)})[ \t]+\S", re.IGNORECASE)


class AmbiguousFormatError(PresetError):
    """The content of a file fits two formats, so that the user must name the format."""


def recognize_own_format(text: str, origin: str) -> str:
    """Return the name of our own format that a text has."""
    # Raises ``AmbiguousFormatError`` if the text fits two formats; the message names both, and the keys that would
    # decide.
    first_line = first_content_line(text)
    if first_line is None:
        raise PresetError(f"{origin}: the file is empty")
    if _INSTRUCTION_PATTERN.match(first_line):
        return "ollama"
    if is_command(text, origin) or INI_LINE_PATTERN.fullmatch(first_line):
        return "llama.cpp"
    if is_jan_model(text):
        return "llama.cpp"
    if first_line.lstrip()[:1] in ("{", "["):
        return _recognize_json_format(parse_json(text, origin), origin)
    return _recognize_yaml_format(parse_yaml_1_1(text, origin), origin)


def _recognize_json_format(value: Any, origin: str) -> str:
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict)]
        keys = {key for entry in entries for key in entry}
        if entries and len(entries) == len(value) and keys & (_KOBOLD_FAMILY_KEYS | _KOBOLD_KEYS):
            is_koboldcpp = keys & (_KOBOLDCPP_KEYS - {"preset"}) and not keys & _MODEL_LIST_KEYS
            return "koboldcpp" if is_koboldcpp else "koboldai"
        raise _unknown_format_error(origin)
    if not isinstance(value, dict):
        raise _unknown_format_error(origin)
    keys = {str(key) for key in value}
    _reject_other_files(value, keys, origin)
    if len(keys & sillytavern_chat.MARKS) > 1:
        return "sillytavern"
    if "inference_params" in keys or isinstance(value.get("operation"), dict) or "fields" in keys:
        return "lmstudio"
    if any(key.startswith("general.sampling.") for key in keys):
        return "llama.cpp"
    inner_preset = value.get("preset")
    if isinstance(inner_preset, dict) and _KOBOLD_FAMILY_KEYS & {str(key) for key in inner_preset}:
        return "sillytavern"
    return _recognize_json_keys(keys, origin)


_NOVELAI_KEYS = {
    *("phrase_rep_pen", "repetition_penalty_frequency", "repetition_penalty_presence", "streaming_novel"),
    *("repetition_penalty_default_whitelist", "tail_free_sampling", "math1_temp", "presetVersion"),
}
_VLLM_KEYS = {
    *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "stop_token_ids"),
    *("include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "prompt_logprobs"),
    *("truncate_prompt_tokens", "add_generation_prompt", "allowed_token_ids", "use_beam_search", "bad_words"),
}
_REQUEST_KEYS = {"messages", "prompt", "input"}


def _reject_other_files(value: Mapping[Any, Any], keys: set[str], origin: str) -> None:
    """Raise ``PresetError`` for files of tools that are known by their keys, but cannot be imported."""
    inner = value.get("parameters")
    inner_keys = {str(key) for key in inner} if isinstance(inner, Mapping) else set()
    if len((keys | inner_keys) & _NOVELAI_KEYS) > 1:
        raise PresetError(
            f"{origin}: this is a preset of NovelAI, whose samplers and their order differ; gen does not import it"
        )
    is_request = bool(keys & _REQUEST_KEYS)
    if (is_request or "model" in keys) and (
        keys & _VLLM_KEYS or ("repetition_penalty" in keys and "repeat_penalty" not in keys)
    ):
        raise PresetError(
            f"{origin}: this is the body of a request to vLLM, and no preset; gen serve answers such requests, and"
            " gen batch lines of them"
        )


def _recognize_json_keys(keys: set[str], origin: str) -> str:
    if keys & _SILLYTAVERN_ONLY_KEYS and not keys & _KOBOLD_FAMILY_KEYS:
        return "sillytavern"
    if (keys & _LLAMA_SERVER_KEYS or keys >= _LLAMA_SERVER_MIROSTAT_KEYS) and not keys & _KOBOLDCPP_REQUEST_KEYS:
        return "llama.cpp"
    if keys & set(kobold.SETTINGS_FILE_KEYS) and keys & _KOBOLD_FAMILY_KEYS:
        return "koboldai"
    if keys & _KOBOLD_FAMILY_KEYS or (keys & _KOBOLD_KEYS and "temperature" not in keys):
        return _recognize_kobold_family(keys, origin)
    if keys & _KOBOLDCPP_ONLY_KEYS:
        return "koboldcpp"
    if "architectures" in keys:
        raise PresetError(
            f"{origin}: this is a model's config.json; the settings of its author are in generation_config.json"
        )
    if keys & _HUGGINGFACE_KEYS:
        return "huggingface"
    raise _unknown_format_error(origin)


def _recognize_kobold_family(keys: set[str], origin: str) -> str:
    """Return the format of a JSON object of SillyTavern, KoboldAI or KoboldCpp, which share most keys."""
    sillytavern_found = sorted(keys & _SILLYTAVERN_KEYS)
    koboldcpp_found = sorted(keys & _KOBOLDCPP_KEYS - _SHARED_KEYS)
    if sillytavern_found and koboldcpp_found:
        raise AmbiguousFormatError(
            f"{origin}: the content fits sillytavern (by {sillytavern_found[0]}) and koboldcpp"
            f" (by {koboldcpp_found[0]}); name the format"
        )
    if sillytavern_found:
        return "sillytavern"
    if koboldcpp_found or keys & _KOBOLDCPP_KEYS:
        return "koboldcpp"
    if keys & _KOBOLD_KEYS:
        return "koboldai"
    raise AmbiguousFormatError(
        f"{origin}: the content fits sillytavern and koboldai: typical_p, freq_pen or do_sample would make it"
        " SillyTavern's text completion, typical, rep_pen_slope or sampler_order KoboldAI's; name the format"
    )


def _recognize_yaml_format(value: Any, origin: str) -> str:
    if isinstance(value, Mapping) and value:
        tables = [entry for entry in value.values() if isinstance(entry, Mapping)]
        if any("override" in entry for entry in tables):
            return "tabbyapi"
        if "chain" in value:
            raise PresetError(f"{origin}: this is a preset of logitsmith itself, and needs no import")
        if not tables:
            return "webui"
    raise _unknown_format_error(origin)


def _unknown_format_error(origin: str) -> PresetError:
    return PresetError(f"{origin}: the content has no known format; known formats: {', '.join(format_names())}")
