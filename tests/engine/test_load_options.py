"""The options of loading: what is checked, what is filled in, what llama.cpp gets, and that they travel."""

import dataclasses
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from logitsmith.engine import LoadOptions, Model, ModelError
from logitsmith.engine.load_options import ModelSpec
from logitsmith.engine.native.binding import AbortFlag, lib
from logitsmith.engine.native.context import NativeContext
from logitsmith.engine.native.options import ContextSize, native_context_params, native_model_params

from .small_models import write_file

WRONG = {
    "a context as text": ({"n_ctx": "5"}, "n_ctx: '5' is not an integer within 0..2147483647"),
    "no thread": ({"threads": 0}, "threads: 0 is not an integer within 1..512"),
    "no thread for prompts": ({"batch_threads": 0}, "batch_threads: 0 is not an integer within 1..512"),
    "no batch": ({"batch": None}, "batch: null is not an integer within 1..2147483647"),
    "a part of a token": ({"microbatch": 2.5}, "microbatch: 2.5 is not an integer within 1..2147483647"),
    "layers": ({"gpu_layers": -1}, "gpu_layers: -1 is not an integer ≥ 0, all or auto"),
    "a word for layers": ({"gpu_layers": "most"}, "gpu_layers: 'most' is not an integer ≥ 0, all or auto"),
    "layers without a GPU": (
        {"gpu_layers": 3, "devices": ()},
        "gpu_layers: 3 needs a GPU, and none may be used; omit gpu_layers",
    ),
    "a GPU twice": ({"devices": ("CUDA0", "CUDA0")}, "devices: a GPU is named twice: CUDA0, CUDA0"),
    "names of GPUs": ({"devices": "CUDA0"}, "devices: 'CUDA0' is not a tuple of names"),
    "layers of experts": ({"cpu_expert_layers": -1}, "cpu_expert_layers: -1 is not an integer ≥ 0 or all"),
    "no slot": ({"slots": 0}, "slots: 0 is not an integer within 1..256"),
    "flash attention": ({"flash_attention": "yes"}, "flash_attention: 'yes' is not one of on, off, auto"),
    "keys": ({"cache_type_k": "q2"}, "cache_type_k: 'q2' is not one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl"),
    "values": ({"cache_type_v": "int"}, "cache_type_v: 'int' is not one of f32, f16"),
    "values without flash attention": (
        {"cache_type_v": "iq4_nl", "flash_attention": "off"},
        "cache_type_v: iq4_nl needs flash attention, which is off",
    ),
    "RoPE": ({"rope_scaling": "cubic"}, "rope_scaling: 'cubic' is not one of none, linear, yarn"),
    "split mode": ({"split_mode": "both"}, "split_mode: 'both' is not one of none, layer, row, tensor"),
    "main GPU": ({"main_gpu": -2}, "main_gpu: -2 is not an integer within -1..2147483647"),
    "a share below 0": ({"tensor_split": (1.0, -1.0)}, "tensor_split: .* is not a tuple of numbers ≥ 0"),
    "a share that is no number": ({"tensor_split": (float("nan"),)}, "tensor_split: .* is not a tuple of numbers"),
    "adapters without scales": ({"lora": ["a.gguf"]}, r"lora: \['a.gguf'\] is not a list of pairs, each a file"),
    "a value of the metadata": (
        {"overrides": {"k": None}},
        "overrides: {'k': null} is not a mapping of ",
    ),
    "a value of 65 bits": (
        {"overrides": {"k": 2**64}},
        "overrides: .* is not a mapping of strings to ",
    ),
    "a number beyond float32": ({"rope_freq_base": 1e39}, "rope_freq_base: 1e\\+39 is not a number of 32 bits"),
    "no shares": ({"tensor_split": (0.0,)}, "tensor_split: no GPU gets a share"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_named_before_the_file_is_opened(fields, message):
    with pytest.raises(ModelError, match=f"^{message}"):
        Model.load("no such file.gguf", **fields)


ODD_VALUES = (None, True, "", "x", -5, 1.5, float("nan"), 10**400, [None], ("x",), {1: 2}, object())


@pytest.mark.parametrize("field", dataclasses.fields(LoadOptions), ids=lambda field: field.name)
def test_an_odd_value_of_any_option_is_named_or_taken(field):
    def use(value):
        options = LoadOptions(**{field.name: value})
        native_model_params(options, Path("m.gguf"))
        native_context_params(options, ContextSize(64, 64), AbortFlag())

    for value in ODD_VALUES:
        try:
            use(value)
        except ModelError as error:
            message = str(error)
        else:
            continue
        assert re.match(f"{field.name}: .+ is not .+", message)


def test_options_or_their_fields(small_model):
    with pytest.raises(TypeError, match="give one of both"):
        Model.load(small_model, LoadOptions(), n_ctx=64)
    with pytest.raises(TypeError, match="n_context"):
        Model.load(small_model, n_context=64)
    with Model.load(small_model, LoadOptions(n_ctx=64, threads=1)) as model:
        assert (model.context_length, model.threads) == (64, 1)


LENGTHS = {
    "default": (None, 8192, 4096),
    "trained with fewer": (None, 512, 512),
    "trained length unknown": (None, 0, 4096),
    "trained length": (0, 8192, 8192),
    "given": (100_000, 8192, 100_000),
}


@pytest.mark.parametrize(("n_ctx", "trained", "length"), LENGTHS.values(), ids=LENGTHS)
def test_context_length(n_ctx, trained, length):
    assert LoadOptions(n_ctx=n_ctx).context_length(trained) == length


MAPPED = {
    "small": ({}, 500_000_000, False),
    "large": ({}, 500_000_001, True),
    "locked": ({"mlock": True}, 1, True),
    "locked, but read": ({"mlock": True, "mmap": False}, 10**10, False),
    "small, but mapped": ({"mmap": True}, 1, True),
}


@pytest.mark.parametrize(("fields", "size", "is_mapped"), MAPPED.values(), ids=MAPPED)
def test_which_files_are_mapped(fields, size, is_mapped):
    assert LoadOptions().should_map(1, is_on_gpu=True)
    assert LoadOptions(**fields).should_map(size) is is_mapped


def test_what_llama_cpp_gets():
    options = LoadOptions(
        threads=3,
        batch_threads=5,
        microbatch=64,
        flash_attention="off",
        cache_type_k="q8_0",
        rope_scaling="linear",
        rope_freq_base=10.0,
        rope_freq_scale=0.5,
        overrides={"a": 1, "b": "c"},
    )
    flag = AbortFlag()
    params = native_context_params(options, ContextSize(300, 128, sequence_count=2), flag)
    assert (params.n_ctx, params.n_seq_max, params.n_batch, params.n_ubatch) == (1024, 2, 128, 64)
    assert (params.n_threads, params.n_threads_batch) == (3, 5)
    assert (params.flash_attn_type, params.type_k, params.type_v) == (0, lib.GGML_TYPE_Q8_0, lib.GGML_TYPE_F16)
    assert (params.rope_scaling_type, params.rope_freq_base, params.rope_freq_scale) == (1, 10.0, 0.5)
    small = native_context_params(LoadOptions(threads=3, microbatch=64), ContextSize(300, 32), flag)
    assert (small.n_ctx, small.n_ubatch, small.n_threads_batch) == (300, 32, 3)
    overrides = native_model_params(options, Path("m.gguf")).kv_overrides
    assert [overrides[i].key for i in range(3)] == [b"a", b"b", b""]
    assert (overrides[0].value.val_i64, overrides[1].value.val_str) == (1, b"c")


def test_a_model_and_its_options_travel_to_another_machine():
    options = LoadOptions(n_ctx=64, lora=[("a/lora.gguf", 0.5)], overrides={"k": True}, tensor_split=(1.0, 2.0))
    spec = pickle.loads(pickle.dumps(ModelSpec(Path("a/m-00001-of-00002.gguf"), "-m", options)))
    assert spec == ModelSpec(Path("a/m-00001-of-00002.gguf"), "-m", options)
    there = spec.relocated(lambda path: Path("b", path.name))
    files = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "lora.gguf"]
    assert there.files == [Path("b", name) for name in files]
    assert there.options.lora == [(Path("b/lora.gguf"), 0.5)]


LORA = {
    "general.architecture": "llama",
    "general.type": "adapter",
    "adapter.type": "lora",
    "adapter.lora.alpha": 4.0,
}


def test_every_context_has_the_adapters(tmp_path, pruned_model, monkeypatch):
    """Also those in which the promises about drafts and batches are measured."""
    random, width = np.random.default_rng(1), 576
    shapes = {"blk.0.attn_q.weight.lora_a": (4, width), "blk.0.attn_q.weight.lora_b": (width, 4)}
    tensors = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write_file(tmp_path / "lora.gguf", LORA, tensors)
    attach, make, events = NativeContext._attach_adapters, NativeContext.__init__, []
    monkeypatch.setattr(NativeContext, "__init__", lambda *a: (events.append("made"), make(*a))[1])
    monkeypatch.setattr(NativeContext, "_attach_adapters", lambda *a: (events.append("attached"), attach(*a))[1])
    with Model.load(pruned_model, n_ctx=256, threads=1, lora=[(tmp_path / "lora.gguf", 0.5)]) as model:
        model.draft_exactness(3)
        model.make_slots(4).close()
        model.kernel_digest()
        assert model.context.length == 256
    assert events == ["made", "attached"] * 5


def test_a_second_model_computes_as_the_first(small_model):
    fields = {"n_ctx": 64, "threads": 1, "batch": 32, "microbatch": 16, "cache_type_k": "q8_0"}
    with Model.load(small_model, overrides={"llama.rope.freq_base": 5.0}, mlock=True, **fields) as model:
        other = model.companion(small_model)
        assert other.identity() == {**model.identity(), "overrides": {}}
        assert other.context_length == 64
