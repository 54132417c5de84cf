"""The flags of the output of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import partial
from itertools import groupby
from typing import Any

from ...common.errors import UsageError
from ..flags import COLOR_METAVAR, Color, OptionalValue, Options, at_least, flag, options_class, read_color

output_flag = partial(flag, panel="Output")
DEFAULT_TRACE_COUNT = 20
"""The number of most likely tokens in a trace of each stage: more than APIs show, and they fit on a screen."""


class Format(StrEnum):
    """How events are written."""

    text = "text"
    jsonl = "jsonl"
    openai = "openai"
    openai_chat = "openai-chat"
    together = "together"
    llama_server = "llama-server"


class Source(StrEnum):
    """Which distribution logprobs are of."""

    model = "model"
    chain = "chain"
    both = "both"


class LogprobSupport(Enum):
    """Which logprobs a format can hold."""

    NONE = auto()
    MOST_LIKELY = auto()
    """Of the chosen token and of the likeliest ones, from one source."""
    ALL = auto()
    """Of any token, from both sources."""


@dataclass(frozen=True)
class FormatFeatures:
    """What a format has room for. Flags that it has no room for are refused.

    Attributes:
        summary: its words in the help of ``--format``; neighbours with the same words share them.
        logprobs: what ``--logprobs``, ``--logprobs-from`` and ``--logprob-of`` may ask for.
        default_top_logprob_count: how many of the most likely tokens are shown without ``--logprobs``; None: no
            logprobs.
        has_echo: True if ``--echo`` adds the prompt.
        has_trace: True if ``--trace`` adds the stages of the chain.
        no_stream_reason: why ``--stream`` is refused, after the format's name; None: it is not.
    """

    summary: str = ""
    logprobs: LogprobSupport = LogprobSupport.NONE
    default_top_logprob_count: int | None = None
    has_echo: bool = False
    has_trace: bool = False
    no_stream_reason: str | None = None


_STREAMS, _OBJECT = "streams anyway", "is one object"
_JSON = "one JSON object"
FORMATS: Mapping[Format, FormatFeatures] = {
    Format.text: FormatFeatures(has_echo=True, no_stream_reason=_STREAMS),
    Format.jsonl: FormatFeatures(
        "one event a line", LogprobSupport.ALL, 0, has_echo=True, has_trace=True, no_stream_reason=_STREAMS
    ),
    Format.openai: FormatFeatures(_JSON, LogprobSupport.MOST_LIKELY, has_echo=True),
    Format.openai_chat: FormatFeatures(_JSON, LogprobSupport.MOST_LIKELY),
    Format.together: FormatFeatures(_JSON, LogprobSupport.MOST_LIKELY, has_echo=True, no_stream_reason=_OBJECT),
    Format.llama_server: FormatFeatures(_JSON, LogprobSupport.MOST_LIKELY, no_stream_reason=_OBJECT),
}
_STREAMED = [output_format.value for output_format, has in FORMATS.items() if has.no_stream_reason is None]


def _formats_help() -> str:
    """The formats, with their summaries."""
    parts = []
    for summary, group in groupby(FORMATS, key=lambda output_format: FORMATS[output_format].summary):
        names = ", ".join(output_format.value for output_format in group)
        parts.append(f"{names}: {summary}" if summary else names)
    return "; ".join(parts)


def trace_flag() -> Any:
    """The flag of `gen run` and `gen batch` for traces. Its number may be left out."""
    return output_flag(
        "--trace",
        metavar="[N]",
        help=f"What each step did to the N likeliest tokens, in jsonl. [{DEFAULT_TRACE_COUNT}]",
        limit=at_least(1),
        optional_value=OptionalValue(str(DEFAULT_TRACE_COUNT), re.compile(r"[+-]?\d+")),
    )


@options_class
class OutputOptions(Options):
    """What is written, and in which format."""

    echo: bool = flag(
        "--echo/--no-display-prompt",
        "--display-prompt",
        help="Write the prompt too; in JSON, its tokens with their logprobs.",
        default=False,
        panel="Prompt",
    )
    format: Format = output_flag(
        "--format",
        metavar="FORMAT",
        help=f"{_formats_help()}. [text]",
        default=Format.text,
    )
    stream: bool = output_flag(
        "--stream",
        help=f"With {', '.join(_STREAMED)}: server-sent chunks, as they are made.",
        default=False,
    )
    logprobs: int | None = output_flag(
        "--logprobs",
        metavar="N",
        help="Logprobs, with the N likeliest tokens; -1 = all, in jsonl. [jsonl: 0]",
        limit=at_least(0, minus_one_meaning="the whole vocabulary"),
    )
    logprobs_from: Source | None = output_flag(
        "--logprobs-from",
        help="model: as the model has them; chain: as they were drawn from; both, in jsonl. [model]",
    )
    logprob_of: str | None = output_flag(
        "--logprob-of", metavar="TEXTS", help="These tokens' logprobs at every step, in jsonl: 'yes, \" no\"'."
    )
    color: Color = output_flag(
        "--color",
        "-co",
        metavar=COLOR_METAVAR,
        parse=read_color,
        help="The prompt of --echo in yellow; auto: on a terminal, without NO_COLOR. [auto]",
        default=Color.auto,
    )
    trace: int | None = trace_flag()
    stats: bool = output_flag("--stats", help="Model, speed and counts, on stderr, at the end.", default=False)
    show_config: bool = output_flag(
        "--show-config", help="Print model and settings, where each is from, and stop.", default=False
    )

    def check(self) -> None:
        """Refuse what the format has no room for."""
        name, features = self.format.value, FORMATS[self.format]
        if self.color.is_colored and self.format is not Format.text:
            raise UsageError(f"--color {self.color.value} is for --format text; {name} has no colours")
        if features.logprobs is LogprobSupport.NONE:
            self._reject_logprobs()
        elif features.logprobs is LogprobSupport.MOST_LIKELY:
            self._reject_logprobs_only_jsonl_supports()
        if self.echo and not features.has_echo:
            raise UsageError(f"--echo: --format {name} has no room for the prompt's tokens")
        if self.trace is not None and not features.has_trace:
            raise UsageError(f"--trace: --format {name} has no room for it; --format jsonl has")
        if self.stream and features.no_stream_reason is not None:
            why = f"--format {name} {features.no_stream_reason}"
            raise UsageError(f"--stream is for {' and '.join(_STREAMED)}; {why}")

    def _reject_logprobs(self) -> None:
        for name, value in (
            ("--logprobs", self.logprobs),
            ("--logprobs-from", self.logprobs_from),
            ("--logprob-of", self.logprob_of),
        ):
            if value is not None:
                raise UsageError(f"{name} needs a --format with room for logprobs, such as jsonl")

    def _reject_logprobs_only_jsonl_supports(self) -> None:
        name = self.format.value
        for flags, is_given in (
            ("--logprobs -1", self.logprobs == -1),
            ("--logprobs-from both", self.logprobs_from is Source.both),
            ("--logprob-of", self.logprob_of is not None),
        ):
            if is_given:
                raise UsageError(f"{flags}: --format {name} has no room for it; jsonl has")
        if self.echo and self.logprobs_from is Source.chain:
            raise UsageError(f"--echo: a prompt's logprobs are the model's; --format {name} has one source")
        if self.logprobs_from is not None and self.logprobs is None:
            raise UsageError("--logprobs-from needs --logprobs")
