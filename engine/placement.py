"""Loading a model onto the GPUs of this machine, as far as it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..common.errors import Word
from ..common.text import count_noun
from ..models.errors import NoMemoryError
from ..models.gguf import GgufHeader, read_tensors
from ..models.names import first_part
from .fit import (
    MARGIN_BYTES,
    DeviceMemory,
    LayerTensors,
    Plan,
    Split,
    Wish,
    at_most,
    count_layers,
    fit,
    measure_model,
    needs_of_devices,
    shares_of_devices,
    trained_context,
)
from .load_options import LoadOptions
from .model_files import check_files
from .native.context import NativeContext
from .native.devices import Device, choose_devices, has_gpus
from .native.model import NativeModel
from .native.options import ContextSize, Offload
from .slots import default_slots


@dataclass(frozen=True)
class Placement:
    """Where the layers of a model are computed.

    Attributes:
        layers: number of layers on GPUs, the output included.
        layer_count: number of layers of the model, the output included.
        devices: the GPUs, with the memory that was free before the load; empty if the CPU computes alone.
        slots: number of slots that the GPUs have memory for; None without a GPU.
        note: a sentence about what had to come down because of the memory; None if nothing had to.
        context_bytes: memory of each GPU, by name, that the contexts of the model need.
    """

    layers: int
    layer_count: int
    devices: tuple[DeviceMemory, ...] = ()
    slots: int | None = None
    note: str | None = None
    context_bytes: Mapping[str, int] = field(default_factory=dict)

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


def plan_placement(path: Path, options: LoadOptions) -> Placement:
    """Return where a load would put the layers of a model now. Raises ``ModelError``."""
    path = first_part(path)
    header = check_files(path, options)
    if _is_for_cpu(options):
        return Placement(0, count_layers(header.values))
    return _GpuLoad(path, options, header, None, {}).plan()


def _is_for_cpu(options: LoadOptions) -> bool:
    """Return whether the CPU computes alone. Raises ``ModelError`` for GPUs that are not here."""
    if options.gpu_layers == 0 and options.devices is None:
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
    settled = replace(options, gpu_layers=0, devices=None, cpu_expert_layers=0)
    offload = Offload(has_gpus=has_gpus())
    native = NativeModel(path, settled, header.bytes_without_token, offload, progress)
    return native, Placement(0, count_layers(header.values), note=note)


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
        overrides = {key: value for key, value in options.overrides.items() if isinstance(value, int | float)}
        metadata = {**header.values, **overrides}
        self._layer_count = count_layers(metadata)
        self._cpu_expert_layers = at_most(options.cpu_expert_layers, self._layer_count)
        tensors = LayerTensors.of(read_tensors(path, header), self._layer_count - 1)
        adapter_bytes = sum(Path(file).stat().st_size for file, _ in options.lora)
        self._sizes = measure_model(tensors, metadata, options, adapter_bytes)
        shares = () if options.split_mode == "none" else options.tensor_split
        self._split = Split(shares, is_by_layer=options.split_mode in ("none", "layer"))
        is_auto = options.gpu_layers == "auto"
        layers = self._layer_count if is_auto else at_most(options.gpu_layers, self._layer_count)
        context = options.context_length(trained_context(metadata))
        self._wish = Wish(
            Plan(layers, context, options.slots or default_slots(options.thread_count)),
            microbatch=min(options.microbatch or options.batch, options.batch, max(1, context)),
            are_layers_given=not is_auto,
            is_context_given=options.n_ctx is not None,
            are_slots_given=options.slots is not None,
        )

    def load(self) -> tuple[NativeModel, Placement]:
        """Load the model. Raises ``ModelError``."""
        wish = self._wish
        failure: str | None = None
        while True:
            devices = self._usable_devices()
            plan = self._fit(wish, devices)
            note = self._note(plan, devices, failure)
            if plan.layers == 0:
                return _load_on_cpu(self._path, self._options, self._header, self._progress, note)
            try:
                return self._load_plan(plan, devices, note)
            except NoMemoryError as error:
                if wish.are_layers_given:
                    advice = ("try a smaller ", Word.GPU_LAYERS, ", or auto")
                    raise NoMemoryError(error.problem, origin=error.origin, advice=advice) from None
                failure = (
                    f"{plan.layers} of {count_noun(self._layer_count, 'layer')} did not fit ({error.problem})"
                )
                # one quarter less, because llama.cpp does not say how much is missing
                wish = replace(wish, plan=replace(plan, layers=plan.layers * 3 // 4))

    def plan(self) -> Placement:
        """Return where a load would put the layers."""
        devices = self._usable_devices()
        plan = self._fit(self._wish, devices)
        return self._placement(plan, devices, self._note(plan, devices, None))

    def _fit(self, wish: Wish, devices: Sequence[Device]) -> Plan:
        plan = fit(self._sizes, self._memory_of(devices), wish, self._split)
        # without layers on a GPU, nothing of its memory is needed
        return plan if plan.layers > 0 else replace(self._wish.plan, layers=0)

    def _load_plan(self, plan: Plan, devices: Sequence[Device], note: str | None) -> tuple[NativeModel, Placement]:
        options = replace(self._options, gpu_layers=plan.layers)
        if plan.context != self._wish.plan.context:
            options = replace(options, n_ctx=plan.context)
        if len(devices) > 1:  # otherwise llama.cpp divides the layers by all free memory, without a reserve
            options = replace(options, tensor_split=shares_of_devices(self._memory_of(devices), self._split))
        handles = tuple(device.handle for device in devices)
        offload = Offload(handles, plan.layers, self._cpu_expert_layers, has_gpus=True)
        native = NativeModel(self._path, options, self._header.bytes_without_token, offload, self._progress)
        can_be_used = native.generation_unsupported_reason() is None
        if can_be_used and not self._wish.are_layers_given:
            _check_contexts_fit(native, plan)
        return native, self._placement(plan, devices, note)

    def _placement(self, plan: Plan, devices: Sequence[Device], note: str | None) -> Placement:
        if plan.layers == 0:
            return Placement(0, self._layer_count, note=note)
        memory = self._memory_of(devices)
        needs = needs_of_devices(self._sizes, memory, plan, self._wish.microbatch, self._split)
        return Placement(
            plan.layers,
            self._layer_count,
            tuple(DeviceMemory(device.name, device.free_bytes) for device in devices),
            slots=plan.slots if self._options.slots is None else None,
            note=note,
            context_bytes={device.name: need.context for device, need in zip(devices, needs, strict=True)},
        )

    def _usable_devices(self) -> list[Device]:
        """Return the GPUs, without those that are full unless the options name or number them."""
        devices = choose_devices(self._options)
        are_named = self._options.devices is not None or bool(self._options.tensor_split)
        if self._wish.are_layers_given or are_named:
            return devices
        memory = self._memory_of(devices)
        free = [device for device, each in zip(devices, memory, strict=True) if each.free_bytes > MARGIN_BYTES]
        return free or devices

    def _memory_of(self, devices: Sequence[Device]) -> list[DeviceMemory]:
        return [
            DeviceMemory(device.name, max(0, device.free_bytes - self._reserved_bytes.get(device.name, 0)))
            for device in devices
        ]

    def _note(self, plan: Plan, devices: Sequence[Device], failure: str | None) -> str | None:
        """Return a sentence about what came down; None if nothing did."""
        wanted = self._wish.plan
        if plan == wanted:
            return None
        memory = self._memory_of(devices)
        needs = needs_of_devices(self._sizes, memory, wanted, self._wish.microbatch, self._split)
        free = ", ".join(f"{each.name} has {_gib(each.free_bytes)} free" for each in memory)
        need = f"all of the model needs {_gib(sum(each.total for each in needs))}"
        changes = [f"{plan.layers} of {count_noun(self._layer_count, 'layer')} on the GPU"]
        if plan.context != wanted.context:
            changes.append(f"a context of {plan.context:,} tokens instead of {wanted.context:,}")
        if plan.slots != wanted.slots:
            changes.append(f"{count_noun(plan.slots, 'slot')} instead of {wanted.slots}")
        reason = failure or f"{free}, {need}, and {_gib(MARGIN_BYTES)} stays in reserve"
        return f"{reason}: {', '.join(changes)}"


def _check_contexts_fit(native: NativeModel, plan: Plan) -> None:
    """Make the context of the plan, and free it again. Raises ``NoMemoryError``, and then closes the model."""
    batch_tokens = max(min(native.options.batch, plan.context), plan.slots)
    try:
        NativeContext(native, ContextSize(plan.context, batch_tokens, plan.slots)).close()
    except BaseException:
        native.close()
        raise


def _gib(byte_count: int) -> str:
    return f"{byte_count / 2**30:.1f} GiB"
