"""Classifier-free guidance in the presets of other tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from logitsmith.presets.foreign.formats import export_preset, import_text
from logitsmith.presets.preset import Preset

TEXTS = {
    "webui": ("webui", "guidance_scale: 1.5\nnegative_prompt: Be rude."),
    "sillytavern": (
        "sillytavern",
        json.dumps({"temp": 0.8, "rep_pen": 1.1, "guidance_scale": 1.5, "negative_prompt": "Be rude."}),
    ),
    "koboldcpp": (
        "koboldcpp",
        json.dumps({"temperature": 0.8, "rep_pen": 1.1, "guidance_scale": 1.5, "negative_prompt": "Be rude."}),
    ),
    "tabbyapi": (
        "tabbyapi",
        "temperature: {override: 0.8}\ncfg_scale: {override: 1.5}\nnegative_prompt: {override: Be rude.}",
    ),
}


@pytest.mark.parametrize(("format_name", "text"), TEXTS.values(), ids=TEXTS)
def test_scale_and_negative_prompt_are_imported(format_name: str, text: str) -> None:
    imported = import_text(text, "file", format_name)
    assert imported.preset.guidance == {"scale": 1.5, "negative_prompt": "Be rude."}
    assert yaml.safe_load(imported.yaml_text())["guidance"] == imported.preset.guidance


@pytest.mark.parametrize(("format_name", "text"), TEXTS.values(), ids=TEXTS)
def test_the_scale_1_is_off(format_name: str, text: str) -> None:
    imported = import_text(text.replace("1.5", "1.0"), "file", format_name)
    assert imported.preset.guidance is None
    assert not [sentence for sentence in imported.unsupported_settings if "guidance" in sentence]


def test_the_place_of_koboldcpps_negative_prompt_is_reported() -> None:
    imported = import_text(TEXTS["koboldcpp"][1], "file", "koboldcpp")
    assert [sentence.partition(":")[0] for sentence in imported.changed_settings] == ["negative_prompt 'Be rude.'"]


def test_tabbyapi_knows_the_negative_prompt() -> None:
    imported = import_text(TEXTS["tabbyapi"][1], "file", "tabbyapi")
    assert [sentence.partition(":")[0] for sentence in imported.unsupported_settings] == ["cfg_scale 1.5"]


def test_generation_config_has_a_scale_only() -> None:
    imported = import_text('{"do_sample": true, "guidance_scale": 2}', "generation_config.json", "huggingface")
    assert imported.preset.guidance == {"scale": 2.0}


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
