"""Logprob records, and their formats as JSON: ours, OpenAI's, Together's, and that of llama.cpp's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from ..common.strict_json import encode_json
    from .batch_lines import (
        batch_error,
        batch_id,
        failure_line,
        openai_failure_line,
        openai_result_line,
        result_line,
    )
    from .completion import (
        Completion,
        CompletionFinish,
        CompletionHead,
        HeldBackText,
        TextOffsets,
        TextTokenStream,
        tokens_of_text,
    )
    from .jsonl_lines import done_line, prompt_line, start_line, token_line
    from .llama_server_format import llama_server_completion
    from .next_token import ChainDistance, TracedChain, next_token_fields
    from .openai_format import (
        chat_chunk,
        chat_completion,
        chat_first_chunk,
        chat_last_chunk,
        text_chunk,
        text_completion,
        text_last_chunk,
    )
    from .recorded_stream import (
        RecordedDistribution,
        RecordedDone,
        RecordedEvent,
        RecordedStart,
        RecordedToken,
        RecordedTokenLine,
        StreamError,
        read_stream,
        split_runs,
    )
    from .recorded_trace import RecordedCandidate, RecordedDraw, RecordedStage, RecordedTrace
    from .records import Distribution, LogprobSource, TokenLogprob, TokenRecord, display_text, finite_or_none
    from .scores import MeanSurprise, Score, choice_scores, failed_score, text_score
    from .server_sent_events import SERVER_SENT_DONE, server_sent
    from .together_format import together_completion
    from .trace import Trace, TraceCandidate, TraceDraw, TraceStage

__all__ = [
    "SERVER_SENT_DONE",
    "ChainDistance",
    "Completion",
    "CompletionFinish",
    "CompletionHead",
    "Distribution",
    "HeldBackText",
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
    "TextOffsets",
    "TextTokenStream",
    "TokenLogprob",
    "TokenRecord",
    "Trace",
    "TraceCandidate",
    "TraceDraw",
    "TraceStage",
    "TracedChain",
    "batch_error",
    "batch_id",
    "chat_chunk",
    "chat_completion",
    "chat_first_chunk",
    "chat_last_chunk",
    "choice_scores",
    "display_text",
    "done_line",
    "encode_json",
    "failed_score",
    "failure_line",
    "finite_or_none",
    "llama_server_completion",
    "next_token_fields",
    "openai_failure_line",
    "openai_result_line",
    "prompt_line",
    "read_stream",
    "result_line",
    "server_sent",
    "split_runs",
    "start_line",
    "text_chunk",
    "text_completion",
    "text_last_chunk",
    "text_score",
    "together_completion",
    "token_line",
    "tokens_of_text",
]

# A run needs few of these names, and importing all of them takes long.
__getattr__ = lazy_exports(__name__)
