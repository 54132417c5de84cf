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
from ..options.drafts import DraftingOptions
from ..options.model import ClusterOptions, LogOptions, ModelOptions, RopeScaling

if TYPE_CHECKING:
    from ...cluster.run import ClusterRun
    from ...cluster.tasks import ServiceFactory
    from ...engine.drafts import DraftOptions
    from ...engine.model import Model
    from ...engine.native.model import BackgroundLoad
    from ...engine.native.options import ComputeOptions, GpuOptions, LoadPlan
    from ...models.errors import ModelError
    from ...models.hub import PullProgress
    from ...models.resolve import HubReference
    from ...presets.settings import SettingValue
    from ...presets.user_config import UserConfig


def show_llama_cpp_messages(options: LogOptions) -> None:
    """Print llama.cpp's reason if it aborts the process. With ``--verbose``, print llama.cpp's log to stderr."""
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
        options: flags that name the model and change how it is loaded.
        interrupt: stops loading after Ctrl-C.
        background_model: the model from `load_in_background`; None if loading has not begun.
        max_tokens: maximum number of tokens that the run will generate; None if unknown.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C.
    """
    from ...engine.model import Model
    from ...models.errors import AbortedError, ModelError
    from ...models.listing import model_name
    from ..render.progress import loading_bar

    spec = find_model(options, interrupt, max_tokens)

    def report_progress(fraction: float) -> bool:
        show(fraction)
        return not interrupt.requested

    with loading_bar(model_name(spec.path), is_almost_loaded=background_model is not None) as show:
        try:
            if background_model is None or background_model.spec != spec:
                model = Model.load(spec.path, **spec.arguments, progress=report_progress)
            else:
                model = Model.from_plan(background_model.load.plan, report_progress, background_model.load)
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
    """Print a note if the requested context is longer than the model's training context."""
    requested, trained = options.context_size, model.trained_context
    if requested is not None and 0 < trained < requested:
        print_note(
            f"-c {requested}: the model was trained with {trained:,} tokens, and may write nonsense beyond that"
        )


def find_model(options: ModelOptions, interrupt: Interrupt, max_tokens: int | None = None) -> ModelSpec:
    """Find the model that the options, the environment or the user's config name, without loading it.

    Args:
        options: flags that name the model and change how it is loaded.
        interrupt: stops a download after Ctrl-C.
        max_tokens: maximum number of tokens that the run will generate; None if unknown.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C during a download.
    """
    from ...presets.user_config import user_config

    overrides = read_overrides(options.override_kv or ())
    path, origin = _find_or_download(options.model_reference, user_config(), interrupt)
    _use_numa(options)
    return ModelSpec(path, origin, load_arguments(options, overrides, print_note, max_tokens))


def _find_or_download(model_reference: str | None, config: UserConfig, interrupt: Interrupt) -> tuple[Path, str]:
    """Return the model's file, and the origin of its name, as `locate` returns it.

    A model of Hugging Face that is not on this machine is downloaded, as in llama.cpp.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate

    path, origin = locate(model_reference or None, config.model)
    if path.is_file():
        return path, origin
    from ...models.resolve import ModelNotHereError, resolve_model

    try:
        return resolve_model(model_reference or str(path), config.model_folders), origin
    except ModelNotHereError as error:
        return pull(error.reference, interrupt), origin
    except ModelError as error:
        raise with_origin(error, origin) from None


def find_draft_model(options: DraftingOptions, interrupt: Interrupt) -> DraftOptions | None:
    """Return the draft model and the limits that the options name; None without a draft model.

    The draft model is found or downloaded as the model of ``-m`` is. It is loaded when a request uses it.

    Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C during a download.
    """
    from ...engine.drafts import DraftOptions
    from ...models.errors import ModelError
    from ...presets.user_config import user_config

    if options.draft_model is None:
        return None
    limits: dict[str, Any] = {
        "n_max": options.max_draft_tokens,
        "n_min": options.min_draft_tokens,
        "p_min": options.min_draft_probability,
    }
    try:
        path, _ = _find_or_download(options.draft_model, user_config(), interrupt)
    except ModelError as error:
        raise ModelError(f"-md: {error.problem}", advice=error.advice) from None
    return DraftOptions(path, **{name: value for name, value in limits.items() if value is not None})


def open_draft_model(draft: DraftOptions | None, model: Model) -> None:
    """Load the draft model of a command, so that one that cannot be used fails before the first text.

    Prints a note if it was trained with fewer tokens than the context has. Raises ``ModelError``.
    """
    draft_model = None if draft is None else draft.open_for(model)
    if draft_model is not None and 0 < draft_model.trained_context < model.context_length:
        print_note(
            f"-md {draft_model.path}: the draft model was trained with {draft_model.trained_context:,} tokens,"
            f" and may guess badly in the rest of the context of {model.context_length:,}"
        )


def with_origin(error: ModelError, origin: str) -> ModelError:
    """Return the error with the place that names the file: ``--lora``, $GEN_MODEL or the user's config."""
    from ...models.errors import AdapterError, ModelError
    from ...presets.user_config import config_file

    if isinstance(error, AdapterError):
        return ModelError(f"--lora {error.problem}", advice=error.advice)
    start = {"$GEN_MODEL": "$GEN_MODEL: ", "config": f"{config_file()}: model: "}.get(origin, "")
    return ModelError(f"{start}{error.problem}", advice=error.advice)


