"""From the command line to a loaded model: found or downloaded, with ``--override-kv`` applied, and opened.

`load_in_background` lets llama.cpp load the model while Python imports the other modules and reads presets,
grammars and the prompt. Errors in any of these are reported before errors of the model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...common.errors import LogitsmithError, UsageError
from ...common.text import nearest_name
from ...models.names import ModelSpec
from ..interrupt import Interrupt
from ..messages import exit_after_abort, flag_sentence, print_note
from ..options.model import ClusterOptions, LogOptions, ModelOptions, RopeScaling

if TYPE_CHECKING:
    from ...cluster.run import ClusterRun
    from ...cluster.tasks import ServiceFactory
    from ...engine.model import Model
    from ...engine.native.model import BackgroundLoad
    from ...engine.native.options import ComputeOptions, GpuOptions, LoadPlan
    from ...models.errors import ModelError
    from ...models.hub import PullProgress
    from ...models.resolve import HubReference
    from ...presets.settings import SettingValue
    from ...presets.user_config import UserConfig


def show_llama_cpp_messages(options: LogOptions) -> None:
    """Print why, if llama.cpp is about to abort the process; with ``--verbose``, print its log on stderr."""
    from ...engine.native.binding import set_abort_handler, set_log_sink
    from ..render.run import terminal_safe

    set_abort_handler(exit_after_abort)
    if options.verbose:
        set_log_sink(lambda line: sys.stderr.write(terminal_safe(line, sys.stderr)))


def load_model(
    options: ModelOptions,
    interrupt: Interrupt,
    background_model: BackgroundModel | None = None,
    max_tokens: int | None = None,
) -> Model:
    """Find and load the model that the options, the environment or the user's config name.

    Args:
        options: name the model, and say how it is loaded.
        interrupt: stops loading.
        background_model: what `load_in_background` gave.
        max_tokens: how many are made at most; None: it is not known.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C.
    """
    from ...engine.model import Model
    from ...models.errors import AbortedError, ModelError
    from ...models.listing import model_name
    from ..render.progress import loading_bar

    spec = find_model(options, interrupt, max_tokens)

    def report_and_go_on(fraction: float) -> bool:
        show(fraction)
        return not interrupt.requested

    with loading_bar(model_name(spec.path), is_almost_loaded=background_model is not None) as show:
        try:
            if background_model is None or background_model.spec != spec:
                model = Model.load(spec.path, **spec.arguments, progress=report_and_go_on)
            else:
                model = Model.from_plan(background_model.load.plan, report_and_go_on, background_model.load)
        except ModelError as error:
            interrupt.raise_if_requested()
            raise with_origin(error, spec.origin) from None
    if interrupt.requested:
        model.close()
        raise KeyboardInterrupt
    interrupt.abort_with(model.abort, AbortedError)
    _report_long_context(options, model)
    _report_new_keys(spec.arguments["overrides"], model.metadata)
    return model


def _report_long_context(options: ModelOptions, model: Model) -> None:
    """Print a note if the context is longer than the model was trained for."""
    requested, trained = options.context_size, model.trained_context
    if requested is not None and 0 < trained < requested:
        print_note(f"-c {requested}: the model was trained with {trained:,} tokens, and may write nonsense beyond")


def find_model(options: ModelOptions, interrupt: Interrupt, max_tokens: int | None = None) -> ModelSpec:
    """Find the model that the options, the environment or the user's config name; it is not loaded.

    ``max_tokens``: how many are made at most; None: it is not known.
    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C during a download.
    """
    from ...presets.user_config import user_config

    overrides = read_overrides(options.override_kv or ())
    path, origin = _find_or_pull(options.model_reference, user_config(), interrupt)
    _use_numa(options)
    return ModelSpec(path, origin, load_arguments(options, overrides, print_note, max_tokens))


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
    from ..render.progress import download_bar

    with download_bar(str(reference)) as show:

        def report(progress: PullProgress) -> None:
            if interrupt is not None:
                interrupt.raise_if_requested()
            show(progress)

        try:
            return pull_model(reference, report)
        except KeyboardInterrupt:
            print_note(f"{reference}: what came so far is kept; the same command goes on from there")
            raise


def _use_numa(options: ModelOptions) -> None:
    from ...engine.native.binding import use_numa

    if options.numa is not None and not use_numa(options.numa.value):
        print_note("--numa has no effect: this machine has one NUMA node")


_FEW_TOKENS = 16
"""Fewer tokens do not win back what it takes longer to read a model than to map it."""


def load_arguments(
    options: ModelOptions,
    overrides: Mapping[str, Any],
    report: Callable[[str], object],
    max_tokens: int | None = None,
) -> dict[str, Any]:
    """The arguments of `Model.load`.

    Args:
        options: say how the model is loaded.
        overrides: metadata by key.
        report: called with a sentence for each flag that has no effect.
        max_tokens: how many are made at most; None: it is not known.
    """
    is_short = max_tokens in range(_FEW_TOKENS)  # a negative number stands for no limit
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


Value = int | float | bool | str
_READ: Mapping[str, Callable[[str], Value]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text],
    "str": str,
}


def read_overrides(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of ``KEY=TYPE:VALUE,…``, by key. Raises ``UsageError``."""
    return dict(_read(item) for text in texts for item in text.split(","))


