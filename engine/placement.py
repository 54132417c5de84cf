"""Loading a model onto the GPUs of this machine, as far as it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..common.errors import Word
from ..common.text import count_noun
from ..models.errors import ModelError, NoMemoryError
from ..models.gguf import GgufHeader, Values, check_is_model, read_tensors
from ..models.names import first_part
from .fit import (
    MARGIN_BYTES,
    DeviceMemory,
    LayerTensors,
    ModelSizes,
    Plan,
    Planner,
    Split,
    Wish,
    at_most,
    count_layers,
    measure_model,
    trained_context,
)
from .load_options import LoadOptions
from .model_files import check_files
from .native.context import NativeContext
from .native.devices import Device, choose_devices, has_gpus
from .native.model import NativeModel
from .native.options import ContextSize, Offload
from .slots import default_slots

# A load is tried again with a smaller plan if its contexts leave less than this of a GPU's memory.
_MIN_FREE_BYTES = MARGIN_BYTES // 4


@dataclass(frozen=True)
class Placement:
    """Where the layers of a model are computed.

    Attributes:
        layers: number of layers on GPUs, the output included.
        layer_count: number of layers of the model, the output included.
        context: tokens of context of a run, and of each slot of a batch.
        devices: the GPUs, with the memory that was free before the load; empty if the CPU computes alone.
        slots: number of slots that the GPUs have memory for, up to the default number; None without a GPU.
        note: a sentence about what had to come down because of the memory; None if nothing had to.
        is_context_shorter: whether the context came down.
        context_bytes: memory of each GPU, by name, that the contexts of the model need.
        cards: backend and description of each GPU, such as ``CUDA NVIDIA H200``.
    """

    layers: int
    layer_count: int
    context: int
    devices: tuple[DeviceMemory, ...] = ()
    slots: int | None = None
    note: str | None = None
    is_context_shorter: bool = False
    context_bytes: Mapping[str, int] = field(default_factory=dict)
    cards: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the ``device`` of a start event."""
        return {
            "layers": self.layers,
            "of": self.layer_count,
            "devices": [asdict(device) for device in self.devices],
        }

    def __str__(self) -> str:
        if not self.devices:
            return "CPU"
        names = ", ".join(device.name for device in self.devices)
        return f"{self.layers} of {count_noun(self.layer_count, 'layer')} on {names}"


def load_placed(
    path: Path,
    options: LoadOptions,
    header: GgufHeader,
    progress: Callable[[float], bool] | None,
    reserved_bytes: Mapping[str, int],
) -> tuple[NativeModel, Placement]:
    """Load a model with as many layers on GPUs as the options ask for, or as fit. Raises ``ModelError``."""
    # ``reserved_bytes``: memory of GPUs, by name, that other models will still allocate.
    if _is_for_cpu(options):
        return _load_on_cpu(path, options, header, progress)
    return _GpuLoad(path, options, header, progress, reserved_bytes).load()


def plan_placement(path: Path, options: LoadOptions) -> Placement | None:
    """Return where a load would put the layers of a model now; None if the CPU would compute alone."""
    # Raises ``ModelError``; its subclass ``NoMemoryError`` if the given layers do not fit.
    if _is_for_cpu(options):
        return None
    path = first_part(path)
    return _GpuLoad(path, options, check_files(path, options), None, {}).plan()


def _is_for_cpu(options: LoadOptions) -> bool:
    """Return whether the CPU computes alone. Raises ``ModelError`` for GPUs that are not here."""
    are_gpus_named = options.devices is not None or bool(options.tensor_split) or options.main_gpu != 0
    if options.gpu_layers == 0 and not are_gpus_named:
        return True  # the GPUs need not be looked at
    has_devices = bool(choose_devices(options))
    return options.gpu_layers == 0 or not has_devices


def _load_on_cpu(
    path: Path,
    options: LoadOptions,
    header: GgufHeader,
    progress: Callable[[float], bool] | None,
    note: str | None = None,
) -> tuple[NativeModel, Placement]:
    settled = replace(options, gpu_layers=0, devices=None, cpu_expert_layers=0, split_mode="layer")
    offload = Offload(has_gpus=has_gpus())
    native = NativeModel(path, settled, header.bytes_without_token, offload, progress)
    context = options.context_length(native.trained_context)
    return native, Placement(0, count_layers(header.values), context, note=note)


