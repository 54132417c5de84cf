"""GPUs and NUMA nodes: the settings that llama.cpp gets; this machine may have neither."""

import gc
from pathlib import Path

import llama_cpp.llama_cpp as lib
import pytest
from logitsmith.common import llama_cpp_limits as limits
from logitsmith.engine import LoadOptions, ModelError
from logitsmith.engine.native import binding as numa, options as native_options
from logitsmith.engine.native.binding import use_numa
from logitsmith.engine.native.options import native_model_params


def model_params(**options):
    return native_model_params(LoadOptions(**options), Path("m.gguf"))


def test_what_llama_cpp_gets_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(native_options, "supports_gpu", lambda: True)
    params = model_params(gpu_layers=-1, split_mode="row", main_gpu=1, tensor_split=(3.0, 1.0))
    gc.collect()  # the parameters keep the shares alive
    assert (params.n_gpu_layers, params.split_mode, params.main_gpu) == (-1, lib.LLAMA_SPLIT_MODE_ROW, 1)
    assert params.tensor_split[: lib.llama_max_devices()] == [3.0, 1.0, *[0.0] * (lib.llama_max_devices() - 2)]


def test_the_defaults_are_llama_cpps(monkeypatch):
    monkeypatch.setattr(native_options, "supports_gpu", lambda: True)
    params, untouched = model_params(), lib.llama_model_default_params()
    assert (params.split_mode, params.main_gpu) == (untouched.split_mode, untouched.main_gpu)
    assert not params.tensor_split


def test_without_a_gpu_llama_cpp_keeps_its_defaults(monkeypatch):
    monkeypatch.setattr(native_options, "supports_gpu", lambda: False)
    params = model_params(split_mode="none", tensor_split=(1.0,))
    assert params.split_mode == lib.LLAMA_SPLIT_MODE_LAYER
    assert not params.tensor_split


def test_more_shares_than_devices(monkeypatch):
    monkeypatch.setattr(native_options, "supports_gpu", lambda: True)
    count = int(lib.llama_max_devices()) + 1
    with pytest.raises(ModelError, match=f"tensor_split: {count} shares, but llama.cpp accepts {count - 1}"):
        model_params(tensor_split=(1.0,) * count)


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
