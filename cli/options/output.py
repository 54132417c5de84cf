"""The flags of the output of a run."""

from __future__ import annotations

from enum import Enum
from functools import partial

import typer

from .flag import Options, flag, options_class
from .limits import at_least

output_flag = partial(flag, panel="Output")


class Format(str, Enum):
    """How events are written."""

    text = "text"
    jsonl = "jsonl"
    openai = "openai"
    openai_chat = "openai-chat"
    together = "together"
    llama_server = "llama-server"


class Source(str, Enum):
    """Which distribution logprobs are of."""

    model = "model"
    chain = "chain"
    both = "both"


_WHY_NOT_STREAMED = {
    Format.text: "streams anyway",
    Format.jsonl: "streams anyway",
    Format.together: "is one object",
    Format.llama_server: "is one object",
}


@options_class
class OutputOptions(Options):
    """What is written, and in which format."""

    echo: bool = flag(
        "--echo",
        help="Write the prompt too; in JSON, its tokens with their logprobs.",
        default=False,
        panel="Prompt",
    )
    format: Format = output_flag(
        "--format",
        metavar="FORMAT",
        help="text; jsonl: one event a line; openai, openai-chat, together, llama-server: one JSON object. [text]",
        default=Format.text,
    )
    stream: bool = output_flag(
        "--stream", help="With openai, openai-chat: server-sent chunks, as they are made.", default=False
    )
    logprobs: int | None = output_flag(
        "--logprobs",
        metavar="N",
        help="Logprobs, with the N likeliest tokens; -1 = all, in jsonl. [jsonl: 0]",
        limit=at_least(0, minus_one="the whole vocabulary"),
    )
    logprobs_from: Source | None = output_flag(
        "--logprobs-from",
        help="model: as the model has them; chain: as they were drawn from; both, in jsonl. [model]",
    )
    logprob_of: str | None = output_flag(
        "--logprob-of", metavar="TEXTS", help="These tokens' logprobs at every step, in jsonl: 'yes, \" no\"'."
    )
    stats: bool = output_flag("--stats", help="Speed and counts, on stderr, at the end.", default=False)
    show_config: bool = output_flag(
        "--show-config", help="Print the settings, where each is from, and stop.", default=False
    )

    def check(self) -> None:
        """Refuse what the format has no room for."""
        if self.format is Format.text:
            self._refuse_logprobs()
        elif self.format is not Format.jsonl:
            self._refuse_what_only_jsonl_has()
        if self.echo and self.format in (Format.openai_chat, Format.llama_server):
            raise typer.BadParameter(f"--echo: --format {self.format.value} has no room for the prompt's tokens")
        if self.stream and self.format in _WHY_NOT_STREAMED:
            why = f"--format {self.format.value} {_WHY_NOT_STREAMED[self.format]}"
            raise typer.BadParameter(f"--stream is for openai and openai-chat; {why}")

    def _refuse_logprobs(self) -> None:
        for name, value in (
            ("--logprobs", self.logprobs),
            ("--logprobs-from", self.logprobs_from),
            ("--logprob-of", self.logprob_of),
        ):
            if value is not None:
                raise typer.BadParameter(f"{name} needs a --format with room for logprobs, such as jsonl")

    def _refuse_what_only_jsonl_has(self) -> None:
        name = self.format.value
        for flags, is_given in (
            ("--logprobs -1", self.logprobs == -1),
            ("--logprobs-from both", self.logprobs_from is Source.both),
            ("--logprob-of", self.logprob_of is not None),
        ):
            if is_given:
                raise typer.BadParameter(f"{flags}: --format {name} has no room for it; jsonl has")
        if self.echo and self.logprobs_from is Source.chain:
            raise typer.BadParameter(
                f"--echo: a prompt's logprobs are the model's; --format {name} has one source"
            )
        if self.logprobs_from is not None and self.logprobs is None:
            raise typer.BadParameter("--logprobs-from needs --logprobs")
