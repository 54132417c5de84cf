"""llama.cpp's settings of a context that a run rarely needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..common.machine import CACHE_TYPES, INT32_MAX, MAX_THREADS, ROPE_SCALINGS
from ..models.errors import ModelError

_CACHE_TYPE_IDS = dict(zip(CACHE_TYPES, (0, 1, 30, 8, 2, 3, 20, 6, 7), strict=True))
"""ggml_type, see ggml.h."""
_FLASH_ATTENTION_TYPES = {"on": 1, "off": 0, "auto": -1}
"""llama_flash_attn_type, see llama.h."""
_ROPE_SCALING_TYPES = dict(zip(ROPE_SCALINGS, (0, 1, 2), strict=True))
"""llama_rope_scaling_type, see llama.h."""


@dataclass(frozen=True)
class ComputeOptions:
    """How a context computes, as llama.cpp's flags of these names say. Every default is llama.cpp's.

    Raises ``ModelError`` for a value that llama.cpp does not know.

    Attributes:
        batch_threads: threads that read a prompt; None: those that write.
        microbatch: the tokens of a batch that are computed at once; None: the whole batch.
        flash_attention: ``on``, ``off`` or ``auto``: if the model allows it.
        cache_type_k: the number format of the keys in the cache, such as ``f16`` or ``q8_0``.
        cache_type_v: that of the values; a quantised one needs flash attention.
        rope_scaling: ``none``, ``linear`` or ``yarn``; None: the model's.
        rope_freq_base: the base frequency of RoPE; None: the model's.
        rope_freq_scale: the factor of its frequencies, which makes the context 1 / this longer; None: the model's.
    """

    batch_threads: int | None = None
    microbatch: int | None = None
    flash_attention: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    rope_scaling: str | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("flash_attention", self.flash_attention, _FLASH_ATTENTION_TYPES),
            ("cache_type_k", self.cache_type_k, _CACHE_TYPE_IDS),
            ("cache_type_v", self.cache_type_v, _CACHE_TYPE_IDS),
            ("rope_scaling", self.rope_scaling or "none", _ROPE_SCALING_TYPES),
        ):
            if value not in known:
                raise ModelError(f"{name}: {value!r} is not one of {', '.join(known)}")
        for name, count, most in (
            ("batch_threads", self.batch_threads, MAX_THREADS),
            ("microbatch", self.microbatch, INT32_MAX),
        ):
            if count is not None and not 1 <= count <= most:
                raise ModelError(f"{name}: {count!r} is not within 1..{most}")
        if self.cache_type_v.startswith(("q", "iq")) and self.flash_attention == "off":
            raise ModelError(f"cache_type_v: {self.cache_type_v} needs flash attention, which is off")

    @property
    def has_tiled_attention(self) -> bool:
        """True if whole batches are computed on a CPU by the tiled kernel of flash attention."""
        is_plain = self.cache_type_k == self.cache_type_v == "f16" and self.microbatch is None
        return is_plain and self.flash_attention != "off"

    def apply(self, params: Any) -> None:
        """Set llama.cpp's context parameters, whose threads and batch size are set already."""
        if self.batch_threads is not None:
            params.n_threads_batch = self.batch_threads
        if self.microbatch is not None:
            params.n_ubatch = min(self.microbatch, params.n_batch)
        params.flash_attn_type = _FLASH_ATTENTION_TYPES[self.flash_attention]
        params.type_k = _CACHE_TYPE_IDS[self.cache_type_k]
        params.type_v = _CACHE_TYPE_IDS[self.cache_type_v]
        if self.rope_scaling is not None:
            params.rope_scaling_type = _ROPE_SCALING_TYPES[self.rope_scaling]
        if self.rope_freq_base is not None:
            params.rope_freq_base = self.rope_freq_base
        if self.rope_freq_scale is not None:
            params.rope_freq_scale = self.rope_freq_scale
