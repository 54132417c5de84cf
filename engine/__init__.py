"""The engine: models, contexts, and the loop that writes. The only room that imports llama_cpp."""

from .batch import Answer, Failure, generate_many
from .chat import Message, format_chat
from .context import Context
from .distribution import Reader, Wanted
from .errors import ModelError
from .events import Done, Event, Prompt, Start, Timings, Token
from .gguf import check_file
from .job import Request, versions
from .loop import generate
from .model import MOST_SLOTS, Model, physical_cores
from .model_path import locate
from .native import send_log_to, when_llama_cpp_aborts
from .scoring import continuation, echoed, score, score_choices
from .text import TextStream
from .vocabulary import Vocabulary

__all__ = [
    "MOST_SLOTS",
    "Answer",
    "Context",
    "Done",
    "Event",
    "Failure",
    "Message",
    "Model",
    "ModelError",
    "Prompt",
    "Reader",
    "Request",
    "Start",
    "TextStream",
    "Timings",
    "Token",
    "Vocabulary",
    "Wanted",
    "check_file",
    "continuation",
    "echoed",
    "format_chat",
    "generate",
    "generate_many",
    "locate",
    "physical_cores",
    "score",
    "score_choices",
    "send_log_to",
    "versions",
    "when_llama_cpp_aborts",
]
