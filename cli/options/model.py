"""The flags of a model and of llama.cpp's log."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path

import typer

from ...common.limits import CACHE_TYPES, INT32_MAX, MAX_THREADS, ROPE_SCALINGS
from .flag import Options, flag, options_class
from .limits import POSITIVE, within

_model = partial(flag, panel="Model")


_ALL_LAYERS = -1


class FlashAttention(str, Enum):
    """When flash attention is used."""

    on = "on"
    off = "off"
    auto = "auto"


CacheType = Enum("CacheType", {name: name for name in CACHE_TYPES}, type=str)  # type: ignore[misc]
"""The number format of a cache of keys or values."""
RopeScaling = Enum("RopeScaling", {name: name for name in ROPE_SCALINGS}, type=str)  # type: ignore[misc]
"""How RoPE is scaled."""
_F16 = CacheType("f16")
_CACHE_TYPE_NAMES = ", ".join(CACHE_TYPES)


def _layer_count(text: str | int) -> int:
    """A number of layers, or ``all``."""
    if text == "all":
        return _ALL_LAYERS
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number, nor all") from None


@options_class
class ModelOptions(Options):
    """Which model, and how it computes."""

    model: Path | None = _model("-m", "--model", help="GGUF file. [$GEN_MODEL, the config, the bundled model]")
    context_size: int | None = _model(
        "-c", "--ctx-size", help="Context in tokens; 0 = the model's. [4096]", limit=within(0, INT32_MAX)
    )
    threads: int | None = _model(
        "-t", "--threads", help="CPU threads. [the physical cores]", limit=within(1, MAX_THREADS)
    )
    gpu_layers: int = _model(
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        metavar="N|all",
        help="Layers on the GPU; all or -1: all. [0]",
        default=0,
        parser=_layer_count,
        limit=within(-1, INT32_MAX),
    )
    batch_size: int = _model(
        "-b", "--batch-size", help="Prompt tokens at a time. [512]", default=512, limit=within(1, INT32_MAX)
    )
    batch_threads: int | None = _model(
        "-tb",
        "--threads-batch",
        help="CPU threads that read a prompt. [those of -t]",
        limit=within(1, MAX_THREADS),
    )
    microbatch: int | None = _model(
        "-ub",
        "--ubatch-size",
        help="Tokens of a batch that are computed at once. [all]",
        limit=within(1, INT32_MAX),
    )
    flash_attention: FlashAttention = _model(
        "-fa",
        "--flash-attn",
        help="Flash attention; auto: if the model allows. [auto]",
        default=FlashAttention.auto,
    )
    cache_type_k: CacheType = _model(
        "-ctk",
        "--cache-type-k",
        metavar="TYPE",
        help=f"The cache's keys: {_CACHE_TYPE_NAMES}. [f16]",
        default=_F16,
    )
    cache_type_v: CacheType = _model(
        "-ctv",
        "--cache-type-v",
        metavar="TYPE",
        help="Its values; a quantised type needs flash attention. [f16]",
        default=_F16,
    )
    rope_scaling: RopeScaling | None = _model("--rope-scaling", help="How RoPE is scaled. [the model's]")
    rope_scale: float | None = _model(
        "--rope-scale", metavar="N", help="Make the context N times longer by RoPE.", limit=POSITIVE
    )
    rope_freq_base: float | None = _model(
        "--rope-freq-base", metavar="N", help="RoPE's base frequency. [the model's]", limit=POSITIVE
    )
    rope_freq_scale: float | None = _model(
        "--rope-freq-scale", metavar="N", help="RoPE's frequencies times N, as --rope-scale 1/N.", limit=POSITIVE
    )
    override_kv: list[str] | None = _model(
        "--override-kv",
        metavar="KEY=TYPE:VALUE",
        help="Another value in the GGUF's metadata; int, float, bool or str; repeatable.",
    )
    lora: list[str] | None = _model(
        "--lora", metavar="FILE[=SCALE]", help="LoRA adapter; repeatable.", is_path=True
    )
    mmap: bool = _model("--mmap/--no-mmap", help="Map the file, or read the whole of it. [--mmap]", default=True)
    mlock: bool = _model("--mlock", help="Keep the model in RAM.", default=False)
    no_warmup: bool = _model("--no-warmup", help="As ever: gen makes no trial run.", default=False)

    def check(self) -> None:
        """Refuse two factors of RoPE, and a cache that llama.cpp cannot make."""
        if self.rope_scale is not None and self.rope_freq_scale is not None:
            raise typer.BadParameter("--rope-scale and --rope-freq-scale set one factor; give one")
        if self.flash_attention is FlashAttention.off and "q" in self.cache_type_v.value:
            raise typer.BadParameter(f"-ctv {self.cache_type_v.value} needs flash attention, and -fa off is given")


@options_class
class LogOptions(Options):
    """What llama.cpp says of itself."""

    verbose: bool = flag(
        "-v",
        "--verbose/--log-disable",
        help="llama.cpp's own log, on stderr. [--log-disable]",
        default=False,
        panel="Output",
    )
