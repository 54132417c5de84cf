"""The batch sampler: one call chooses the next token of every row, each as its own chain would.

    from logitsmith.samplers.batch import SamplingData, SamplingParam, sample
    next_tokens, logits_or_logprobs = sample(logits, data, param)  # (B, V) -> (B,), (B,) or None

Source: the `sample` interface of MindIE LLM, whose argument names, defaults and value rules these are.
"""

from .batch_step import sample
from .sampling_data import SamplingData
from .sampling_param import SamplingParam

__all__ = ["SamplingData", "SamplingParam", "sample"]
