"""Logprob records, and their shapes as JSON: ours, OpenAI's, Together's, llama.cpp's server's."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batch import batch_answer, batch_failure, batch_id, failed, result, result_failure
    from .events import DONE, server_sent
    from .jsonl import done_line, prompt_line, start_line, token_line
    from .openai import chat_chunk, chat_completion, chat_first, chat_last, text_chunk, text_completion, text_last
    from .read import Seen, SeenDistribution, SeenDone, SeenStart, SeenStep, StreamError, read_stream
    from .records import Distribution, Source, Step, TokenLogprob, finite, shown
    from .run import Completion, Finish, Head, Offsets
    from .scores import Means, Score, choice_scores, text_score
    from .server_shape import llama_server
    from .strict import encode
    from .together_shape import together

__all__ = [
    "DONE",
    "Completion",
    "Distribution",
    "Finish",
    "Head",
    "Means",
    "Offsets",
    "Score",
    "Seen",
    "SeenDistribution",
    "SeenDone",
    "SeenStart",
    "SeenStep",
    "Source",
    "Step",
    "StreamError",
    "TokenLogprob",
    "batch_answer",
    "batch_failure",
    "batch_id",
    "chat_chunk",
    "chat_completion",
    "chat_first",
    "chat_last",
    "choice_scores",
    "done_line",
    "encode",
    "failed",
    "finite",
    "llama_server",
    "prompt_line",
    "read_stream",
    "result",
    "result_failure",
    "server_sent",
    "shown",
    "start_line",
    "text_chunk",
    "text_completion",
    "text_last",
    "text_score",
    "together",
    "token_line",
]

# Most runs need few of these, and all of them take long to import: each is fetched when it is first asked for.
_HOMES = {
    "batch": "batch_answer batch_failure batch_id failed result result_failure",
    "strict": "encode",
    "events": "DONE server_sent",
    "jsonl": "done_line prompt_line start_line token_line",
    "server_shape": "llama_server",
    "openai": "chat_chunk chat_completion chat_first chat_last text_chunk text_completion text_last",
    "read": "Seen SeenDistribution SeenDone SeenStart SeenStep StreamError read_stream",
    "records": "Distribution Source Step TokenLogprob finite shown",
    "run": "Completion Finish Head Offsets",
    "scores": "Means Score choice_scores text_score",
    "together_shape": "together",
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            found: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
