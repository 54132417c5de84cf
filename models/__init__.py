"""Finding, inspecting and downloading GGUF files. The package does not need llama_cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .facts import (
        ModelFacts as ModelFacts,
        ModelSummary as ModelSummary,
        read_facts as read_facts,
        read_summaries as read_summaries,
    )
    from .folders import ResolvedModel as ResolvedModel
    from .gguf import read_metadata as read_metadata
    from .hub import PullProgress as PullProgress, pull_model as pull_model
    from .listing import ModelEntry as ModelEntry, list_models as list_models
    from .resolve import (
        HubReference as HubReference,
        ModelNotHereError as ModelNotHereError,
        resolve_files as resolve_files,
        resolve_model as resolve_model,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".facts": ("ModelFacts", "ModelSummary", "read_facts", "read_summaries"),
        ".folders": ("ResolvedModel",),
        ".gguf": ("read_metadata",),
        ".hub": ("PullProgress", "pull_model"),
        ".listing": ("ModelEntry", "list_models"),
        ".resolve": ("HubReference", "ModelNotHereError", "resolve_files", "resolve_model"),
    },
)
