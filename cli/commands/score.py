"""`gen score`: how likely a text is, or each of several continuations of a prompt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from ...common.errors import UsageError
from ...common.text import count_noun
from ..command_options import takes_options
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..interrupt import Interrupt, interruptible
from ..jobs.scoring import score_lines, scored_choices, scored_text, stride_problem
from ..messages import note
from ..options.score import ScoreFormat, ScoreOptions

if TYPE_CHECKING:
    from ...engine.model import Model


@takes_options(ScoreOptions)
def score(options: ScoreOptions) -> None:
    """Score a text by the model's own logprobs, or several continuations of a prompt.

    Sums are nats over all tokens but the first, which has nothing before it (BOS, where the model has one).
    """
    show_llama_cpp_messages(options.log)
    text = "" if options.lines is not None else read_prompt(options.text)
    if options.lines is None and not text and not options.choices:
        raise UsageError("there is nothing to score: the text is empty")
    if options.cluster.on is not None:
        from ..jobs.workers import score_on_cluster

        with interruptible() as interrupt:
            score_on_cluster(options, interrupt)
            if interrupt.requested:
                raise typer.Exit(interrupt.exit_code)
        return
    with interruptible() as interrupt, load_model(options.model, interrupt) as model:
        problem = stride_problem(options.stride, model)
        if problem is not None:
            raise UsageError(problem)
        if options.lines is not None:
            score_lines(model, options.lines, options.stride, interrupt, is_strict=options.strict)
        elif options.choices:
            _show_choices(text, scored_choices(model, text, options.choices, is_strict=options.strict), options)
        else:
            _show_text(model, text, options, interrupt)
        if interrupt.requested:
            sys.stdout.flush()
            raise typer.Exit(interrupt.exit_code)


def _show_text(model: Model, text: str, options: ScoreOptions, interrupt: Interrupt) -> None:
    from ..render import scores
    from ..render.progress import scoring

    with scoring() as progress, interrupt.ending_soon():
        steps = scored_text(model, text, options.stride, progress, lambda: interrupt.requested)
        if options.format is ScoreFormat.jsonl:
            tokens = scores.write_lines(steps, model, sys.stdout)
        else:
            tokens = list(steps)
    if options.format is ScoreFormat.json:
        scores.write_text(tokens, sys.stdout)
    elif options.is_table:
        scores.show_text(tokens, options.tokens)
    if interrupt.requested:
        note(f"interrupted: the score is that of the first {count_noun(len(tokens), 'token')}")
    elif len(tokens) == 1:
        note("a text of one token has no logprob: nothing comes before it")


def _show_choices(prompt: str, scores: dict[str, Any], options: ScoreOptions) -> None:
    from ...common.strict_json import encode_json
    from ..render.scores import show_choices

    if options.is_table:
        show_choices(scores["choices"])
        for text in scores.get("notes", ()):
            note(text)
    else:
        print(encode_json({"logprobs_from": "model", "prompt": prompt, **scores}))
