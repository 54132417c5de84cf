"""llama.cpp's INI files (``--models-preset``) and the ``general.sampling.*`` keys of a GGUF.

Keys are option names without dashes, long or short, or environment names. What is absent keeps llama.cpp's
default, so the whole chain stands. llama.cpp refuses a file with a name it does not know, such as top_p; here
such a name is read as the option it means, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import PresetError
from ..llama_cpp_names import read_sequence
from . import llama_chain
from .draft import Draft
from .ini import IniSection
from .llama_options import SILENT_OPTIONS, SILENT_VARIABLES
from .table import ForeignTable

TOOL = "llama.cpp"
PREFIX = "general.sampling."
GLOBAL_SECTION = "*"

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **{key: (key,) for key in llama_chain.OFF},
    **{key: (key,) for key in ("dry-sequence-breaker", "samplers", "ignore-eos", "grammar", "grammar-file")},
    "temp": ("temp", "temperature"),
    "typical": ("typical", "typical-p"),
    "top-n-sigma": ("top-n-sigma", "top-nsigma"),
    "sampler-seq": ("sampler-seq", "sampling-seq"),
    "seed": ("seed", "s"),
    "n-predict": ("n-predict", "predict", "n"),
    "logit-bias": ("logit-bias", "l"),
    "json-schema": ("json-schema", "j"),
    "json-schema-file": ("json-schema-file", "jf"),
    "reverse-prompt": ("reverse-prompt", "r"),
    "system-prompt": ("system-prompt", "sys"),
}
_BY_NAME = {name: option for option, names in _OPTIONS.items() for name in names}
_MEANT = {"repetition-penalty": "repeat-penalty", "rep-pen": "repeat-penalty", "max-tokens": "n-predict"}

# The key of a GGUF, where it is no option with underscores.
_METADATA = {
    "penalty-last-n": "repeat-last-n",
    "penalty-repeat": "repeat-penalty",
    "mirostat-tau": "mirostat-ent",
    "mirostat-eta": "mirostat-lr",
    "sequence": "samplers",
}

_BIAS = re.compile(r"(\d+)([+-].+)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class _Entry:
    """A value, and how and where the file spells its key."""

    spelled: str
    value: Any
    line: int = 0


def convert(sections: Mapping[str, IniSection], chosen: str | None, place: str) -> Draft:
    """Return the draft of a section, over what ``[*]`` says; None: what ``[*]`` says alone."""
    entries: dict[str, _Entry] = {}
    reported: list[str] = []
    for name in (GLOBAL_SECTION, chosen):
        if name is not None and name in sections:
            entries.update(_entries(sections[name], reported))
    draft = _draft(entries, place)
    draft.reported[:0] = reported
    if GLOBAL_SECTION in sections and chosen is not None:
        draft.notes.append(f"section [{chosen}] over [*]")
    return draft


def convert_metadata(metadata: Mapping[str, Any], place: str) -> Draft:
    """Return the draft of what a model's author recommends; other keys of the metadata are left out."""
    entries: dict[str, _Entry] = {}
    unknown = []
    for key, value in metadata.items():
        if not key.startswith(PREFIX):
            continue
        name = key[len(PREFIX) :].replace("_", "-")
        option = _METADATA.get(name, _BY_NAME.get(name))
        if option is None:
            unknown.append(f"{key} {value}: {TOOL} does not know this key; it was left out")
        else:
            entries[option] = _Entry(key, value)
    draft = _draft(entries, place)
    draft.reported += unknown
    return draft


def _entries(section: IniSection, reported: list[str]) -> dict[str, _Entry]:
    """The options of a section; of two names for one option the later in the alphabet counts, as in
    llama.cpp."""
    entries: dict[str, _Entry] = {}
    for key in sorted(section.values):
        value = section.values[key]
        option = _BY_NAME.get(key) or _option_of_variable(key)
        if option is None:
            option = _option_meant(key)
            if option is not None:
                reported.append(
                    f"{key} {value}: llama.cpp refuses the file, since no option has this name; "
                    f"it was read as {option}"
                )
            elif key not in SILENT_OPTIONS and not key.startswith(SILENT_VARIABLES):
                reported.append(f"{key} {value}: llama.cpp does not know this key, and refuses the file")
        if option is None:
            continue
        entries[option] = _Entry(key, value, section.lines[key])
        if key in section.cut:
            reported.append(f"{key} {value}: llama.cpp takes {section.cut[key]!r} for a comment")
    return entries


def _option_of_variable(key: str) -> str | None:
    """The option of an environment name, such as LLAMA_ARG_TOP_K."""
    name = key.removeprefix("LLAMA_ARG_")
    return None if name == key else _BY_NAME.get(name.lower().replace("_", "-"))


def _option_meant(key: str) -> str | None:
    name = key.lower().replace("_", "-").lstrip("-")
    return _MEANT.get(name, _BY_NAME.get(name))


def _draft(entries: Mapping[str, _Entry], place: str) -> Draft:
    table = ForeignTable(
        {entry.spelled: entry.value for entry in entries.values()},
        place,
        {option: (entry.spelled,) for option, entry in entries.items()},
        {entry.spelled: entry.line for entry in entries.values() if entry.line},
    )
    draft = Draft(TOOL, table)
    _read_breaker(table)
    llama_chain.put_steps(draft, llama_chain.LLAMA_CPP)
    _put_front(draft)
    for key in ("repeat-last-n", "dry-penalty-last-n"):
        if table.whole(key, 0) < 0:
            draft.report(key, "today's llama.cpp refuses a negative window; here it is all tokens")
    order = _order(draft)
    if order is None:
        draft.notes.append("order: llama.cpp's default")
    elif "infill" in order:
        draft.put("infill", "infill", {}, ["samplers" if table.is_given("samplers") else "sampler-seq"])
    llama_chain.finish(draft, llama_chain.LLAMA_CPP, llama_chain.ORDER if order is None else order)
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


def _put_front(draft: Draft) -> None:
    table = draft.table
    if table.flag("ignore-eos", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["ignore-eos"])
    bias: dict[int, float] = {}
    for part in (table.text("logit-bias") or "").split(","):
        match = _BIAS.fullmatch(part.strip())
        if match:
            number = ForeignTable({"logit-bias": match[2]}, table.place)
            bias[int(match[1])] = float("-inf") if match[2] == "-inf" else number.number("logit-bias", 0.0)
        elif part.strip():
            raise table.fault("logit-bias", "TOKEN_ID+BIAS or TOKEN_ID-BIAS")
    draft.put("logit_bias", "logit_bias", {"bias": bias}, ["logit-bias"])


def _read_breaker(table: ForeignTable) -> None:
    """Put the one breaker that an INI file can give in place of the four defaults; ``none`` is none."""
    text = table.text("dry-sequence-breaker")
    if text is not None:
        table.values[table.spelled("dry-sequence-breaker")] = [] if text == "none" else [_unescaped(text)]


def _take_settings(draft: Draft) -> None:
    table = draft.table
    draft.take_max_tokens("n-predict")
    draft.take_seed("seed")
    draft.take_text("system-prompt", "system")
    text = table.text("reverse-prompt")
    if text is not None:
        draft.extras["stop"] = [_unescaped(text)]
    draft.take_text("grammar", "grammar")
    for key, kind in (("grammar-file", "file"), ("json-schema-file", "json_schema_file"), ("json-schema", None)):
        text = table.text(key)
        if text is not None and "grammar" not in draft.extras:
            draft.extras["grammar"] = {kind or "json_schema": text}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
