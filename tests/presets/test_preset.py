"""The keys of a preset, and the messages about wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.seeds import SEED_VALUES
from logitsmith.presets import Preset, PresetError, load_preset
from logitsmith.presets.preset import DEFAULT_CHAIN
from logitsmith.samplers import build
from pydantic import ValidationError

from ..samplers.rows import FakeVocabulary

A_CHAIN = "a list of steps, or a string such as 'top_k40 > temp0.8'"
KEYS = "description, chain, seed, max_tokens, stop, system, grammar, "
KEYS += "bans, ban_retries, ban_then, loop_guard, enable_thinking, reasoning_effort, phases, heal, guidance"
KEYS += ", field_confidence, memory, authors_note, world_info"

REFUSED: dict[str, tuple[dict[Any, Any], str]] = {
    "unknown_sampler": (
        {"chain": ["greedy", "zzz", {"top_p": 1.5}]},
        "chain[1]: unknown sampler 'zzz'; known:",
    ),
    "range": (
        {"chain": [{"top_k": 1}, {"temp": 1}, {"top_p": 1.5}]},
        "chain[2].top_p.p: 1.5 is not within 0..1",
    ),
    "range_as_table": ({"chain": [{"top_p": {"p": -0.1}}]}, "chain[0].top_p.p: -0.1 is not within 0..1"),
    "notation": ({"chain": "top_k40 > top_p2"}, "chain[1].top_p.p: 2 is not within 0..1"),
    "notation_syntax": (
        {"chain": "top_k40 >"},
        "chain[1] of 'top_k40 >': a step is missing; write name, name0.8, name=value or name(key=value, …)",
    ),
    "nan": (
        {"chain": [{"temperature": float("nan")}]},
        "chain[0].temperature.t: nan is not a finite number (≥ 0)",
    ),
    "unknown_parameter": (
        {"chain": [{"top_k": {"kk": 1}}]},
        "chain[0].top_k: unknown parameter 'kk'; known: k",
    ),
    "selects_too_early": (
        {"chain": ["greedy", {"top_k": 1}]},
        "chain[0] greedy selects a token, so it must be the last step; chain[1] top_k follows",
    ),
    "two_select": (
        {"chain": ["greedy", "dist"]},
        "chain[0] greedy and chain[1] dist both select a token; a chain has one, its last step",
    ),
    "chain_number": ({"chain": 3}, f"chain: 3 is not {A_CHAIN}"),
    "chain_none": ({"chain": None}, f"chain: null is not {A_CHAIN}"),
    "unknown_key": ({"chian": []}, "unknown key 'chian'; did you mean chain?"),
    "unknown_key_far": (
        {"color": 1},
        f"unknown key 'color'; known: {KEYS}",
    ),
    "number_as_key": ({3: 1}, f"unknown key 3; known: {KEYS}"),
    "name_is_no_key": ({"name": "x"}, f"unknown key 'name'; known: {KEYS}"),
    "note_of_no_table": ({"authors_note": 3}, "authors_note: 3 is not a string or a table"),
    "unknown_key_of_note": (
        {"authors_note": {"txt": "a"}},
        "authors_note: unknown key 'txt'; did you mean text?",
    ),
    "value_in_note": ({"authors_note": {"text": "a", "depth": -1}}, "authors_note.depth: -1 is not ≥ 0"),
    "value_in_entry": (
        {"world_info": [{"content": "a"}, {"content": 3}]},
        "world_info.entries[1].content: 3 is not a string",
    ),
    "part_without_effect": (
        {"world_info": [{"content": "a", "probability": 50}]},
        "world_info.entries[0].probability: the entry is inserted each time",
    ),
    "seed_too_small": (
        {"seed": -(2**63) - 1},
        f"seed: -9223372036854775809 is not {SEED_VALUES}",
    ),
    "seed_too_large": (
        {"seed": 2**63},
        f"seed: 9223372036854775808 is not {SEED_VALUES}",
    ),
    "seed_float": (
        {"seed": 1.0},
        f"seed: 1.0 is not {SEED_VALUES}",
    ),
    "seed_bool": (
        {"seed": True},
        f"seed: true is not {SEED_VALUES}",
    ),
    "seed_text": (
        {"seed": "7"},
        f"seed: '7' is not {SEED_VALUES}",
    ),
    "max_tokens_0": ({"max_tokens": 0}, "max_tokens: 0 is not an integer ≥ 1, or -1 for no limit"),
    "max_tokens_-2": ({"max_tokens": -2}, "max_tokens: -2 is not an integer ≥ 1, or -1 for no limit"),
    "stop_empty": ({"stop": ""}, "stop: '' is empty; a stop string has at least one character"),
    "stop_empty_item": (
        {"stop": ["a", ""]},
        "stop[1]: '' is empty; a stop string has at least one character",
    ),
    "stop_number": ({"stop": [3]}, "stop[0]: 3 is not a string"),
    "stop_table": ({"stop": {"a": 1}}, "stop: {'a': 1} is not a string or a list of strings"),
    "system_number": ({"system": 3}, "system: 3 is not a string"),
    "description_none": ({"description": None}, "description: null is not a string"),
    "grammar_list": ({"grammar": ["a"]}, "grammar: ['a'] is not a string or a table"),
}


@pytest.mark.parametrize(("table", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(table: dict[Any, Any], message: str) -> None:
    with pytest.raises(PresetError) as caught:
        Preset.from_table(table, origin="creative.yaml")
    said = str(caught.value)
    if "known:" in message:  # what else is known grows with the registry
        assert said.startswith(f"creative.yaml: {message}")
    else:
        assert said == f"creative.yaml: {message}"


ACCEPTED: dict[str, tuple[str, Any, Any]] = {
    "seed_0": ("seed", 0, 0),
    "seed_largest": ("seed", 2**63 - 1, 2**63 - 1),
    "seed_smallest": ("seed", -(2**63), -(2**63)),
    "seed_negative": ("seed", -5, -5),
    "seed_random": ("seed", -1, None),
    "seed_none": ("seed", None, None),
    "no_limit": ("max_tokens", -1, -1),
    "one_token": ("max_tokens", 1, 1),
    "one_stop": ("stop", "END", ["END"]),
    "stops": ("stop", ["a", "\n"], ["a", "\n"]),
    "no_stop": ("stop", [], []),
    "empty_system": ("system", "", ""),
    "grammar_text": ("grammar", "root ::= [a-z]", "root ::= [a-z]"),
    "grammar_table": ("grammar", {"type": "object"}, {"type": "object"}),
    "empty_chain": ("chain", [], []),
    "chain_text": ("chain", "top_k40 > temp0.8", "top_k40 > temp0.8"),
}


@pytest.mark.parametrize(("key", "value", "kept"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(key: str, value: Any, kept: Any) -> None:
    assert getattr(Preset.from_table({key: value}), key) == kept


def test_defaults() -> None:
    preset = Preset()
    assert preset.chain == list(DEFAULT_CHAIN)
    assert (preset.seed, preset.max_tokens, preset.stop, preset.system, preset.grammar) == (
        None,
        None,
        [],
        None,
        None,
    )
    assert (preset.name, preset.source) == ("", "")


def test_frozen_and_checked_when_made_by_hand() -> None:
    with pytest.raises(ValidationError):
        Preset().seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="is not within"):
        Preset(chain=[{"top_p": 3}])


def test_needed_says_what_every_key_takes() -> None:
    assert set(Preset.allowed_values) == set(Preset.model_fields)


YAML_KEYS = st.text(max_size=4) | st.integers() | st.sampled_from(["top_k", "temp", "logit_bias", "k", "bias"])
YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(YAML_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*Preset.model_fields, "other", 3]), YAML_VALUES, max_size=3))
def test_any_table_is_a_preset_or_a_sentence(table: dict[Any, Any]) -> None:
    try:
        Preset.from_table(table, origin="x.yaml")
    except PresetError as error:
        said = str(error)
    else:
        return
    assert said.startswith("x.yaml: ")


# Each built-in preset, and the steps of its chain that are on.
BUILT_IN = {
    "default": "top_k top_p min_p temperature dist",
    "deterministic": "greedy",
    "creative": "penalties min_p temperature dist",
    "precise": "top_k top_p min_p temperature dist",
    "llama-cpp": "top_k top_p min_p temperature dist",
    "koboldai": "repetition_penalty top_p temperature dist",
    "chasm": "temperature typical tfs top_p dist",
    "mirostat": "temperature mirostat_v2",
    "xtc-dry": "dry min_p xtc dist",
    "min-p": "min_p dist",
}
ORDERS = {
    "llama-cpp": "penalties dry top_n_sigma top_k typical top_p min_p xtc temperature dist",
    "koboldai": "repetition_penalty top_k top_a top_p tfs typical temperature dist",
}


@pytest.mark.parametrize(("name", "steps"), BUILT_IN.items(), ids=BUILT_IN)
def test_built_in_preset_loads_and_builds(name: str, steps: str) -> None:
    preset = load_preset(name)
    assert (preset.name, preset.source) == (name, "built-in")
    assert preset.description
    assert "\n" not in preset.description
    chain = build(preset.chain, seed=1, vocab=FakeVocabulary())
    assert [step.about.name for step in chain.steps] == steps.split()


@pytest.mark.parametrize(("name", "order"), ORDERS.items(), ids=ORDERS)
def test_order_of_all_steps(name: str, order: str) -> None:
    assert [sampler.about.name for sampler in load_preset(name).samplers()] == order.split()


def test_default_is_llama_cpp_s_chain() -> None:
    assert load_preset("default").samplers() == Preset().samplers()
    names = [step.about.name for step in build(load_preset("default").chain).steps]
    assert names == ["top_k", "top_p", "min_p", "temperature", "dist"]