def _read(text: str) -> tuple[str, Value]:
    key, _, typed = text.partition("=")
    kind, _, value = typed.partition(":")
    try:
        return key, _READ[kind](value)
    except (KeyError, ValueError):
        raise UsageError(
            f"--override-kv: {text!r} is not KEY=TYPE:VALUE with int, float, bool (true, false) or str"
        ) from None


_SIMILARITY = 0.9
"""Keys have long beginnings in common: ``llama.rope.freq_base`` is not ``llama.rope.dimension_count``."""


def _report_new_keys(overrides: Iterable[str], metadata: Iterable[str]) -> None:
    """Print a note for each key that is none of the file's: a key that is spelled wrong changes nothing."""
    known = list(metadata)
    for key in overrides:
        if key not in known:
            near = nearest_name(key, known, _SIMILARITY)
            hint = f"did you mean {near}?" if near else "it counts only if llama.cpp looks for it"
            print_note(f"--override-kv {key}: the file has no such value to override; {hint}")


_MAX_BYTES = 500_000_000
"""A larger file gets its bar, and Ctrl-C stops it also while it is mapped: `BackgroundLoad` has neither."""


class BackgroundModel(NamedTuple):
    """A model that is being loaded, and what named it."""

    spec: ModelSpec
    load: BackgroundLoad


@contextmanager
def load_in_background(
    options: ModelOptions, log: LogOptions, max_tokens: int | None = None, *, is_needed: bool = True
) -> Iterator[BackgroundModel | None]:
    """Load the model in the background while inside; yields what `load_model` takes, None if it is not done.

    It is done for a small local file, if there is nothing to say, to ask or to download before. Failures are left
    to `load_model`.

    Args:
        options: name the model, and say how it is loaded.
        log: a log that is shown is not lost: with it, nothing is done.
        max_tokens: how many are made at most, as for `load_model`.
        is_needed: False: nothing is done.
    """
    spec = _plain_spec(options, max_tokens) if is_needed and not log.verbose else None
    plan = None if spec is None else _plan(spec)
    if spec is None or plan is None:
        yield None
        return
    from ...engine.native.model import BackgroundLoad

    load = BackgroundLoad(plan)
    try:
        yield BackgroundModel(spec, load)
    finally:
        load.cancel()


def _plain_spec(options: ModelOptions, max_tokens: int | None) -> ModelSpec | None:
    """The model, if no flag asks for more than a plain load of a file."""
    from ...models.folders import locate
    from ...presets.user_config import user_config

    if options.lora or options.override_kv or options.numa is not None or options.gpu_layers:
        return None
    if options.mlock or options.mmap is False:
        return None
    try:
        path, origin = locate(options.model_reference or None, user_config().model)
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
    except (LogitsmithError, OSError, ValueError):
        return None
    sentences: list[str] = []
    spec = ModelSpec(path, origin, load_arguments(options, {}, sentences.append, max_tokens))
    return None if sentences else spec


def _plan(spec: ModelSpec) -> LoadPlan | None:
    """How the model is loaded; None if it cannot be, or has several files."""
    from ...engine.native.options import plan_load
    from ...models.errors import ModelError

    try:
        return plan_load(spec.path, **spec.arguments) if len(spec.files) == 1 else None
    except ModelError:
        return None


def chosen_model(options: ModelOptions) -> SettingValue:
    """Return the model that the options, the environment or the user's config name, and what chose it.

    Nothing is downloaded. A model that is not here is named as it was typed, and a note says what is wrong, or how
    it comes here.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate
    from ...models.listing import model_name
    from ...presets.settings import SettingValue
    from ...presets.user_config import user_config

    config, text = user_config(), options.model_reference
    try:
        path, origin = locate(text, config.model)
    except ModelError as error:
        print_note(flag_sentence(error))
        return SettingValue("none", "default")
    typed, origin = text or str(path), "-hf" if options.hub_repository is not None else origin
    try:
        path = find_model_file(text)
        if path.is_file():
            return SettingValue(model_name(path), origin)
        print_note(f"{typed}: there is no such file")
    except ModelError as error:
        print_note(flag_sentence(error))
    return SettingValue(typed, origin)


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


@contextmanager
def cluster_workers(
    options: ClusterOptions,
    spec: ModelSpec,
    service: ServiceFactory,
    sequences: int,
    shard_size: int,
    *,
    needs_same_kernels: bool = False,
) -> Iterator[ClusterRun]:
    """Start the workers, while inside. Raises ``ClusterError``, ``ModelError``.

    Args:
        options: the flags.
        spec: the model, see `model_for_workers`.
        service: makes the service of each worker.
        sequences: how many a worker decodes at a time.
        shard_size: how many tasks it gets at once.
        needs_same_kernels: refuse a worker whose processor computes other logits than the first one's.
    """
    from ...cluster.run import ClusterRunOptions
    from ...jobs.workers import model_workers, worker_needs
    from ...models.errors import ModelError

    needs = worker_needs(spec, sequences, options.worker_cpus, options.worker_gpus)
    run_options = ClusterRunOptions(options.workers, needs, shard_size, options.stall_seconds)
    workers = model_workers(
        options.address,
        run_options,
        spec,
        service,
        needs_same_kernels=needs_same_kernels,
        note=print_note,
    )
    try:
        with workers as run:
            yield run
    except ModelError as error:
        raise with_origin(error, spec.origin) from None
