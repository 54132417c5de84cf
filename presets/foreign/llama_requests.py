"""llama.cpp's settings in two more forms: a command line, and the JSON body of a request to llama-server."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from .draft import Draft
from .llama_cpp import convert_entries, unescaped
from .llama_options import OPTIONS, LlamaEntry, is_left_out, option_of_name

BODY_KEYS: Mapping[str, str] = {
    **{option: option.replace("-", "_") for option in OPTIONS},
    "temp": "temperature",
    "typical": "typical_p",
    "dynatemp-exp": "dynatemp_exponent",
    "reverse-prompt": "stop",
    "mirostat-ent": "mirostat_tau",
    "mirostat-lr": "mirostat_eta",
    "adaptive-target": "adaptive_target",
    "dry-sequence-breaker": "dry_sequence_breakers",
}
"""The key of a request's body, by option."""

_OPTION_BY_KEY = {key: option for option, key in BODY_KEYS.items()} | {"max_tokens": "n-predict"}
_SILENT_KEYS = (
    *("prompt", "messages", "model", "stream", "cache_prompt", "n_keep", "n_probs", "id_slot", "t_max_predict_ms"),
    *("return_tokens", "timings_per_token", "post_sampling_probs", "lora", "n_indent", "response_fields", "tools"),
    *(
        "grammar_lazy",
        "chat_format",
        "logprobs",
        "top_logprobs",
        "n",
        "user",
        "stream_options",
        "preserved_tokens",
    ),
)
_REPEATED = ("logit-bias", "dry-sequence-breaker", "reverse-prompt")
_ESCAPED = ("dry-sequence-breaker", "reverse-prompt")


def convert_body(body: Mapping[str, Any], origin: str) -> Draft:
    """Return the draft of a request's body; raises ``PresetError``."""
    entries = {}
    for key, value in body.items():
        option = _OPTION_BY_KEY.get(key)
        if option is not None:
            is_order = option == "samplers" and isinstance(value, list)
            entries[option] = LlamaEntry(key, ";".join(map(str, value)) if is_order else value)
    draft = convert_entries(entries, origin)
    if body.get("min_keep") not in (None, 0, 1):
        draft.reported.append(f"min_keep {body['min_keep']}: each step would have kept at least so many tokens")
    for key in body:
        if key not in (*_OPTION_BY_KEY, *_SILENT_KEYS, "min_keep"):
            draft.reported.append(f"{key}: llama-server does not know this key; it was left out")
    return draft


def convert_command(text: str, origin: str) -> Draft:
    """Return the draft of a command line such as ``llama-cli --top-k 40``; raises ``PresetError``."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise PresetError(f"{origin}: no command line: {error}") from None
    entries: dict[str, LlamaEntry] = {}
    unknown = []
    while words:
        word = words.pop(0)
        name = word.lstrip("-")
        option = option_of_name(name)
        if not word.startswith("-") or is_left_out(name):
            continue
        if option is None:
            unknown.append(f"{word}: llama.cpp does not know this option")
        elif option == "ignore-eos":
            entries[option] = LlamaEntry(word, True)
        elif not words:
            raise PresetError(f"{origin}: {word} has no value")
        else:
            _add(entries, option, word, words.pop(0))
    draft = convert_entries(entries, origin)
    draft.reported += unknown
    return draft


def _add(entries: dict[str, LlamaEntry], option: str, word: str, value: str) -> None:
    """Set an option; add to one that may stand several times.

    Args:
        entries: the options so far.
        option: llama.cpp's name of the option.
        word: the option as written.
        value: its value.
    """
    if option not in _REPEATED:
        entries[option] = LlamaEntry(word, value)
        return
    earlier: Any = entries[option].value if option in entries else []
    if option == "logit-bias":
        entries[option] = LlamaEntry(word, f"{earlier},{value}" if earlier else value)
    elif value == "none" and option == "dry-sequence-breaker":
        entries[option] = LlamaEntry(word, earlier)
    else:
        entries[option] = LlamaEntry(word, [*earlier, unescaped(value) if option in _ESCAPED else value])
