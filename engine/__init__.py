"""The engine: models, contexts, and the loop that writes. The only room that imports llama_cpp."""

from .chat import Message, format_chat
from .context import Context
from .errors import ModelError
from .events import Done, Event, Start, Timings, Token
from .gguf import check_file
from .loop import generate, versions
from .model import Model, physical_cores
from .model_path import locate
from .native import send_log_to, when_llama_cpp_aborts
from .text import TextStream
from .vocabulary import Vocabulary

__all__ = [
    "Context",
    "Done",
    "Event",
    "Message",
    "Model",
    "ModelError",
    "Start",
    "TextStream",
    "Timings",
    "Token",
    "Vocabulary",
    "check_file",
    "format_chat",
    "generate",
    "locate",
    "physical_cores",
    "send_log_to",
    "versions",
    "when_llama_cpp_aborts",
]