def pull(reference: HubReference, interrupt: Interrupt | None = None) -> Path:
    """Download a model, with a progress bar on a terminal, and return its file. Raises ``ModelError``."""
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
            print_note(f"{reference}: the partial download is kept; the same command resumes it")
            raise


def _use_numa(options: ModelOptions) -> None:
    from ...engine.native.binding import use_numa

    if options.numa is not None and not use_numa(options.numa.value):
        print_note("--numa has no effect: this machine has one NUMA node")


_MIN_TOKENS_FOR_READING = 16
"""Tokens from which a run is faster if the model's file is read, which takes longer to load, instead of mapped."""


def load_arguments(
    options: ModelOptions,
    overrides: Mapping[str, Any],
    report: Callable[[str], object],
    max_tokens: int | None = None,
) -> dict[str, Any]:
    """Return the keyword arguments of `Model.load`.

    Args:
        options: flags that change how the model is loaded.
        overrides: values that replace metadata of the file, by key.
        report: called with a sentence for each flag that has no effect.
        max_tokens: maximum number of tokens that the run will generate; None if unknown, negative for no limit.
    """
    is_short_run = max_tokens in range(_MIN_TOKENS_FOR_READING)
    return {
        "n_ctx": options.context_size,
        "threads": options.threads,
        "gpu_layers": options.gpu_layers,
        "batch": options.batch_size,
        "mmap": True if is_short_run and options.mmap is None else options.mmap,
        "mlock": options.mlock,
        "lora": _adapters(options),
        "overrides": overrides,
        "compute": _compute_options(options, report),
        "gpu": _gpu_options(options, report),
    }


def _adapters(options: ModelOptions) -> list[tuple[str, float]]:
    """Return file and scale of each ``--lora FILE=SCALE``. The default scale is 1."""
    files = []
    for text in options.lora or ():
        path, sign, scale = text.rpartition("=")
        try:
            files.append((path, float(scale)) if sign else (text, 1.0))
        except ValueError:
            files.append((text, 1.0))  # no number follows the last =, so = is part of the file's name
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
    """Return the settings for GPUs. Report flags that have no effect because there is no GPU."""
    from ...engine.native.binding import supports_gpu
    from ...engine.native.options import GpuOptions

    flags = {
        "-ngl": options.gpu_layers or None,
        "-sm": options.split_mode,
        "-mg": options.main_gpu,
        "-ts": options.tensor_split,
    }
    typed_flags = [name for name, value in flags.items() if value is not None]
    if typed_flags and not supports_gpu():
        verb = "has" if len(typed_flags) == 1 else "have"
        report(f"{', '.join(typed_flags)} {verb} no effect: llama.cpp finds no GPU that it was built for")
    return GpuOptions(
        split_mode="layer" if options.split_mode is None else options.split_mode.value,
        main_gpu=options.main_gpu or 0,
        tensor_split=options.gpu_shares,
    )


Value = int | float | bool | str
_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text],
    "str": str,
}


