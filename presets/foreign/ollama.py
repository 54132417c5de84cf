"""Ollama's Modelfile: one instruction per line, of which PARAMETER and SYSTEM are read.

The grammar follows Ollama's parser. The case of instructions does not matter. ``#`` begins a comment only at
the start of a line. A value is plain, in ``"`` or in three of them, and may then span several lines. It is kept
as it is written. Quotes end only at the end of a line.

Ollama runs llama.cpp's chain in its default order, which cannot be changed, with defaults of Ollama's
(api/types.go, ``DefaultOptions``): they switch on top_k, top_p and a temperature of 0.8, and hold where the
file is silent unless the base model brings others (server/create.go, ``setParameters``). So an export writes
every parameter of the chain, also of what is off. Names that Ollama refuses are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import PresetError
from . import llama_cpp as llama_chain
from .conversion import ExportedPreset, ImportedChainBuilder, PresetExporter
from .sampler_keys import off_values, rename_keys
from .table import ForeignTable

TOOL = "Ollama"
INSTRUCTIONS = (
    *("from", "parameter", "system", "template", "message", "adapter", "license", "renderer", "parser"),
    *("requires", "draft"),
)

_DEFAULTS = {"temp": 0.8, "top-k": 40, "top-p": 0.9}
_SPELLINGS = {
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


@dataclass(frozen=True)
class Instruction:
    """An instruction in lower case, its value, and its line; ``parameter`` is the name behind PARAMETER."""

    name: str
    value: str
    line: int
    parameter: str = ""


def parse_modelfile(text: str, origin: str) -> list[Instruction]:
    """Return the instructions; raises ``PresetError`` with the line of an unknown or unfinished one."""
    lines = text.split("\n")
    instructions: list[Instruction] = []
    number = 0
    while number < len(lines):
        line, start = lines[number].lstrip(" \t"), number + 1
        number += 1
        if not line or line.startswith("#"):
            continue
        name, _, value = _cut(line)
        if name.lower() not in INSTRUCTIONS:
            raise PresetError(f"{origin}: line {start}: {name!r} is no instruction of a Modelfile")
        parameter = ""
        if name.lower() == "parameter":
            parameter, _, value = _cut(value)
        while _unquoted(value) is None:
            if number == len(lines):
                raise PresetError(f"{origin}: line {start}: the quotes of {name} are not closed")
            value += "\n" + lines[number]
            number += 1
        unquoted = _unquoted(value) or ""
        if not value.strip():
            raise PresetError(f"{origin}: line {start}: {name} {parameter}".rstrip() + " has no value")
        instructions.append(Instruction(name.lower(), unquoted, start, parameter))
    return instructions


def _cut(line: str) -> tuple[str, str, str]:
    """The first word, the blank behind it, and the rest."""
    end = next((index for index, char in enumerate(line) if char in " \t"), len(line))
    return line[:end], line[end : end + 1], line[end:].lstrip(" \t")


def _unquoted(value: str) -> str | None:
    """The value without its quotes; None if they are not closed yet."""
    text = value.strip()
    for quotes in ('"""', '"'):
        if text.startswith(quotes):
            closed = len(text) >= 2 * len(quotes) and text.endswith(quotes)
            return text[len(quotes) : -len(quotes)] if closed else None
    return text


def convert(instructions: Sequence[Instruction], origin: str) -> ImportedChainBuilder:
    """Return the builder of a Modelfile; of a parameter that stands twice the last value counts, ``stop`` adds up.

    Raises ``PresetError`` with the line of a value that Ollama could not read either.
    """
    values = {step.parameter: step.value for step in instructions if step.parameter}
    lines = {step.parameter: step.line for step in instructions if step.parameter}
    values.pop("stop", None)
    dropped = {key: values.pop(key) for key in _DROPPED if key in values}
    table = ForeignTable(values, origin, _SPELLINGS, lines)
    _refuse_comments(table)
    builder = ImportedChainBuilder(TOOL, table, _DEFAULTS)
    builder.notes.append("order: llama.cpp's default, which Ollama runs")
    builder.notes.append("the defaults are Ollama's; a base model may bring its own")
    llama_chain.read_steps(builder)
    llama_chain.arrange_chain(builder)
    _read_settings(builder, instructions)
    _report_dropped(builder, dropped)
    _report_refused(builder)
    if not any(instruction.name == "from" for instruction in instructions):
        builder.unsupported_settings.append("FROM: the file names no base model; Ollama refuses it")
    return builder


def _refuse_comments(table: ForeignTable) -> None:
    for key in (*_SPELLINGS, *_NUMBERS):
        if table.is_set(key) and "#" in str(table.raw_value(key)):
            raise table.value_error(key, "a number; # begins a comment only where a line begins")


