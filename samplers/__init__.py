"""Samplers in NumPy: build a chain of samplers, choose tokens with it, or write a sampler.

    from logitsmith.samplers import build
    chain = build("top-k40 > temp0.8", seed=1)
    token = chain.sample(logits)  # float32 (V,) -> token id
    chain.accept(token)

A sampler of another package derives from `Sampler` and describes itself with a `SamplerInfo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from ..common.machine import SEED_MAX
    from .base import BuildContext, Sampler, SamplerInfo, Selection, Selector, Stage, Vocabulary
    from .building import allowed_values, build, make_sampler, parse_chain, parse_notation
    from .candidates import Candidates
    from .chain import Chain, StepSpec
    from .errors import SamplingError, StepError
    from .kernels import TopRows
    from .recorder import ChainRecord, ChainRecorder, DrawInterval, StageRecord
    from .registry import catalogue, find_sampler, list_plugins
    from .stages import StageCandidates
__all__ = [
    "SEED_MAX",
    "BuildContext",
    "Candidates",
    "Chain",
    "ChainRecord",
    "ChainRecorder",
    "DrawInterval",
    "Sampler",
    "SamplerInfo",
    "SamplingError",
    "Selection",
    "Selector",
    "Stage",
    "StageCandidates",
    "StageRecord",
    "StepError",
    "StepSpec",
    "TopRows",
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
__getattr__, __dir__ = lazy_exports(__name__)
