"""What of a model fits into the memory of GPUs: numbers in, numbers out."""

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from logitsmith.engine import LoadOptions
from logitsmith.engine.fit import (
    CONTEXT_STEP_TOKENS,
    MARGIN_BYTES,
    MIN_CONTEXT_TOKENS,
    DeviceMemory,
    LayerTensors,
    ModelSizes,
    Plan,
    Planner,
    Split,
    Wish,
    count_layers,
    devices_of_layers,
    measure_model,
    trained_context,
)
from logitsmith.engine.native import binding
from logitsmith.engine.native.context import NativeContext
from logitsmith.engine.native.model import NativeModel
from logitsmith.engine.native.options import ContextSize, Offload
from logitsmith.models.gguf import GgufTensor, read_header, read_tensors

from .small_models import MIXTURES, write_model

MIB = 2**20
# 32 layers of 100 MiB and an output of 200 MiB; 64 KiB of cache for a token in all layers; no buffers
SIZES = ModelSizes(
    (100 * MIB,) * 32 + (200 * MIB,),
    (2048,) * 32 + (0,),
    state_bytes=(0,) * 33,
    row_bytes=0,
    pair_bytes=0,
    copied_bytes=0,
)
WEIGHTS_MIB = 3400
ALL = Wish(Plan(33, 4096, 1), microbatch=512)
EIGHT = replace(ALL, plan=Plan(33, 4096, 8))


def card(mib, name="CUDA0"):
    """A GPU with this much memory beside the margin."""
    return DeviceMemory(name, mib * MIB + MARGIN_BYTES)


BY_MEMORY = Split()


def planner(*devices, sizes=SIZES, split=BY_MEMORY, wish=ALL):
    return Planner(sizes, devices, split, wish)


# one card: the memory beside the margin in MiB, the wish, and what fits: layers, context, slots
ONE_CARD = {
    "everything": (WEIGHTS_MIB + 256, ALL, (33, 4096, 1)),
    "a MiB too little": (WEIGHTS_MIB + 255, ALL, (33, 3840, 1)),
    "the shortest context": (WEIGHTS_MIB + 64, ALL, (33, 1024, 1)),
    "a layer less": (WEIGHTS_MIB + 63, ALL, (32, 2560, 1)),
    "half of the layers": (1800, ALL, (16, 3328, 1)),
    "the output alone": (200, ALL, (1, 4096, 1)),
    "less than the output": (199, ALL, (0, 4096, 1)),
    "less than the margin": (-1024, ALL, (0, 4096, 1)),
    "eight slots": (WEIGHTS_MIB + 8 * 256, EIGHT, (33, 4096, 8)),
    "eight slots, shorter": (WEIGHTS_MIB + 8 * 64, EIGHT, (33, 1024, 8)),
    "seven slots": (WEIGHTS_MIB + 8 * 64 - 1, EIGHT, (33, 1024, 7)),
    "one slot": (WEIGHTS_MIB + 64, EIGHT, (33, 1024, 1)),
    "one slot, a layer less": (WEIGHTS_MIB + 63, EIGHT, (32, 2560, 1)),
    "a given context": (WEIGHTS_MIB + 255, replace(ALL, is_context_given=True), (32, 4096, 1)),
    "a given context, fewer slots": (WEIGHTS_MIB + 512, replace(EIGHT, is_context_given=True), (33, 4096, 2)),
    "given slots": (WEIGHTS_MIB + 8 * 64 - 1, replace(EIGHT, are_slots_given=True), (32, 1024, 8)),
    "given layers": (956, replace(ALL, plan=Plan(8, 4096, 1), are_layers_given=True), (8, 4096, 1)),
    "given layers, shorter": (938, replace(ALL, plan=Plan(8, 4096, 1), are_layers_given=True), (8, 2560, 1)),
    "given layers without room": (100, replace(EIGHT, are_layers_given=True), (33, 1024, 1)),
    "everything given, without room": (
        100,
        replace(EIGHT, are_layers_given=True, is_context_given=True, are_slots_given=True),
        (33, 4096, 8),
    ),
    "a context below the floor": (WEIGHTS_MIB + 15, replace(ALL, plan=Plan(33, 512, 1)), (32, 512, 1)),
}


