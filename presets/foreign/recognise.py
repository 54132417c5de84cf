"""Which tool's format a text is, by its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from ..foreign_formats import FORMATS
from .koboldai import OWN_KEYS
from .modelfile import INSTRUCTIONS
from .text import parse_json, parse_yaml_1_1
from .webui import FORMER_KEYS, KNOWN

# Keys that only one tool's JSON has.
_SILLYTAVERN = {
    *("typical_p", "freq_pen", "presence_pen", "encoder_rep_pen", "temperature_last", "sampler_priority"),
    *("samplers_priorities", "mirostat_mode", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample"),
    *("dynatemp", "rep_pen_decay", "grammar_string", "num_beams", "samplers"),
}
_KOBOLD = {"typical", "rep_pen_slope", "sampler_order", "use_default_badwordsids", "mirostat", "ikgen", "numseqs"}
_KOBOLDCPP = {
    *("preset", "dynatemp_range", "presence_penalty", "max_context_length", "sampler_seed", "typ_s", "tfs_s"),
    *("miro_type", "adaptivep_target", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"),
}
_ONLY_SILLYTAVERN = _SILLYTAVERN - {
    *("typical_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample", "num_beams", "samplers"),
}
"""What no other tool's JSON has, whatever else is in the file."""
_SHARED = {"preset", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"}
_FAMILY = {"temp", "rep_pen", "rep_pen_range", "genamt"}
_KOBOLD_REQUEST = _FAMILY | {"sampler_order", "max_context_length"}
"""Keys that tell a request to KoboldCpp, which may say ``temperature`` too, from one to llama-server."""
_HUGGINGFACE = {
    *("temperature", "do_sample", "top_k", "top_p", "min_p", "repetition_penalty", "transformers_version"),
    *("eos_token_id", "bos_token_id", "pad_token_id", "max_new_tokens", "max_length", "_from_model_config"),
    *("decoder_start_token_id", "num_beams", "suppress_tokens", "no_repeat_ngram_size", "typical_p", "min_length"),
    *("penalty_alpha", "epsilon_cutoff", "eta_cutoff", "stop_strings", "min_new_tokens", "use_cache"),
}
_LLAMA_SERVER = {
    *(
        "n_predict",
        "repeat_penalty",
        "repeat_last_n",
        "samplers",
        "top_n_sigma",
        "dynatemp_exponent",
        "ignore_eos",
    ),
    *("cache_prompt", "n_probs", "xtc_probability", "dry_multiplier", "frequency_penalty", "presence_penalty"),
    "messages",
}
_LLAMA_SERVER_MIROSTAT = {"temperature", "mirostat"}
_MODEL_LIST = {"Model Type", "Model Name", "Model Size", "Model Category", "Preset Category", "uid"}

_INI_LINE = re.compile(r"[ \t]*\[[^\]=,{}\"]*\][ \t]*([;#].*)?|[A-Za-z_][\w.-]*[ \t]*=.*")
_COMMAND = re.compile(r"(?:\S*llama-[\w.-]+\s+)?--?[a-z][a-z-]*(?:\s|$)")
_INSTRUCTION = re.compile(rf"[ \t]*(?:{'|'.join(INSTRUCTIONS)})[ \t]+\S", re.IGNORECASE)


class AmbiguousFormatError(PresetError):
    """The content fits two formats."""


def recognise(text: str, origin: str) -> str:
    """Return the format of a text.

    Raises ``AmbiguousFormatError`` if two fit (the message names both, and the keys that would decide), and
    ``PresetError`` if it is none of them, and for JSON or YAML that is broken.
    """
    first = _first_line(text)
    if first is None:
        raise PresetError(f"{origin}: the file is empty")
    if _INI_LINE.fullmatch(first):
        return "llama.cpp"
    if is_command(text):
        return "llama.cpp"
    if first.lstrip()[:1] in ("{", "["):
        return _of_json(parse_json(text, origin), origin)
    if _INSTRUCTION.match(first):
        return "ollama"
    return _of_yaml(parse_yaml_1_1(text, origin), origin)


def is_command(text: str) -> bool:
    """True if the text is a command line of llama.cpp's, such as ``llama-cli --top-k 40``."""
    first = _first_line(text)
    return first is not None and _COMMAND.match(first) is not None


def _first_line(text: str) -> str | None:
    """The first line that is neither blank nor a comment."""
    lines = (line for line in text.split("\n") if line.strip())
    return next((line for line in lines if not line.lstrip().startswith(("#", ";"))), None)


def _of_json(value: Any, origin: str) -> str:
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict)]
        keys = {key for entry in entries for key in entry}
        if entries and len(entries) == len(value) and keys & (_FAMILY | _KOBOLD):
            return "koboldcpp" if keys & (_KOBOLDCPP - {"preset"}) and not keys & _MODEL_LIST else "koboldai"
        raise _unrecognised(origin)
    if not isinstance(value, dict):
        raise _unrecognised(origin)
    keys = {str(key) for key in value}
    if "inference_params" in keys or isinstance(value.get("operation"), dict) or "fields" in keys:
        return "lmstudio"
    if any(key.startswith("general.sampling.") for key in keys):
        return "llama.cpp"
    inner = value.get("preset")
    if isinstance(inner, dict) and _FAMILY & {str(key) for key in inner}:
        return "sillytavern"
    return _of_keys(keys, origin)


