"""GPUs and NUMA nodes: what a load makes of them, and what llama.cpp gets; this machine may have neither."""

import gc
from dataclasses import replace
from functools import partial
from pathlib import Path

import llama_cpp.llama_cpp as lib
import pytest
from logitsmith.common import llama_cpp_limits as limits
from logitsmith.engine import BatchEngine, GenerationRequest, LoadOptions, Model, ModelError, Start, generate
from logitsmith.engine.fit import MARGIN_BYTES
from logitsmith.engine.native import binding as numa, devices as native_devices, model as native_model
from logitsmith.engine.native.binding import use_numa
from logitsmith.engine.native.context import NativeContext
from logitsmith.engine.native.devices import list_devices
from logitsmith.engine.native.options import Offload, native_model_params
from logitsmith.engine.placement import plan_placement
from logitsmith.models.errors import NoMemoryError
from logitsmith.models.folders import locate
from logitsmith.samplers import parse_chain
from logitsmith.samplers.chain import StepSpec

from .gpus import MIB, gpu, put_gpus


@pytest.fixture
def bundled_model():
    return locate()[0]


@pytest.fixture
def put(monkeypatch):
    """A function that puts GPUs into this machine."""

    return partial(put_gpus, monkeypatch)


def model_params(offload, **options):
    return native_model_params(LoadOptions(**options), Path("m.gguf"), offload)


def test_what_llama_cpp_gets_where_there_is_a_gpu():
    offload = Offload((4096, 8192), 7, cpu_expert_layers=2, has_gpus=True)
    params = model_params(offload, split_mode="row", main_gpu=1, tensor_split=(3.0, 1.0), cpu_expert_layers=2)
    gc.collect()  # the parameters keep alive what they point to
    assert (params.n_gpu_layers, params.split_mode, params.main_gpu) == (7, lib.LLAMA_SPLIT_MODE_ROW, 1)
    assert params.tensor_split[: lib.llama_max_devices()] == [3.0, 1.0, *[0.0] * (lib.llama_max_devices() - 2)]
    devices, buffers = params.arrays
    assert list(devices) == [4096, 8192, None]
    experts = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
    assert [item.pattern for item in buffers] == [rb"blk\.0" + experts, rb"blk\.1" + experts, None]
    assert [bool(item.buffer_type) for item in buffers] == [True, True, False]
    _, all_buffers = model_params(replace(offload, cpu_expert_layers=5), cpu_expert_layers="all").arrays
    assert [item.pattern for item in all_buffers] == [experts, None]


def test_the_defaults_are_llama_cpps():
    params, untouched = model_params(Offload((4096,), 1, has_gpus=True)), lib.llama_model_default_params()
    assert (params.split_mode, params.main_gpu) == (untouched.split_mode, untouched.main_gpu)
    assert not params.tensor_split
    assert not params.tensor_buft_overrides


def test_without_a_gpu_llama_cpp_keeps_its_defaults():
    params = model_params(Offload(), split_mode="none", tensor_split=(1.0,), cpu_expert_layers="all")
    assert params.split_mode == lib.LLAMA_SPLIT_MODE_LAYER
    assert (params.n_gpu_layers, params.tensor_split[:0], params.devices) == (0, [], None)
    assert not params.tensor_split


def test_without_layers_on_a_gpu_it_gets_an_empty_list():
    (devices,) = model_params(Offload(has_gpus=True)).arrays
    assert list(devices) == [None]


def test_more_shares_than_llama_cpp_accepts():
    count = int(lib.llama_max_devices()) + 1
    with pytest.raises(ModelError, match=f"tensor_split: {count} shares, but llama.cpp accepts {count - 1}"):
        model_params(Offload((4096,), 1, has_gpus=True), tensor_split=(1.0,) * count)


def test_the_memory_of_the_devices_of_this_machine():
    for device in list_devices():
        assert device.name
        assert 0 <= device.free_bytes <= device.total_bytes


