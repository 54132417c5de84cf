"""llama.cpp's INI files (``--models-preset``) and the ``general.sampling.*`` keys of a GGUF.

Keys are option names without dashes, long or short, or environment names. What is absent keeps llama.cpp's
default, so the whole chain stands. llama.cpp refuses a file with a name it does not know, such as top_p; here
such a name is read as the option it means, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from ..llama_cpp_names import read_sequence
from . import llama_chain
from .draft import Draft
from .ini import IniSection
from .llama_options import (
    MEANT_OPTIONS,
    METADATA_OPTIONS,
    SILENT_VARIABLES,
    LlamaEntry,
    is_left_out,
    option_of_name,
)
from .table import ForeignTable

TOOL = "llama.cpp"
PREFIX = "general.sampling."
GLOBAL_SECTION = "*"

_BIAS = re.compile(r"(\d+)([+-].+)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def convert(sections: Mapping[str, IniSection], chosen: str | None, origin: str) -> Draft:
    """Return the draft of a section, over what ``[*]`` says; None: what ``[*]`` says alone."""
    entries: dict[str, LlamaEntry] = {}
    reported: list[str] = []
    changed: list[str] = []
    for name in (GLOBAL_SECTION, chosen):
        if name is not None and name in sections:
            entries.update(_entries(sections[name], reported, changed))
    draft = convert_entries(entries, origin)
    draft.reported[:0] = reported
    draft.changed[:0] = changed
    if GLOBAL_SECTION in sections and chosen is not None:
        draft.notes.append(f"section [{chosen}] over [*]")
    return draft


def convert_metadata(metadata: Mapping[str, Any], origin: str) -> Draft:
    """Return the draft of what a model's author recommends; other keys of the metadata are left out."""
    entries: dict[str, LlamaEntry] = {}
    unknown = []
    for key, value in metadata.items():
        if not key.startswith(PREFIX) or _is_blank(value):
            continue
        option = _option_of_metadata(key)
        if option is None:
            unknown.append(f"{key} {value}: {TOOL} does not know this key; it was left out")
        else:
            entries[option] = LlamaEntry(key, value)
    draft = convert_entries(entries, origin)
    draft.reported += unknown
    return draft


def has_settings(metadata: Mapping[str, Any]) -> bool:
    """True if a model's author recommends anything that llama.cpp knows."""
    return any(
        key.startswith(PREFIX) and _option_of_metadata(key) is not None and not _is_blank(value)
        for key, value in metadata.items()
    )


def _is_blank(value: Any) -> bool:
    """True for a text of nothing, or of nothing but the semicolons between names."""
    return isinstance(value, str) and not value.strip(" ;")


def _option_of_metadata(key: str) -> str | None:
    name = key[len(PREFIX) :].replace("_", "-")
    return METADATA_OPTIONS.get(name) or option_of_name(name)


def _entries(section: IniSection, reported: list[str], changed: list[str]) -> dict[str, LlamaEntry]:
    """Return the options of a section. Of two names for one option, the last by the alphabet counts, as there.

    Args:
        section: the section of the file.
        reported: receives a sentence for each key that llama.cpp would read otherwise, or not at all.
        changed: receives those of the sentences whose value is carried over.
    """
    entries: dict[str, LlamaEntry] = {}
    for key in sorted(section.values):
        value = section.values[key]
        option = option_of_name(key) or _option_of_variable(key)
        if option is None:
            option = _option_by_near_name(key)
            if option is not None:
                reported.append(
                    f"{key} {value}: llama.cpp refuses the file, since no option has this name; "
                    f"it was read as {option}"
                )
                changed.append(reported[-1])
            elif not is_left_out(key) and not key.startswith(SILENT_VARIABLES):
                reported.append(f"{key} {value}: llama.cpp does not know this key, and refuses the file")
        if option is None:
            continue
        entries[option] = LlamaEntry(key, value, section.lines[key])
        if key in section.cut:
            reported.append(f"{key} {value}: llama.cpp takes {section.cut[key]!r} for a comment")
            changed.append(reported[-1])
    return entries


def _option_of_variable(key: str) -> str | None:
    """The option of an environment name, such as LLAMA_ARG_TOP_K."""
    name = key.removeprefix("LLAMA_ARG_")
    return None if name == key else option_of_name(name.lower().replace("_", "-"))


def _option_by_near_name(key: str) -> str | None:
    name = key.lower().replace("_", "-").lstrip("-")
    return MEANT_OPTIONS.get(name) or option_of_name(name)


