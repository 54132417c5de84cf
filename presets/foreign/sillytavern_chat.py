"""Import of SillyTavern's presets for chat completion, which hold prompts and the settings of an API.

The API that the preset is for decides on the order of its samplers and on absent values. So the imported chain has
the order in which SillyTavern's text completion names them for text-generation-webui, and only the steps that the
file sets. Of the prompts, the main one becomes the system message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from .conversion import ImportedChainBuilder
from .other_keys import other_keys
from .sampler_keys import keys_by_sampler, sampler_keys
from .table import ForeignTable

_TOOL = "SillyTavern"
_keys = partial(sampler_keys, "sillytavern-chat")
_SAMPLER_KEYS = keys_by_sampler(
    _keys("penalties", fixed_parameters={"last_n": -1}),
    *map(_keys, ("top_k", "top_p", "top_a", "min_p", "temperature")),
)
_ORDER = ("penalties", "temperature", "top_k", "top_p", "min_p", "top_a")


def is_chat_preset(data: Mapping[Any, Any]) -> bool:
    return sum(key in data for key in other_keys("sillytavern-chat")) > 1


def convert(data: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(data, origin)
    builder = ImportedChainBuilder(_TOOL, table)
    builder.notes.append("a preset of chat completion; of its prompts, the main one is the system message")
    builder.notes.append("the order of the steps is that of the API, which the file does not say")
    builder.read_steps(_SAMPLER_KEYS, "penalties", "top_k", "top_p", "top_a", "min_p")
    builder.read_temperature(_SAMPLER_KEYS["temperature"])
    builder.set_chain(builder.steps_in_order(_ORDER))
    builder.read_settings({"max_tokens": "openai_max_tokens", "seed": "seed", "system": "system"})
    prompt = _main_prompt(table)
    if prompt:
        builder.other_settings["system"] = prompt
    return builder


def _main_prompt(table: ForeignTable) -> str:
    prompts = table.raw_value("prompts")
    for prompt in prompts if isinstance(prompts, list) else ():
        if isinstance(prompt, Mapping) and prompt.get("identifier") == "main":
            content = prompt.get("content")
            return content if isinstance(content, str) else ""
    return ""
