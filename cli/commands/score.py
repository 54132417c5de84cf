"""`gen score`: how likely a text is, or each of several ways to go on from a prompt."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import INTERRUPTED, note, report_failures
from ..inputs.model import hear_llama_cpp, load_model
from ..inputs.prompt import read_prompt
from ..inputs.score_lines import score_lines
from ..inputs.scoring import scored_choices, scored_text
from ..interrupt import Interrupt, interruptible
from ..options import flags as o
from ..options.checks import check_model, check_text
from ..options.run_options import ModelOptions, PromptOptions

if TYPE_CHECKING:
    from ...engine import Model


@dataclass(frozen=True)
class ScoreOptions(PromptOptions, ModelOptions):
    """What `gen score` was asked for."""

    choices: list[str] | None
    lines: Path | None
    stride: int | None
    tokens: bool
    format_: o.ScoreFormat | None


def score(
    prompt: o.ScoreText = None,
    prompt_option: o.PromptOption = None,
    file: o.ScoreFile = None,
    choices: o.Choices = None,
    lines: o.ScoreLines = None,
    stride: o.Stride = None,
    tokens: o.ScoreTokens = False,
    format_: o.ScoreFormatOption = None,
    model: o.ModelPath = None,
    context_size: o.ContextSize = None,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    batch_size: o.BatchSize = 512,
    lora: o.Lora = None,
    no_mmap: o.NoMmap = False,
    mlock: o.Mlock = False,
    verbose: o.Verbose = False,
) -> None:
    """Score a text by the model's own logprobs, or the ways to go on from a prompt.

    Sums are nats over all tokens but the first, which has nothing before it (BOS, where the model has one).
    """
    options = ScoreOptions.of(locals())
    _check(options)
    with report_failures():
        _score(options)


def _check(options: ScoreOptions) -> None:
    check_model(options)
    texts = {"prompt": options.prompt, "prompt_": options.prompt_option, "choices": options.choices}
    for name, value in texts.items():
        check_text(name, value)
    if options.stride is not None and options.stride < 1:
        raise typer.BadParameter(f"--stride: {options.stride} is not ≥ 1")
    if options.tokens and options.format_ not in (None, o.ScoreFormat.table):
        raise typer.BadParameter("--tokens is for the table; the other formats have them anyway")
    if options.lines is not None:
        _refuse_beside_lines(options)
    if options.choices:
        _check_choices(options.choices, options)


def _refuse_beside_lines(options: ScoreOptions) -> None:
    beside = {
        "a text": (options.prompt, options.prompt_option, options.file) != (None, None, None),
        "--choices": bool(options.choices),
        "--tokens": options.tokens,
        "--format table": options.format_ is o.ScoreFormat.table,
        "--format json": options.format_ is o.ScoreFormat.json,
    }
    for name, given in beside.items():
        if given:
            raise typer.BadParameter(f"--jsonl holds what is to be scored; {name} cannot stand beside it")


def _check_choices(choices: list[str], options: ScoreOptions) -> None:
    if "" in choices:
        raise typer.BadParameter("--choices: an empty text is no way to go on")
    for number, choice in enumerate(choices):
        if choice in choices[:number]:
            raise typer.BadParameter(f"--choices: {choice!r} is given twice")
    if options.tokens:
        raise typer.BadParameter("--tokens is for a text; --format json has the tokens of choices")
    if options.stride is not None:
        raise typer.BadParameter("--stride is for texts longer than the context; a prompt with choices has to fit")


def _score(options: ScoreOptions) -> None:

    hear_llama_cpp(options)
    text = "" if options.lines is not None else read_prompt(options)
    if options.lines is None and not text and not options.choices:
        raise typer.BadParameter("there is nothing to score: the text is empty")
    with interruptible() as interrupt, load_model(options, interrupt) as model:
        _check_stride(options.stride, model)
        if options.lines is not None:
            score_lines(model, options.lines, options.stride, interrupt)
        elif options.choices:
            _show_choices(text, scored_choices(model, text, options.choices), options)
        else:
            _show_text(model, text, options, interrupt)
        if interrupt.requested:
            sys.stdout.flush()
            raise typer.Exit(INTERRUPTED)


def _check_stride(stride: int | None, model: Model) -> None:
    length = model.context.length
    if stride is not None and stride >= length:
        raise typer.BadParameter(f"--stride: {stride:,} is not less than the context of {length:,} tokens, see -c")


def _show_text(model: Model, text: str, options: ScoreOptions, interrupt: Interrupt) -> None:
    from ..render import scores
    from ..render.progress import scoring

    with scoring() as progress:
        steps = scored_text(model, text, options.stride, progress, lambda: interrupt.requested)
        if options.format_ is o.ScoreFormat.jsonl:
            found = scores.write_lines(steps, model, sys.stdout)
        else:
            found = list(steps)
    if options.format_ is o.ScoreFormat.json:
        scores.write_text(found, sys.stdout)
    elif options.format_ is not o.ScoreFormat.jsonl:
        scores.show_text(found, options.tokens)
    if interrupt.requested:
        note(f"interrupted: the score is that of the first {len(found):,} tokens")
    elif len(found) == 1:
        note("a text of one token has no logprob: nothing comes before it")


def _show_choices(prompt: str, found: dict[str, Any], options: ScoreOptions) -> None:
    from ...logprobs import encode_json
    from ..render import scores

    if options.format_ in (None, o.ScoreFormat.table):
        scores.show_choices(found["choices"])
        for text in found.get("notes", ()):
            note(text)
    else:
        print(encode_json({"logprobs_from": "model", "prompt": prompt, **found}))
