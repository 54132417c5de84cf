"""Finding, inspecting and downloading GGUF files. The package does not need llama_cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .facts import ModelFacts, ModelSummary, read_facts, read_summaries
    from .gguf import read_metadata
    from .hub import PullProgress, pull_model
    from .listing import ModelEntry, list_models
    from .resolve import HubReference, ModelNotHereError, resolve_model
__all__ = [
    "HubReference",
    "ModelEntry",
    "ModelFacts",
    "ModelNotHereError",
    "ModelSummary",
    "PullProgress",
    "list_models",
    "pull_model",
    "read_facts",
    "read_metadata",
    "read_summaries",
    "resolve_model",
]
__getattr__, __dir__ = lazy_exports(__name__)
