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
    state_bytes: tuple[int, ...]  # recurrent state of one slot in each of these layers
    row_bytes: int  # buffers for a token that is computed, beside others of its batch
    pair_bytes: int  # buffers for a token that is computed and a token of the context that it can see
    copied_bytes: int  # the largest matrix; a GPU gets a copy of it if it stays in the CPU's memory
    has_cpu_experts: bool = False  # whether experts of layers on a GPU stay in the CPU's memory

    @property
    def layer_count(self) -> int:
        """The number of layers, with the output, as llama.cpp counts them."""
        return len(self.layer_bytes)

    def with_companion(self, other: ModelSizes) -> ModelSizes:
        """Return the sizes of this model beside a smaller one, which is counted where the output is."""
        return replace(
            self,
            layer_bytes=(*self.layer_bytes[:-1], self.layer_bytes[-1] + sum(other.layer_bytes)),
            cache_bytes=(*self.cache_bytes[:-1], self.cache_bytes[-1] + sum(other.cache_bytes)),
            state_bytes=(*self.state_bytes[:-1], self.state_bytes[-1] + sum(other.state_bytes)),
            row_bytes=self.row_bytes + other.row_bytes,
            pair_bytes=self.pair_bytes + other.pair_bytes,
        )


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

    @property
    def tokens(self) -> int:
        """The number of tokens for which there are caches; llama.cpp rounds the length of each sequence up."""
        return self.slots * _round_up(self.context)


