"""Logprob records, and their JSON in the formats of logitsmith, OpenAI, Together and llama.cpp's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .jsonl import ChainDistance as ChainDistance
    from .recorded import (
        RecordedCandidate as RecordedCandidate,
        RecordedDistribution as RecordedDistribution,
        RecordedDone as RecordedDone,
        RecordedDraw as RecordedDraw,
        RecordedEvent as RecordedEvent,
        RecordedStage as RecordedStage,
        RecordedStart as RecordedStart,
        RecordedToken as RecordedToken,
        RecordedTokenLine as RecordedTokenLine,
        RecordedTrace as RecordedTrace,
        StreamError as StreamError,
        read_stream as read_stream,
    )
    from .records import (
        Distribution as Distribution,
        LogprobSource as LogprobSource,
        TokenLogprob as TokenLogprob,
        TokenRecord as TokenRecord,
        Trace as Trace,
        TraceCandidate as TraceCandidate,
        TraceDraw as TraceDraw,
        TraceStage as TraceStage,
    )
    from .scores import (
        MeanSurprise as MeanSurprise,
        Score as Score,
        choice_scores as choice_scores,
        text_score as text_score,
    )
    from .text_tokens import tokens_of_text as tokens_of_text

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".jsonl": ("ChainDistance",),
        ".recorded": (
            "RecordedCandidate",
            "RecordedDistribution",
            "RecordedDone",
            "RecordedDraw",
            "RecordedEvent",
            "RecordedStage",
            "RecordedStart",
            "RecordedToken",
            "RecordedTokenLine",
            "RecordedTrace",
            "StreamError",
            "read_stream",
        ),
        ".records": (
            "Distribution",
            "LogprobSource",
            "TokenLogprob",
            "TokenRecord",
            "Trace",
            "TraceCandidate",
            "TraceDraw",
            "TraceStage",
        ),
        ".scores": ("MeanSurprise", "Score", "choice_scores", "text_score"),
        ".text_tokens": ("tokens_of_text",),
    },
)