def test_devices_are_read_from_ggml(monkeypatch):
    """A machine whose CPU says that it is a GPU."""
    monkeypatch.setattr(native_devices, "_GPU_TYPE", 0)
    (device, *_) = list_devices()
    assert (device.name, device.is_integrated, device.card_id) == ("CPU", False, "")
    assert 0 < device.free_bytes <= device.total_bytes
    assert device.description


TWO = (gpu("CUDA0"), gpu("CUDA1"))
CHOSEN = {
    "all": (TWO, {}, ["CUDA0", "CUDA1"]),
    "one by name": (TWO, {"devices": ("CUDA1",)}, ["CUDA1"]),
    "another order": (TWO, {"devices": ("CUDA1", "CUDA0")}, ["CUDA1", "CUDA0"]),
    "none": (TWO, {"devices": ()}, []),
    "one by number": (TWO, {"split_mode": "none", "main_gpu": 1}, ["CUDA1"]),
    "no number": (TWO, {"split_mode": "none", "main_gpu": -1}, []),
    "a card of two backends": (
        (gpu("CUDA0", card_id="01:00"), gpu("Vulkan0", card_id="01:00"), gpu("Vulkan1", card_id="02:00")),
        {},
        ["CUDA0", "Vulkan1"],
    ),
    "an integrated one beside a card": ((gpu("Vulkan0", is_integrated=True), gpu("Vulkan1")), {}, ["Vulkan1"]),
    "an integrated one": ((gpu("Vulkan0", is_integrated=True),), {}, ["Vulkan0"]),
    "an integrated one by name": (
        (gpu("Vulkan0", is_integrated=True), gpu("Vulkan1")),
        {"devices": ("Vulkan0",)},
        ["Vulkan0"],
    ),
    "one that is full": ((gpu("CUDA0", mib=-100), gpu("CUDA1")), {}, ["CUDA1"]),
    "no GPU": ((), {"main_gpu": 5, "tensor_split": (1.0, 1.0)}, []),
}


MAIN_GPUS = {
    "none is left out": (TWO, {"main_gpu": 1}, ["CUDA0", "CUDA1"], 1),
    "the first is full": (
        (gpu("CUDA0", mib=-100), *TWO[1:], gpu("CUDA2")),
        {"main_gpu": 2},
        ["CUDA1", "CUDA2"],
        1,
    ),
    "it is full itself": ((gpu("CUDA0", mib=-100), *TWO[1:]), {}, ["CUDA0", "CUDA1"], 0),
    "another order": (TWO, {"devices": ("CUDA1", "CUDA0"), "main_gpu": 1}, ["CUDA1", "CUDA0"], 1),
    "one GPU alone": (TWO, {"split_mode": "none", "main_gpu": 1}, ["CUDA1"], 0),
}


@pytest.mark.parametrize(("gpus", "options", "names", "number"), MAIN_GPUS.values(), ids=MAIN_GPUS)
def test_the_main_gpu_is_the_one_that_was_named(small_model, put, monkeypatch, gpus, options, names, number):
    """llama.cpp counts the GPUs that it gets."""
    put(*gpus)
    numbers = []
    load = native_model.load_file

    def load_by_layer(path, params):
        numbers.append(params.main_gpu)
        params.split_mode = lib.LLAMA_SPLIT_MODE_LAYER  # the CPU has no other
        return load(path, params)

    monkeypatch.setattr(native_model, "load_file", load_by_layer)
    with Model.load(small_model, **({"split_mode": "row"} | options)) as model:
        assert [device.name for device in model.placement.devices] == names
    assert numbers == [number]


@pytest.mark.parametrize(("gpus", "options", "names"), CHOSEN.values(), ids=CHOSEN)
def test_which_gpus_are_used(small_model, put, gpus, options, names):
    put(*gpus)
    placement = plan_placement(small_model, LoadOptions(**options))
    assert (placement is not None) is bool(names)
    assert placement is None or [device.name for device in placement.devices] == names


