"""GPUs in commands: what the flags choose, and what is said about them. The CPU stands in for the GPUs."""

import json
import sys

import pytest
from logitsmith.cli import main
from logitsmith.cli.inputs import model as inputs
from logitsmith.models.folders import locate

from ..engine.gpus import gpu, put_gpus

BUNDLED = str(locate()[0])


@pytest.fixture
def put(monkeypatch):
    def put_into_machine(*gpus):
        put_gpus(monkeypatch, *gpus)

    monkeypatch.delenv("GEN_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return put_into_machine


@pytest.fixture
def gen(capsys, put):
    """Run `gen` in this process; return what it prints on both streams."""

    def run(*words, code=0):
        with pytest.raises(SystemExit) as end:
            main([*words, "-m", BUNDLED, "-t", "1"])
        assert (end.value.code or 0) == code, capsys.readouterr()
        return capsys.readouterr()

    return run


RUN = ("run", "The sea", "-n", "2", "--format", "jsonl")


def test_the_list_of_devices(gen, put):
    put(gpu("CUDA0", mib=100), gpu("Vulkan1", mib=7000))
    out = gen("run", "--list-devices").out
    assert out.splitlines() == [
        "Available devices:",
        "  CUDA0: a card (1048576 MiB, 1124 MiB free)",
        "  Vulkan1: a card (1048576 MiB, 8024 MiB free)",
    ]
    assert gen("batch", "--list-devices").out == out
    put()
    assert gen("run", "--list-devices").out == "Available devices:\n  (none)\n"


# flags, free memory beside the margin in MiB; layers, and parts of the note
RUNS = {
    "everything fits": ((), 8192, 31, None),
    "a shorter context": ((), 280, 31, "a context of 3,072 tokens instead of 4,096"),
    "a second context for guidance": (
        ("--cfg-scale", "2", "--cfg-negative-prompt", "x"),
        280,
        31,
        "a context of 1,536 tokens instead of 4,096",
    ),
    "fewer layers": ((), 180, 15, "15 of 31 layers on the GPU, a context of 1,024 tokens"),
    "a given context": (("-c", "4096"), 180, 7, ": 7 of 31 layers on the GPU\n"),
    "given layers": (("-ngl", "3"), 8192, 3, None),
    "all of it given": (("-ngl", "all", "-c", "4096"), 10, 31, None),
    "-1": (("-ngl", "-1"), 8192, 31, None),
    "-2": (("-ngl", "-2"), 8192, 31, None),
    "no layer": (("-ngl", "0"), 8192, 0, None),
    "no device": (("-dev", "none"), 8192, 0, None),
    "one by name": (("-dev", "CUDA0", "-ncmoe", "2"), 8192, 31, None),
    "experts": (("-cmoe",), 8192, 31, None),
}


@pytest.mark.parametrize(("flags", "mib", "layers", "note"), RUNS.values(), ids=RUNS)
def test_where_the_layers_are(gen, put, flags, mib, layers, note):
    put(gpu(mib=mib))
    result = gen(*RUN, *flags)
    start = json.loads(result.out.splitlines()[0])
    devices = [{"name": "CUDA0", "free_bytes": gpu(mib=mib).free_bytes}] if layers else []
    assert start["device"] == {"layers": layers, "of": 31, "devices": devices}
    assert result.err.startswith("gen: note: CUDA0 has 1.") if note else result.err == ""
    assert (note or "") in result.err


def test_stats_and_settings_name_layers_and_devices(gen, put):
    put(gpu(mib=180), gpu("CUDA1", mib=-100))
    assert "device      15 of 31 layers on CUDA0\n" in gen("run", "The sea", "-n", "2", "--stats").err
    shown = gen("run", "--show-config")
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[1] == ["device", *["15", "of", "31", "layers", "on", "CUDA0"], "default"]
    assert "15 of 31 layers" in shown.err
    rows = [line.split() for line in gen("run", "--show-config", "-dev", "none").out.splitlines()]
    assert rows[1] == ["device", "CPU", "-dev"]
    put()
    assert "device      CPU\n" in gen("run", "The sea", "-n", "2", "--stats").err


DRAFT = ("-md", BUNDLED)
# flags, free memory beside the margin in MiB; the row of the device, and the note
SHOWN = {
    "all of it, which no card holds": (
        ("-ngl", "all", "-c", "4096"),
        -1000,
        "does not fit -ngl",
        "31 of 31 layers do not fit (CUDA0 has 0.0 GiB free, all of the model needs 0.3 GiB); "
        "try -ngl 0 or auto, or a smaller -c\n",
    ),
    "some layers": (
        ("-ngl", "20"),
        -1000,
        "does not fit -ngl",
        "20 of 31 layers need 0.2 GiB); try -ngl 0 or auto\n",
    ),
    "the reserve is used": (("-ngl", "all", "-c", "4096"), -500, "31 of 31 layers on CUDA0 -ngl", ""),
    "without a draft model": ((), 500, "31 of 31 layers on CUDA0 default", ""),
    "a draft model": (
        DRAFT,
        500,
        "31 of 31 layers on CUDA0 default",
        "2,048 tokens instead of 4,096; -c sets the",
    ),
    "a missing draft model": (("-md", "no.gguf"), 500, "31 of 31 layers on CUDA0 default", "note: -md: no.gguf"),
    "guidance": (
        ("--cfg-scale", "2", "--cfg-negative-prompt", "x"),
        280,
        "31 of 31 layers on CUDA0 default",
        "a context of 1,536 tokens instead of 4,096; -c sets the context\n",
    ),
}


@pytest.mark.parametrize(("flags", "mib", "row", "note"), SHOWN.values(), ids=SHOWN)
def test_the_plan_that_is_shown(gen, put, flags, mib, row, note):
    put(gpu(mib=mib))
    shown = gen("run", "--show-config", *flags)
    assert " ".join(shown.out.splitlines()[1].split()) == f"device {row}"
    assert note in shown.err
    assert bool(note) is bool(shown.err)


REFUSED = {
    "-dev CUDA7": "gen: -dev: there is no device 'CUDA7'; the names are CUDA0 or CUDA1\n",
    "-dev cuda1": "gen: -dev: there is no device 'cuda1'; the names are CUDA0 or CUDA1; did you mean CUDA1?\n",
    "-ngl 0 -ts 1,1,1": "gen: -ts: 3 shares, but the number of GPUs is 2 (CUDA0, CUDA1)",
    "-ngl 0 -mg 2": "gen: -mg: there is no GPU number 2",
    "-sm row -mg -1": "gen: -mg: there is no GPU number -1: the number of GPUs is 2 (CUDA0, CUDA1)",
    "-mg 2": "gen: -mg: there is no GPU number 2: the number of GPUs is 2 (CUDA0, CUDA1)",
    "-ts 1,1,1": "gen: -ts: 3 shares, but the number of GPUs is 2 (CUDA0, CUDA1)",
    "-dev CUDA0 -ts 1,1": "gen: -ts: 2 shares, but the number of GPUs is 1 (CUDA0)",
    "--show-config -dev CUDA7": "gen: -dev: there is no device 'CUDA7'",
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.items())
def test_gpus_that_are_not_here(gen, put, flags, message):
    put(gpu("CUDA0"), gpu("CUDA1"))
    result = gen("run", "x", *flags.split(), code=1)
    assert result.err.startswith(message)
    assert result.out == ""


@pytest.mark.parametrize(("flags", "slots"), {(): "1 slot instead of 4", ("-np", "4"): None}.items(), ids=str)
def test_slots_of_a_batch_come_down(gen, put, tmp_path, flags, slots):
    put(gpu(mib=240))
    (tmp_path / "in.jsonl").write_text('{"prompt": "a", "max_tokens": 1}\n')
    result = gen("batch", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), *flags)
    assert "of 31 layers on the GPU" in result.err
    assert (slots or "") in result.err
    assert ("slot" in result.err.partition("layers on the GPU")[2].partition("\n")[0]) is (slots is not None)
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])


