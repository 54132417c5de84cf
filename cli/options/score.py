"""The options of `gen score`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from ..flags import Options, argument, at_least, flag, options_class
from .model import ClusterOptions, LogOptions, ModelOptions
from .prompt import EscapeOptions, PromptOptions

_score = partial(flag, panel="Scoring")


class ScoreFormat(StrEnum):
    """How scores are written."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


@options_class
class ScoredTextOptions(PromptOptions):
    """Where the text comes from, or the prompt of the choices."""

    prompt: str | None = argument(
        "TEXT", help="The text to score; with --choices, the prompt.", called="the prompt", has_escapes=True
    )
    file: Path | None = _score("-f", "--file", help="Read the text from a file; - is stdin.")


@options_class
class ScoreOptions(Options):
    """The options of `gen score`."""

    text: ScoredTextOptions
    escapes: EscapeOptions
    choices: list[str] | None = _score(
        "--choices", "--choice", metavar="TEXT", help="Score this behind the prompt; repeatable.", has_escapes=True
    )
    lines: Path | None = _score(
        "--jsonl", help='A file of {"prompt", "choices"} or {"text"}, one a line; - is stdin. Prints JSONL.'
    )
    stride: int | None = _score(
        "--stride",
        help="Tokens from window to window, if the text exceeds the context. [half of it]",
        limit=at_least(1),
    )
    strict: bool = _score(
        "--strict",
        help="Reject a prompt that does not fit into the context with a choice. [cut off its beginning]",
        default=False,
    )
    tokens: bool = _score("--tokens", help="Also each token, in the table.", default=False)
    format: ScoreFormat | None = _score("--format", help="table, json, or jsonl. [table]")
    model: ModelOptions
    cluster: ClusterOptions
    log: LogOptions

    @property
    def is_table(self) -> bool:
        """True if the scores are printed as a table."""
        return self.format in (None, ScoreFormat.table)

    def check(self) -> None:
        """Refuse what cannot stand together."""
        if self.tokens and not self.is_table:
            raise UsageError("--tokens is for the table; the other formats have them anyway")
        if self.lines is not None:
            self._check_alone()
        elif self.cluster.on is not None:
            raise UsageError("--on goes with --jsonl")
        if self.choices:
            self._check_choices(self.choices)
        if self.strict and not self.choices and self.lines is None:
            raise UsageError("--strict is for choices; a text that exceeds the context is read in windows")

    def _check_alone(self) -> None:
        text = self.text
        others = {
            "a text": (text.prompt, text.prompt_option, text.file) != (None, None, None),
            "--choices": bool(self.choices),
            "--tokens": self.tokens,
            "--format table": self.format is ScoreFormat.table,
            "--format json": self.format is ScoreFormat.json,
        }
        for name, is_given in others.items():
            if is_given:
                raise UsageError(f"--jsonl holds what is to be scored; {name} cannot stand beside it")

    def _check_choices(self, choices: list[str]) -> None:
        if "" in choices:
            raise UsageError("--choices: an empty text is no way to go on")
        for number, choice in enumerate(choices):
            if choice in choices[:number]:
                raise UsageError(f"--choices: {choice!r} is given twice")
        if self.tokens:
            raise UsageError("--tokens is for a text; --format json has the tokens of choices")
        if self.stride is not None:
            raise UsageError(
                "--stride is for texts longer than the context; of a prompt with choices the beginning is cut off"
            )
