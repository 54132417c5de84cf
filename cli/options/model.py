"""The flags of a model and of llama.cpp's log."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from ...common.limits import INT32_MAX, MAX_THREADS
from .flag import Options, flag, options_class
from .limits import within

_model = partial(flag, panel="Model")


_ALL_LAYERS = -1


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
    lora: list[str] | None = _model(
        "--lora", metavar="FILE[=SCALE]", help="LoRA adapter; repeatable.", is_path=True
    )
    mmap: bool = _model("--mmap/--no-mmap", help="Map the file, or read the whole of it. [--mmap]", default=True)
    mlock: bool = _model("--mlock", help="Keep the model in RAM.", default=False)
    no_warmup: bool = _model("--no-warmup", help="As ever: gen makes no trial run.", default=False)


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
