"""`gen score`: the logprob of a text, or of several continuations of a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...common.errors import UsageError
from ...common.files import input_name, is_stdin, open_input
from ...common.flags import at_least
from ...common.text import count_noun
from ...jobs.lines import BackgroundReader, number_lines
from ...jobs.scoring import LineScore, scored_choices, scored_lines, scored_text, stride_problem
from ..command_options import takes_options
from ..flags import Options, argument, flag
from ..inputs.model import find_model, load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, flag_sentence, print_message, print_note
from ..options.model import ClusterOptions, LogOptions, ModelOptions
from ..options.prompt import EscapeOptions, PromptOptions

if TYPE_CHECKING:
    from ...engine.model import Model


_score = partial(flag, panel="Scoring")


class ScoreFormat(StrEnum):
    """A format of scores."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


@dataclass(frozen=True, kw_only=True)
class ScoredTextOptions(PromptOptions):
    """The sources of the scored text, or of the prompt before the choices."""

    prompt: str | None = argument(
        "TEXT",
        help="The text to score, or the prompt before --choices; - reads stdin.",
        display_name="the prompt",
        has_escapes=True,
    )
    prompt_option: str | None = flag(
        "-p",
        "--prompt",
        panel="Prompt",
        help="The text to score, or the prompt before --choices, as an option.",
        display_name="the prompt",
        has_escapes=True,
    )
    file: Path | None = _score("-f", "--file", help="Read the text from a file; - reads stdin.")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(Options):
    """The options of `gen score`."""

    text: ScoredTextOptions
    escapes: EscapeOptions
    choices: list[str] | None = _score(
        "--choices",
        "--choice",
        metavar="TEXT",
        help="Score this continuation of the prompt; repeatable.",
        has_escapes=True,
    )
    lines: Path | None = _score(
        "--jsonl",
        help='Score each line of a file: {"prompt", "choices"} or {"text"}; - reads stdin. Prints JSONL.',
    )
    stride: int | None = _score(
        "--stride",
        help="Tokens from one scoring window to the next, if the text exceeds the context. [half of the context]",
        limit=at_least(1),
    )
    strict: bool = _score(
        "--strict",
        help="Reject a prompt that exceeds the context together with a choice. [cut off the prompt's beginning]",
        default=False,
    )
    tokens: bool = _score("--tokens", help="Also show each token in the table.", default=False)
    format: ScoreFormat | None = _score("--format", help="Format of scores; with --jsonl always jsonl. [table]")
    model: ModelOptions
    cluster: ClusterOptions
    log: LogOptions

    @property
    def is_table(self) -> bool:
        return self.format in (None, ScoreFormat.table)

    def check(self) -> None:
        if self.tokens and not self.is_table:
            raise UsageError("--tokens is for the table; the other formats always include the tokens")
        if self.lines is not None:
            self._check_no_other_source()
        elif self.cluster.on is not None:
            raise UsageError("--on needs --jsonl")
        if self.choices:
            self._check_choices()
        if self.strict and not self.choices and self.lines is None:
            raise UsageError("--strict is for choices; a text that exceeds the context is read in windows")

    def _check_no_other_source(self) -> None:
        text = self.text
        excluded = {
            "a text": any(source is not None for source in (text.prompt, text.prompt_option, text.file)),
            "--choices": bool(self.choices),
            "--tokens": self.tokens,
            "--format table": self.format is ScoreFormat.table,
            "--format json": self.format is ScoreFormat.json,
        }
        for name, is_given in excluded.items():
            if is_given:
                raise UsageError(f"--jsonl cannot be combined with {name}; the file's lines define what is scored")

    def _check_choices(self) -> None:
        if self.tokens:
            raise UsageError("--tokens is for a text; --format json has the tokens of choices")
        if self.stride is not None:
            raise UsageError(
                "--stride is for texts longer than the context; of a prompt with choices, the beginning is cut off"
            )


@takes_options(ScoreOptions)
def score(options: ScoreOptions) -> None:
    """Score a text, or continuations of a prompt, by the model's logprobs.

    Sums are in nats, over all tokens except the first (BOS, if the model has one), which has no logprob.
    """
    show_llama_cpp_messages(options.log)
    text = "" if options.lines is not None else read_prompt(options.text)
    if options.lines is None and not text and not options.choices:
        raise UsageError("there is nothing to score: the text is empty")
    if options.cluster.on is not None:
        with interruptible() as interrupt:
            _score_on_cluster(options, interrupt)
            if interrupt.requested:
                raise typer.Exit(interrupt.exit_code)
        return
    with interruptible() as interrupt, load_model(options.model, interrupt) as model:
        problem = stride_problem(options.stride, model)
        if problem is not None:
            raise UsageError(problem)
        if options.lines is not None:
            _score_lines(model, options.lines, options, interrupt)
        elif options.choices:
            scores = scored_choices(model, text, options.choices, rejects_long_prompts=options.strict)
            _show_choices(text, scores, options)
        else:
            _show_text(model, text, options, interrupt)
        if interrupt.requested:
            sys.stdout.flush()
            raise typer.Exit(interrupt.exit_code)


