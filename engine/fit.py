"""How much of a model fits into the memory of the GPUs: arithmetic on numbers, without llama.cpp.

The number of layers, the length of the context and the number of slots come down, in this order: the context, the
slots, the layers. What the user has given stays.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ..common.llama_cpp_limits import CACHE_TYPES
from ..models.gguf import TENSOR_TYPES, GgufTensor, Values
from .load_options import LoadOptions

# memory of each device that stays free for what is not counted, as llama.cpp's --fit-target
MARGIN_BYTES = 2**30
# A default context does not come down below this length: a chat of a few turns fits.
MIN_CONTEXT_TOKENS = 1024
CONTEXT_STEP_TOKENS = 256  # llama.cpp rounds the length of a sequence up to a multiple of this
# The tensors of experts, whose patterns are those of llama.cpp's --cpu-moe and --n-cpu-moe (common/arg.cpp)
EXPERT_PATTERN = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


def expert_pattern_of_layer(layer: int) -> str:
    return rf"blk\.{layer}{EXPERT_PATTERN}"


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a GPU that a model may use."""

    name: str
    free_bytes: int


@dataclass(frozen=True)
class ModelSizes:
    """The memory that the parts of a model need on a GPU, in bytes."""

    layer_bytes: tuple[int, ...]  # weights of each layer; the last one is the output, which counts as a layer
    cache_bytes: tuple[int, ...]  # keys and values of one token in each of these layers
    row_bytes: int  # buffers for a token that is computed, beside others of its batch
    pair_bytes: int  # buffers for a token that is computed and a token of the context that it can see
    copied_bytes: int  # the largest matrix; a GPU gets a copy of it if it stays in the CPU's memory
    has_cpu_experts: bool = False  # whether experts of layers on a GPU stay in the CPU's memory

    @property
    def layer_count(self) -> int:
        """The number of layers, with the output, as llama.cpp counts them."""
        return len(self.layer_bytes)


@dataclass(frozen=True)
class Split:
    """How a model is divided among the GPUs."""

    shares: tuple[float, ...] = ()  # the share of each GPU, if the user has given them
    is_by_layer: bool = True  # False if each matrix is divided


@dataclass(frozen=True)
class Plan:
    """What a load puts onto the GPUs."""

    layers: int
    context: int  # tokens of each slot
    slots: int


@dataclass(frozen=True)
class Wish:
    """The plan without regard to memory, and the parts of it that the user has given."""

    plan: Plan
    microbatch: int  # number of tokens that are computed together
    are_layers_given: bool = False
    is_context_given: bool = False
    are_slots_given: bool = False


@dataclass(frozen=True)
class Need:
    """The memory that a plan needs on one GPU, in bytes."""

    weights: int
    context: int  # the caches of all slots, and the buffers

    @property
    def total(self) -> int:
        return self.weights + self.context


def fit(sizes: ModelSizes, devices: Sequence[DeviceMemory], wish: Wish, split: Split) -> Plan:
    """Return the plan with the most layers that fits, and of those the one that is nearest to the wish."""
    # If the given parts do not fit at all, the others are as small as possible: llama.cpp decides.
    for candidate in _candidates(wish):
        plan = _with_longest_context(sizes, devices, wish, split, candidate)
        if plan is not None:
            return plan
    if wish.are_layers_given:
        return replace(wish.plan, context=_min_context(wish), slots=_min_slots(wish))
    return replace(wish.plan, layers=0)


def _candidates(wish: Wish) -> Iterator[Plan]:
    """Yield the plans in the order of preference, without regard to their contexts."""
    min_slots = _min_slots(wish)
    for slots in range(wish.plan.slots, min_slots - 1, -1):
        yield replace(wish.plan, slots=slots)
    if not wish.are_layers_given:
        for layers in range(wish.plan.layers - 1, 0, -1):
            yield replace(wish.plan, slots=min_slots, layers=layers)


def _min_slots(wish: Wish) -> int:
    return wish.plan.slots if wish.are_slots_given else 1


def _min_context(wish: Wish) -> int:
    return wish.plan.context if wish.is_context_given else min(MIN_CONTEXT_TOKENS, wish.plan.context)


def _with_longest_context(
    sizes: ModelSizes, devices: Sequence[DeviceMemory], wish: Wish, split: Split, plan: Plan
) -> Plan | None:
    """Return a plan with the longest context that fits; None if not even the shortest one fits."""
    shortest = _min_context(wish)
    if not _fits(sizes, devices, wish, split, replace(plan, context=shortest)):
        return None
    steps = range(shortest, plan.context, CONTEXT_STEP_TOKENS)
    for context in (plan.context, *reversed(steps)):
        longer_plan = replace(plan, context=context)
        if _fits(sizes, devices, wish, split, longer_plan):
            return longer_plan
    raise AssertionError("the shortest context fits")