@dataclass(frozen=True)
class Wish:
    """The largest plan that is of use, and the parts of it that the user has given."""

    plan: Plan
    microbatch: int  # number of tokens that are computed together
    are_layers_given: bool = False
    is_context_given: bool = False
    are_slots_given: bool = False

    @property
    def min_slots(self) -> int:
        return self.plan.slots if self.are_slots_given else 1

    @property
    def min_context(self) -> int:
        return self.plan.context if self.is_context_given else min(MIN_CONTEXT_TOKENS, self.plan.context)

    def with_smaller_context(self, plan: Plan) -> Plan | None:
        """Return a plan with half of the context, or else of the slots; None if neither may come down."""
        if plan.context > self.min_context:
            return replace(plan, context=max(_round_up(plan.context // 2), self.min_context))
        if plan.slots > self.min_slots:
            return replace(plan, slots=plan.slots // 2)
        return None


def _round_up(context: int) -> int:
    return math.ceil(context / CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS


@dataclass(frozen=True)
class Need:
    """The memory that a plan needs on one GPU, in bytes."""

    weights: int
    context: int  # the caches of all slots, and the buffers

    @property
    def total(self) -> int:
        return self.weights + self.context


@dataclass(frozen=True)
class Planner:
    """What a model needs on some GPUs, and what of it fits."""

    sizes: ModelSizes
    devices: tuple[DeviceMemory, ...]
    split: Split
    wish: Wish

    def fit(self) -> Plan:
        """Return the plan with the most layers that fits, and of those the one that is nearest to the wish."""
        wish = self.wish
        for candidate in self._candidates():
            plan = self._with_longest_context(candidate)
            if plan is not None:
                return plan
        # If the given parts do not fit at all, the others are as small as possible: llama.cpp decides.
        if wish.are_layers_given:
            return replace(wish.plan, context=wish.min_context, slots=wish.min_slots)
        return replace(wish.plan, layers=0)

    def _candidates(self) -> Iterator[Plan]:
        """Yield the plans in the order of preference, without regard to their contexts."""
        wish = self.wish
        for slots in range(wish.plan.slots, wish.min_slots - 1, -1):
            yield replace(wish.plan, slots=slots)
        if not wish.are_layers_given:
            for layers in range(wish.plan.layers - 1, 0, -1):
                yield replace(wish.plan, slots=wish.min_slots, layers=layers)

    def _with_longest_context(self, plan: Plan) -> Plan | None:
        """Return a plan with the longest context that fits; None if not even the shortest one fits."""
        shortest = self.wish.min_context
        if not self.fits(replace(plan, context=shortest)):
            return None
        steps = range(shortest, plan.context, CONTEXT_STEP_TOKENS)
        plans = (replace(plan, context=context) for context in (plan.context, *reversed(steps)))
        return next(filter(self.fits, plans))

    def fits(self, plan: Plan, reserve_bytes: int = MARGIN_BYTES) -> bool:
        # A device without a layer needs nothing, so that it may be full.
        return all(
            need.total == 0 or need.total <= device.free_bytes - reserve_bytes
            for need, device in zip(self.needs(plan), self.devices, strict=True)
        )

    def needs(self, plan: Plan) -> list[Need]:
        """Return the memory that a plan needs on each device."""
        sizes = self.sizes
        # llama.cpp puts the last layers onto the GPUs.
        first_layer = sizes.layer_count - plan.layers
        layer_bytes = sizes.layer_bytes[first_layer:]
        cache_bytes = [
            cache * plan.tokens + state * plan.slots
            for cache, state in zip(sizes.cache_bytes[first_layer:], sizes.state_bytes[first_layer:], strict=True)
        ]
        buffer_bytes = self.wish.microbatch * (sizes.row_bytes + sizes.pair_bytes * plan.context)
        if first_layer > 0 or sizes.has_cpu_experts:
            buffer_bytes += sizes.copied_bytes
        shares = self.shares
        if not self.split.is_by_layer:
            total = sum(shares)
            return [
                Need(
                    math.ceil(sum(layer_bytes) * share / total),
                    math.ceil(sum(cache_bytes) * share / total) + (buffer_bytes if share else 0),
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
        return [
            Need(weights[number], caches[number] + (buffer_bytes if number in weights else 0))
            for number in range(len(self.devices))
        ]

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each device: what is given, or else in proportion to the memory beside the margin."""
        if self.split.shares:
            return self.split.shares + (0.0,) * (len(self.devices) - len(self.split.shares))
        shares = tuple(float(max(0, device.free_bytes - MARGIN_BYTES)) for device in self.devices)
        return shares if any(shares) else (1.0,) * len(self.devices)


def devices_of_layers(layer_count: int, shares: Sequence[float]) -> list[int]:
    """Return the number of the device of each layer on a GPU, as llama.cpp divides them."""
    total = sum(shares)
    ends = [share_sum / total for share_sum in accumulate(shares)]
    last_device = len(shares) - 1
    return [min(last_device, bisect_right(ends, layer / layer_count)) for layer in range(layer_count)]


_LAYER_NAME = re.compile(r"blk\.(\d+)\.")
# tensors of the input, which llama.cpp always keeps in the CPU's memory
_INPUT_NAMES = ("token_embd", "token_embd_norm", "token_types", "position_embd", "per_layer_token_embd")
_FLOAT_BYTES = 4
# copies of the widest row and of the state of a token that llama.cpp's buffers hold at a time, generously
_WIDE_ROWS = 2
_STATE_ROWS = 4
_SHIFTED_TOKENS = 2  # whose inputs are part of RWKV's state
_CONVOLUTION_NAME = re.compile(r"(ssm_conv1d|shortconv\.conv)")
_MASK_BYTES = 6  # a number of 32 bits, and a copy of it with 16 bits


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of a model by their places."""

    layers: tuple[tuple[GgufTensor, ...], ...]  # the tensors of each layer, without the output
    output: tuple[GgufTensor, ...]
    embedding: GgufTensor | None  # the matrix of the input tokens

    @classmethod
    def of(cls, tensors: Iterable[GgufTensor], metadata: Values) -> LayerTensors:
        layer_count = count_layers(metadata) - 1
        # llama.cpp counts the last layers, which predict several tokens at once, but does not load them.
        loaded_layer_count = layer_count - _integer(metadata, "nextn_predict_layers")
        layers: list[list[GgufTensor]] = [[] for _ in range(layer_count)]
        output: list[GgufTensor] = []
        embedding = None
        for tensor in tensors:
            match = _LAYER_NAME.match(tensor.name)
            if match is not None:
                if int(match[1]) < loaded_layer_count:
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
    cache_bytes = [_cache_bytes(layer, metadata, options) for layer in tensors.layers]
    state_bytes = [_state_width(layer, metadata) * _FLOAT_BYTES for layer in tensors.layers]
    state_width, vocabulary_size = _matrix_shape(tensors.embedding)
    head_count = _integer(metadata, "attention.head_count")
    score_bytes = 0 if options.flash_attention != "off" else head_count * _FLOAT_BYTES
    widest = max((_output_width(tensor, metadata) for tensor in all_tensors), default=0)
    row_width = vocabulary_size + _WIDE_ROWS * widest + _STATE_ROWS * state_width
    return ModelSizes(
        layer_bytes=(*layer_bytes, output_bytes),
        cache_bytes=(*cache_bytes, 0),
        state_bytes=(*state_bytes, 0),
        row_bytes=row_width * _FLOAT_BYTES,
        pair_bytes=_MASK_BYTES + score_bytes,
        copied_bytes=max((tensor.byte_count for tensor in all_tensors), default=0),
        has_cpu_experts=any(map(_is_of_experts, all_tensors)) and cpu_expert_layers > 0,
    )


def at_most(count: int | str, maximum: int) -> int:
    """Return a number of layers; the maximum for ``all``."""
    return min(count, maximum) if isinstance(count, int) else maximum


def _cache_bytes(layer: Iterable[GgufTensor], metadata: Values, options: LoadOptions) -> int:
    """Return the memory for the key and the value of one token in a layer."""
    key_width, value_width = _cache_widths(layer, metadata)
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


def _matrices(layer: Iterable[GgufTensor]) -> dict[str, GgufTensor]:
    return {tensor.name.split(".", 2)[2]: tensor for tensor in layer if tensor.name.endswith(".weight")}


def _cache_widths(layer: Iterable[GgufTensor], metadata: Values) -> tuple[int, int]:
    """Return the numbers of values in a key and in a value that a layer keeps of a token; 0 without attention."""
    matrices = _matrices(layer)
    if "attn_kv_a_mqa.weight" in matrices:
        if _integer(metadata, "attention.key_length_mla"):  # a latent vector is both
            return _matrix_shape(matrices["attn_kv_a_mqa.weight"])[1], 0
        heads = _integer(metadata, "attention.head_count")
        return heads * _head_width(metadata, "key_length"), heads * _head_width(metadata, "value_length")
    has_state = any(name.startswith("ssm_") for name in matrices)
    is_delta_attention = "ssm_conv1d_q.weight" in matrices  # whose keys and values are part of the state
    if is_delta_attention or (has_state and "attn_output.weight" not in matrices):
        return 0, 0
    if "attn_qkv.weight" in matrices:  # the outputs of one matrix are query, key and value
        query_width, _ = _matrix_shape(matrices.get("attn_output.weight"))
        _, all_widths = _matrix_shape(matrices["attn_qkv.weight"])
        width = max(0, all_widths - query_width) // 2
        return width, width
    _, key_width = _matrix_shape(matrices.get("attn_k.weight"))
    _, value_width = _matrix_shape(matrices.get("attn_v.weight"))
    return key_width, value_width or key_width  # some models use the keys as values


def _head_width(metadata: Values, name: str) -> int:
    default = _integer(metadata, "embedding_length") // max(1, _integer(metadata, "attention.head_count"))
    return _integer(metadata, f"attention.{name}") or default


def _state_width(layer: Iterable[GgufTensor], metadata: Values) -> int:
    """Return the number of values in the recurrent state of a sequence in a layer; 0 without such a state."""
    matrices = _matrices(layer)
    convolutions = [matrix for name, matrix in matrices.items() if _CONVOLUTION_NAME.match(name)]
    width = sum((matrix.shape[0] - 1) * math.prod(matrix.shape[1:]) for matrix in convolutions)  # the last inputs
    if "ssm_conv1d.weight" in matrices:
        width += _integer(metadata, "ssm.state_size") * _integer(metadata, "ssm.inner_size")
    elif "ssm_conv1d_q.weight" in matrices:
        width += _integer(metadata, "kda.head_dim") * matrices["ssm_conv1d_q.weight"].shape[-1]
    elif any(name.startswith("time_mix_") for name in matrices):
        width += (_integer(metadata, "wkv.head_size") + _SHIFTED_TOKENS) * _integer(metadata, "embedding_length")
    return width
