"""What the command line said: the objects that the flags fill."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .flags import Format, Source

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Options:
    """Options of a command; None where the command line said nothing."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Pick this object's fields out of a command's local variables."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class PromptOptions(Options):
    """Where a text comes from."""

    prompt: str | None
    prompt_option: str | None
    file: Path | None


@dataclass(frozen=True)
class ModelOptions(Options):
    """Which model, and how it computes."""

    model: Path | None
    context_size: int | None
    threads: int | None
    gpu_layers: int
    batch_size: int
    lora: list[str] | None
    no_mmap: bool
    mlock: bool
    verbose: bool


@dataclass(frozen=True)
class GrammarOptions(Options):
    """Where a grammar comes from."""

    grammar: str | None
    grammar_file: Path | None
    json_schema: str | None
    json_schema_file: Path | None
    regex: str | None
    lark_file: Path | None


@dataclass(frozen=True)
class RunOptions(PromptOptions, ModelOptions, GrammarOptions):
    """What the command line said; None where it said nothing."""

    chat: bool | None
    system: str | None
    echo: bool
    preset: str | None
    chain: str | None
    set_: list[str] | None
    seed: int | None
    temp: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    repeat_last_n: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    typical: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exp: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breaker: list[str] | None
    mirostat: int | None
    mirostat_lr: float | None
    mirostat_ent: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    samplers: str | None
    logit_bias: list[str] | None
    ignore_eos: bool
    grammar_root: str | None
    grammar_after: str | None
    grammar_complete: bool
    no_jump: bool
    max_tokens: int | None
    lookup: int
    stop: list[str] | None
    format_: Format
    stream: bool
    logprobs: int | None
    logprobs_from: Source | None
    logprob_of: str | None
    stats: bool
    show_config: bool
