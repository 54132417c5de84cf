"""The engine: models, contexts, and the generation of text. The only room that imports llama_cpp."""

from ..common.limits import MAX_SLOTS
from .batch import BatchAnswer, BatchFailure, BatchOutcome, generate_many
from .batch_exactness import BatchExactness, ExactnessLevel
from .chat import Message, build_prompt, format_chat
from .compute_options import ComputeOptions
from .context import Context
from .continuation import Continuation, tokenize_continuation
from .errors import ModelError
from .events import Done, Event, PromptToken, Start, Timings, Token
from .generation import generate
from .generation_task import GenerationRequest, versions
from .gguf import check_gguf
from .gguf_metadata import read_metadata
from .logprob_reader import LogprobReader, LogprobRequest
from .model import Model, physical_cores
from .model_path import locate
from .native_log import set_abort_handler, set_log_sink
from .scoring import score, score_choices, score_prompt
from .text_stream import TextStream
from .vocabulary import Vocabulary

__all__ = [
    "MAX_SLOTS",
    "BatchAnswer",
    "BatchExactness",
    "BatchFailure",
    "BatchOutcome",
    "ComputeOptions",
    "Context",
    "Continuation",
    "Done",
    "Event",
    "ExactnessLevel",
    "GenerationRequest",
    "LogprobReader",
    "LogprobRequest",
    "Message",
    "Model",
    "ModelError",
    "PromptToken",
    "Start",
    "TextStream",
    "Timings",
    "Token",
    "Vocabulary",
    "build_prompt",
    "check_gguf",
    "format_chat",
    "generate",
    "generate_many",
    "locate",
    "physical_cores",
    "read_metadata",
    "score",
    "score_choices",
    "score_prompt",
    "set_abort_handler",
    "set_log_sink",
    "tokenize_continuation",
    "versions",
]
