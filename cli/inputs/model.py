"""From the command line to a loaded model: found or downloaded, with ``--override-kv`` applied, and opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.machine import gpu_maker
from ...common.text import did_you_mean
from ...models.names import model_bytes
from ..interrupt import Interrupt
from ..messages import exit_after_abort, flag_sentence, print_note
from ..options.drafts import DraftingOptions
from ..options.model import FLAGS_BY_OPTION, ClusterOptions, LogOptions, ModelOptions, RopeScaling

if TYPE_CHECKING:
    from ...cluster.run import ClusterRun
    from ...cluster.tasks import ServiceFactory
    from ...engine.drafts import DraftOptions
    from ...engine.load_options import LoadOptions, ModelSpec
    from ...engine.model import Model
    from ...engine.placement import Placement
    from ...models.errors import ModelError
    from ...models.folders import ResolvedModel
    from ...models.hub import PullProgress
    from ...models.resolve import HubReference
    from ...presets.settings import SettingValue


def show_llama_cpp_messages(options: LogOptions) -> None:
    """Print llama.cpp's reason if it aborts the process. With ``--verbose``, print llama.cpp's log to stderr."""
    from ...engine.native.binding import set_abort_handler, set_log_sink
    from ..text import terminal_safe

    set_abort_handler(exit_after_abort)
    if options.verbose:
        set_log_sink(lambda line: sys.stderr.write(terminal_safe(line, sys.stderr)))


# Size of the smallest model that gets a bar. For a smaller one, importing rich would take as long as the load.
_MIN_BYTES_FOR_BAR = 500_000_000


def load_model(
    options: ModelOptions, interrupt: Interrupt, *, slots: int | None = 1, draft: DraftOptions | None = None
) -> Model:
    """Find and load the model that the options, the environment or the user's config name."""
    # ``slots``: see `LoadOptions`. ``draft``: a draft model that will be loaded beside this one. Raises
    # ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C.
    from ...engine.model import Model
    from ...models.errors import AbortedError, ModelError
    from ...models.listing import model_name
    from ..render.progress import loading_bar

    companions = () if draft is None else (draft.model,)
    spec = find_model(options, interrupt, slots=slots, companions=companions)
    has_bar = model_bytes(spec.path) >= _MIN_BYTES_FOR_BAR
    with loading_bar(model_name(spec.path), is_needed=has_bar) as show_fraction, ExitStack() as stack:
        report_progress = None
        if show_fraction is not None:
            report_progress = _progress_that_stops(show_fraction, interrupt)
        else:
            stack.enter_context(interrupt.ended_by_first_signal())  # without progress, nothing stops the load
        try:
            model = Model.load(spec.path, spec.options, progress=report_progress)
        except ModelError as error:
            interrupt.raise_if_requested()
            raise with_origin(error, spec.origin) from None
    if interrupt.requested:
        model.close()
        raise KeyboardInterrupt
    interrupt.abort_with(model.abort, AbortedError)
    _report_long_context(options, model)
    _report_placement(options, model)
    _report_new_keys(spec.options.overrides, model.metadata)
    return model


def _progress_that_stops(show_fraction: Callable[[float], None], interrupt: Interrupt) -> Callable[[float], bool]:
    """Return a callback of a load, which shows the loaded fraction and stops the load after a signal."""

    def report_progress(fraction: float) -> bool:
        show_fraction(fraction)
        return not interrupt.requested  # False stops the load

    return report_progress


def _report_long_context(options: ModelOptions, model: Model) -> None:
    """Print a note if the requested context is longer than the model's training context."""
    requested_length = options.context_size
    trained_length = model.trained_context  # 0 if the file does not contain it
    if requested_length is not None and 0 < trained_length < requested_length:
        print_note(
            f"-c {requested_length}: the model was trained with {trained_length:,} tokens, and may write nonsense"
            " beyond that"
        )


def _report_placement(options: ModelOptions, model: Model) -> None:
    """Print a note about what does not fit into the memory of the GPU, or about a GPU that is not used."""
    from ...engine.native.devices import gpu_backends

    _report_note_of_placement(model.placement)
    is_place_given = options.gpu_layers != "auto" or options.devices is not None
    if not is_place_given and not gpu_backends() and sys.stderr.isatty():
        _report_unused_gpu()


def _report_note_of_placement(placement: Placement) -> None:
    if placement.note is not None:
        print_note(placement.note + ("; -c sets the context" if placement.is_context_shorter else ""))


@cache
def _report_unused_gpu() -> None:
    """Print a note if this machine has a GPU, but llama.cpp is built without it; once per run."""
    maker = gpu_maker()
    if maker not in (None, "unknown"):
        print_note(
            f"the GPU of {maker} is not used: llama.cpp is built without it; gen doctor says how to build it"
        )


def find_model(
    options: ModelOptions, interrupt: Interrupt, *, slots: int | None = 1, companions: Sequence[str | Path] = ()
) -> ModelSpec:
    """Find the model that the options, the environment or the user's config name, without loading it."""
    # ``slots``, ``companions``: see `LoadOptions`. Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C
    # during a download.
    load_options = replace(options.load_options(), slots=slots, companions=companions)
    files, origin = find_model_files(options.model_reference, partial(pull, interrupt=interrupt))
    _report_other_files(files)
    _use_numa(options)
    report_flags_without_effect(options, print_note)
    return _model_spec(files, origin, load_options)


