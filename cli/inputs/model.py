"""From the command line to a loaded model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import note
from ..interrupt import Interrupt
from ..options.model import LogOptions, ModelOptions, RopeScaling
from .overrides import read_overrides, report_new_keys

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.native.options import ComputeOptions, GpuOptions
    from ...models.errors import ModelError
    from ...models.hub import PullProgress
    from ...models.resolve import HubReference
    from ...presets.user_config import UserConfig
    from .early_model import EarlyModel

_FEW_TOKENS = 16
"""Fewer tokens do not win back what it takes longer to read a model than to map it."""


@dataclass(frozen=True)
class ModelSpec:
    """A model's file and how it is loaded, in this process or another: it can be pickled.

    Attributes: ``path``; ``origin``: what named it, see `locate`; ``arguments``: those of `Model.load`.
    """

    path: Path
    origin: str
    arguments: Mapping[str, Any]

    @property
    def files(self) -> list[Path]:
        """All files that are loaded: those of the model, which may be split, and its adapters."""
        from ...models.names import part_paths

        return [*part_paths(self.path), *(Path(file) for file, _ in self.arguments["lora"])]

    def relocated(self, find: Callable[[Path], Path]) -> ModelSpec:
        """The same model where its files lie elsewhere; ``find``: returns where each is."""
        paths = {path: find(path) for path in self.files}
        lora = [(str(paths[Path(file)]), scale) for file, scale in self.arguments["lora"]]
        return replace(self, path=paths[self.path], arguments={**self.arguments, "lora": lora})

    def load(self, progress: Callable[[float], bool] | None = None, early: EarlyModel | None = None) -> Model:
        """Load the model, see `Model.load`, or take it from ``early`` if it is this one. Raises ``ModelError``."""
        from ...engine.model import Model

        if early is None or early.spec != self:
            return Model.load(self.path, **self.arguments, progress=progress)
        return Model.from_plan(early.load.plan, progress, early.load)


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


def _compute_options(options: ModelOptions, report: Callable[[str], object]) -> ComputeOptions:
    from ...engine.native.options import ComputeOptions

    scale = options.rope_scale
    if options.rope_scaling is RopeScaling("none") and not (scale is None and options.rope_freq_scale is None):
        name = "--rope-freq-scale" if scale is None else "--rope-scale"
        report(f"{name} has no effect: --rope-scaling none leaves the model's RoPE unscaled")
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


def _gpu_options(options: ModelOptions, report: Callable[[str], object]) -> GpuOptions:
    """The settings of GPUs; reports flags that mean nothing without one."""
    from ...engine.native.binding import supports_gpu
    from ...engine.native.options import GpuOptions

    flags = {
        "-ngl": options.gpu_layers or None,
        "-sm": options.split_mode,
        "-mg": options.main_gpu,
        "-ts": options.tensor_split,
    }
    given = [name for name, value in flags.items() if value is not None]
    if given and not supports_gpu():
        verb = "has" if len(given) == 1 else "have"
        report(f"{', '.join(given)} {verb} no effect: llama.cpp finds no GPU that it was built for")
    return GpuOptions(
        split_mode="layer" if options.split_mode is None else options.split_mode.value,
        main_gpu=options.main_gpu or 0,
        tensor_split=options.gpu_shares,
    )


def _use_numa(options: ModelOptions) -> None:
    from ...engine.native.binding import use_numa

    if options.numa is not None and not use_numa(options.numa.value):
        note("--numa has no effect: this machine has one NUMA node")


def show_llama_cpp_messages(options: LogOptions) -> None:
    """Print why, if llama.cpp is about to abort the process; with ``--verbose``, print its log on stderr."""
    from ...engine.native.binding import set_abort_handler, set_log_sink
    from ..errors import give_up
    from ..render.run import terminal_safe

    set_abort_handler(give_up)
    if options.verbose:
        set_log_sink(lambda line: sys.stderr.write(terminal_safe(line, sys.stderr)))


def find_model_file(text: str | None) -> Path:
    """Return the file of the model that a text, the environment or the user's config names.

    Nothing is downloaded. ``text``: the value of ``-m``; None: it is not given. Raises ``ModelError``.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate
    from ...models.resolve import resolve_model
    from ...presets.user_config import user_config

    config = user_config()
    path, origin = locate(text or None, config.model)
    try:
        return path if path.is_file() else resolve_model(text or str(path), config.model_folders)
    except ModelError as error:
        raise with_origin(error, origin) from None