def _fits(sizes: ModelSizes, devices: Sequence[DeviceMemory], wish: Wish, split: Split, plan: Plan) -> bool:
    needs = needs_of_devices(sizes, devices, plan, wish.microbatch, split)
    return all(need.total <= device.free_bytes - MARGIN_BYTES for need, device in zip(needs, devices, strict=True))


def needs_of_devices(
    sizes: ModelSizes, devices: Sequence[DeviceMemory], plan: Plan, microbatch: int, split: Split
) -> list[Need]:
    """Return the memory that a plan needs on each device."""
    # llama.cpp puts the last layers onto the GPUs.
    first_layer = sizes.layer_count - plan.layers
    layer_bytes = sizes.layer_bytes[first_layer:]
    tokens = plan.slots * math.ceil(plan.context / CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS
    cache_bytes = [size * tokens for size in sizes.cache_bytes[first_layer:]]
    buffer_bytes = microbatch * (sizes.row_bytes + sizes.pair_bytes * plan.context)
    if first_layer > 0 or sizes.has_cpu_experts:
        buffer_bytes += sizes.copied_bytes
    shares = shares_of_devices(devices, split)
    if not split.is_by_layer:
        total = sum(shares)
        return [
            Need(
                math.ceil(sum(layer_bytes) * share / total),
                math.ceil(sum(cache_bytes) * share / total) + buffer_bytes,
            )
            for share in shares
        ]
    weights = Counter[int]()
    caches = Counter[int]()
    for device, weight, cache in zip(
        devices_of_layers(plan.layers, shares), layer_bytes, cache_bytes, strict=True
    ):
        weights[device] += weight
        caches[device] += cache
    return [Need(weights[number], caches[number] + buffer_bytes) for number in range(len(devices))]


def shares_of_devices(devices: Sequence[DeviceMemory], split: Split) -> tuple[float, ...]:
    """Return the share of each device: what is given, or else in proportion to the memory beside the margin."""
    if split.shares:
        return split.shares + (0.0,) * (len(devices) - len(split.shares))
    shares = tuple(float(max(0, device.free_bytes - MARGIN_BYTES)) for device in devices)
    return shares if any(shares) else (1.0,) * len(devices)


def devices_of_layers(layer_count: int, shares: Sequence[float]) -> list[int]:
    """Return the number of the device of each layer on a GPU, as llama.cpp divides them."""
    total = sum(shares)
    ends = [share_sum / total for share_sum in accumulate(shares)]
    last_device = len(shares) - 1
    return [min(last_device, bisect_right(ends, layer / layer_count)) for layer in range(layer_count)]


_LAYER_NAME = re.compile(r"blk\.(\d+)\.")
# tensors of the input, which llama.cpp always keeps in the CPU's memory
_INPUT_NAMES = ("token_embd", "token_embd_norm", "token_types", "position_embd")
_FLOAT_BYTES = 4
# copies of the widest row and of the state of a token that llama.cpp's buffers hold at a time, generously
_WIDE_ROWS = 2
_STATE_ROWS = 4
_MASK_BYTES = 6  # a number of 32 bits, and a copy of it with 16 bits


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of a model by their places."""

    layers: tuple[tuple[GgufTensor, ...], ...]  # the tensors of each layer, without the output
    output: tuple[GgufTensor, ...]
    embedding: GgufTensor | None  # the matrix of the input tokens

    @classmethod
    def of(cls, tensors: Iterable[GgufTensor], layer_count: int) -> LayerTensors:
        layers: list[list[GgufTensor]] = [[] for _ in range(layer_count)]
        output: list[GgufTensor] = []
        embedding = None
        for tensor in tensors:
            match = _LAYER_NAME.match(tensor.name)
            if match is not None and int(match[1]) < layer_count:
                layers[int(match[1])].append(tensor)
            elif tensor.name == "token_embd.weight":
                embedding = tensor
            elif tensor.name.partition(".")[0] not in _INPUT_NAMES:
                output.append(tensor)
        if embedding is not None and not any(tensor.name == "output.weight" for tensor in output):
            output.append(embedding)  # the output is a second copy of the matrix
        return cls(tuple(map(tuple, layers)), tuple(output), embedding)


def measure_model(tensors: LayerTensors, metadata: Values, options: LoadOptions, adapter_bytes: int) -> ModelSizes:
    """Return the memory that a model needs, from the descriptions of its tensors."""
    # ``adapter_bytes``: size of all adapters
    layer_count = len(tensors.layers)
    cpu_expert_layers = at_most(options.cpu_expert_layers, layer_count)
    layers = [
        [tensor for tensor in layer if number >= cpu_expert_layers or not _is_of_experts(tensor)]
        for number, layer in enumerate(tensors.layers)
    ]
    adapter_share = adapter_bytes // max(1, layer_count)
    layer_bytes = [sum(tensor.byte_count for tensor in layer) + adapter_share for layer in layers]
    output_bytes = sum(tensor.byte_count for tensor in tensors.output)
    all_tensors = [tensor for layer in tensors.layers for tensor in layer]
    cache_bytes = [_cache_bytes(layer, options) for layer in tensors.layers]
    state_width, vocabulary_size = _matrix_shape(tensors.embedding)
    head_count = _integer(metadata, "attention.head_count")
    score_bytes = 0 if options.flash_attention != "off" else head_count * _FLOAT_BYTES
    widest = max((_output_width(tensor, metadata) for tensor in all_tensors), default=0)
    row_width = vocabulary_size + _WIDE_ROWS * widest + _STATE_ROWS * state_width
    return ModelSizes(
        layer_bytes=(*layer_bytes, output_bytes),
        cache_bytes=(*cache_bytes, 0),
        row_bytes=row_width * _FLOAT_BYTES,
        pair_bytes=_MASK_BYTES + score_bytes,
        copied_bytes=max((tensor.byte_count for tensor in all_tensors), default=0),
        has_cpu_experts=any(map(_is_of_experts, all_tensors)) and cpu_expert_layers > 0,
    )


def at_most(count: int | str, maximum: int) -> int:
    """Return a number of layers; the maximum for ``all``."""
    return min(count, maximum) if isinstance(count, int) else maximum


def _cache_bytes(layer: Iterable[GgufTensor], options: LoadOptions) -> int:
    """Return the memory for the key and the value of one token in a layer."""
    key_width, value_width = _cache_widths(layer)
    key_bytes = key_width * _cache_number_bytes(options.cache_type_k)
    return math.ceil(key_bytes + value_width * _cache_number_bytes(options.cache_type_v))


def _cache_number_bytes(type_name: str) -> float:
    """Return the mean size of a number of this type in the cache."""
    block_numbers, block_bytes = TENSOR_TYPES[CACHE_TYPES[type_name]]
    return block_bytes / block_numbers


def _is_of_experts(tensor: GgufTensor) -> bool:
    return re.search(EXPERT_PATTERN, tensor.name) is not None


def _integer(metadata: Values, name: str) -> int:
    """Return a number of the model's architecture; 0 if the metadata does not have it as a single number."""
    value = metadata.get(f"{architecture_of(metadata)}.{name}")
    return value if isinstance(value, int) else 0


def architecture_of(metadata: Values) -> str:
    value = metadata.get("general.architecture", b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def count_layers(metadata: Values) -> int:
    """Return the number of layers with the output, as llama.cpp counts those that can be on a GPU."""
    return _integer(metadata, "block_count") + 1


def trained_context(metadata: Values) -> int:
    """Return the tokens of context that a model was trained with; 0: unknown."""
    return _integer(metadata, "context_length")


def _matrix_shape(tensor: GgufTensor | None) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a matrix."""
    if tensor is None or len(tensor.shape) < 2:
        return 0, 0
    return tensor.shape[0], tensor.shape[1]


def _output_width(tensor: GgufTensor, metadata: Values) -> int:
    """Return the number of values that a token gets from a matrix; those of all experts that it uses."""
    _, outputs = _matrix_shape(tensor)
    used_experts = max(1, _integer(metadata, "expert_used_count")) if _is_of_experts(tensor) else 1
    return outputs * used_experts


def _cache_widths(layer: Iterable[GgufTensor]) -> tuple[int, int]:
    """Return the numbers of values in a key and in a value that a layer keeps of a token; 0 without attention."""
    matrices = {tensor.name.split(".")[2]: tensor for tensor in layer if tensor.name.endswith(".weight")}
    if "attn_kv_a_mqa" in matrices:  # keys and values share one latent vector
        _, latent_width = _matrix_shape(matrices["attn_kv_a_mqa"])
        return latent_width, latent_width
    if "attn_qkv" in matrices:  # the outputs of one matrix are query, key and value
        query_width, _ = _matrix_shape(matrices.get("attn_output"))
        _, all_widths = _matrix_shape(matrices["attn_qkv"])
        width = max(0, all_widths - query_width) // 2
        return width, width
    _, key_width = _matrix_shape(matrices.get("attn_k"))
    _, value_width = _matrix_shape(matrices.get("attn_v"))
    return key_width, value_width or key_width  # some models use the keys as values