def convert_entries(entries: Mapping[str, LlamaEntry], origin: str) -> Draft:
    """Return the draft of values by option."""
    table = ForeignTable(
        {entry.spelled: entry.value for entry in entries.values()},
        origin,
        {option: (entry.spelled,) for option, entry in entries.items()},
        {entry.spelled: entry.line for entry in entries.values() if entry.line},
    )
    draft = Draft(TOOL, table)
    _read_breaker(table)
    llama_chain.put_steps(draft, llama_chain.LLAMA_CPP)
    _put_biases(draft)
    for key in ("repeat-last-n", "dry-penalty-last-n"):
        if table.whole_number(key, 0) < 0:
            draft.report_changed(key, "today's llama.cpp refuses a negative window; here it is all tokens")
    order = _order(draft)
    if order is None:
        draft.notes.append("order: llama.cpp's default")
    elif "infill" in order:
        draft.put("infill", "infill", {}, ["samplers" if table.is_given("samplers") else "sampler-seq"])
    llama_chain.arrange_chain(draft, llama_chain.LLAMA_CPP, llama_chain.ORDER if order is None else order)
    _take_settings(draft)
    return draft


def _order(draft: Draft) -> list[str] | None:
    """The listed samplers by our names; None if there is no list. If both keys are there, ``samplers`` counts.

    Unknown names are reported, as llama.cpp skips them.
    """
    key = next((key for key in ("samplers", "sampler-seq") if draft.table.is_given(key)), None)
    if key is None:
        return None
    order: list[str] = []
    text = draft.table.text(key) or ""
    for part in text if key == "sampler-seq" else text.split(";"):
        try:
            order += read_sequence(part, key)
        except PresetError:
            draft.report(key, f"{part.strip()!r} is no sampler of llama.cpp, which skips it")
    return order


def _put_biases(draft: Draft) -> None:
    table = draft.table
    if table.flag("ignore-eos", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["ignore-eos"])
    draft.put("logit_bias", "logit_bias", {"bias": _bias(table)}, ["logit-bias"])


def _bias(table: ForeignTable) -> dict[int | str, float | bool]:
    """The biases: TOKEN_ID+BIAS texts, or a request's table or list of pairs, where false bans a token."""
    value = table.raw("logit-bias")
    if isinstance(value, str):
        value = [_parsed_bias(table, part.strip()) for part in value.split(",") if part.strip()]
    pairs = list(value.items()) if isinstance(value, Mapping) else value or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        raise table.fault("logit-bias", "a table or a list of token and number")
    bias: dict[int | str, float | bool] = {}
    for token, number in pairs:
        key = int(token) if isinstance(token, str) and token.isdecimal() else token
        if type(key) not in (int, str):
            raise table.fault("logit-bias", "a table or a list of token and number")
        inner = ForeignTable({"logit-bias": number}, table.origin)
        bias[key] = float("-inf") if number is False or number == "-inf" else inner.number("logit-bias", 0.0)
    return bias


def _parsed_bias(table: ForeignTable, text: str) -> tuple[str, str]:
    match = _BIAS.fullmatch(text)
    if match is None:
        raise table.fault("logit-bias", "TOKEN_ID+BIAS or TOKEN_ID-BIAS")
    return match[1], match[2]


def _read_breaker(table: ForeignTable) -> None:
    """Put the one breaker that an INI file can give in place of the four defaults; ``none`` is none."""
    text = table.raw("dry-sequence-breaker")
    if isinstance(text, str):
        table.values[table.spelled("dry-sequence-breaker")] = [] if text == "none" else [unescaped(text)]


def _take_settings(draft: Draft) -> None:
    table = draft.table
    draft.take_max_tokens("n-predict", (-1, -2))
    if table.whole_number("n-predict") == 0:
        draft.report("n-predict", "it would have read the prompt only, which -n 0 does here")
    draft.take_seed("seed")
    draft.take_text("system-prompt", "system")
    text = table.raw("reverse-prompt")
    if isinstance(text, str):
        table.values[table.spelled("reverse-prompt")] = [unescaped(text)]
    draft.take_texts("reverse-prompt", "stop")
    draft.take_text("grammar", "grammar")
    for key, kind in (("grammar-file", "file"), ("json-schema-file", "json_schema_file"), ("json-schema", None)):
        value = table.raw(key)
        if value is not None and "grammar" not in draft.extras:
            draft.extras["grammar"] = {kind or "json_schema": value}


def unescaped(text: str) -> str:
    """Return the text with llama.cpp's escapes, such as a backslash and n, replaced."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
