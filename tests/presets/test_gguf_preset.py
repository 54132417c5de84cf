"""The settings that a model's author put in the GGUF."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.presets import PresetError
from logitsmith.presets.foreign.formats import import_metadata


def metadata(**keys: str) -> dict[str, str]:
    return {"general.name": "a model", **{f"general.sampling.{key}": value for key, value in keys.items()}}


K, P, M, T = {"top_k": {"k": 40}}, {"top_p": {"p": 0.95}}, {"min_p": {"p": 0.05}}, {"temperature": {"t": 0.8}}
"""Those of llama.cpp's default samplers that its defaults switch on."""

CHAINS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "one": ({"temp": "0.600000"}, [K, P, M, {"temperature": {"t": 0.6}}]),
    "default_order": (
        {"temp": "0.7", "min_p": "0.01", "top_p": "0.8", "penalty_repeat": "1.05", "penalty_last_n": "-1"},
        [
            {"penalties": {"last_n": -1, "repeat": 1.05}},
            K,
            {"top_p": {"p": 0.8}},
            {"min_p": {"p": 0.01}},
            {"temperature": {"t": 0.7}},
        ],
    ),
    "a window without a penalty": ({"penalty_last_n": "32"}, [K, P, M, T]),
    "sequence": (
        {"sequence": "temperature;top_k", "top_k": "20", "temp": "1.5"},
        [{"temperature": {"t": 1.5}}, {"top_k": {"k": 20}}],
    ),
    "sequence_without_keys": ({"sequence": "top_k;min_p"}, [K, M]),
    "sequence_leaves_one_out": ({"sequence": "top_k", "top_k": "20", "temp": "1.5"}, [{"top_k": {"k": 20}}]),
    "other_spellings": ({"sequence": "Top-K; minp ;nucleus;"}, [K, M, P]),
    "letters": ({"sequence": "ekmt"}, [K, M, T]),
    "one_letter": ({"sequence": "k"}, [K]),
    "temp_is_a_name": ({"sequence": "temp"}, [T]),
    "empty_sequence": ({"sequence": " ;", "top_k": "3"}, [{"top_k": {"k": 3}}, P, M, T]),
    "every_sampler": (
        {"sequence": "edskypmxti", "xtc_probability": "0.5", "xtc_threshold": "0.2"},
        [K, P, M, {"xtc": {"probability": 0.5, "threshold": 0.2}}, T, "infill"],
    ),
    "adaptive_p_without_a_target": ({"sequence": "adaptive_p;min_p"}, [M]),
    "whole_number_as_float": ({"top_k": "64.000000"}, [{"top_k": {"k": 64}}, P, M, T]),
    "top_k_below_0_is_off": ({"top_k": "-1"}, [P, M, T]),
    "top_p_above_1_is_off": ({"top_p": "1.5"}, [K, M, T]),
    "empty_number": ({"top_p": "", "top_k": "3"}, [{"top_k": {"k": 3}}, P, M, T]),
    "unknown_name": ({"sequence": "top_k;tok_p"}, [K]),
    "mirostat_0": ({"mirostat": "0", "top_k": "3"}, [{"top_k": {"k": 3}}, P, M, T]),
}


@pytest.mark.parametrize(("keys", "chain"), CHAINS.values(), ids=CHAINS)
def test_chain(keys: dict[str, str], chain: list[Any]) -> None:
    imported = import_metadata(metadata(**keys))
    assert imported is not None
    preset = imported.preset
    assert preset.chain == [*chain, "dist"]
    assert (preset.name, preset.source) == ("model", "model")


@pytest.mark.parametrize("temperature", ["0", "-1"])
def test_a_temperature_of_0_takes_the_most_likely_token(temperature: str) -> None:
    imported = import_metadata(metadata(temp=temperature))
    assert imported is not None
    preset = imported.preset
    assert preset.chain == [K, P, M, "greedy"]


NONE = {
    "nothing": {},
    "empty_sequence": {"sequence": ";"},
    "other_key": {"something_new": "1"},
}


@pytest.mark.parametrize("keys", NONE.values(), ids=NONE)
def test_none(keys: dict[str, str]) -> None:
    assert import_metadata(metadata(**keys)) is None


REFUSED = {
    "text": ({"temp": "hot"}, "temp: 'hot' is not a number"),
    "not_whole": ({"top_k": "1.5"}, "top_k: '1.5' is not an integer"),
    "nan_whole": ({"top_k": "nan"}, "top_k: 'nan' is not a finite number"),
    "inf": ({"min_p": "inf"}, "min_p: 'inf' is not a finite number"),
    "range": ({"min_p": "1.5"}, "min_p: min_p.p: 1.5 is not within 0..1"),
    "range_of_second": (
        {"penalty_last_n": "64", "penalty_repeat": "0"},
        "penalty_repeat: penalties.repeat: 0.0 is not > 0",
    ),
    "mirostat_3": ({"mirostat": "3"}, "mirostat: '3' is not 0, 1 or 2"),
}


@pytest.mark.parametrize(("keys", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(PresetError) as caught:
        import_metadata(metadata(**keys))
    assert str(caught.value) == f"general.sampling.{message}"


MIROSTAT = {
    "1": ("mirostat", {}),
    "2": ("mirostat_v2", {"mirostat_tau": "4", "mirostat_eta": "0.2"}),
}


@pytest.mark.parametrize(("version", "case"), MIROSTAT.items(), ids=MIROSTAT)
def test_mirostat_leaves_only_the_temperature(version: str, case: tuple[str, dict[str, str]]) -> None:
    name, numbers = case
    keys = metadata(mirostat=version, temp="0.5", top_k="3", sequence="top_k;temperature", **numbers)
    imported = import_metadata(keys)
    assert imported is not None
    given = {"tau": 5.0, "eta": 0.1}
    given |= {key.removeprefix("mirostat_"): float(value) for key, value in numbers.items()}
    assert imported.chain == [["temperature", {"t": 0.5}], [name, given]]
    assert [sentence.split()[0] for sentence in imported.unsupported_settings] == ["general.sampling.top_k"]


def test_what_has_no_effect_is_reported() -> None:
    keys = metadata(sequence="top_k;tok_p", temp="1.5", something_new="1")
    imported = import_metadata(keys)
    assert imported is not None
    assert imported.preset.description == "what the model's author recommends"
    assert [sentence.split(":")[0] for sentence in imported.unsupported_settings] == [
        "general.sampling.sequence 'top_k;tok_p'",
        "general.sampling.temp '1.5'",
        "general.sampling.something_new 1",
    ]
