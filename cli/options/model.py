"""The flags of a model and of llama.cpp's log."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...common.limits import INT32_MAX, MAX_THREADS
from .flag import Options, flag, options_class
from .limits import within

_model = partial(flag, panel="Model")


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
        help="Layers on the GPU; -1 = all. [0]",
        default=0,
        limit=within(-1, INT32_MAX),
    )
    batch_size: int = _model(
        "-b", "--batch-size", help="Prompt tokens at a time. [512]", default=512, limit=within(1, INT32_MAX)
    )
    lora: list[str] | None = _model(
        "--lora", metavar="FILE[=SCALE]", help="LoRA adapter; repeatable.", is_path=True
    )
    no_mmap: bool = _model("--no-mmap", help="Read the whole file instead of mapping it.", default=False)
    mlock: bool = _model("--mlock", help="Keep the model in RAM.", default=False)


@options_class
class LogOptions(Options):
    """What llama.cpp says of itself."""

    verbose: bool = flag("-v", "--verbose", help="llama.cpp's own log, on stderr.", default=False, panel="Output")
