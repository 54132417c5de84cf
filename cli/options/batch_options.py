"""What `gen batch` was asked for, and what can be seen as wrong with it at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import typer

from ..inputs.grammar import grammar_flag
from . import flags as o
from .checks import check_model, check_text
from .run_options import GrammarOptions, ModelOptions

_MOST = 256  # sequences in one context; what llama.cpp is built for


@dataclass(frozen=True)
class BatchOptions(ModelOptions, GrammarOptions):
    """What `gen batch` was asked for."""

    requests: Path
    output: Path
    template: str | None
    format_: o.BatchFormat
    resume: bool
    parallel: int | None
    deterministic: bool
    preset: str | None
    chain: str | None
    set_: list[str] | None
    seed: int
    temp: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    logprobs: int | None
    max_tokens: int | None
    stop: list[str] | None
    chat: bool | None
    system: str | None

    @property
    def pipes(self) -> bool:
        """Do the results go to stdout?"""
        return str(self.output) == "-"


def check_batch(options: BatchOptions) -> None:
    """Refuse what needs neither a file nor a model to be seen as wrong."""
    check_model(options)
    for field in fields(options):
        check_text(field.name, getattr(options, field.name))
    grammar_flag(options)
    if options.logprobs is not None and options.logprobs < (-1 if options.format_ is o.BatchFormat.jsonl else 0):
        raise typer.BadParameter(f"--logprobs: {options.logprobs} is not ≥ 0, nor, in jsonl, -1 for all")
    if options.max_tokens is not None and (options.max_tokens == 0 or options.max_tokens < -1):
        raise typer.BadParameter(f"-n: {options.max_tokens} is not ≥ 1, nor -1 for no limit")
    if options.parallel is not None and not 1 <= options.parallel <= _MOST:
        raise typer.BadParameter(f"--parallel: {options.parallel} is not within 1..{_MOST}")
    if not -1 <= options.seed < 2**32:
        raise typer.BadParameter(f"--seed: {options.seed} is not within 0..4294967295, nor -1 for a fresh one")
    if options.chat is False and options.system is not None:
        raise typer.BadParameter("--system needs the chat template, and --no-chat leaves it out")
    _check_files(options)


def _check_files(options: BatchOptions) -> None:
    piped = options.pipes
    if options.resume and piped:
        raise typer.BadParameter("--resume goes on with a file; name it with -o")
    if options.template is None and options.requests.suffix.lower() == ".csv":
        raise typer.BadParameter("--template says what is asked of a row, such as --template 'Summarise: {text}'")
    files = options.requests, options.output
    if not piped and all(file.exists() for file in files) and options.requests.samefile(options.output):
        raise typer.BadParameter(f"-o: {options.output} is the file of the requests")
