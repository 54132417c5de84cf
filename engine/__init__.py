"""The engine: models, contexts, and the generation of text. The only room that imports llama_cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports
from ..common.machine import MAX_SLOTS

if TYPE_CHECKING:
    from ..logprobs.events import BatchExactness, Done, Event, ExactnessLevel, PromptToken, Start, Timings, Token
    from ..models.errors import AbortedError, AdapterError, ModelError
    from ..models.facts import ModelFacts, ModelSummary, read_facts, read_summaries
    from ..models.folders import locate
    from ..models.gguf import check_gguf, read_metadata
    from ..models.hub import PullProgress, pull_model
    from ..models.listing import ModelEntry, list_models
    from ..models.resolve import HubReference, ModelNotHereError, parse_hub_reference, resolve_model
    from .batch import BatchAnswer, BatchFailure, BatchOutcome, generate_many
    from .chat import (
        build_prompt,
        check_chat_template,
        format_chat,
        frame_input,
        is_chat_template,
        open_chat_template,
    )
    from .chat_template import ChatPrompt, ChatTemplate, JinjaChatTemplate, Message, ReasoningTags
    from .compute_options import ComputeOptions
    from .context import Context
    from .continuation import Continuation, tokenize_continuation
    from .early_load import EarlyLoad
    from .generation import generate
    from .generation_task import GenerationRequest, versions
    from .gpu_options import GpuOptions
    from .load_plan import LoadPlan, physical_cores, plan_load
    from .logprob_reader import LogprobReader, LogprobRequest
    from .model import Model
    from .native_build import LlamaCppBuild, llama_cpp_build, supports_gpu
    from .native_chat_template import builtin_chat_templates
    from .native_log import set_abort_handler, set_log_sink
    from .native_numa import use_numa
    from .next_token import ChainComparison, NextToken, trace_next
    from .prompt_cache import PromptCacheError, load_prompt_cache, save_prompt_cache
    from .scoring import fit_prompt, score, score_choices, score_prompt
    from .slots import default_slots, estimate_memory
    from .text_stream import TextStream
    from .vocabulary import Vocabulary

__all__ = [
    "MAX_SLOTS",
    "AbortedError",
    "AdapterError",
    "BatchAnswer",
    "BatchExactness",
    "BatchFailure",
    "BatchOutcome",
    "ChainComparison",
    "ChatPrompt",
    "ChatTemplate",
    "ComputeOptions",
    "Context",
    "Continuation",
    "Done",
    "EarlyLoad",
    "Event",
    "ExactnessLevel",
    "GenerationRequest",
    "GpuOptions",
    "HubReference",
    "JinjaChatTemplate",
    "LlamaCppBuild",
    "LoadPlan",
    "LogprobReader",
    "LogprobRequest",
    "Message",
    "Model",
    "ModelEntry",
    "ModelError",
    "ModelFacts",
    "ModelNotHereError",
    "ModelSummary",
    "NextToken",
    "PromptCacheError",
    "PromptToken",
    "PullProgress",
    "ReasoningTags",
    "Start",
    "TextStream",
    "Timings",
    "Token",
    "Vocabulary",
    "build_prompt",
    "builtin_chat_templates",
    "check_chat_template",
    "check_gguf",
    "default_slots",
    "estimate_memory",
    "fit_prompt",
    "format_chat",
    "frame_input",
    "generate",
    "generate_many",
    "is_chat_template",
    "list_models",
    "llama_cpp_build",
    "load_prompt_cache",
    "locate",
    "open_chat_template",
    "parse_hub_reference",
    "physical_cores",
    "plan_load",
    "pull_model",
    "read_facts",
    "read_metadata",
    "read_summaries",
    "resolve_model",
    "save_prompt_cache",
    "score",
    "score_choices",
    "score_prompt",
    "set_abort_handler",
    "set_log_sink",
    "supports_gpu",
    "tokenize_continuation",
    "trace_next",
    "use_numa",
    "versions",
]

# A search for model files needs no llama_cpp, whose import takes half a second; a run of text needs no traces.
__getattr__ = lazy_exports(__name__)