def _read_settings(builder: ImportedChainBuilder, instructions: Sequence[Instruction]) -> None:
    _read_length(builder)
    builder.read_seed("seed")
    stops = [step.value for step in instructions if step.parameter == "stop" and step.value]
    if stops:
        builder.other_settings["stop"] = list(dict.fromkeys(stops))
    systems = [step.value for step in instructions if step.name == "system"]
    if systems and systems[-1]:
        builder.other_settings["system"] = systems[-1]


def _read_length(builder: ImportedChainBuilder) -> None:
    """Carry over ``num_predict``, whose every value below 1 means no limit.

    Ollama sends a negative one to llama-server as ten contexts (boundedNumPredict), where -2 once meant one; it
    leaves a 0 out of the request (``n_predict,omitempty``), and llama-server's own default has no limit.
    """
    limit = builder.table.integer("num_predict")
    if limit is None:
        return
    builder.read_max_tokens("num_predict", range(min(limit, 0), 1))
    if limit == -1:
        builder.notes.append("max_tokens -1: Ollama ends after ten contexts, a run here when the context is full")
    elif limit < 1:
        reason = "since it leaves a 0 out of the request" if limit == 0 else "as every negative number is"
        builder.report_changed("num_predict", f"Ollama reads it as no limit, {reason}; written as max_tokens -1")


def _report_dropped(builder: ImportedChainBuilder, dropped: dict[str, str]) -> None:
    is_mirostat_on = dropped.get("mirostat", "0") != "0"
    for key, value in dropped.items():
        neutral, effect = _DROPPED[key]
        if value != neutral and (is_mirostat_on or not key.startswith("mirostat_")):
            builder.unsupported_settings.append(
                f"{key} {value}: Ollama drops it with a warning since May 2025; {effect}"
            )


def _report_refused(builder: ImportedChainBuilder) -> None:
    names = {name for spellings in _SPELLINGS.values() for name in spellings} | {*_SILENT, *_NUMBERS}
    for key in builder.table.unknown_keys({*_SILENT, *_NUMBERS}):
        if key in _REFUSED:
            builder.report_unsupported(key, f"Ollama refuses it as unknown; {_REFUSED[key]}")
        elif key.lower() in names:
            builder.report_unsupported(
                key, f"Ollama refuses it as unknown: it reads {key.lower()} in lower case only"
            )
        else:
            builder.report_unsupported(key, "Ollama refuses it as unknown; it was left out")


_NAMES = {option: names[0] for option, names in _SPELLINGS.items()}
_SAMPLER_KEYS = rename_keys(llama_chain.SAMPLER_KEYS, _NAMES)


def to_modelfile(exporter: PresetExporter) -> ExportedPreset:
    """Return the Modelfile; its FROM line is a placeholder."""
    exporter.write_steps(_SAMPLER_KEYS)
    name = exporter.selector_name
    if name == "greedy":
        if "temperature" in exporter.order:
            exporter.remove_written_step(
                "temperature", _SAMPLER_KEYS, "the most likely token is taken, which is temperature 0"
            )
        exporter.values["temperature"] = 0.0
    elif name != "dist":
        exporter.report_plain_draw()
    exporter.report_order(llama_chain.ORDER)
    values = {**off_values(_SAMPLER_KEYS), **exporter.values}
    keys = {"max_tokens": "num_predict", "seed": "seed", "stop": "stop", "system": "system"}
    settings = exporter.convert_other_settings(keys, unlimited_value=-1)
    lines = ["# The name of a model, or the path of a GGUF file.", "FROM model"]
    lines += [f"PARAMETER {name} {values[name]}" for name in _NAMES.values()]
    lines += [f"PARAMETER {key} {settings[key]}" for key in ("num_predict", "seed") if key in settings]
    for text in settings.get("stop", []):
        lines += _quoted(exporter, "PARAMETER stop", text)
    if settings.get("system"):
        lines += _quoted(exporter, "SYSTEM", settings["system"])
    return exporter.make_result("\n".join(lines) + "\n")


def _quoted(exporter: PresetExporter, start: str, text: str) -> list[str]:
    """The line of an instruction with a text that reads back as it is; else none, and a report."""
    for quotes in ("", '"', '"""'):
        line = f"{start} {quotes}{text}{quotes}"
        try:
            instructions = parse_modelfile(f"FROM x\n{line}\n", "")
        except PresetError:
            continue
        if len(instructions) == 2 and instructions[1].value == text and "\r" not in text:
            return [line]
    exporter.report_unsupported(
        start.rsplit(maxsplit=1)[-1].lower(), f"no quotes of a Modelfile can hold {text!r}"
    )
    return []
