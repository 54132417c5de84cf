"""Logprob records, and their shapes as JSON: ours, OpenAI's, Together's, llama.cpp's server's."""

from .batch import batch_answer, batch_failure, batch_id, result, result_failure
from .encode import encode
from .events import DONE, server_sent
from .jsonl import done_line, prompt_line, start_line, token_line
from .llama_server import llama_server
from .openai import chat_chunk, chat_completion, chat_first, chat_last, text_chunk, text_completion, text_last
from .read import Seen, SeenDistribution, SeenDone, SeenStart, SeenStep, StreamError, read_stream
from .records import Distribution, Source, Step, TokenLogprob, finite, shown
from .run import Completion, Finish, Head, Offsets
from .scores import Means, Score, choice_scores, text_score
from .together import together

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
