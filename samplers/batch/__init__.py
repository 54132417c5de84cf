"""The batch sampler: one call chooses the next token of every row of a batch, as a chain for each row would.

    from logitsmith.samplers.batch import SamplingData, SamplingParam, sample
    next_tokens, logits_or_logprobs = sample(logits, data, param)  # (B, V) -> (B,), (B,) or None

Source: the `sample` interface of MindIE LLM, which defines the names, defaults and allowed values of the
    arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...common.lazy import lazy_exports

if TYPE_CHECKING:
    from .arguments import SamplingData as SamplingData, SamplingParam as SamplingParam
    from .step import sample as sample

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".arguments": ("SamplingData", "SamplingParam"),
        ".step": ("sample",),
    },
)
