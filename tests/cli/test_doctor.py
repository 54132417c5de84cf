"""`gen doctor`: what it finds, and what it calls wrong."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from logitsmith.cli.commands.doctor import _gpu_sentence
from logitsmith.common.machine import _GPU_DRIVER_FILES as DRIVER_FILES, describe_machine


@pytest.fixture
def doctor(gen):
    def run(*arguments, **settings):
        return json.loads(gen("doctor", "--format", "json", *arguments, **settings).out)

    return run


def test_a_healthy_machine(gen):
    out = gen("doctor").out
    assert out.endswith("Nothing is wrong.\n")
    for text in (version("numpy"), version("llama-cpp-python"), "deterministic", "chess", "bundled", "GPU"):
        assert text in out
    assert all(len(line) <= 78 for line in out.splitlines() if "/" not in line)


def test_the_same_as_json(doctor):
    report = doctor("--paths")
    assert report["problems"] == []
    assert report["versions"]["numpy"] == version("numpy")
    assert report["llama_cpp"]["binding_version"] == version("llama-cpp-python")
    assert "=" in report["llama_cpp"]["system_info"]
    assert report["llama_cpp"]["devices"]
    assert report["machine"]["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert report["machine"]["usable_threads"] >= report["llama_cpp"]["default_threads"] >= 1
    assert {"name": "chess", "origin": "built-in"} in report["grammars"]
    assert report["model"]["origin"] == "bundled"
    assert report["model"]["size_bytes"] == Path(report["model"]["path"]).stat().st_size
    assert report["default_preset"] == "default"


CONFIG, PRESET, GRAMMAR = "config/logitsmith/config.yaml", "work/presets/mine.yaml", "work/grammars/mine.gbnf"
PROBLEMS = {
    "config": (CONFIG, "modle: x", "'modle'", "config.yaml"),
    "default preset": (CONFIG, "preset: nonsuch", "'nonsuch'", "config.yaml"),
    "model of the config": (CONFIG, "model: none.gguf", "none.gguf", "-m MODEL"),
    "preset": (PRESET, "chain: [top_q]", "top_q", "gen presets check presets/mine.yaml"),
    "grammar of a preset": (PRESET, "grammar: nonsuch", "nonsuch", "gen presets check presets/mine.yaml"),
    "grammar": (GRAMMAR, 'root ::= "a', "mine", "gen grammars check mine"),
}


@pytest.mark.parametrize(("file", "text", "problem", "advice"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_wrong(doctor, gen, home, file, text, problem, advice):
    path = home / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    (entry,) = doctor(code=1)["problems"]
    assert problem in entry["problem"]
    assert advice in entry["advice"]
    assert "What to do: " in gen("doctor", code=1).out


def test_models_are_found_by_name_and_with_their_folders(doctor, gen, home):
    models = home / "models"
    models.mkdir()
    (models / "tiny.gguf").write_bytes(b"no model")
    (home / "config" / "logitsmith").mkdir()
    (home / "config" / "logitsmith" / "config.yaml").write_text(f"model_folders: [{models}, {home / 'none'}]\n")
    report = doctor(code=1, GEN_MODEL="tiny")
    assert {"name": "tiny", "origin": str(models)} in report["models"]
    assert {"of": "models", "path": str(models), "exists": True} in report["folders"]
    assert report["model"]["path"] == str(models / "tiny.gguf")
    missing, broken = (entry["problem"] for entry in report["problems"])
    assert missing == f"model_folders: {home / 'none'}: there is no such folder"
    assert "not a GGUF file" in broken
    assert f"{models} tiny" in " ".join(gen("doctor", code=1).out.split())


@pytest.mark.parametrize("name", ["nosuch", "hf:a/b"])
def test_a_default_model_that_is_not_here(doctor, name):
    (entry,) = doctor(code=1, GEN_MODEL=name)["problems"]
    assert entry["problem"].startswith(f"{name}: ")
    assert "-m MODEL" in entry["advice"]


def test_the_home_folder_is_hidden_unless_asked_for(doctor, gen, home):
    settings = {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    hidden = gen("doctor", **settings).out
    assert "~/.config/logitsmith/config.yaml" in hidden
    assert str(home) not in hidden
    assert str(home / ".config" / "logitsmith" / "config.yaml") in gen("doctor", "--paths", **settings).out
    assert str(home) not in json.dumps(doctor(**settings))


def test_a_hidden_preset_is_marked(doctor, gen, home):
    (home / "work" / "presets").mkdir()
    (home / "work" / "presets" / "creative.yaml").write_text("chain: [greedy]\n")
    rows = [row for row in doctor()["presets"] if row["name"] == "creative"]
    assert [(row["origin"], row["is_hidden"]) for row in rows] == [("./presets", False), ("built-in", True)]
    assert "creative (hidden)" in " ".join(gen("doctor").out.split())


GPU_ROWS = {
    "a GPU that is used": (
        {"has_gpu": True, "gpus": ["CUDA0: NVIDIA H200", "CUDA1: NVIDIA H200"], "gpu_backends": ["CUDA"]},
        "NVIDIA",
        ["CUDA0: NVIDIA H200", "CUDA1: NVIDIA H200", "-ngl 0"],
    ),
    "a build that finds no GPU": (
        {"has_gpu": False, "gpus": [], "gpu_backends": ["CUDA"]},
        "NVIDIA",
        ["CUDA", "driver"],
    ),
    "a build without CUDA": ({}, "NVIDIA", ['CMAKE_ARGS="-DGGML_CUDA=on"', "llama-cpp-python==0.3.36"]),
    "a build without HIP": ({}, "AMD", ['CMAKE_ARGS="-DGGML_HIP=on"']),
    "a build without Vulkan": ({}, "unknown", ['CMAKE_ARGS="-DGGML_VULKAN=on"']),
}


@pytest.mark.parametrize(("build", "maker", "texts"), GPU_ROWS.values(), ids=GPU_ROWS)
def test_it_says_what_to_type_for_a_gpu(build, maker, texts):
    build = {"has_gpu": False, "gpus": [], "gpu_backends": [], "binding_version": "0.3.36"} | build
    sentence = _gpu_sentence(build, maker)
    assert [text for text in texts if text not in sentence] == []


def test_without_a_gpu_there_is_nothing_to_type():
    assert _gpu_sentence({"has_gpu": False, "gpus": [], "gpu_backends": []}, None) == "no"


@pytest.mark.parametrize(
    ("file", "maker"),
    {"nvidiactl": "NVIDIA", "kfd": "AMD", "dri/renderD128": "unknown", "null": None}.items(),
    ids=str,
)
def test_the_driver_of_a_gpu_is_found(tmp_path, monkeypatch, file, maker):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    files = [(name, folder.replace("/dev", str(tmp_path)), pattern) for name, folder, pattern in DRIVER_FILES]
    monkeypatch.setattr("logitsmith.common.machine._GPU_DRIVER_FILES", files)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert describe_machine()["gpu"] == maker
