"""Import and export of Ollama's Modelfile, of which PARAMETER and SYSTEM are imported.

Ollama runs llama.cpp's chain in the default order, which cannot be changed. An absent parameter has the value of
the base model (server/create.go, ``setParameters``), or else Ollama's default (api/types.go, ``DefaultOptions``).
These defaults turn on top_k, top_p and a temperature of 0.8. So an export writes every parameter of the chain,
even of steps that are off. Parameters that Ollama rejects are reported.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..errors import PresetError
from ..parameter_names import names_by_option
from . import llama_cpp as llama_chain
from .conversion import Imported, ImportedChainBuilder
from .exporter import PresetExporter
from .modelfile import Instruction, is_modelfile, parse_modelfile
from .other_keys import other_keys
from .preset_file import PresetFile
from .registry import Format
from .sampler_keys import off_values, rename_keys
from .table import ForeignTable

TOOL = "Ollama"
_DEFAULTS = {"temp": 0.8, "top-k": 40, "top-p": 0.9}
_PARAMETER_BY_OPTION = names_by_option("ollama")
# in the order of Ollama's documentation
_OPTIONS = (
    *("temp", "top-k", "top-p", "min-p", "typical", "repeat-penalty", "repeat-last-n", "presence-penalty"),
    "frequency-penalty",
)
_NUMBER_PARAMETERS = ("num_predict", "seed")
_DROPPED_PARAMETERS = {
    "mirostat": ("0", "it would have kept the surprise of the text constant"),
    "mirostat_tau": ("", "it would have set mirostat's target surprise"),
    "mirostat_eta": ("", "it would have set mirostat's learning rate"),
    "penalize_newline": ("true", "it would have spared the newline from the penalties"),
}
_REJECTED_PARAMETERS = {
    "tfs_z": "until December 2024 it cut off the tail of the tokens",
    "grammar": "it would have made the text match a grammar",
}


def recognize(file: PresetFile) -> float:
    """Return 1 for a file that begins with an instruction, and otherwise 0."""
    return float(is_modelfile(file.text))


def read(file: PresetFile) -> Imported:
    return convert(parse_modelfile(file.text, file.origin), file.origin).imported()


def convert(instructions: Sequence[Instruction], origin: str) -> ImportedChainBuilder:
    # If a parameter occurs several times, the last value counts; the values of ``stop`` are collected.
    values = {step.parameter: step.value for step in instructions if step.parameter}
    lines = {step.parameter: step.line for step in instructions if step.parameter}
    values.pop("stop", None)
    dropped_values = {key: values.pop(key) for key in _DROPPED_PARAMETERS if key in values}
    table = ForeignTable(values, origin, {option: (name,) for option, name in _PARAMETER_BY_OPTION.items()}, lines)
    _reject_comments(table)
    builder = ImportedChainBuilder(TOOL, table, _DEFAULTS)
    builder.notes.append("order: llama.cpp's default, which Ollama runs")
    builder.notes.append("the defaults are Ollama's; a base model may have other ones")
    llama_chain.read_steps(builder)
    llama_chain.report_negative_windows(builder, "llama-server, which Ollama runs, now rejects it")
    llama_chain.arrange_chain(builder)
    _read_other_settings(builder, instructions)
    _report_dropped(builder, dropped_values)
    _report_rejected(builder)
    for instruction in instructions:
        if instruction.name == "adapter":
            adapter = shlex.quote(instruction.value)
            builder.unsupported_settings.append(
                f"ADAPTER {instruction.value}: not part of a preset; gen run applies it with --lora {adapter}"
            )
    messages = [instruction for instruction in instructions if instruction.name == "message"]
    if messages:
        places = ", ".join(str(message.line) for message in messages)
        builder.unsupported_settings.append(
            f"MESSAGE (line {places}): messages that begin a chat are not part of a preset"
        )
    if not any(instruction.name == "from" for instruction in instructions):
        builder.unsupported_settings.append("FROM: the file names no base model; Ollama rejects the file")
    return builder


def _reject_comments(table: ForeignTable) -> None:
    for key in (*_OPTIONS, *_NUMBER_PARAMETERS):
        if table.is_set(key) and "#" in str(table.raw_value(key)):
            raise table.value_error(key, "a number; # begins a comment only where a line begins")


def _read_other_settings(builder: ImportedChainBuilder, instructions: Sequence[Instruction]) -> None:
    _read_max_tokens(builder)
    builder.read_seed("seed")
    stops = [step.value for step in instructions if step.parameter == "stop" and step.value]
    if stops:
        builder.other_settings["stop"] = list(dict.fromkeys(stops))
    systems = [step.value for step in instructions if step.name == "system"]
    if systems and systems[-1]:
        builder.other_settings["system"] = systems[-1]


def _read_max_tokens(builder: ImportedChainBuilder) -> None:
    """Carry over ``num_predict``. Every value below 1 means no limit."""
    # Ollama sends a negative value to llama-server as ten contexts (boundedNumPredict); -2 once meant one context.
    # 0 is left out of the request (``n_predict,omitempty``), and llama-server's default means no limit.
    max_tokens = builder.table.integer("num_predict")
    if max_tokens is None:
        return
    builder.read_max_tokens("num_predict", range(min(max_tokens, 0), 1))
    if max_tokens == -1:
        builder.notes.append(
            "max_tokens -1: Ollama ends after ten contexts, and gen ends when the context is full"
        )
    elif max_tokens < 1:
        reason = ", since it leaves a 0 out of the request" if max_tokens == 0 else ", like every negative number"
        builder.report_changed("num_predict", f"Ollama reads it as no limit{reason}; written as max_tokens -1")


def _report_dropped(builder: ImportedChainBuilder, dropped_values: dict[str, str]) -> None:
    is_mirostat_on = dropped_values.get("mirostat", "0") != "0"
    for key, value in dropped_values.items():
        neutral_value, effect = _DROPPED_PARAMETERS[key]
        if value != neutral_value and (is_mirostat_on or not key.startswith("mirostat_")):
            builder.unsupported_settings.append(
                f"{key} {value}: Ollama drops it with a warning since May 2025; {effect}"
            )


def _report_rejected(builder: ImportedChainBuilder) -> None:
    other_parameters = {*other_keys("ollama"), *_NUMBER_PARAMETERS}
    known_parameters = {*_PARAMETER_BY_OPTION.values(), *other_parameters}
    for key in builder.table.unknown_keys(other_parameters):
        if key in _REJECTED_PARAMETERS:
            builder.report_unsupported(key, f"Ollama rejects it as unknown; {_REJECTED_PARAMETERS[key]}")
        elif key.lower() in known_parameters:
            builder.report_unsupported(
                key, f"Ollama rejects it as unknown: it reads {key.lower()} in lower case only"
            )
        else:
            builder.report_unsupported(key, "Ollama rejects it as unknown; it was left out")


_SAMPLER_KEYS = rename_keys(llama_chain.SAMPLER_KEYS, _PARAMETER_BY_OPTION)


def to_modelfile(exporter: PresetExporter) -> str:
    # The FROM line is a placeholder.
    exporter.replace_greedy()
    exporter.write_steps(_SAMPLER_KEYS)
    if exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.report_order(llama_chain.DEFAULT_ORDER)
    values = {**off_values(_SAMPLER_KEYS), **exporter.values}
    keys = {"max_tokens": "num_predict", "seed": "seed", "stop": "stop", "system": "system"}
    settings = exporter.convert_other_settings(keys, unlimited_value=-1)
    lines = ["# The name of a model, or the path of a GGUF file.", "FROM model"]
    lines += [f"PARAMETER {name} {values[name]}" for name in map(_PARAMETER_BY_OPTION.__getitem__, _OPTIONS)]
    lines += [f"PARAMETER {key} {settings[key]}" for key in ("num_predict", "seed") if key in settings]
    for text in settings.get("stop", []):
        lines += _quoted_lines(exporter, "PARAMETER stop", text)
    if settings.get("system"):
        lines += _quoted_lines(exporter, "SYSTEM", settings["system"])
    return "\n".join(lines) + "\n"


def _quoted_lines(exporter: PresetExporter, start: str, text: str) -> list[str]:
    """Return the line of an instruction with quotes from which the text can be read back unchanged."""
    # If there are no such quotes, report the text and return no line.
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


FORMATS = (
    Format(
        name="ollama",
        tool=TOOL,
        description="a Modelfile of Ollama",
        read=read,
        write=to_modelfile,
        recognize=recognize,
        aliases=("modelfile",),
    ),
)
