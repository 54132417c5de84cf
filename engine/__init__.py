"""The engine: models, contexts, and the generation of text. The only room that imports llama_cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from ..logprobs.events import (
        BatchExactness as BatchExactness,
        Done as Done,
        Event as Event,
        ExactnessLevel as ExactnessLevel,
        PromptToken as PromptToken,
        Reasoning as Reasoning,
        ReasoningTags as ReasoningTags,
        Start as Start,
        Timings as Timings,
        Token as Token,
    )
    from ..models.errors import (
        AbortedError as AbortedError,
        AdapterError as AdapterError,
        ModelError as ModelError,
    )
    from ..models.facts import ModelFacts as ModelFacts, read_facts as read_facts, read_summaries as read_summaries
    from ..models.folders import ResolvedModel as ResolvedModel, locate as locate
    from ..models.gguf import read_metadata as read_metadata
    from ..models.hub import pull_model as pull_model
    from ..models.listing import list_models as list_models
    from ..models.resolve import (
        ModelNotHereError as ModelNotHereError,
        resolve_files as resolve_files,
        resolve_model as resolve_model,
    )
    from .batch import (
        BatchAnswer as BatchAnswer,
        BatchEngine as BatchEngine,
        BatchFailure as BatchFailure,
        BatchOutcome as BatchOutcome,
        generate_many as generate_many,
    )
    from .beams import generate_beams as generate_beams
    from .chat_template import ChatTemplate as ChatTemplate, Message as Message
    from .drafts import DraftOptions as DraftOptions
    from .generation import generate as generate, versions as versions
    from .guidance import Guidance as Guidance
    from .load_options import LoadOptions as LoadOptions
    from .model import Model as Model
    from .native_template import builtin_chat_templates as builtin_chat_templates
    from .next_token import ChainComparison as ChainComparison, NextToken as NextToken, trace_next as trace_next
    from .placement import Placement as Placement
    from .prompt_cache import (
        PromptCacheError as PromptCacheError,
        load_prompt_cache as load_prompt_cache,
        save_prompt_cache as save_prompt_cache,
    )
    from .request import (
        BeamSearch as BeamSearch,
        ChatMessages as ChatMessages,
        GenerationRequest as GenerationRequest,
    )
    from .scoring import score as score, score_choices as score_choices, score_prompt as score_prompt
    from .templates import (
        build_prompt as build_prompt,
        format_chat as format_chat,
        open_chat_template as open_chat_template,
    )
    from .text_rules import TextRules as TextRules
    from .token_records import LogprobRequest as LogprobRequest
    from .vocabulary import (
        Continuation as Continuation,
        Vocabulary as Vocabulary,
        tokenize_continuation as tokenize_continuation,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "..logprobs.events": (
            "BatchExactness",
            "Done",
            "Event",
            "ExactnessLevel",
            "PromptToken",
            "Reasoning",
            "ReasoningTags",
            "Start",
            "Timings",
            "Token",
        ),
        "..models.errors": ("AbortedError", "AdapterError", "ModelError"),
        "..models.facts": ("ModelFacts", "read_facts", "read_summaries"),
        "..models.folders": ("ResolvedModel", "locate"),
        "..models.gguf": ("read_metadata",),
        "..models.hub": ("pull_model",),
        "..models.listing": ("list_models",),
        "..models.resolve": ("ModelNotHereError", "resolve_files", "resolve_model"),
        ".batch": ("BatchAnswer", "BatchEngine", "BatchFailure", "BatchOutcome", "generate_many"),
        ".beams": ("generate_beams",),
        ".chat_template": ("ChatTemplate", "Message"),
        ".drafts": ("DraftOptions",),
        ".generation": ("generate", "versions"),
        ".guidance": ("Guidance",),
        ".load_options": ("LoadOptions",),
        ".model": ("Model",),
        ".native_template": ("builtin_chat_templates",),
        ".next_token": ("ChainComparison", "NextToken", "trace_next"),
        ".placement": ("Placement",),
        ".prompt_cache": ("PromptCacheError", "load_prompt_cache", "save_prompt_cache"),
        ".request": ("BeamSearch", "ChatMessages", "GenerationRequest"),
        ".scoring": ("score", "score_choices", "score_prompt"),
        ".templates": ("build_prompt", "format_chat", "open_chat_template"),
        ".text_rules": ("TextRules",),
        ".token_records": ("LogprobRequest",),
        ".vocabulary": ("Continuation", "Vocabulary", "tokenize_continuation"),
    },
)
