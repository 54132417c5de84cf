"""The engine: models, contexts, and the generation of text. The only room that imports llama_cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from ..logprobs.events import BatchExactness, Done, Event, ExactnessLevel, PromptToken, Start, Timings, Token
    from ..models.errors import AbortedError, AdapterError, ModelError
    from ..models.facts import ModelFacts, read_facts, read_summaries
    from ..models.folders import locate
    from ..models.gguf import read_metadata
    from ..models.hub import pull_model
    from ..models.listing import list_models
    from ..models.resolve import ModelNotHereError, resolve_model
    from .batch import BatchAnswer, BatchEngine, BatchFailure, BatchOutcome, generate_many
    from .beams import generate_beams
    from .drafts import DraftOptions
    from .generation import generate, generate_request, versions
    from .guidance import Guidance
    from .model import Model
    from .native.options import ComputeOptions, GpuOptions
    from .next_token import ChainComparison, NextToken, trace_next
    from .prompt_cache import PromptCacheError, load_prompt_cache, save_prompt_cache
    from .request import BeamSearch, ChatMessages, GenerationRequest
    from .scoring import score, score_choices, score_prompt
    from .templates import (
        ChatTemplate,
        Message,
        ReasoningTags,
        build_prompt,
        builtin_chat_templates,
        format_chat,
        open_chat_template,
    )
    from .token_records import LogprobRequest
    from .vocabulary import Continuation, Vocabulary, tokenize_continuation
__all__ = [
    "AbortedError",
    "AdapterError",
    "BatchAnswer",
    "BatchEngine",
    "BatchExactness",
    "BatchFailure",
    "BatchOutcome",
    "BeamSearch",
    "ChainComparison",
    "ChatMessages",
    "ChatTemplate",
    "ComputeOptions",
    "Continuation",
    "Done",
    "DraftOptions",
    "Event",
    "ExactnessLevel",
    "GenerationRequest",
    "GpuOptions",
    "Guidance",
    "LogprobRequest",
    "Message",
    "Model",
    "ModelError",
    "ModelFacts",
    "ModelNotHereError",
    "NextToken",
    "PromptCacheError",
    "PromptToken",
    "ReasoningTags",
    "Start",
    "Timings",
    "Token",
    "Vocabulary",
    "build_prompt",
    "builtin_chat_templates",
    "format_chat",
    "generate",
    "generate_beams",
    "generate_many",
    "generate_request",
    "list_models",
    "load_prompt_cache",
    "locate",
    "open_chat_template",
    "pull_model",
    "read_facts",
    "read_metadata",
    "read_summaries",
    "resolve_model",
    "save_prompt_cache",
    "score",
    "score_choices",
    "score_prompt",
    "tokenize_continuation",
    "trace_next",
    "versions",
]
__getattr__, __dir__ = lazy_exports(__name__)
