"""The settings that a model's author put in the GGUF."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.presets import PresetError, preset_from_metadata


def metadata(**keys: str) -> dict[str, str]:
    return {"general.name": "a model", **{f"general.sampling.{key}": value for key, value in keys.items()}}


CHAINS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "one": ({"temp": "0.600000"}, [{"temperature": {"t": 0.6}}]),
    "default_order": (
        {"temp": "0.7", "min_p": "0.01", "top_p": "0.8", "penalty_repeat": "1.05", "penalty_last_n": "-1"},
        [
            {"penalties": {"last_n": -1, "repeat": 1.05}},
            {"top_p": {"p": 0.8}},
            {"min_p": {"p": 0.01}},
            {"temperature": {"t": 0.7}},
        ],
    ),
    "sequence": (
        {"sequence": "temperature;top_k", "top_k": "20", "temp": "1.0"},
        [{"temperature": {"t": 1.0}}, {"top_k": {"k": 20}}],
    ),
    "sequence_without_keys": ({"sequence": "top_k;min_p"}, [{"top_k": {}}, {"min_p": {}}]),
    "sequence_leaves_one_out": ({"sequence": "top_k", "top_k": "20", "temp": "1.0"}, [{"top_k": {"k": 20}}]),
    "other_spellings": ({"sequence": "Top-K; minp ;nucleus;"}, [{"top_k": {}}, {"min_p": {}}, {"top_p": {}}]),
    "letters": ({"sequence": "ekmt"}, [{"penalties": {}}, {"top_k": {}}, {"min_p": {}}, {"temperature": {}}]),
    "one_letter": ({"sequence": "k"}, [{"top_k": {}}]),
    "temp_is_a_name": ({"sequence": "temp"}, [{"temperature": {}}]),
    "empty_sequence": ({"sequence": " ;", "top_k": "3"}, [{"top_k": {"k": 3}}]),
    "every_sampler": (
        {"sequence": "edskypmxti", "xtc_probability": "0.5", "xtc_threshold": "0.2"},
        [
            {"penalties": {}},
            {"dry": {}},
            {"top_n_sigma": {}},
            {"top_k": {}},
            {"typical": {}},
            {"top_p": {}},
            {"min_p": {}},
            {"xtc": {"probability": 0.5, "threshold": 0.2}},
            {"temperature": {}},
            {"infill": {}},
        ],
    ),
    "adaptive_p_goes_last": ({"sequence": "adaptive_p;min_p"}, [{"min_p": {}}, {"adaptive_p": {}}]),
    "whole_number_as_float": ({"top_k": "64.000000"}, [{"top_k": {"k": 64}}]),
    "top_k_below_0_is_off": ({"top_k": "-1"}, [{"top_k": {"k": 0}}]),
    "temperature_below_0_is_0": ({"temp": "-1"}, [{"temperature": {"t": 0.0}}]),
    "mirostat_0": ({"mirostat": "0", "top_k": "3"}, [{"top_k": {"k": 3}}]),
}


@pytest.mark.parametrize(("keys", "chain"), CHAINS.values(), ids=CHAINS)
def test_chain(keys: dict[str, str], chain: list[Any]) -> None:
    preset = preset_from_metadata(metadata(**keys))
    assert preset is not None
    assert preset.chain == chain
    assert (preset.name, preset.source) == ("model", "model")


NONE = {
    "nothing": {},
    "empty_sequence": {"sequence": ";"},
    "other_key": {"something_new": "1"},
}


@pytest.mark.parametrize("keys", NONE.values(), ids=NONE)
def test_none(keys: dict[str, str]) -> None:
    assert preset_from_metadata(metadata(**keys)) is None


REFUSED = {
    "text": ({"temp": "hot"}, "temp: 'hot' is not a number"),
    "empty": ({"top_p": ""}, "top_p: '' is not a number"),
    "not_whole": ({"top_k": "1.5"}, "top_k: '1.5' is not a whole number"),
    "nan_whole": ({"top_k": "nan"}, "top_k: 'nan' is not a whole number"),
    "inf": ({"min_p": "inf"}, "min_p: inf is not a finite number (0..1)"),
    "range": ({"top_p": "1.5"}, "top_p: 1.5 is not within 0..1"),
    "range_of_second": ({"penalty_last_n": "64", "penalty_repeat": "0"}, "penalty_repeat: 0.0 is not > 0"),
    "mirostat_3": ({"mirostat": "3"}, "mirostat: 3 is not 0, 1 or 2"),
    "sequence": (
        {"sequence": "top_k;tok_p"},
        "sequence: 'tok_p' is not a sampler of llama.cpp; known: penalties, dry, top_n_sigma, top_k, typ_p, "
        "top_p, min_p, xtc, temperature, infill, adaptive_p",
    ),
}


@pytest.mark.parametrize(("keys", "complaint"), REFUSED.values(), ids=REFUSED)
def test_refused(keys: dict[str, str], complaint: str) -> None:
    with pytest.raises(PresetError) as caught:
        preset_from_metadata(metadata(**keys))
    assert str(caught.value) == f"general.sampling.{complaint}"


MIROSTAT = {
    "1": ("mirostat", {}),
    "2": ("mirostat_v2", {"mirostat_tau": "4", "mirostat_eta": "0.2"}),
}


@pytest.mark.parametrize(("version", "case"), MIROSTAT.items(), ids=MIROSTAT)
def test_mirostat_leaves_only_the_temperature(version: str, case: tuple[str, dict[str, str]]) -> None:
    name, numbers = case
    keys = metadata(mirostat=version, temp="0.5", top_k="3", sequence="top_k;temperature", **numbers)
    preset = preset_from_metadata(keys)
    assert preset is not None
    given = {key.removeprefix("mirostat_"): float(value) for key, value in numbers.items()}
    assert preset.chain == [{"temperature": {"t": 0.5}}, {name: given}]
    assert preset.description.endswith("; without effect there, as in llama.cpp: top_k")


def test_what_has_no_effect_is_said() -> None:
    preset = preset_from_metadata(metadata(sequence="top_k", temp="1", mirostat_tau="4"))
    assert preset is not None
    assert preset.description == (
        "what the model's author recommends; without effect there, as in llama.cpp: temp, mirostat_tau"
    )
