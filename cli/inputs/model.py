"""From the command line to a loaded model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

from ..errors import note
from ..interrupt import Interrupt
from ..options.model import LogOptions, ModelOptions

if TYPE_CHECKING:
    from ...engine import ComputeOptions, Model


def _adapters(options: ModelOptions) -> list[tuple[str, float]]:
    """Split ``--lora FILE=SCALE`` into file and scale, 1 if none is given."""
    files = []
    for text in options.lora or ():
        path, sign, scale = text.rpartition("=")
        try:
            files.append((path, float(scale)) if sign else (text, 1.0))
        except ValueError:
            files.append((text, 1.0))  # the = belongs to the file's name
    return files


_READ_OVERRIDE: Mapping[str, Callable[[str], int | float | bool | str]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text],
    "str": str,
}


def _override(text: str) -> tuple[str, int | float | bool | str]:
    """Read ``KEY=TYPE:VALUE``. Raises ``typer.BadParameter``."""
    key, _, typed = text.partition("=")
    kind, _, value = typed.partition(":")
    try:
        return key, _READ_OVERRIDE[kind](value)
    except (KeyError, ValueError):
        raise typer.BadParameter(
            f"--override-kv: {text!r} is not KEY=TYPE:VALUE with int, float, bool (true, false) or str"
        ) from None


def _compute_options(options: ModelOptions) -> ComputeOptions:
    from ...engine import ComputeOptions

    scale = options.rope_scale
    return ComputeOptions(
        batch_threads=options.batch_threads,
        microbatch=options.microbatch,
        flash_attention=options.flash_attention.value,
        cache_type_k=options.cache_type_k.value,
        cache_type_v=options.cache_type_v.value,
        rope_scaling=None if options.rope_scaling is None else options.rope_scaling.value,
        rope_freq_base=options.rope_freq_base,
        rope_freq_scale=options.rope_freq_scale if scale is None else 1 / scale,
    )


def show_llama_cpp_messages(options: LogOptions) -> None:
    """Print why, if llama.cpp is about to abort the process; with ``--verbose``, print its log on stderr."""
    from ...engine import set_abort_handler, set_log_sink
    from ..errors import give_up
    from ..render.text import terminal_safe

    set_abort_handler(give_up)
    if options.verbose:
        set_log_sink(lambda line: sys.stderr.write(terminal_safe(line, sys.stderr)))


def load_model(options: ModelOptions, interrupt: Interrupt) -> Model:
    """Find and load the model that the options, the environment or the user's config name.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C.
    """
    from ...engine import Model, ModelError, locate
    from ...presets import user_config
    from ..render.progress import loading

    overrides = dict(_override(item) for text in options.override_kv or () for item in text.split(","))
    path, _ = locate(str(options.model) if options.model else None, user_config().model)

    def report_and_go_on(fraction: float) -> bool:
        show(fraction)
        return not interrupt.requested

    with loading(path.name) as show:
        try:
            model = Model.load(
                path,
                n_ctx=options.context_size,
                threads=options.threads,
                gpu_layers=options.gpu_layers,
                batch=options.batch_size,
                mmap=options.mmap,
                mlock=options.mlock,
                lora=_adapters(options),
                overrides=overrides,
                compute=_compute_options(options),
                progress=report_and_go_on,
            )
        except ModelError:
            interrupt.raise_if_requested()
            raise
    if interrupt.requested:
        model.close()
        raise KeyboardInterrupt
    _report_long_context(options, model)
    return model


def _report_long_context(options: ModelOptions, model: Model) -> None:
    """Print a note if the context is longer than the model was trained for."""
    requested, trained = options.context_size, model.trained_context
    if requested is not None and 0 < trained < requested:
        note(f"-c {requested}: the model was trained with {trained:,} tokens, and may write nonsense beyond")
