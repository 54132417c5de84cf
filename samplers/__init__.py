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
    from ..common.seeds import SEED_MAX as SEED_MAX, SEED_MIN as SEED_MIN
    from .base import (
        BuildContext as BuildContext,
        Sampler as Sampler,
        SamplerInfo as SamplerInfo,
        Selection as Selection,
        Selector as Selector,
        Stage as Stage,
        Vocabulary as Vocabulary,
    )
    from .building import (
        allowed_values as allowed_values,
        build as build,
        make_sampler as make_sampler,
        parse_chain as parse_chain,
        parse_notation as parse_notation,
    )
    from .candidates import Candidates as Candidates
    from .chain import Chain as Chain, StepSpec as StepSpec
    from .errors import SamplingError as SamplingError, StepError as StepError
    from .kernels import TopRows as TopRows
    from .recorder import (
        ChainRecord as ChainRecord,
        ChainRecorder as ChainRecorder,
        DrawInterval as DrawInterval,
        StageRecord as StageRecord,
    )
    from .registry import catalogue as catalogue, find_sampler as find_sampler, list_plugins as list_plugins
    from .stages import StageCandidates as StageCandidates

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "..common.seeds": ("SEED_MAX", "SEED_MIN"),
        ".base": ("BuildContext", "Sampler", "SamplerInfo", "Selection", "Selector", "Stage", "Vocabulary"),
        ".building": ("allowed_values", "build", "make_sampler", "parse_chain", "parse_notation"),
        ".candidates": ("Candidates",),
        ".chain": ("Chain", "StepSpec"),
        ".errors": ("SamplingError", "StepError"),
        ".kernels": ("TopRows",),
        ".recorder": ("ChainRecord", "ChainRecorder", "DrawInterval", "StageRecord"),
        ".registry": ("catalogue", "find_sampler", "list_plugins"),
        ".stages": ("StageCandidates",),
    },
)
