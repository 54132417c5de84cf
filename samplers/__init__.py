"""Samplers in NumPy: candidates, chains of samplers, and the registry that names them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .array_types import LeadingRows
from .base import About, BuildContext, Sampler, Selection, Selector
from .candidates import Candidates
from .chain import Chain
from .chain_builder import build, make_sampler, parse_chain
from .compact_notation import parse_notation
from .errors import SamplingError, StepError
from .mersenne_twister import SEED_MAX
from .parameter_messages import allowed_values
from .registry import catalogue, find_sampler, list_plugins
from .stage import Stage
from .step_spec import StepSpec
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .chain_recorder import ChainRecord, ChainRecorder, DrawInterval, StageRecord
    from .softmax_sums import SoftmaxWorkspace
    from .stage_candidates import StageCandidates

__all__ = [
    "SEED_MAX",
    "About",
    "BuildContext",
    "Candidates",
    "Chain",
    "ChainRecord",
    "ChainRecorder",
    "DrawInterval",
    "LeadingRows",
    "Sampler",
    "SamplingError",
    "Selection",
    "Selector",
    "SoftmaxWorkspace",
    "Stage",
    "StageCandidates",
    "StageRecord",
    "StepError",
    "StepSpec",
    "Vocabulary",
    "allowed_values",
    "build",
    "catalogue",
    "find_sampler",
    "list_plugins",
    "make_sampler",
    "parse_chain",
    "parse_notation",
]

_MODULE_OF = {
    "ChainRecord": "chain_recorder",
    "ChainRecorder": "chain_recorder",
    "DrawInterval": "chain_recorder",
    "SoftmaxWorkspace": "softmax_sums",
    "StageCandidates": "stage_candidates",
    "StageRecord": "chain_recorder",
}
"""Names that a run without a trace does not need; they are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value
