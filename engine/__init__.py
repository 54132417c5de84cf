"""The engine: models, contexts, and the loop that writes. The only room that imports llama_cpp."""

from .batch import BatchAnswer, BatchFailure, generate_many
from .chat import Message, format_chat
from .context import Context
from .distribution import LogprobReader, LogprobRequest
from .errors import ModelError
from .events import Done, Event, PromptToken, Start, Timings, Token
from .gguf import check_gguf
from .job import Request, versions
from .loop import generate
from .model import MAX_SLOTS, Model, physical_cores
from .model_path import locate
from .native import set_abort_handler, set_log_sink
from .scoring import score, score_choices, score_prompt, tokenize_continuation
from .text import TextStream
from .vocabulary import Vocabulary

__all__ = [
    "MAX_SLOTS",
    "BatchAnswer",
    "BatchFailure",
    "Context",
    "Done",
    "Event",
    "LogprobReader",
    "LogprobRequest",
    "Message",
    "Model",
    "ModelError",
    "PromptToken",
    "Request",
    "Start",
    "TextStream",
    "Timings",
    "Token",
    "Vocabulary",
    "check_gguf",
    "format_chat",
    "generate",
    "generate_many",
    "locate",
    "physical_cores",
    "score",
    "score_choices",
    "score_prompt",
    "set_abort_handler",
    "set_log_sink",
    "tokenize_continuation",
    "versions",
]