@pytest.mark.parametrize(("mib", "wish", "expected"), ONE_CARD.values(), ids=ONE_CARD)
def test_what_comes_down_on_one_card(mib, wish, expected):
    assert planner(card(mib), wish=wish).fit() == Plan(*expected)


def test_a_card_without_a_layer_needs_no_buffers():
    sizes = replace(SIZES, row_bytes=MIB)
    assert planner(card(8000), card(1), sizes=sizes).fit().layers == 33


def test_a_recurrent_state_is_counted_for_each_slot():
    sizes = replace(SIZES, state_bytes=(MIB,) * 33)
    (one,), (eight,) = (planner(card(1), sizes=sizes).needs(Plan(33, 256, slots)) for slots in (1, 8))
    assert eight.context == 8 * one.context == 8 * (33 * MIB + 256 * 65536)


# what follows if llama.cpp cannot make the contexts of a plan
SMALLER = {
    "the context": (EIGHT, Plan(33, 4096, 8), Plan(33, 2048, 8)),
    "not below the floor": (EIGHT, Plan(33, 1536, 8), Plan(33, 1024, 8)),
    "the slots": (EIGHT, Plan(33, 1024, 8), Plan(33, 1024, 4)),
    "nothing else": (EIGHT, Plan(33, 1024, 1), None),
    "a given context": (replace(EIGHT, is_context_given=True), Plan(33, 4096, 8), Plan(33, 4096, 4)),
    "given slots": (replace(EIGHT, are_slots_given=True), Plan(33, 1024, 8), None),
    "a short context": (replace(ALL, plan=Plan(33, 512, 1)), Plan(33, 512, 1), None),
}


@pytest.mark.parametrize(("wish", "plan", "smaller"), SMALLER.values(), ids=SMALLER)
def test_the_next_smaller_plan(wish, plan, smaller):
    assert wish.with_smaller_context(plan) == smaller


# several cards: the memory beside the margin in MiB, the split, and the layers that fit
SEVERAL_CARDS = {
    "two halves": ((2048, 2048), Split(), 33),
    "a large and a small one": ((3100, 1100), Split(), 33),
    "one half": ((1024, 1024), Split(), 17),
    "a card without room": ((3700, 0), Split(), 33),
    "a card with little room": ((3700, 1), Split(), 33),
    "by shares": ((3600, 400), Split((15.0, 1.0)), 33),
    "by shares that do not fit": ((3600, 300), Split((1.0, 1.0)), 3),
    "a share for the first alone": ((4000, 0), Split((1.0,)), 33),
    "by rows": ((2048, 2048), Split(is_by_layer=False), 33),
    "by rows and shares": ((3000, 1000), Split((3.0, 1.0), is_by_layer=False), 33),
}


@pytest.mark.parametrize(("mibs", "split", "layers"), SEVERAL_CARDS.values(), ids=SEVERAL_CARDS)
def test_layers_on_several_cards(mibs, split, layers):
    devices = [card(mib, f"CUDA{number}") for number, mib in enumerate(mibs)]
    wish = replace(ALL, is_context_given=True)
    assert planner(*devices, split=split, wish=wish).fit().layers == layers


LAYERS_OF_CARDS = {
    "one": (3, (1.0,), [0, 0, 0]),
    "equal": (4, (1.0, 1.0), [0, 0, 1, 1]),
    "one more on the first": (3, (1.0, 1.0), [0, 0, 1]),
    "three to one": (4, (3.0, 1.0), [0, 0, 0, 1]),
    "none for the middle": (4, (1.0, 0.0, 1.0), [0, 0, 2, 2]),
}


@pytest.mark.parametrize(("count", "shares", "devices"), LAYERS_OF_CARDS.values(), ids=LAYERS_OF_CARDS)
def test_the_card_of_each_layer(count, shares, devices):
    assert devices_of_layers(count, shares) == devices