def _find_or_pull(text: str | None, config: UserConfig, interrupt: Interrupt) -> tuple[Path, str]:
    """Return the model's file, and its origin, as `locate` names it.

    A model of Hugging Face that is not here is downloaded, as llama.cpp does it.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate

    path, origin = locate(text or None, config.model)
    if path.is_file():
        return path, origin
    from ...models.resolve import ModelNotHereError, resolve_model

    try:
        return resolve_model(text or str(path), config.model_folders), origin
    except ModelNotHereError as error:
        return pull(error.reference, interrupt), origin
    except ModelError as error:
        raise with_origin(error, origin) from None


def with_origin(error: ModelError, origin: str) -> ModelError:
    """Return the error with what names the file: ``--lora``, or the variable or config that names the model."""
    from ...models.errors import AdapterError, ModelError
    from ...presets.user_config import config_file

    if isinstance(error, AdapterError):
        return ModelError(f"--lora {error.problem}", advice=error.advice)
    start = {"$GEN_MODEL": "$GEN_MODEL: ", "config": f"{config_file()}: model: "}.get(origin, "")
    return ModelError(f"{start}{error.problem}", advice=error.advice)


def pull(reference: HubReference, interrupt: Interrupt | None = None) -> Path:
    """Download a model, with a bar on a terminal; returns its file. Raises ``ModelError``."""
    from ...models.hub import pull_model
    from ..render.progress import pulling

    with pulling(str(reference)) as show:

        def report(progress: PullProgress) -> None:
            if interrupt is not None:
                interrupt.raise_if_requested()
            show(progress)

        try:
            return pull_model(reference, report)
        except KeyboardInterrupt:
            note(f"{reference}: what came so far is kept; the same command goes on from there")
            raise


def load_model(
    options: ModelOptions, interrupt: Interrupt, early: EarlyModel | None = None, tokens: int | None = None
) -> Model:
    """Find and load the model that the options, the environment or the user's config name.

    Args:
        options: name the model, and say how it is loaded.
        interrupt: stops loading.
        early: what `load_early` gave.
        tokens: how many are made at most; None: it is not known.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C.
    """
    from ...models.errors import AbortedError, ModelError
    from ...models.listing import model_name
    from ..render.progress import loading

    spec = find_model(options, interrupt, tokens)

    def report_and_go_on(fraction: float) -> bool:
        show(fraction)
        return not interrupt.requested

    with loading(model_name(spec.path), is_soon_done=early is not None) as show:
        try:
            model = spec.load(report_and_go_on, early)
        except ModelError as error:
            interrupt.raise_if_requested()
            raise with_origin(error, spec.origin) from None
    if interrupt.requested:
        model.close()
        raise KeyboardInterrupt
    interrupt.abort_with(model.abort, AbortedError)
    _report_long_context(options, model)
    report_new_keys(spec.arguments["overrides"], model.metadata)
    return model


def find_model(options: ModelOptions, interrupt: Interrupt, tokens: int | None = None) -> ModelSpec:
    """Find the model that the options, the environment or the user's config name; it is not loaded.

    ``tokens``: how many are made at most; None: it is not known.
    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C during a download.
    """
    from ...presets.user_config import user_config

    overrides = read_overrides(options.override_kv or ())
    path, origin = _find_or_pull(options.model_text, user_config(), interrupt)
    _use_numa(options)
    return ModelSpec(path, origin, load_arguments(options, overrides, note, tokens))


def load_arguments(
    options: ModelOptions,
    overrides: Mapping[str, Any],
    report: Callable[[str], object],
    tokens: int | None = None,
) -> dict[str, Any]:
    """The arguments of `Model.load`.

    Args:
        options: say how the model is loaded.
        overrides: metadata by key.
        report: called with a sentence for each flag that has no effect.
        tokens: how many are made at most; None: it is not known.
    """
    is_short = tokens in range(_FEW_TOKENS)  # a negative number stands for no limit
    return {
        "n_ctx": options.context_size,
        "threads": options.threads,
        "gpu_layers": options.gpu_layers,
        "batch": options.batch_size,
        "mmap": True if is_short and options.mmap is None else options.mmap,
        "mlock": options.mlock,
        "lora": _adapters(options),
        "overrides": overrides,
        "compute": _compute_options(options, report),
        "gpu": _gpu_options(options, report),
    }


def _report_long_context(options: ModelOptions, model: Model) -> None:
    """Print a note if the context is longer than the model was trained for."""
    requested, trained = options.context_size, model.trained_context
    if requested is not None and 0 < trained < requested:
        note(f"-c {requested}: the model was trained with {trained:,} tokens, and may write nonsense beyond")
