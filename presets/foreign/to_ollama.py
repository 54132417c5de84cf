"""A preset as Ollama's Modelfile. The order is llama.cpp's default, and cannot be changed.

Every parameter of the chain is written, also of what is off. What a Modelfile lacks comes from the base
model (server/create.go, ``setParameters``), otherwise from Ollama, whose defaults switch on top_k, top_p and a
temperature of 0.8 (api/types.go, ``DefaultOptions``).
"""

from __future__ import annotations

from ..errors import PresetError
from .llama_chain import ORDER
from .modelfile import parse_modelfile
from .ollama import SPELLINGS
from .outgoing import Exported, Outgoing, StepKeys

_KEYS = {
    "penalties": StepKeys(
        "penalties",
        {
            "repeat": "repeat_penalty",
            "presence": "presence_penalty",
            "frequency": "frequency_penalty",
            "last_n": "repeat_last_n",
        },
    ),
    "top_k": StepKeys("top_k", {"k": "top_k"}),
    "typical": StepKeys("typical", {"p": "typical_p"}),
    "top_p": StepKeys("top_p", {"p": "top_p"}),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
}
_OFF = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def to_modelfile(out: Outgoing) -> Exported:
    """Return the Modelfile; its FROM line is a placeholder."""
    out.say_steps(_KEYS)
    name = out.selector_name
    if name == "greedy":
        if "temperature" in out.order:
            out.drop("temperature", ["temperature"], "the most likely token is taken, which is temperature 0")
        out.values["temperature"] = 0.0
    elif name != "dist":
        out.report(name, "Ollama does not draw so; a plain draw was written")
    out.report_order(ORDER)
    values = {**_OFF, **out.values}
    out.values = {}
    keys = {"max_tokens": "num_predict", "seed": "seed", "stop": "stop", "system": "system"}
    out.take_extras(keys, unlimited=-1)
    lines = ["# The name of a model, or the path of a GGUF file.", "FROM model"]
    order = [names[0] for names in SPELLINGS.values()]
    lines += [f"PARAMETER {key} {values[key]}" for key in sorted(values, key=order.index)]
    lines += [f"PARAMETER {key} {out.values[key]}" for key in ("num_predict", "seed") if key in out.values]
    for text in out.values.get("stop", []):
        lines += _quoted(out, "PARAMETER stop", text)
    if out.values.get("system"):
        lines += _quoted(out, "SYSTEM", out.values["system"])
    return out.exported("\n".join(lines) + "\n")


def _quoted(out: Outgoing, start: str, text: str) -> list[str]:
    """The line of an instruction with a text that reads back as it is; else none, and a report."""
    for quotes in ("", '"', '"""'):
        line = f"{start} {quotes}{text}{quotes}"
        try:
            instructions = parse_modelfile(f"FROM x\n{line}\n", "")
        except PresetError:
            continue
        if len(instructions) == 2 and instructions[1].value == text and "\r" not in text:
            return [line]
    out.report(start.rsplit(maxsplit=1)[-1].lower(), f"no quotes of a Modelfile can hold {text!r}")
    return []