def test_a_card_that_is_too_small_for_the_buffers_is_left_out(bundled_model, put):
    """Its share is a layer, beside which the logits of a batch do not fit."""
    put(gpu("CUDA0", mib=2000), gpu("CUDA1", mib=80))
    placement = plan_placement(bundled_model, LoadOptions())
    assert (placement.layers, placement.context, str(placement)) == (31, 4096, "31 of 31 layers on CUDA0")


def test_the_header_is_not_read_where_the_cpu_computes_alone(put):
    put()
    assert plan_placement(Path("missing.gguf"), LoadOptions()) is None


REFUSED = {
    "an unknown name": (
        TWO,
        {"devices": ("CUDA7",)},
        "devices: there is no device 'CUDA7'; the names are CUDA0 or CUDA1",
    ),
    "a name without GPUs": (
        (),
        {"devices": ("CUDA0",)},
        "devices: .* llama.cpp finds no GPU that it was built for",
    ),
    "a number": (TWO, {"main_gpu": 2}, "main_gpu: there is no GPU number 2: the number of GPUs is 2"),
    "a share": (TWO, {"tensor_split": (1.0, 1.0, 1.0)}, "tensor_split: 3 shares, but the number of GPUs is 2"),
    "a share without devices": (TWO, {"devices": (), "tensor_split": (1.0,)}, "tensor_split: 1 shares, but"),
}


