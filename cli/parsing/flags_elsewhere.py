"""Flags that other commands or other tools have, and what to type here."""

from __future__ import annotations

from collections.abc import Collection

from .respelled_flags import respelled

_USE = {
    "--max-tokens --max-new-tokens --max-length --num-tokens --num-predict": "-n N",
    "--min-new-tokens --min-length": "--set min_tokens=N",
    "--ctx --context --contextsize --num-ctx --n-ctx --context-length": "-c N",
    "--max-context-length --max-model-len --max-seq-len": "-c N",
    "--num-gpu --gpulayers": "-ngl N",
    "--num-thread --n-threads": "-t N",
    "--num-batch --n-batch --blasbatchsize": "-b N",
    "--model-path --model-name": "-m MODEL",
    "--adapter --adapter-path --lora-path": "--lora FILE",
    "--prompt-file": "-f FILE",
    "--system-message --instruction": "--system TEXT",
    "--ignore-chat-template --raw": "--no-chat",
    "--stop-sequence --stop-sequences --stop-strings --stopping-strings --custom-stopping-strings": "--stop TEXT",
    "--ban-eos-token --ban-eos": "--ignore-eos",
    "--rep-pen --repetition-penalty --rp": "--repeat-penalty N",
    "--rep-pen-range --repetition-penalty-range --repetition-context-size": "--repeat-last-n N",
    "--rep-pen-slope": "--set repetition_penalty.slope=N with --set repetition_penalty.penalty=N and --set"
    " repetition_penalty.range=N; for KoboldCpp's slope also --set repetition_penalty.shape=halves",
    "--freq-pen --frequency-pen": "--frequency-penalty N",
    "--presence-pen --pres-pen": "--presence-penalty N",
    "--mirostat-mode": "--mirostat N",
    "--mirostat-tau": "--mirostat-ent N",
    "--mirostat-eta": "--mirostat-lr N",
    "--dynatemp-low --dynatemp-high": "--dynatemp-range N",
    "--dynatemp-exponent": "--dynatemp-exp N",
    "--xtc-prob": "--xtc-probability N",
    "--dry-range": "--dry-penalty-last-n N",
    "--smoothing-curve": "--set quadratic.curve=N",
    "--tfs-z": "--set tfs.z=N",
    "--sampler-order --sampler-priority --temperature-last --temp-last": "--chain STEPS",
    "--greedy": "--temp 0",
    "--json": "--format jsonl, or --grammar json",
    "--schema --guided-json --response-format": "-j SCHEMA, or -jf FILE",
    "--guided-regex": "--regex PATTERN",
    "--guided-grammar --grammar-string": "--grammar NAME",
    "--top-logprobs --n-probs": "--logprobs N",
    "--base-url --url": "--endpoint URL",
}
"""Flags and settings of other tools, and what a command of `gen` has in their place.

The tools are KoboldAI, KoboldCpp, text-generation-webui, Ollama, llm, transformers, vLLM and mlx-lm.
"""
_LEAVE_OUT = {
    "--no-stream": "gen writes the text as it is made",
    "--do-sample": "gen draws by chance, except with --temp 0",
    "--num-beams": "gen has no beam search",
}
"""Flags of other tools that have no place in `gen`, and the reason."""

_INSTEAD = {flag: instead for flags, instead in _USE.items() for flag in flags.split()}

_PROMPT_OF_CHAT = "pipe it in: echo TEXT | gen chat; or, for one answer: gen --chat TEXT"
_OTHER_WAYS = {
    ("gen batch", "--endpoint"): "gen batch runs a model of this machine: -m MODEL",
    ("gen chat", "-p"): _PROMPT_OF_CHAT,
    ("gen chat", "--prompt"): _PROMPT_OF_CHAT,
}
"""What to do instead of a flag that a command lacks."""


def flag_of_run(flag: str) -> str | None:
    """Return the flag of `gen run` that another tool's flag stands for; None if there is none."""
    instead = _INSTEAD.get(respelled(flag))
    return None if instead is None else instead.split()[0].rstrip(",")


def other_way(command: str, flag: str, flags: Collection[str] = ()) -> str | None:
    """What to do instead of a flag that a command lacks, as one sentence; None if nothing is known.

    Args:
        command: as it is typed, such as ``gen batch``.
        flag: as it was typed.
        flags: those that the command has.
    """
    instead, reason = _INSTEAD.get(respelled(flag)), _LEAVE_OUT.get(respelled(flag))
    if (command, flag) in _OTHER_WAYS:
        return f"{command} has no {flag}; {_OTHER_WAYS[command, flag]}"
    if instead is not None and flag_of_run(flag) in flags:
        return f"there is no flag {flag}; use {instead}"
    if reason is not None and "--chain" in flags:
        return f"there is no flag {flag}; leave it out: {reason}"
    return None
