"""The flags of a run's output, and the features of each output format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import partial
from itertools import groupby
from typing import Any

from ...common.errors import UsageError
from ...common.flags import OptionalValue, at_least
from ..flags import COLOR_METAVAR, Color, Options, flag, read_color

output_flag = partial(flag, panel="Output")
# Default number of most likely tokens in a trace, per stage: more than APIs show, but they fit on a screen.
DEFAULT_TRACE_COUNT = 20


class Format(StrEnum):
    """A format in which the events of a run are written."""

    text = "text"
    jsonl = "jsonl"
    openai = "openai"
    openai_chat = "openai-chat"
    together = "together"
    llama_server = "llama-server"


class Source(StrEnum):
    """The distribution that logprobs are taken from."""

    model = "model"
    chain = "chain"
    both = "both"


class LogprobSupport(Enum):
    """The logprobs that an output format supports."""

    NONE = auto()
    TOP = auto()  # logprobs of the chosen token and of the most likely tokens, from one source
    ALL = auto()  # logprobs of any token, from both sources


@dataclass(frozen=True)
class FormatFeatures:
    """The features of an output format. Flags that need other features are rejected."""

    summary: str = ""  # in the help of ``--format``; formats with the same summary are grouped
    # the supported values of ``--logprobs``, ``--logprobs-from`` and ``--logprob-of``
    logprobs: LogprobSupport = LogprobSupport.NONE
    # number of most likely tokens without ``--logprobs``; None: no logprobs
    default_top_logprob_count: int | None = None
    has_echo: bool = False  # whether ``--echo`` is supported
    has_trace: bool = False  # whether ``--trace`` is supported
    # why ``--stream`` is rejected, as the end of a message; None if it is supported
    no_stream_reason: str | None = None


# values of ``no_stream_reason``
_ALWAYS_STREAMS = "always streams"
_WRITES_ONE_OBJECT = "writes one object"

_JSON_SUMMARY = "one JSON object"
FORMATS: Mapping[Format, FormatFeatures] = {
    Format.text: FormatFeatures(has_echo=True, no_stream_reason=_ALWAYS_STREAMS),
    Format.jsonl: FormatFeatures(
        "one event per line",
        LogprobSupport.ALL,
        default_top_logprob_count=0,
        has_echo=True,
        has_trace=True,
        no_stream_reason=_ALWAYS_STREAMS,
    ),
    Format.openai: FormatFeatures(_JSON_SUMMARY, LogprobSupport.TOP, has_echo=True),
    Format.openai_chat: FormatFeatures(_JSON_SUMMARY, LogprobSupport.TOP),
    Format.together: FormatFeatures(
        _JSON_SUMMARY, LogprobSupport.TOP, has_echo=True, no_stream_reason=_WRITES_ONE_OBJECT
    ),
    Format.llama_server: FormatFeatures(_JSON_SUMMARY, LogprobSupport.TOP, no_stream_reason=_WRITES_ONE_OBJECT),
}
_FORMATS_WITH_STREAM = [
    output_format.value for output_format, features in FORMATS.items() if features.no_stream_reason is None
]


def _formats_help() -> str:
    """Return the names of the formats with their summaries, for the help."""
    parts = []
    for summary, group in groupby(FORMATS, key=lambda output_format: FORMATS[output_format].summary):
        names = ", ".join(output_format.value for output_format in group)
        parts.append(f"{names}: {summary}" if summary else names)
    return "; ".join(parts)


def trace_flag() -> Any:
    """Return the declaration of ``--trace``, whose number may be omitted."""
    return output_flag(
        "--trace",
        metavar="[N]",
        help=f"Record how each step changed the N most likely tokens (jsonl only). [N: {DEFAULT_TRACE_COUNT}]",
        limit=at_least(1),
        optional_value=OptionalValue(str(DEFAULT_TRACE_COUNT), re.compile(r"[+-]?\d+")),
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """The flags of a run's output."""

    echo: bool = flag(
        "--echo/--no-echo",
        "--display-prompt/--no-display-prompt",
        help="Also write the prompt; with JSON formats, the prompt's tokens and logprobs.",
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
        help=f"Write server-sent events while the text is generated; only for {', '.join(_FORMATS_WITH_STREAM)}.",
        default=False,
    )
    logprobs: int | None = output_flag(
        "--logprobs",
        metavar="N",
        help="Write logprobs of the chosen and the N most likely tokens; -1 = all (jsonl only). [jsonl: 0]",
        limit=at_least(0, minus_one_meaning="the whole vocabulary"),
    )
    logprobs_from: Source | None = output_flag(
        "--logprobs-from",
        help="Distribution of logprobs: the model's, the chain's final one, or both (jsonl only). [model]",
    )
    logprob_of: str | None = output_flag(
        "--logprob-of",
        metavar="TEXTS",
        help="Write logprobs of these tokens at every position (jsonl only): 'yes, \" no\"'.",
    )
    color: Color = output_flag(
        "--color",
        "-co",
        metavar=COLOR_METAVAR,
        parse=read_color,
        help="Show the prompt of --echo in yellow; auto = on a terminal without NO_COLOR. [auto]",
        default=Color.auto,
    )
    show_reasoning: bool = output_flag(
        "--show-reasoning",
        help="Also write the reasoning of a chat model, with its tags (text only).",
        default=False,
    )
    trace: int | None = trace_flag()
    stats: bool = output_flag(
        "--stats", help="At the end, print model, speed and token counts on stderr.", default=False
    )
    show_config: bool = output_flag(
        "--show-config", help="Print the model and all settings with their origin, and exit.", default=False
    )

    def check(self) -> None:
        name = self.format.value
        features = FORMATS[self.format]
        if self.color.is_colored and self.format is not Format.text:
            raise UsageError(f"--color {self.color.value} is for --format text; {name} is never colored")
        if self.show_reasoning and self.format is not Format.text:
            raise UsageError(f"--show-reasoning is for --format text; {name} always has the reasoning")
        if features.logprobs is LogprobSupport.NONE:
            self._reject_logprobs()
        elif features.logprobs is LogprobSupport.TOP:
            self._reject_logprobs_only_jsonl_supports()
        if self.echo and not features.has_echo:
            raise UsageError(f"--echo: not supported by --format {name}; use --format jsonl")
        if self.trace is not None and not features.has_trace:
            raise UsageError(f"--trace: not supported by --format {name}; use --format jsonl")
        if self.stream and features.no_stream_reason is not None:
            formats = " and ".join(_FORMATS_WITH_STREAM)
            raise UsageError(f"--stream is for {formats}; --format {name} {features.no_stream_reason}")

    def _reject_logprobs(self) -> None:
        value_of_flag = {
            "--logprobs": self.logprobs,
            "--logprobs-from": self.logprobs_from,
            "--logprob-of": self.logprob_of,
        }
        for name, value in value_of_flag.items():
            if value is not None:
                raise UsageError(f"{name} needs a --format with logprobs, such as jsonl")

    def _reject_logprobs_only_jsonl_supports(self) -> None:
        name = self.format.value
        is_given = {
            "--logprobs -1": self.logprobs == -1,
            "--logprobs-from both": self.logprobs_from is Source.both,
            "--logprob-of": self.logprob_of is not None,
        }
        for flag_text, is_flag_given in is_given.items():
            if is_flag_given:
                raise UsageError(f"{flag_text}: not supported by --format {name}; use --format jsonl")
        if self.echo and self.logprobs_from is Source.chain:
            raise UsageError(
                f"--echo with --logprobs-from chain: not supported by --format {name}; use --format jsonl"
            )
        if self.logprobs_from is not None and self.logprobs is None:
            raise UsageError("--logprobs-from needs --logprobs")
