"""What of a model fits into the memory of GPUs: numbers in, numbers out."""

import math
import random
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
    Split,
    Wish,
    count_layers,
    devices_of_layers,
    fit,
    measure_model,
    needs_of_devices,
    trained_context,
)
from logitsmith.models.gguf import GgufTensor, read_header, read_tensors

from .small_models import MIXTURES, write_model

MIB = 2**20
# 32 layers of 100 MiB and an output of 200 MiB; 64 KiB of cache for a token in all layers; no buffers
SIZES = ModelSizes(
    (100 * MIB,) * 32 + (200 * MIB,), (2048,) * 32 + (0,), row_bytes=0, pair_bytes=0, copied_bytes=0
)
WEIGHTS_MIB = 3400
ALL = Wish(Plan(33, 4096, 1), microbatch=512)
EIGHT = replace(ALL, plan=Plan(33, 4096, 8))


def card(mib, name="CUDA0"):
    """A GPU with this much memory beside the margin."""
    return DeviceMemory(name, mib * MIB + MARGIN_BYTES)


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
    assert fit(SIZES, [card(mib)], wish, Split()) == Plan(*expected)


def test_a_card_without_a_layer_needs_no_buffers():
    sizes = replace(SIZES, row_bytes=MIB)
    assert fit(sizes, [card(8000), card(1)], ALL, Split()).layers == 33


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
    assert fit(SIZES, devices, replace(ALL, is_context_given=True), split).layers == layers


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
            row_bytes=generator.randint(0, 10**6),
            pair_bytes=generator.randint(0, 300),
            copied_bytes=generator.randint(0, 100 * MIB),
            has_cpu_experts=generator.random() < 0.3,
        )
        devices = [card(generator.randint(0, 1200), f"CUDA{number}") for number in range(generator.randint(1, 3))]
        wish = Wish(Plan(layer_count, 4096, generator.randint(1, 4)), generator.choice([128, 512]))

        def fits(plan, sizes=sizes, devices=devices, wish=wish):
            needs = needs_of_devices(sizes, devices, plan, wish.microbatch, Split())
            return all(
                need.total + MARGIN_BYTES <= each.free_bytes for need, each in zip(needs, devices, strict=True)
            )

        contexts = range(4096, MIN_CONTEXT_TOKENS - 1, -CONTEXT_STEP_TOKENS)
        slots = range(wish.plan.slots, 0, -1)
        candidates = [
            *(Plan(layer_count, context, count) for count in slots for context in contexts),
            *(Plan(layers, context, 1) for layers in range(layer_count - 1, 0, -1) for context in contexts),
        ]
        expected = next(filter(fits, candidates), replace(wish.plan, layers=0))
        assert fit(sizes, devices, wish, Split()) == expected


def test_buffers_are_counted_on_each_card():
    sizes = replace(SIZES, row_bytes=1000, pair_bytes=6, copied_bytes=50 * MIB)
    devices = [card(9000, "CUDA0"), card(9000, "CUDA1")]
    buffers = 512 * (1000 + 6 * 4096)
    whole = needs_of_devices(sizes, devices, ALL.plan, 512, Split())
    assert [need.weights for need in whole] == [17 * 100 * MIB, 17 * 100 * MIB]
    assert [need.context for need in whole] == [17 * 2048 * 4096 + buffers, 15 * 2048 * 4096 + buffers]
    part = needs_of_devices(sizes, devices[:1], Plan(2, 4096, 1), 512, Split())
    assert part[0].context == 2048 * 4096 + buffers + 50 * MIB
    experts = needs_of_devices(replace(sizes, has_cpu_experts=True), devices[:1], ALL.plan, 512, Split())
    assert experts[0].context == 32 * 2048 * 4096 + buffers + 50 * MIB


def tensor(name, *shape, size=None):
    return GgufTensor(name, shape, math.prod(shape) * 2 if size is None else size, 0)


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
    "latent": ([tensor("blk.0.attn_kv_a_mqa.weight", 64, 40)], {}, 2 * 40 * 2),
    "recurrent": ([tensor("blk.0.ssm_in.weight", 64, 40)], {}, 0),
    "quantized": (
        [tensor("blk.0.attn_k.weight", 64, 32), tensor("blk.0.attn_v.weight", 64, 64)],
        {"cache_type_k": "q8_0", "cache_type_v": "f32"},
        34 + 64 * 4,
    ),
}


@pytest.mark.parametrize(("tensors", "options", "size"), CACHES.values(), ids=CACHES)
def test_the_cache_of_a_layer(tensors, options, size):
    sizes = measure_model(LayerTensors.of(tensors, 1), {}, LoadOptions(**options), 0)
    assert sizes.cache_bytes == (size, 0)


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
    found = measure_model(LayerTensors.of(EXPERTS, 12), {}, LoadOptions(cpu_expert_layers=layers), 0)
    assert found.layer_bytes == (*sizes, 9)  # the embedding is the output, too
    assert found.has_cpu_experts is (layers != 0)
    with_adapters = measure_model(LayerTensors.of(EXPERTS, 12), {}, LoadOptions(cpu_expert_layers=layers), 120)
    assert with_adapters.layer_bytes == (*(size + 10 for size in sizes), 9)


@pytest.mark.parametrize("architecture", ["llama", "phi3", "jamba", "deepseek2", next(iter(sorted(MIXTURES)))])
def test_the_sizes_of_a_file_add_up(tmp_path, architecture):
    path = write_model(Path(tmp_path, "m.gguf"), architecture)
    header = read_header(path)
    metadata = header.values
    tensors = read_tensors(path, header)
    layers = LayerTensors.of(tensors, count_layers(metadata) - 1)
    sizes = measure_model(layers, metadata, LoadOptions(), 0)
    input_bytes = sum(each.byte_count for each in tensors if each.name.startswith("token_embd"))
    is_tied = all(each.name != "output.weight" for each in tensors)
    weights = sum(each.byte_count for each in tensors) - (0 if is_tied else input_bytes)
    assert sum(sizes.layer_bytes) == weights
    assert trained_context(metadata) == 512
    assert sizes.layer_count == len(sizes.cache_bytes) == count_layers(metadata)