def _model_spec(files: ResolvedModel, origin: str, options: LoadOptions) -> ModelSpec:
    """Return a model with its own adapters beside those of the options."""
    from ...engine.load_options import ModelSpec

    adapters_of_model = [(adapter, 1.0) for adapter in files.adapters]
    return ModelSpec(files.path, origin, replace(options, lora=[*adapters_of_model, *options.lora]))


def _report_other_files(files: ResolvedModel) -> None:
    """Print a note about the files of a model of Ollama that the run does not use."""
    from ...models.listing import ollama_models_of

    if files.has_projector:
        print_note("the part of the model that reads images is left out: gen reads text only")
    models = ollama_models_of(files.path)
    always_has_adapter = bool(models) and all(model.adapters for model in models)
    if always_has_adapter and not files.adapters:
        name = models[0].name
        print_note(f"{files.path} is read without the adapter of {name}; -m {name} applies it")


def find_draft_model(options: DraftingOptions, interrupt: Interrupt) -> DraftOptions | None:
    """Return the draft model and the limits that the options name; None without a draft model."""
    # The draft model is found or downloaded as the model of ``-m`` is. It is loaded when a request uses it.
    # Raises ``ModelError``, and ``KeyboardInterrupt`` after Ctrl-C during a download.
    from ...engine.drafts import DraftOptions
    from ...models.errors import ModelError

    if options.draft_model is None:
        return None
    try:
        files, _ = find_model_files(options.draft_model, partial(pull, interrupt=interrupt))
    except ModelError as error:
        raise error.within("-md") from None
    if files.adapters:
        print_note(f"-md {options.draft_model}: a draft model is used without its adapter, and may guess worse")
    limits: dict[str, Any] = {}
    if options.max_draft_tokens is not None:
        limits["n_max"] = options.max_draft_tokens
    if options.min_draft_tokens is not None:
        limits["n_min"] = options.min_draft_tokens
    if options.min_draft_probability is not None:
        limits["p_min"] = options.min_draft_probability
    return DraftOptions(files.path, **limits)


def open_draft_model(draft: DraftOptions | None, model: Model) -> None:
    """Load the draft model of a command, so that an error is raised before the first text."""
    # Prints a note if the draft model was trained with fewer tokens than the context has. Raises ``ModelError``.
    if draft is None:
        return
    draft_model = draft.open_for(model)
    if draft_model is not None and draft_model.placement.note is not None:
        print_note(f"-md {draft_model.path}: {draft_model.placement.note}")
    if draft_model is not None and 0 < draft_model.trained_context < model.context_length:
        print_note(
            f"-md {draft_model.path}: the draft model was trained with {draft_model.trained_context:,} tokens,"
            f" and may guess badly in the rest of the context of {model.context_length:,}"
        )


def with_origin(error: ModelError, origin: str) -> ModelError:
    """Return the error with the place that names the file: ``--lora``, $GEN_MODEL or the user's config."""
    from ...models.errors import AdapterError
    from ...presets.user_config import config_file

    if isinstance(error, AdapterError):
        return error.at(f"--lora {error.origin}")
    if error.origin in FLAGS_BY_OPTION:
        return error.at(FLAGS_BY_OPTION[error.origin])
    if origin == "config":
        return error.within(f"{config_file()}: model")
    return error.within("$GEN_MODEL" if origin == "$GEN_MODEL" else "")


def pull(reference: HubReference, interrupt: Interrupt | None = None) -> Path:
    """Download a model, with a progress bar on a terminal, and return its file."""
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


def report_flags_without_effect(options: ModelOptions, report: Callable[[str], object]) -> None:
    """Report flags that have no effect because of another flag, or because there is no GPU."""
    from ...engine.native.devices import has_gpus

    is_scaled = options.rope_scale is not None or options.rope_freq_scale is not None
    if options.rope_scaling is RopeScaling("none") and is_scaled:
        name = "--rope-freq-scale" if options.rope_scale is None else "--rope-scale"
        report(f"{name} has no effect: --rope-scaling none leaves the model's RoPE unscaled")
    is_gpu_flag_typed = {
        "-ngl": options.gpu_layers not in ("auto", "0"),
        "-cmoe": options.cpu_moe,
        "-ncmoe": options.cpu_moe_layers is not None,
        "-sm": options.split_mode is not None,
        "-mg": options.main_gpu is not None,
        "-ts": options.tensor_split is not None,
    }
    typed_flags = [name for name, is_typed in is_gpu_flag_typed.items() if is_typed]
    if typed_flags and not has_gpus():
        verb = "has" if len(typed_flags) == 1 else "have"
        report(f"{', '.join(typed_flags)} {verb} no effect: llama.cpp finds no GPU that it was built for")