def _of_keys(keys: set[str], origin: str) -> str:
    """The format of a flat JSON object."""
    if keys & _ONLY_SILLYTAVERN and not keys & _FAMILY:
        return "sillytavern"
    if (keys & _LLAMA_SERVER or keys >= _LLAMA_SERVER_MIROSTAT) and not keys & _KOBOLD_REQUEST:
        return "llama.cpp"
    if keys & set(OWN_KEYS) and keys & _FAMILY:
        return "koboldai"
    if keys & _FAMILY or (keys & _KOBOLD and "temperature" not in keys):
        return _of_family(keys, origin)
    if keys & (_KOBOLDCPP - {"preset", "presence_penalty", "smoothing_factor"} | {"sampler_order"}):
        return "koboldcpp"
    if "architectures" in keys:
        raise PresetError(
            f"{origin}: this is a model's config.json; the settings of its author stand in generation_config.json"
        )
    if keys & _HUGGINGFACE:
        return "huggingface"
    raise _unrecognised(origin)


def _of_family(keys: set[str], origin: str) -> str:
    """SillyTavern, KoboldAI or KoboldCpp, which share most keys."""
    sillytavern, koboldcpp = sorted(keys & _SILLYTAVERN), sorted(keys & _KOBOLDCPP - _SHARED)
    if sillytavern and koboldcpp:
        raise AmbiguousFormatError(
            f"{origin}: the content fits sillytavern (by {sillytavern[0]}) and koboldcpp (by {koboldcpp[0]});"
            " name the format"
        )
    if sillytavern:
        return "sillytavern"
    if koboldcpp or keys & _KOBOLDCPP:
        return "koboldcpp"
    if keys & _KOBOLD:
        return "koboldai"
    raise AmbiguousFormatError(
        f"{origin}: the content fits sillytavern and koboldai: typical_p, freq_pen or do_sample would make it"
        " SillyTavern's text completion, typical, rep_pen_slope or sampler_order KoboldAI's; name the format"
    )


def _of_yaml(value: Any, origin: str) -> str:
    if isinstance(value, Mapping) and value:
        tables = [entry for entry in value.values() if isinstance(entry, Mapping)]
        if any("override" in entry for entry in tables):
            return "tabbyapi"
        if "chain" in value:
            raise PresetError(f"{origin}: this is a preset of logitsmith itself, and needs no import")
        if not tables:
            return "webui"
    raise _unrecognised(origin)


def _unrecognised(origin: str) -> PresetError:
    return PresetError(f"{origin}: the content is no known format; known formats: {', '.join(FORMATS)}")


def webui_keys(text: str, origin: str) -> list[str]:
    """Return the keys of a YAML text that text-generation-webui knows, in the file's order."""
    value = parse_yaml_1_1(text, origin)
    return [key for key in value if key in KNOWN or key in FORMER_KEYS] if isinstance(value, Mapping) else []