NOTE = "gen: note: the GPU of NVIDIA is not used: llama.cpp is built without it; gen doctor says how to build it\n"
UNUSED = {
    "on a terminal": (True, "NVIDIA", (), (), NOTE),
    "in a pipe": (False, "NVIDIA", (), (), ""),
    "no GPU": (True, None, (), (), ""),
    "an unknown one": (True, "unknown", (), (), ""),
    "a build for it": (True, "NVIDIA", ("CUDA",), (), ""),
    "the CPU is wanted": (True, "NVIDIA", (), ("-ngl", "0"), ""),
    "no device is wanted": (True, "NVIDIA", (), ("-dev", "none"), ""),
}


@pytest.mark.parametrize(("is_terminal", "maker", "backends", "flags", "err"), UNUSED.values(), ids=UNUSED)
def test_a_gpu_that_llama_cpp_is_built_without(gen, put, monkeypatch, is_terminal, maker, backends, flags, err):
    put()
    inputs._report_unused_gpu.cache_clear()
    monkeypatch.setattr(inputs, "gpu_maker", lambda: maker)
    monkeypatch.setattr("logitsmith.engine.native.devices.gpu_backends", lambda: backends)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    assert gen(*RUN, *flags).err == err
    assert gen(*RUN, *flags).err == ""  # once
