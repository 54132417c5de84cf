"""GPUs and NUMA nodes: the settings that llama.cpp gets; this machine may have neither."""

import llama_cpp.llama_cpp as lib
import pytest
from logitsmith.common import llama_cpp_limits as limits
from logitsmith.engine import GpuOptions, ModelError
from logitsmith.engine.native import binding as numa, options as native_gpu
from logitsmith.engine.native.binding import use_numa
from logitsmith.engine.native.options import set_gpu_options


def test_what_llama_cpp_gets_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(native_gpu, "supports_gpu", lambda: True)
    params = lib.llama_model_default_params()
    kept = set_gpu_options(params, GpuOptions("row", 1, (3.0, 1.0)))
    assert (params.split_mode, params.main_gpu) == (lib.LLAMA_SPLIT_MODE_ROW, 1)
    assert list(kept)[:3] == [3.0, 1.0, 0.0]
    assert len(kept) == lib.llama_max_devices()
    assert params.tensor_split[0] == 3.0


def test_the_defaults_are_llama_cpps(monkeypatch):
    monkeypatch.setattr(native_gpu, "supports_gpu", lambda: True)
    params, untouched = lib.llama_model_default_params(), lib.llama_model_default_params()
    set_gpu_options(params, GpuOptions())
    assert (params.split_mode, params.main_gpu) == (untouched.split_mode, untouched.main_gpu)
    assert not params.tensor_split


def test_without_a_gpu_llama_cpp_keeps_its_defaults(monkeypatch):
    monkeypatch.setattr(native_gpu, "supports_gpu", lambda: False)
    params = lib.llama_model_default_params()
    assert set_gpu_options(params, GpuOptions("none", 0, (1.0,))) is None
    assert params.split_mode == lib.LLAMA_SPLIT_MODE_LAYER


def test_more_shares_than_devices(monkeypatch):
    monkeypatch.setattr(native_gpu, "supports_gpu", lambda: True)
    count = int(lib.llama_max_devices()) + 1
    with pytest.raises(ModelError, match=f"tensor_split: {count} shares, but llama.cpp accepts {count - 1}"):
        set_gpu_options(lib.llama_model_default_params(), GpuOptions(tensor_split=(1.0,) * count))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split_mode": "both"}, "split_mode: 'both' is not one of none, layer, row, tensor"),
        ({"main_gpu": -2}, "main_gpu: -2 is not ≥ -1"),
        ({"tensor_split": (1.0, -1.0)}, "tensor_split"),
        ({"tensor_split": (float("nan"),)}, "tensor_split"),
        ({"tensor_split": (0.0,)}, "no GPU gets a share"),
    ],
)
def test_values_that_are_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        GpuOptions(**changes)


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