def _score_lines(model: Model, path: Path, options: ScoreOptions, interrupt: Interrupt) -> None:
    """Print the score of each line of a file; a line that cannot be scored gets a record with its error."""
    with open_input(path) as file:
        lines = number_lines(file)
        scores = scored_lines(
            model, lines, options.stride, rejects_long_prompts=options.strict, describe_error=flag_sentence
        )
        has_failures = _print_scores(scores, path, is_over=lambda: interrupt.requested)
    if has_failures and not interrupt.requested:
        raise typer.Exit(FAILED)


def _score_on_cluster(options: ScoreOptions, interrupt: Interrupt) -> None:
    """Print the scores of a file of lines, computed by workers."""
    from ...jobs.workers import (
        LINES_PER_SHARD,
        ScoreServiceSpec,
        model_for_workers,
        scores_on_cluster,
        wait_for_model,
    )
    from ..inputs.model import cluster_workers
    from ..render.batch_progress import report_workers, stop_check_with_note

    path = options.lines
    if path is None:
        raise UsageError("--on needs --jsonl")

    spec = model_for_workers(find_model(options.model, interrupt), options.cluster.worker_cpus)
    service = ScoreServiceSpec(
        spec, options.stride, rejects_long_prompts=options.strict, describe_error=flag_sentence
    )
    workers = cluster_workers(options.cluster, spec, service, sequences=1, shard_size=LINES_PER_SHARD)
    with workers as run, open_input(path) as file:
        wait_for_model(run, interrupt.raise_if_requested)
        numbered_lines = number_lines(file)
        lines = numbered_lines if path.is_file() else BackgroundReader(numbered_lines)
        scores = scores_on_cluster(run, lines, stop_check_with_note(interrupt))
        has_failures = _print_scores(scores, path, is_over=lambda: False)
        worker_statuses = run.worker_statuses
    report_workers(worker_statuses)
    if has_failures and not interrupt.requested:
        raise typer.Exit(FAILED)


def _print_scores(scores: Iterable[LineScore], path: Path, is_over: Callable[[], bool]) -> bool:
    """Print each score, or the error of the line, immediately. Return whether a line has an error."""
    # ``is_over`` is called after each score. Once it returns True, the other scores are not awaited.
    from ..render.progress import counting_bar

    has_failures = False
    with counting_bar("Scoring", _count_lines(path)) as advance_bar:
        for score in scores:
            print(score.output, flush=True)
            if score.problem is not None:
                has_failures = True
                print_message(f"gen: {input_name(path)}: line {score.number}: {score.problem}")
            advance_bar()
            if is_over():
                break
    return has_failures


def _count_lines(path: Path) -> int | None:
    """Return the number of lines that are not empty; None if the lines can be read only once."""
    if is_stdin(path) or not path.is_file():
        return None
    with open_input(path) as file:
        return sum(1 for _ in number_lines(file))


def _show_text(model: Model, text: str, options: ScoreOptions, interrupt: Interrupt) -> None:
    from ..render import scores
    from ..render.progress import scoring_bar

    with scoring_bar() as progress, interrupt.graceful_shutdown():
        tokens_so_far = scored_text(model, text, options.stride, progress, lambda: interrupt.requested)
        if options.format is ScoreFormat.jsonl:
            tokens = scores.write_score_lines(tokens_so_far, model, sys.stdout)
        else:
            tokens = list(tokens_so_far)
    if options.format is ScoreFormat.json:
        scores.write_text_score(tokens, sys.stdout)
    elif options.is_table:
        scores.show_text_score(tokens, options.tokens)
    if interrupt.requested:
        print_note(f"interrupted: only the first {count_noun(len(tokens), 'token')} of the text were scored")
    elif len(tokens) == 1:
        print_note("a text of one token has no logprob, because no token precedes it")


def _show_choices(prompt: str, scores: dict[str, Any], options: ScoreOptions) -> None:
    from ...common.strict_json import encode_json
    from ..render.scores import show_choice_scores

    if options.is_table:
        show_choice_scores(scores["choices"])
        for text in scores.get("notes", ()):
            print_note(text)
    else:
        print(encode_json({"logprobs_from": "model", "prompt": prompt, **scores}))
