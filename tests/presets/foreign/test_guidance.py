"""Classifier-free guidance in the exports to other tools. `imports/guidance.txt` has the imports."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from logitsmith.presets.foreign.formats import export_preset
from logitsmith.presets.preset import Preset

EXPORTED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "webui": ("webui", {"guidance_scale": 1.5}, ["guidance.negative_prompt"]),
    "sillytavern": ("sillytavern", {"guidance_scale": 1.5, "negative_prompt": "Be rude."}, []),
    "koboldcpp": (
        "koboldcpp",
        {"guidance_scale": 1.5, "negative_prompt": "Be rude."},
        ["guidance.negative_prompt"],
    ),
    "tabbyapi": (
        "tabbyapi",
        {
            "cfg_scale": {"override": 1.5, "force": False},
            "negative_prompt": {"override": "Be rude.", "force": False},
        },
        ["guidance"],
    ),
    "huggingface": ("huggingface", {"guidance_scale": 1.5}, ["guidance.negative_prompt"]),
    "ollama": ("ollama", {}, ["guidance"]),
    "llama.cpp": ("llama.cpp", {}, ["guidance"]),
}


@pytest.mark.parametrize(("format_name", "values", "reported"), EXPORTED.values(), ids=EXPORTED)
def test_export(format_name: str, values: dict[str, Any], reported: list[str]) -> None:
    preset = Preset(chain=["dist"], guidance={"scale": 1.5, "negative_prompt": "Be rude."})
    exported = export_preset(preset, format_name)
    if values:
        written = yaml.safe_load(exported.text)
        assert {key: written[key] for key in values} == values
    subjects = [sentence.partition(":")[0] for sentence in exported.unsupported_settings]
    assert [subject for subject in subjects if subject.startswith("guidance")] == reported


def test_another_model_is_reported() -> None:
    preset = Preset(chain=["dist"], guidance={"scale": 1.5, "model": "small.gguf"})
    exported = export_preset(preset, "sillytavern")
    assert "guidance.model" in exported.unsupported_settings[0]
