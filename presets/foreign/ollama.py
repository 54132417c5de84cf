"""Ollama's Modelfile: PARAMETER and SYSTEM.

Ollama runs llama.cpp's chain in its default order, with defaults of its own (api/types.go), which hold where the
file is silent unless the base model brings others. Names that Ollama refuses are reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import llama_chain
from .draft import Draft
from .modelfile import Instruction
from .table import ForeignTable

TOOL = "Ollama"

DEFAULTS = {**llama_chain.OFF, "temp": 0.8, "top-k": 40, "top-p": 0.9, "min-p": 0.0, "repeat-last-n": 64}
SPELLINGS = {
    "temp": ("temperature",),
    "top-k": ("top_k",),
    "top-p": ("top_p",),
    "min-p": ("min_p",),
    "typical": ("typical_p",),
    "repeat-penalty": ("repeat_penalty",),
    "repeat-last-n": ("repeat_last_n",),
    "presence-penalty": ("presence_penalty",),
    "frequency-penalty": ("frequency_penalty",),
}
_SILENT = (
    *("num_ctx", "num_batch", "num_gpu", "num_gqa", "main_gpu", "num_thread", "num_keep", "numa", "use_mmap"),
    *("use_mlock", "low_vram", "f16_kv", "logits_all", "vocab_only", "embedding_only", "rope_frequency_base"),
    *("rope_frequency_scale", "draft_num_predict"),
)
_NUMBERS = ("num_predict", "seed")
_DROPPED = {
    "mirostat": ("0", "it would have held the surprise of the text"),
    "mirostat_tau": ("", "it would have set mirostat's surprise"),
    "mirostat_eta": ("", "it would have set how fast mirostat learns"),
    "penalize_newline": ("true", "it would have spared the newline from the penalties"),
}
_REFUSED = {
    "tfs_z": "it would have cut off the tail of the tokens; gone since December 2024",
    "grammar": "it would have made the text match a grammar",
}


def convert(instructions: Sequence[Instruction], origin: str) -> Draft:
    """Return the draft of a Modelfile; of a parameter that stands twice the last value counts, ``stop`` adds up.

    Raises ``PresetError`` with the line of a value that Ollama could not read either.
    """
    values = {step.parameter: step.value for step in instructions if step.parameter}
    lines = {step.parameter: step.line for step in instructions if step.parameter}
    values.pop("stop", None)
    dropped = {key: values.pop(key) for key in _DROPPED if key in values}
    table = ForeignTable(values, origin, SPELLINGS, lines)
    _refuse_comments(table)
    draft = Draft(TOOL, table)
    draft.notes.append("order: llama.cpp's default, which Ollama runs")
    draft.notes.append("the defaults are Ollama's; a base model may bring its own")
    llama_chain.put_steps(draft, DEFAULTS)
    llama_chain.arrange_chain(draft, DEFAULTS)
    _take_settings(draft, instructions)
    _report_dropped(draft, dropped)
    _report_refused(draft)
    if not any(instruction.name == "from" for instruction in instructions):
        draft.reported.append("FROM: the file names no base model; Ollama refuses it")
    return draft


def _refuse_comments(table: ForeignTable) -> None:
    for key in (*SPELLINGS, *_NUMBERS):
        if table.is_given(key) and "#" in str(table.raw(key)):
            raise table.fault(key, "a number; # begins a comment only where a line begins")


def _take_settings(draft: Draft, instructions: Sequence[Instruction]) -> None:
    _take_length(draft)
    draft.take_seed("seed")
    stops = [step.value for step in instructions if step.parameter == "stop" and step.value]
    if stops:
        draft.extras["stop"] = list(dict.fromkeys(stops))
    systems = [step.value for step in instructions if step.name == "system"]
    if systems and systems[-1]:
        draft.extras["system"] = systems[-1]


def _take_length(draft: Draft) -> None:
    """Carry over ``num_predict``, whose every value below 1 means no limit.

    Ollama sends a negative one to llama-server as ten contexts (boundedNumPredict), where -2 once meant one; it
    leaves a 0 out of the request (``n_predict,omitempty``), and llama-server's own default has no limit.
    """
    limit = draft.table.whole_number("num_predict")
    if limit is None:
        return
    draft.take_max_tokens("num_predict", range(min(limit, 0), 1))
    if limit == -1:
        draft.notes.append("max_tokens -1: Ollama ends after ten contexts, a run here when the context is full")
    elif limit < 1:
        reason = "since it leaves a 0 out of the request" if limit == 0 else "as every negative number is"
        draft.report_changed("num_predict", f"Ollama reads it as no limit, {reason}; written as max_tokens -1")


def _report_dropped(draft: Draft, dropped: dict[str, str]) -> None:
    is_mirostat_on = dropped.get("mirostat", "0") != "0"
    for key, value in dropped.items():
        neutral, effect = _DROPPED[key]
        if value != neutral and (is_mirostat_on or not key.startswith("mirostat_")):
            draft.reported.append(f"{key} {value}: Ollama drops it with a warning since May 2025; {effect}")


def _report_refused(draft: Draft) -> None:
    names = {name for spellings in SPELLINGS.values() for name in spellings} | {*_SILENT, *_NUMBERS}
    for key in draft.table.unknown({*_SILENT, *_NUMBERS}):
        if key in _REFUSED:
            draft.report(key, f"Ollama refuses it as unknown; {_REFUSED[key]}")
        elif key.lower() in names:
            draft.report(key, f"Ollama refuses it as unknown: it reads {key.lower()} in lower case only")
        else:
            draft.report(key, "Ollama refuses it as unknown; it was left out")