# Similarity of two keys, 0 to 1, above which one is suggested for the other. The number is high because different
# keys have long common beginnings, such as ``llama.rope.freq_base`` and ``llama.rope.dimension_count``.
_MIN_SIMILARITY = 0.9


def _report_new_keys(overrides: Iterable[str], metadata: Iterable[str]) -> None:
    """Print a note for each overriding key that the file does not have, since a misspelled key changes nothing."""
    file_keys = list(metadata)
    for key in overrides:
        if key not in file_keys:
            suggestion = did_you_mean(key, file_keys, _MIN_SIMILARITY)
            hint = suggestion or "it has an effect only if llama.cpp uses it"
            print_note(f"--override-kv {key}: the file has no such key; {hint}")


def chosen_model(options: ModelOptions) -> SettingValue:
    """Return the name of the model. Its origin is the flag, the variable or the config that sets the model."""
    # Nothing is downloaded. If the model is not on this machine, its name is returned as it was typed, and a note
    # says what is wrong or how to get the model.
    from ...models.errors import ModelError
    from ...models.folders import locate
    from ...models.listing import model_name
    from ...presets.settings import SettingValue
    from ...presets.user_config import user_config

    reference = options.model_reference
    try:
        path, origin = locate(reference, user_config().model)
    except ModelError as error:
        print_note(flag_sentence(error))
        return SettingValue("none", "default")
    if options.hub_repository is not None:
        origin = "-hf"
    typed_name = reference or str(path)
    try:
        files, _ = find_model_files(reference)
        if files.path.is_file():
            adapters = "".join(f" with the adapter {adapter}" for adapter in files.adapters)
            return SettingValue(f"{model_name(files.path, files.adapters)}{adapters}", origin)
        print_note(f"{typed_name}: there is no such file")
    except ModelError as error:
        print_note(flag_sentence(error))
    return SettingValue(typed_name, origin)


def computing_device(
    options: ModelOptions, model: Model | None, *, slots: int | None = 1, draft_model: str | None = None
) -> SettingValue:
    """Return where the loaded model is computed; None: where it will be. The origin is the flag for it."""
    # ``slots``: see `load_model`. ``draft_model``: the value of ``-md``.
    from ...models.errors import BindingError, ModelError, NoMemoryError
    from ...presets.settings import SettingValue

    flag = "-dev" if options.device is not None else "-ngl" if options.gpu_layers != "auto" else "default"
    if model is not None:
        return SettingValue(str(model.placement), flag)
    try:
        from ...engine.placement import plan_placement

        files, origin = find_model_files(options.model_reference)
        load_options = replace(options.load_options(), slots=slots, companions=_draft_files(draft_model))
        spec = _model_spec(files, origin, load_options)
        placement = plan_placement(spec.path, spec.options)
        if placement is None:
            return SettingValue("CPU", flag)
        _report_note_of_placement(placement)
        return SettingValue(str(placement), flag)
    except NoMemoryError as error:
        print_note(flag_sentence(error))
        return SettingValue("does not fit", flag)
    except ModelError as error:
        if error.origin in FLAGS_BY_OPTION:
            raise with_origin(error, origin) from None
        return SettingValue("unknown", flag)  # the row of the model says what is wrong with it
    except (ImportError, BindingError):  # the settings can be shown without llama.cpp
        return SettingValue("unknown", flag)


def _draft_files(draft_model: str | None) -> tuple[Path, ...]:
    """Return the file of a draft model; none if there is none on this machine, which a note says."""
    from ...models.errors import ModelError

    if draft_model is None:
        return ()
    try:
        files, _ = find_model_files(draft_model)
        if files.path.is_file():
            return (files.path,)
        print_note(f"-md: {files.path}: there is no such file")
    except ModelError as error:
        print_note(flag_sentence(error.within("-md")))
    return ()


def find_model_files(
    model_reference: str | None, download: Callable[[HubReference], Path] | None = None
) -> tuple[ResolvedModel, str]:
    """Return the files of the model that ``model_reference``, the environment or the user's config names."""
    # Also returns the place where the model was named, see `locate`. ``download`` returns the file of a model of
    # Hugging Face that is not on this machine; without it, nothing is downloaded. Raises ``ModelError``.
    from ...models.errors import ModelError
    from ...models.folders import ResolvedModel, locate
    from ...presets.user_config import user_config

    config = user_config()
    path, origin = locate(model_reference or None, config.model)
    if path.is_file():
        return ResolvedModel(path), origin
    from ...models.resolve import ModelNotHereError, resolve_files

    try:
        return resolve_files(model_reference or str(path), config.model_folders), origin
    except ModelError as error:
        if download is not None and isinstance(error, ModelNotHereError):
            return ResolvedModel(download(error.reference)), origin
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
    """Start the workers of a cluster, and stop them at the end of the context."""
    # ``spec``: see `model_for_workers`. ``sequences``: number of sequences that a worker decodes concurrently.
    # ``shard_size``: number of tasks that are sent to a worker together. ``needs_same_kernels``: whether a worker
    # is rejected if its processor computes other logits than that of the first worker. Raises ``ClusterError`` and
    # ``ModelError``.
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