def test_a_plan_fits_and_a_larger_one_does_not():
    """Drawn at random: of the plans in order of preference, the first that fits is taken."""
    generator = random.Random(5)
    for _ in range(200):
        layer_count = generator.randint(2, 12)
        sizes = ModelSizes(
            tuple(generator.randint(1, 200) * MIB for _ in range(layer_count)),
            tuple(generator.randint(0, 200) * 1024 for _ in range(layer_count)),
            tuple(generator.choice([0, MIB]) for _ in range(layer_count)),
            row_bytes=generator.randint(0, 10**6),
            pair_bytes=generator.randint(0, 300),
            copied_bytes=generator.randint(0, 100 * MIB),
            has_cpu_experts=generator.random() < 0.3,
        )
        devices = [card(generator.randint(0, 1200), f"CUDA{number}") for number in range(generator.randint(1, 3))]
        wish = Wish(Plan(layer_count, 4096, generator.randint(1, 4)), generator.choice([128, 512]))
        drawn = planner(*devices, sizes=sizes, wish=wish)

        def fits(plan, drawn=drawn):
            needs = zip(drawn.needs(plan), drawn.devices, strict=True)
            return all(need.total + MARGIN_BYTES <= each.free_bytes for need, each in needs)

        contexts = range(4096, MIN_CONTEXT_TOKENS - 1, -CONTEXT_STEP_TOKENS)
        slots = range(wish.plan.slots, 0, -1)
        candidates = [
            *(Plan(layer_count, context, count) for count in slots for context in contexts),
            *(Plan(layers, context, 1) for layers in range(layer_count - 1, 0, -1) for context in contexts),
        ]
        expected = next(filter(fits, candidates), replace(wish.plan, layers=0))
        assert drawn.fit() == expected


def test_buffers_are_counted_on_each_card():
    sizes = replace(SIZES, row_bytes=1000, pair_bytes=6, copied_bytes=50 * MIB)
    devices = [card(9000, "CUDA0"), card(9000, "CUDA1")]
    buffers = 512 * (1000 + 6 * 4096)
    whole = planner(*devices, sizes=sizes).needs(ALL.plan)
    assert [need.weights for need in whole] == [17 * 100 * MIB, 17 * 100 * MIB]
    assert [need.context for need in whole] == [17 * 2048 * 4096 + buffers, 15 * 2048 * 4096 + buffers]
    part = planner(devices[0], sizes=sizes).needs(Plan(2, 4096, 1))
    assert part[0].context == 2048 * 4096 + buffers + 50 * MIB
    experts = planner(devices[0], sizes=replace(sizes, has_cpu_experts=True)).needs(ALL.plan)
    assert experts[0].context == 32 * 2048 * 4096 + buffers + 50 * MIB


def tensor(name, *shape, size=None):
    return GgufTensor(name, shape, math.prod(shape) * 2 if size is None else size, 0)


def layers_of(tensors, count=1, **metadata):
    """The tensors of a file with this many layers."""
    values = {"general.architecture": b"x", **{f"x.{name}": value for name, value in metadata.items()}}
    return LayerTensors.of(tensors, {**values, "x.block_count": count})


CACHES = {
    "keys and values": (
        [tensor("blk.0.attn_k.weight", 64, 32), tensor("blk.0.attn_v.weight", 64, 48)],
        {},
        (32 + 48) * 2,
    ),
    "keys alone": ([tensor("blk.0.attn_k.weight", 64, 32)], {}, 64 * 2),
    "in one matrix": (
        [tensor("blk.0.attn_qkv.weight", 64, 64 + 2 * 16), tensor("blk.0.attn_output.weight", 64, 64)],
        {},
        2 * 16 * 2,
    ),
    "recurrent": ([tensor("blk.0.ssm_in.weight", 64, 40)], {}, 0),
    "quantized": (
        [tensor("blk.0.attn_k.weight", 64, 32), tensor("blk.0.attn_v.weight", 64, 64)],
        {"cache_type_k": "q8_0", "cache_type_v": "f32"},
        34 + 64 * 4,
    ),
}


@pytest.mark.parametrize(("tensors", "options", "size"), CACHES.values(), ids=CACHES)
def test_the_cache_of_a_layer(tensors, options, size):
    sizes = measure_model(layers_of(tensors), {}, LoadOptions(**options), 0)
    assert sizes.cache_bytes == (size, 0)