def read_overrides(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of all ``KEY=TYPE:VALUE,…``, by key. Raises ``UsageError``."""
    return dict(_parse_override(item) for text in texts for item in text.split(","))


def _parse_override(text: str) -> tuple[str, Value]:
    key, _, typed = text.partition("=")
    kind, _, value = typed.partition(":")
    try:
        return key, _PARSERS[kind](value)
    except (KeyError, ValueError):
        raise UsageError(
            f"--override-kv: {text!r} is not KEY=TYPE:VALUE with int, float, bool (true, false) or str"
        ) from None


_MIN_SIMILARITY = 0.9
"""Similarity of two keys, 0 to 1, above which one is suggested for the other.

It is high because different keys have long common beginnings: ``llama.rope.freq_base``,
``llama.rope.dimension_count``.
"""


def _report_new_keys(overrides: Iterable[str], metadata: Iterable[str]) -> None:
    """Print a note for each overriding key that the file does not have, since a misspelled key changes nothing."""
    file_keys = list(metadata)
    for key in overrides:
        if key not in file_keys:
            nearest_key = nearest_name(key, file_keys, _MIN_SIMILARITY)
            hint = f"did you mean {nearest_key}?" if nearest_key else "it has an effect only if llama.cpp uses it"
            print_note(f"--override-kv {key}: the file has no such key; {hint}")


_MAX_BACKGROUND_BYTES = 500_000_000
"""Size of the largest file that is loaded in the background.

A larger file needs a progress bar, and Ctrl-C must stop loading it. `BackgroundLoad` has neither.
"""


class BackgroundModel(NamedTuple):
    """A model that is being loaded in the background.

    Attributes:
        spec: file, origin and arguments of the model.
        load: the running load.
    """

    spec: ModelSpec
    load: BackgroundLoad


@contextmanager
def load_in_background(
    options: ModelOptions, log: LogOptions, max_tokens: int | None = None, *, is_needed: bool = True
) -> Iterator[BackgroundModel | None]:
    """Load the model in the background; yield the argument ``background_model`` of `load_model`.

    Only a small local file is loaded, and only if nothing must be reported or downloaded first. In other cases,
    None is yielded. If loading fails, `load_model` raises the error.

    Args:
        options: flags that name the model and change how it is loaded.
        log: flags of llama.cpp's log. If the log is shown, nothing is loaded, so that no line of it is lost.
        max_tokens: maximum number of tokens that the run will generate; None if unknown.
        is_needed: False to load nothing.
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
    """Return the model if it is a small local file and no flag needs extra work or a note; otherwise None."""
    from ...models.folders import locate
    from ...presets.user_config import user_config

    if options.lora or options.override_kv or options.numa is not None or options.gpu_layers:
        return None
    if options.mlock or options.mmap is False:
        return None
    try:
        path, origin = locate(options.model_reference or None, user_config().model)
        if not path.is_file() or path.stat().st_size > _MAX_BACKGROUND_BYTES:
            return None
    except (LogitsmithError, OSError, ValueError):
        return None
    sentences: list[str] = []
    spec = ModelSpec(path, origin, load_arguments(options, {}, sentences.append, max_tokens))
    return None if sentences else spec


def _plan(spec: ModelSpec) -> LoadPlan | None:
    """Return the plan for loading the model; None if the model cannot be loaded, or has several files."""
    from ...engine.native.options import plan_load
    from ...models.errors import ModelError

    try:
        return plan_load(spec.path, **spec.arguments) if len(spec.files) == 1 else None
    except ModelError:
        return None


def chosen_model(options: ModelOptions) -> SettingValue:
    """Return the name of the model, with the flag, variable or config that sets it as the origin.

    Nothing is downloaded. If the model is not on this machine, its name is returned as it was typed, and a note
    says what is wrong or how to get the model.
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


def find_model_file(model_reference: str | None) -> Path:
    """Return the file of the model that ``model_reference``, the environment or the user's config names.

    Nothing is downloaded. ``model_reference`` is the value of ``-m``, or None without that flag. Raises
    ``ModelError``.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate
    from ...models.resolve import resolve_model
    from ...presets.user_config import user_config

    config = user_config()
    path, origin = locate(model_reference or None, config.model)
    try:
        return path if path.is_file() else resolve_model(model_reference or str(path), config.model_folders)
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
    """Start the workers of a cluster, and stop them at the end of the context.

    Args:
        options: flags of the cluster.
        spec: model of the workers, see `model_for_workers`.
        service: creates the service in each worker.
        sequences: number of sequences that a worker decodes concurrently.
        shard_size: number of tasks that are sent to a worker together.
        needs_same_kernels: True to reject workers whose processor computes other logits than the first worker's.

    Raises ``ClusterError`` and ``ModelError``.
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