@pytest.mark.parametrize(("gpus", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_gpus_that_are_not_here(small_model, put, gpus, options, message):
    put(*gpus)
    with pytest.raises(ModelError, match=message):
        Model.load(small_model, **options)


# options, free memory beside the margin in MiB; layers, context and the beginning of the note
LOADED = {
    "everything": ({}, 8192, 31, 4096, None),
    "a shorter context": (
        {},
        280,
        31,
        3072,
        "CUDA0 has 1.3 GiB free, all of the model needs 0.3",
    ),
    "fewer layers": ({}, 180, 15, 1024, "CUDA0 has 1.2 GiB free"),
    "nothing": ({}, 10, 0, 4096, "CUDA0 has 1.0 GiB free"),
    "less than the margin": ({}, -500, 0, 4096, "CUDA0 has 0.5 GiB free"),
    "a given context": ({"n_ctx": 4096}, 180, 7, 4096, "CUDA0 has"),
    "all": ({"gpu_layers": "all"}, 8192, 31, 4096, None),
    "more than all": ({"gpu_layers": 99}, 8192, 31, 4096, None),
    "a number": ({"gpu_layers": 3}, 8192, 3, 4096, None),
    "none": ({"gpu_layers": 0}, 8192, 0, 4096, None),
    "no device": ({"devices": ()}, 8192, 0, 4096, None),
    "all of it given": ({"gpu_layers": "all", "n_ctx": 4096}, 1, 31, 4096, None),
}


@pytest.mark.parametrize(("options", "mib", "layers", "context", "note"), LOADED.values(), ids=LOADED)
def test_what_is_loaded(bundled_model, put, options, mib, layers, context, note):
    put(gpu(mib=mib))
    with Model.load(bundled_model, **options) as model:
        model.context.read([1, 2, 3])
        assert (model.placement.layers, model.placement.layer_count) == (layers, 31)
        assert model.context_length == context
        assert (model.placement.note or "").startswith(note or "")
        assert bool(model.placement.note) is bool(note)
        assert model.identity()["gpu_layers"] == layers
        devices = [{"name": "CUDA0", "free_bytes": mib * MIB + MARGIN_BYTES}] if layers else []
        assert model.placement.as_json() == {"layers": layers, "of": 31, "devices": devices}
        assert str(model.placement) == (f"{layers} of 31 layers on CUDA0" if layers else "CPU")


def test_the_identity_on_a_cpu_stays(small_model, put):
    with Model.load(small_model) as plain:
        identity = plain.identity()
    put(gpu())
    for options in ({"gpu_layers": 0}, {"devices": ()}, {"gpu_layers": 0, "cpu_expert_layers": 2}):
        with Model.load(small_model, **options) as model:
            assert model.identity() == identity


# the GPUs and the options of two loads; whether their texts may differ
IDENTITIES = {
    "another card": ((gpu(),), {}, (gpu(description="another card"),), {}, True),
    "another backend": ((gpu(),), {}, (gpu("Vulkan0"),), {}, True),
    "a card of the same kind": (TWO, {"devices": ("CUDA0",)}, TWO, {"devices": ("CUDA1",)}, False),
    "another division": (TWO, {}, TWO, {"split_mode": "none"}, True),
    "a context that came down": ((gpu(),), {}, (gpu(mib=280),), {}, False),
    "fewer layers": ((gpu(),), {}, (gpu(mib=180),), {}, True),
}


@pytest.mark.parametrize(("gpus", "options", "others", "other", "differ"), IDENTITIES.values(), ids=IDENTITIES)
def test_what_changes_texts_is_part_of_the_identity(bundled_model, put, gpus, options, others, other, differ):
    put(*gpus)
    with Model.load(bundled_model, **options) as model:
        first = model.identity()
    put(*others)
    with Model.load(bundled_model, **other) as model:
        assert (model.identity() != first) is differ


def test_gpus_are_not_asked_for_their_memory_where_none_is_used(small_model, put, monkeypatch):
    """A driver takes some memory of a card when it is first asked."""
    put(gpu())
    monkeypatch.setattr(native_devices, "list_devices", lambda: pytest.fail("it was called"))
    for options in ({"gpu_layers": 0}, {"devices": ()}):
        Model.load(small_model, **options).close()


@pytest.mark.parametrize(("mib", "slots"), {8192: 8, 400: 8, 300: 4, 140: 1}.items(), ids=str)
def test_the_slots_come_down_unless_they_are_given(bundled_model, put, mib, slots):
    put(gpu(mib=mib))
    with Model.load(bundled_model, slots=None, threads=2) as model:
        assert model.default_parallel == slots
    with Model.load(bundled_model, slots=8, threads=2) as model:
        assert model.default_parallel == 8


def test_a_model_for_single_runs_has_the_slots_that_fit(bundled_model, put):
    """In Python a load plans for one slot, and a batch may follow."""
    put(gpu(mib=300))
    with Model.load(bundled_model, threads=2, n_ctx=1024) as model:
        assert (model.placement.layers, model.placement.note) == (31, None)
        assert model.default_parallel == 4


class Refusals:
    """llama.cpp without memory for more than some layers, and the numbers of layers that it was asked to load."""

    def __init__(self, monkeypatch, max_layers, message="unable to allocate CUDA0 buffer"):
        self.asked = []
        load = native_model.load_file

        def load_if_it_fits(path, params):
            self.asked.append(params.n_gpu_layers)
            if params.n_gpu_layers <= max_layers:
                return load(path, params)
            numa._last_lines.append(message)
            return None

        monkeypatch.setattr(native_model, "load_file", load_if_it_fits)


def test_a_load_without_memory_is_tried_again_with_fewer_layers(bundled_model, put, monkeypatch):
    put(gpu())
    refusals = Refusals(monkeypatch, 10)
    with Model.load(bundled_model) as model:
        assert refusals.asked == [31, 23, 17, 12, 9]
        assert model.placement.layers == 9
        assert model.context_length == 4096
    assert model.placement.note.startswith("12 of 31 layers did not fit (")
    assert model.placement.note.endswith("unable to allocate CUDA0 buffer): 9 of 31 layers on the GPU")


def test_a_load_without_any_memory_of_the_gpu_ends_on_the_cpu(bundled_model, put, monkeypatch):
    put(gpu())
    refusals = Refusals(monkeypatch, 0, "ErrorOutOfDeviceMemory")
    with Model.load(bundled_model) as model:
        assert (refusals.asked[-1], model.placement.layers, str(model.placement)) == (0, 0, "CPU")
        assert "0 of 31 layers on the GPU" in model.placement.note


def test_a_context_without_memory_is_noticed_at_the_load(bundled_model, put, monkeypatch):
    put(gpu())
    make = NativeContext.__init__

    def make_if_it_fits(native, model, size):
        if model.options.gpu_layers > 20:
            raise NoMemoryError("failed to allocate compute buffers")
        make(native, model, size)

    monkeypatch.setattr(NativeContext, "__init__", make_if_it_fits)
    with Model.load(bundled_model) as model:
        assert model.placement.layers == 17
        assert "failed to allocate compute buffers" in model.placement.note


# The options, and the tokens for which llama.cpp can make caches; layers, context and slots, and parts of the note
TOO_LONG = {
    "a shorter context": ({}, 3000, (31, 2048, 8), "a context of 4,096 tokens did not fit (it is full): "),
    "fewer slots": ({"slots": None}, 3000, (31, 1024, 2), "a context of 1,024 tokens instead of 4,096, 2 slots"),
    "given layers": ({"gpu_layers": 3}, 3000, (3, 2048, 8), "a context of 2,048 tokens instead of 4,096"),
    "a given context": ({"slots": None, "n_ctx": 2048}, 5000, (31, 2048, 2), "2 slots instead of 8"),
}


@pytest.mark.parametrize(("options", "max_tokens", "loaded", "note"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_default_context_comes_down_before_the_layers(
    bundled_model, put, monkeypatch, options, max_tokens, loaded, note
):
    put(gpu())
    limit_contexts(monkeypatch, max_tokens)
    with Model.load(bundled_model, threads=2, **options) as model:
        assert (model.placement.layers, model.context_length, model.placement.slots) == loaded
        assert note in model.placement.note


def limit_contexts(monkeypatch, max_tokens):
    """Let llama.cpp have memory for the caches of at most this many tokens, wherever they are."""
    make = NativeContext.__init__

    def make_if_it_fits(native, model, size):
        if size.length * size.sequence_count > max_tokens:
            raise NoMemoryError("it is full")
        make(native, model, size)

    monkeypatch.setattr(NativeContext, "__init__", make_if_it_fits)


GIVEN = {
    "layers": (
        {"gpu_layers": 20},
        r"20 of 31 layers do not fit \(it is full\); try gpu_layers 15 or auto$",
    ),
    "layers and context": (
        {"gpu_layers": "all", "n_ctx": 4096},
        r"31 of 31 layers do not fit .*; try gpu_layers 23 or auto, or a smaller n_ctx$",
    ),
}


@pytest.mark.parametrize(("options", "message"), GIVEN.values(), ids=GIVEN)
def test_given_layers_are_refused_with_what_would_fit(bundled_model, put, monkeypatch, options, message):
    put(gpu())
    limit_contexts(monkeypatch, 1000)
    with pytest.raises(NoMemoryError, match=message):
        Model.load(bundled_model, **options)


def test_given_layers_that_cannot_be_loaded_are_refused(bundled_model, put, monkeypatch):
    put(gpu())
    refusals = Refusals(monkeypatch, 10)
    with pytest.raises(NoMemoryError, match=r"20 of 31 .* CUDA0 buffer\); try gpu_layers 15 or auto$"):
        Model.load(bundled_model, gpu_layers=20)
    assert refusals.asked == [20]


def fill_after_load(monkeypatch, mib):
    """Let another process fill the card while a model is loaded."""
    load = native_model.load_file

    def load_and_fill(path, params):
        handle = load(path, params)
        put_gpus(monkeypatch, gpu(mib=mib))
        return handle

    monkeypatch.setattr(native_model, "load_file", load_and_fill)


# The memory beside the margin that is left after the load, and the options; what is loaded in the end
FILLED = {
    "enough": (-700, {}, 31),
    "less": (-800, {}, 0),
    "less, and layers are given": (-800, {"gpu_layers": "all"}, 31),
}


@pytest.mark.parametrize(("mib", "options", "layers"), FILLED.values(), ids=FILLED)
def test_another_process_fills_the_card_during_the_load(bundled_model, put, monkeypatch, mib, options, layers):
    put(gpu())
    fill_after_load(monkeypatch, mib)
    with Model.load(bundled_model, **options) as model:
        assert model.placement.layers == layers
        if mib == -800:
            assert "did not fit (only 0.2 GiB of CUDA0 would stay free)" in model.placement.note


def test_another_failure_of_a_load_is_not_tried_again(bundled_model, put, monkeypatch):
    put(gpu())
    refusals = Refusals(monkeypatch, 0, "unknown model architecture")
    with pytest.raises(ModelError, match="unknown model architecture"):
        Model.load(bundled_model)
    assert refusals.asked == [31]


def test_a_second_model_leaves_memory_for_the_contexts_of_the_first(bundled_model, put):
    put(gpu(mib=500))
    with Model.load(bundled_model) as first, Model.load(bundled_model) as second:
        assert first.placement.context_bytes["CUDA0"] > 200 * MIB
        assert (first.placement.layers, second.placement.layers) == (31, 31)
        assert second.context_length < first.context_length
        with first.companion(bundled_model) as third:
            assert third.placement.layers < 31
            assert third.context_length == first.context_length
        first.context.read([1])  # from now on its memory is no longer free, and need not be reserved
        second.context.read([1])
        with Model.load(bundled_model) as fourth:
            assert fourth.context_length == first.context_length
    with Model.load(bundled_model) as model:
        assert model.context_length == 4096


def test_memory_is_kept_for_a_model_that_will_be_loaded_beside(bundled_model, put):
    put(gpu(mib=500))
    with Model.load(bundled_model, companions=(bundled_model, "missing.gguf")) as first:
        assert (first.placement.layers, first.context_length) == (31, 2048)
        assert first.placement.context_bytes["CUDA0"] < 200 * MIB  # its own contexts
        assert "all of the model needs 0.6 GiB" in first.placement.note


def test_a_start_event_names_the_device(bundled_model, put):
    put(gpu())
    steps = tuple(StepSpec(sampler) for sampler in parse_chain("greedy"))
    request = GenerationRequest("The sea", steps, max_tokens=3, id=1)
    device = {"layers": 31, "of": 31, "devices": [{"name": "CUDA0", "free_bytes": gpu().free_bytes}]}
    with Model.load(bundled_model) as model, BatchEngine(model, 1) as engine:
        assert next(iter(generate(model, request))).device == device
        engine.add(request)
        assert [event.device for _, event in engine.step() if isinstance(event, Start)] == [device]


@pytest.mark.parametrize(("strategy", "number"), [*zip(limits.NUMA_STRATEGIES, (1, 2, 3), strict=True)])
def test_strategies_of_numa(monkeypatch, strategy, number):
    chosen = []
    monkeypatch.setattr(numa, "numa_nodes", lambda: 2)
    monkeypatch.setattr(numa.lib, "llama_numa_init", chosen.append)
    assert use_numa(strategy)
    assert chosen == [number] == [getattr(lib, f"GGML_NUMA_STRATEGY_{strategy.upper()}")]


def test_one_node_changes_nothing(monkeypatch, tmp_path):
    (tmp_path / "node0").mkdir()
    monkeypatch.setattr(numa, "_NUMA_NODES", tmp_path)
    monkeypatch.setattr(numa.lib, "llama_numa_init", lambda _: pytest.fail("it was called"))
    assert not use_numa("isolate")
    (tmp_path / "node1").mkdir()
    assert numa.numa_nodes() == 2


def test_an_unknown_strategy():
    with pytest.raises(ModelError, match="numa: 'mirror' is not one of distribute, isolate, numactl"):
        use_numa("mirror")