# Transformers, recurrent models, hybrids of both, and models whose keys and values share one vector
ARCHITECTURES = ["llama", "phi3", "mamba", "mamba2", "rwkv6", "rwkv7", "jamba", "falcon-h1", "granitehybrid"]
ARCHITECTURES += ["lfm2", "qwen3next", "kimi-linear", "deepseek2", "minicpm3"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_caches_and_states_are_those_of_llama_cpp(tmp_path, architecture):
    """llama.cpp logs the sizes of what it allocates."""
    path = write_model(Path(tmp_path, "m.gguf"), architecture)
    header = read_header(path)
    tensors = LayerTensors.of(read_tensors(path, header), header.values)
    sizes = measure_model(tensors, header.values, LoadOptions(), 0)
    model = NativeModel(path, LoadOptions(), frozenset(), Offload())
    log: list[str] = []
    binding.set_log_sink(log.append)
    try:
        NativeContext(model, ContextSize(4096, 512, 8)).close()
    finally:
        binding.set_log_sink(None)
        model.close()
    found = re.findall(r"(KV|RS) buffer size = +([\d.]+) MiB", "".join(log))
    assert found
    for kind, expected in ("KV", 8 * 4096 * sum(sizes.cache_bytes)), ("RS", 8 * sum(sizes.state_bytes)):
        allocated = sum(float(size) for name, size in found if name == kind)
        assert expected / MIB == pytest.approx(allocated, abs=0.02)


def test_layers_that_predict_several_tokens_are_not_loaded():
    """llama.cpp counts them, and leaves out their tensors (NextN, MTP)."""
    tensors = [tensor(f"blk.{layer}.attn_k.weight", 64, 64, size=10) for layer in range(3)]
    tensors += [tensor("blk.2.nextn.eh_proj.weight", 128, 64, size=50), tensor("output.weight", 64, 9, size=7)]
    sizes = measure_model(layers_of(tensors, 3, nextn_predict_layers=1), {}, LoadOptions(), 0)
    assert sizes.layer_bytes == (10, 10, 0, 7)
    assert sizes.cache_bytes == (256, 256, 0, 0)


EXPERTS = [
    tensor("token_embd.weight", 64, 1000, size=7),
    *(tensor(f"blk.{layer}.attn_k.weight", 64, 64, size=10) for layer in range(12)),
    *(tensor(f"blk.{layer}.ffn_gate_up_exps.weight", 64, 96, 4, size=100) for layer in range(12)),
    *(tensor(f"blk.{layer}.ffn_down_chexps.weight", 96, 64, 4, size=50) for layer in range(12)),
    *(tensor(f"blk.{layer}.ffn_up_shexp.weight", 64, 96, size=1) for layer in range(12)),
    tensor("output_norm.weight", 64, size=2),
]
EXPERT_LAYERS = {
    "none": (0, [161] * 12),
    "of two layers": (2, [11] * 2 + [161] * 10),
    "of more than there are": (99, [11] * 12),
    "of all": ("all", [11] * 12),
}


@pytest.mark.parametrize(("layers", "sizes"), EXPERT_LAYERS.values(), ids=EXPERT_LAYERS)
def test_experts_that_stay_in_the_memory_of_the_cpu(layers, sizes):
    found = measure_model(layers_of(EXPERTS, 12), {}, LoadOptions(cpu_expert_layers=layers), 0)
    assert found.layer_bytes == (*sizes, 9)  # the embedding is the output, too
    assert found.has_cpu_experts is (layers != 0)
    with_adapters = measure_model(layers_of(EXPERTS, 12), {}, LoadOptions(cpu_expert_layers=layers), 120)
    assert with_adapters.layer_bytes == (*(size + 10 for size in sizes), 9)


@pytest.mark.parametrize("architecture", ["llama", "phi3", "jamba", "deepseek2", next(iter(sorted(MIXTURES)))])
def test_the_sizes_of_a_file_add_up(tmp_path, architecture):
    path = write_model(Path(tmp_path, "m.gguf"), architecture)
    header = read_header(path)
    metadata = header.values
    tensors = read_tensors(path, header)
    layers = LayerTensors.of(tensors, metadata)
    sizes = measure_model(layers, metadata, LoadOptions(), 0)
    input_bytes = sum(each.byte_count for each in tensors if each.name.startswith("token_embd"))
    is_tied = all(each.name != "output.weight" for each in tensors)
    weights = sum(each.byte_count for each in tensors) - (0 if is_tied else input_bytes)
    assert sum(sizes.layer_bytes) == weights
    assert trained_context(metadata) == 512
    assert sizes.layer_count == len(sizes.cache_bytes) == count_layers(metadata)
