"""Logprob records, and their JSON in the formats of logitsmith, OpenAI, Together and llama.cpp's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .jsonl import ChainDistance
    from .recorded import (
        RecordedCandidate,
        RecordedDistribution,
        RecordedDone,
        RecordedDraw,
        RecordedEvent,
        RecordedStage,
        RecordedStart,
        RecordedToken,
        RecordedTokenLine,
        RecordedTrace,
        StreamError,
        read_stream,
    )
    from .records import (
        Distribution,
        LogprobSource,
        TokenLogprob,
        TokenRecord,
        Trace,
        TraceCandidate,
        TraceDraw,
        TraceStage,
    )
    from .scores import MeanSurprise, Score, choice_scores, text_score
    from .text_tokens import tokens_of_text
__all__ = [
    "ChainDistance",
    "Distribution",
    "LogprobSource",
    "MeanSurprise",
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
    "Score",
    "StreamError",
    "TokenLogprob",
    "TokenRecord",
    "Trace",
    "TraceCandidate",
    "TraceDraw",
    "TraceStage",
    "choice_scores",
    "read_stream",
    "text_score",
    "tokens_of_text",
]
__getattr__, __dir__ = lazy_exports(__name__)