class _GpuLoad:
    """A load onto GPUs: planned from the descriptions of the tensors, and tried again if llama.cpp needs more."""

    def __init__(
        self,
        path: Path,
        options: LoadOptions,
        header: GgufHeader,
        progress: Callable[[float], bool] | None,
        reserved_bytes: Mapping[str, int],
    ) -> None:
        self._path = path
        self._options = options
        self._header = header
        self._progress = progress
        self._reserved_bytes = reserved_bytes
        self._devices: dict[str, Device] = {}  # the GPUs by name, with the memory that was free at the last look
        self._failure: str | None = None  # why the last try failed
        overrides = {key: value for key, value in options.overrides.items() if isinstance(value, int | float)}
        metadata = {**header.values, **overrides}
        self._layer_count = count_layers(metadata)
        self._cpu_expert_layers = at_most(options.cpu_expert_layers, self._layer_count)
        self._own_sizes = self._sizes = _measure_file(path, header, metadata, options)
        for companion in options.companions:
            file = first_part(Path(companion))
            with suppress(ModelError):  # which is raised again when that model is loaded
                companion_header = check_is_model(file)
                sizes = _measure_file(file, companion_header, companion_header.values, replace(options, lora=()))
                self._sizes = self._sizes.with_companion(sizes)
        shares = () if options.split_mode == "none" else options.tensor_split
        self._split = Split(shares, is_by_layer=options.split_mode in ("none", "layer"))
        is_auto = options.gpu_layers == "auto"
        layers = self._layer_count if is_auto else at_most(options.gpu_layers, self._layer_count)
        context = options.context_length(trained_context(metadata))
        self._default_slots = default_slots(options.thread_count)
        self._wish = Wish(
            Plan(layers, context, options.slots or self._default_slots),
            microbatch=min(options.microbatch or options.batch, options.batch, max(1, context)),
            are_layers_given=not is_auto,
            is_context_given=options.n_ctx is not None,
            are_slots_given=options.slots is not None,
        )

    def load(self) -> tuple[NativeModel, Placement]:
        """Load the model. Raises ``ModelError``."""
        wish = self._wish
        while True:
            planner = self._planner(wish)
            plan = planner.fit()
            if plan.layers == 0:
                note = self._note(planner, plan)
                return _load_on_cpu(self._path, self._options, self._header, self._progress, note)
            try:
                native, plan = self._load_plan(planner, plan)
            except NoMemoryError as error:
                if wish.are_layers_given:
                    raise self._refusal(planner, plan, error.problem) from None
                self._failure = f"{self._layers_of(plan)} did not fit ({error.problem})"
                # one quarter less, because llama.cpp does not say how much is missing
                wish = replace(wish, plan=replace(wish.plan, layers=plan.layers * 3 // 4))
            else:
                return native, self._placement(planner, plan)

    def plan(self) -> Placement:
        """Return where a load would put the layers."""
        planner = self._planner(self._wish)
        plan = planner.fit()
        if plan.layers > 0 and not planner.fits(plan, reserve_bytes=0):
            raise self._refusal(planner, plan, self._memory_text(planner))
        return self._placement(planner, plan)

    def _planner(self, wish: Wish) -> Planner:
        """Return the arithmetic for the GPUs that take the most of the wish."""
        devices = choose_devices(self._options)
        self._devices = {device.name: device for device in devices}
        memory = self._free_memory()
        are_named = self._options.devices is not None or bool(self._options.tensor_split)
        planners = [Planner(self._sizes, tuple(memory), self._split, wish)]
        if not are_named:
            # A GPU that is full, or too small for the buffers beside a layer, is better left out.
            largest_first = sorted(memory, key=lambda each: -each.free_bytes)
            usable_count = sum(each.free_bytes > MARGIN_BYTES for each in memory) or len(memory)
            kept = [memory[self._options.main_gpu]] if self._options.split_mode == "row" else []
            planners = [
                replace(
                    planners[0], devices=tuple(each for each in memory if each in [*kept, *largest_first[:count]])
                )
                for count in range(usable_count, 0, -1)
            ]
        return max(planners, key=_rank_of_plan)

    def _free_memory(self) -> list[DeviceMemory]:
        return [
            DeviceMemory(device.name, max(0, device.free_bytes - self._reserved_bytes.get(device.name, 0)))
            for device in self._devices.values()
        ]

    def _load_plan(self, planner: Planner, plan: Plan) -> tuple[NativeModel, Plan]:
        """Load the layers; return the model, and the plan with the context for which there is memory."""
        names = [device.name for device in planner.devices]
        # llama.cpp counts the GPUs of its list, in which a full one is left out.
        main_gpu = (
            names.index(list(self._devices)[self._options.main_gpu]) if self._options.split_mode == "row" else 0
        )
        options = replace(self._options, gpu_layers=plan.layers, main_gpu=main_gpu)
        if len(planner.devices) > 1:  # otherwise llama.cpp divides by all free memory, without a reserve
            options = replace(options, tensor_split=planner.shares)
        handles = tuple(self._devices[device.name].handle for device in planner.devices)
        offload = Offload(handles, plan.layers, self._cpu_expert_layers, has_gpus=True)
        native = NativeModel(self._path, options, self._header.bytes_without_token, offload, self._progress)
        can_be_used = native.generation_unsupported_reason() is None
        try:
            return native, self._with_context_that_fits(native, planner, plan) if can_be_used else plan
        except BaseException:
            native.close()
            raise

    def _with_context_that_fits(self, native: NativeModel, planner: Planner, plan: Plan) -> Plan:
        """Return the plan, with a smaller context if llama.cpp cannot make this one. Raises ``NoMemoryError``."""
        while True:
            smaller_plan = planner.wish.with_smaller_context(plan)
            can_be_smaller = smaller_plan is not None or not planner.wish.are_layers_given
            try:
                self._try_context(native, planner, plan, min_free_bytes=_MIN_FREE_BYTES if can_be_smaller else 0)
            except NoMemoryError as error:
                if smaller_plan is None:
                    raise
                self._failure = f"{_context_text(plan)} did not fit ({error.problem})"
                plan = smaller_plan
            else:
                return plan

    def _try_context(self, native: NativeModel, planner: Planner, plan: Plan, min_free_bytes: int) -> None:
        """Make the context of a plan, and free it again. Raises ``NoMemoryError``."""
        batch_tokens = max(min(native.options.batch, plan.context), plan.slots)
        context = NativeContext(native, ContextSize(plan.context, batch_tokens, plan.slots))
        try:
            used_names = {device.name for device in planner.devices}
            for device in choose_devices(self._options):
                if device.name in used_names and device.free_bytes < min_free_bytes:
                    raise NoMemoryError(f"only {_gib(device.free_bytes)} of {device.name} would stay free")
        finally:
            context.close()

    def _refusal(self, planner: Planner, plan: Plan, reason: str) -> NoMemoryError:
        """Return the error of a load with given layers, with the number of layers that would fit."""
        auto_plan = replace(planner, wish=replace(planner.wish, are_layers_given=False)).fit()
        layers = min(auto_plan.layers, plan.layers * 3 // 4)
        problem = f"{self._layers_of(plan)} do not fit ({reason})"
        smaller_context = (", or a smaller ", Word.N_CTX) if planner.wish.is_context_given else ()
        advice = ("try ", Word.GPU_LAYERS, f" {layers} or auto", *smaller_context)
        return NoMemoryError(problem, advice=advice)

    def _placement(self, planner: Planner, plan: Plan) -> Placement:
        note = self._note(planner, plan)
        if plan.layers == 0:
            return Placement(0, self._layer_count, plan.context, note=note)
        own_needs = replace(planner, sizes=self._own_sizes).needs(plan)
        max_slots = self._default_slots if self._wish.are_slots_given else plan.slots
        more_slots = (replace(plan, slots=slots) for slots in range(max_slots, plan.slots, -1))
        return Placement(
            plan.layers,
            self._layer_count,
            plan.context,
            tuple(DeviceMemory(each.name, self._devices[each.name].free_bytes) for each in planner.devices),
            slots=next(filter(planner.fits, more_slots), plan).slots,
            note=note,
            is_context_shorter=plan.context < self._wish.plan.context,
            context_bytes={
                device.name: need.context for device, need in zip(planner.devices, own_needs, strict=True)
            },
            cards=tuple(self._devices[device.name].card for device in planner.devices),
        )

    def _note(self, planner: Planner, plan: Plan) -> str | None:
        """Return a sentence about what came down; None if nothing did."""
        wanted = self._wish.plan
        if plan == wanted:
            return None
        changes = [f"{self._layers_of(plan)} on the GPU"]
        if plan.layers > 0 and plan.context != wanted.context:
            changes.append(f"{_context_text(plan)} instead of {wanted.context:,}")
        if plan.layers > 0 and plan.slots != wanted.slots:
            changes.append(f"{count_noun(plan.slots, 'slot')} instead of {wanted.slots}")
        reason = self._failure or f"{self._memory_text(planner)}, and {_gib(MARGIN_BYTES)} stays in reserve"
        return f"{reason}: {', '.join(changes)}"

    def _memory_text(self, planner: Planner) -> str:
        """Return what is free, and what all that is wanted needs."""
        free = ", ".join(f"{each.name} has {_gib(each.free_bytes)} free" for each in self._free_memory())
        wanted = planner.wish.plan
        are_all = wanted.layers == self._layer_count
        what = "all of the model needs" if are_all else f"{self._layers_of(wanted)} need"
        return f"{free}, {what} {_gib(sum(each.total for each in planner.needs(wanted)))}"

    def _layers_of(self, plan: Plan) -> str:
        return f"{plan.layers} of {count_noun(self._layer_count, 'layer')}"


def _measure_file(path: Path, header: GgufHeader, metadata: Values, options: LoadOptions) -> ModelSizes:
    tensors = LayerTensors.of(read_tensors(path, header), metadata)
    adapter_bytes = sum(Path(file).stat().st_size for file, _ in options.lora)
    return measure_model(tensors, metadata, options, adapter_bytes)


def _rank_of_plan(planner: Planner) -> tuple[int, int, int]:
    plan = planner.fit()
    return plan.layers, plan.slots, plan.context


def _context_text(plan: Plan) -> str:
    return f"a context of {plan.context:,} tokens"


def _gib(byte_count: int) -> str:
    return f"{byte_count / 2**30:.1f} GiB"
