"""Model files: where tools keep them, what their headers say, and how one is downloaded. Needs no llama_cpp."""

from typing import TYPE_CHECKING

from ...common.lazy import lazy_exports

if TYPE_CHECKING:
    from .download import PullProgress, can_pull, pull_model
    from .entry import ModelEntry
    from .facts import ModelFacts, read_facts
    from .listing import list_models
    from .resolve import HubReference, ModelNotHereError, parse_hub_reference, resolve_model
    from .summary import ModelSummary, read_summaries

__all__ = [
    "HubReference",
    "ModelEntry",
    "ModelFacts",
    "ModelNotHereError",
    "ModelSummary",
    "PullProgress",
    "can_pull",
    "list_models",
    "parse_hub_reference",
    "pull_model",
    "read_facts",
    "read_summaries",
    "resolve_model",
]

__getattr__ = lazy_exports(__name__)
