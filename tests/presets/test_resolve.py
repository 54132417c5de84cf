"""Precedence and origins of settings, and their messages."""

from __future__ import annotations

from typing import Any

import pytest
from logitsmith.common.seeds import SEED_VALUES
from logitsmith.presets import Override, Preset, PresetError, load_preset, resolve_settings
from logitsmith.presets.overrides import ChainRearrangement, parse_set
from logitsmith.presets.setting_table import SETTINGS
from logitsmith.samplers import StepError, build

from ..samplers.rows import FakeVocabulary


def flag(name: str, target: str, value: Any) -> Override:
    return Override(f"--{name}", target, value)


def preset(**table: Any) -> Preset:
    return Preset.from_table(table, name="mine")


TOP_K_SET = "top_k.k=20"
TOP_K_FLAG = flag("top-k", "top_k.k", 10)

# chain of the preset (None: no chain), --chain, sets, flags: k and its origin.
STEP_PRECEDENCE: dict[str, tuple[list[Any] | None, str | None, list[str], list[Override], int, str]] = {
    "default": (None, None, [], [], 40, "default"),
    "sampler_default": (["top_k"], None, [], [], 40, "default"),
    "preset": ([{"top_k": 30}], None, [], [], 30, "preset mine"),
    "chain": ([{"top_k": 30}], "top_k25", [], [], 25, "--chain"),
    "set_over_preset": ([{"top_k": 30}], None, [TOP_K_SET], [], 20, "--set top_k.k"),
    "set_over_chain": ([{"top_k": 30}], "top_k25", [TOP_K_SET], [], 20, "--set top_k.k"),
    "set_over_default": (None, None, [TOP_K_SET], [], 20, "--set top_k.k"),
    "later_set": (None, None, [TOP_K_SET, "top-k=21"], [], 21, "--set top-k"),
    "flag_over_set": ([{"top_k": 30}], None, [TOP_K_SET], [TOP_K_FLAG], 10, "--top-k"),
    "flag_over_preset": ([{"top_k": 30}], None, [], [TOP_K_FLAG], 10, "--top-k"),
    "flag_over_chain": (None, "top_k25", [], [TOP_K_FLAG], 10, "--top-k"),
    "flag_not_in_chain": (["dist"], None, [], [TOP_K_FLAG], 10, "--top-k"),
}


@pytest.mark.parametrize(
    ("steps", "chain", "sets", "flags", "k", "origin"), STEP_PRECEDENCE.values(), ids=STEP_PRECEDENCE
)
def test_precedence_of_a_parameter(
    steps: list[Any] | None, chain: str | None, sets: list[str], flags: list[Override], k: int, origin: str
) -> None:
    table = {} if steps is None else {"chain": steps}
    settings = resolve_settings(preset(**table), chain=chain, sets=sets, flags=flags)
    (step,) = [step for step in settings.steps if step.name == "top_k"]
    assert step.sampler.k == k  # type: ignore[attr-defined]
    assert step.origins == {"k": origin}


SETTING_PRECEDENCE: dict[str, tuple[dict[str, Any], list[str], list[Override], str, Any, str]] = {
    "seed_default": ({}, [], [], "seed", None, "default"),
    "max_tokens_default": ({}, [], [], "max_tokens", 256, "default"),
    "stop_default": ({}, [], [], "stop", [], "default"),
    "system_default": ({}, [], [], "system", None, "default"),
    "grammar_default": ({}, [], [], "grammar", None, "default"),
    "seed_0": ({"seed": 0}, [], [], "seed", 0, "preset mine"),
    "seed_none": ({"seed": None}, [], [], "seed", None, "default"),
    "stop": ({"stop": "a"}, [], [], "stop", ["a"], "preset mine"),
    "set": ({"seed": 1}, ["seed=2"], [], "seed", 2, "--set seed"),
    "set_dashes": ({}, ["max-tokens=-1"], [], "max_tokens", -1, "--set max-tokens"),
    "set_list": ({"stop": "a"}, ["stop=[b, 'c d']"], [], "stop", ["b", "c d"], "--set stop"),
    "set_text": ({}, ["stop=b"], [], "stop", ["b"], "--set stop"),
    "set_system": ({}, ["system=You are brief."], [], "system", "You are brief.", "--set system"),
    "flag": ({"seed": 1}, ["seed=2"], [flag("seed", "seed", 3)], "seed", 3, "--seed"),
    "flag_none": ({"seed": 1}, [], [flag("seed", "seed", None)], "seed", None, "--seed"),
    "null_is_the_default": ({"max_tokens": 5}, ["max-tokens="], [], "max_tokens", 256, "--set max-tokens"),
    "grammar": ({"grammar": "root ::= x"}, [], [flag("j", "grammar", {"a": 1})], "grammar", {"a": 1}, "--j"),
}


@pytest.mark.parametrize(
    ("table", "sets", "flags", "name", "value", "origin"), SETTING_PRECEDENCE.values(), ids=SETTING_PRECEDENCE
)
def test_precedence_of_a_setting(
    table: dict[str, Any], sets: list[str], flags: list[Override], name: str, value: Any, origin: str
) -> None:
    setting = resolve_settings(preset(**table), sets=sets, flags=flags)[name]
    assert (setting.value, setting.origin) == (value, origin)


CHAIN_ORIGINS = {
    "default": ({}, None, "default"),
    "preset": ({"chain": "greedy"}, None, "preset mine"),
    "chain": ({"chain": "greedy"}, "temp0.5", "--chain"),
}


@pytest.mark.parametrize(("table", "chain", "origin"), CHAIN_ORIGINS.values(), ids=CHAIN_ORIGINS)
def test_chain_origin(table: dict[str, Any], chain: str | None, origin: str) -> None:
    assert resolve_settings(preset(**table), chain=chain).chain_origin == origin


def test_without_a_preset() -> None:
    settings = resolve_settings(None)
    assert settings.samplers() == load_preset("default").samplers()
    assert {origin for step in settings.steps for origin in step.origins.values()} == {"default"}


# chain, what is set: the steps in their order.
PLACES = {
    "in_the_default_order": ("top_k > min_p > temp", "top_p=0.5", "top_k top_p min_p temperature dist"),
    "last_of_the_truncations": ("top_k > temp", "min_p=0.1", "top_k min_p temperature dist"),
    "temperature_last": ("top_k > top_p > dist", "temp=0.5", "top_k top_p temperature dist"),
    "penalties_first": ("top_k > dist", "penalties=1.1", "penalties top_k dist"),
    "bias_before_penalties": ("penalties > top_k", "logit_bias={5: 1}", "logit_bias penalties top_k dist"),
    "ignore_eos_at_the_front": ("logit_bias > top_k", "ignore_eos=true", "ignore_eos logit_bias top_k dist"),
    "ignore_eos_null": ("top_k", "ignore_eos=", "ignore_eos top_k dist"),
    "ignore_eos_stays": ("top_k > ignore_eos", "ignore_eos=true", "top_k ignore_eos dist"),
    "ignore_eos_off": ("ignore_eos > top_k", "ignore_eos=false", "top_k dist"),
    "ignore_eos_already_off": ("top_k", "ignore_eos=false", "top_k dist"),
    "other_order": ("temp > top_k > dist", "min_p=0.1", "min_p temperature top_k dist"),
    "alone": ("dist", "temp=0.5", "temperature dist"),
    "no_selecting_step": ("top_k", "top_p=0.5", "top_k top_p dist"),
    "in_the_chain": ("temp > top_k > dist", "top_k=3", "temperature top_k dist"),
    "greedy_with_bias": ("greedy", "logit_bias={5: 1}", "logit_bias greedy"),
    "greedy_with_penalties": ("greedy", "penalties=1.2", "penalties greedy"),
    "greedy_with_ignore_eos": ("greedy", "ignore_eos=true", "ignore_eos greedy"),
    "greedy_with_temperature_0": ("greedy", "temp=0", "temperature greedy"),
    "greedy_with_top_k_off": ("greedy", "top_k=0", "top_k greedy"),
}


@pytest.mark.parametrize(("chain", "text", "names"), PLACES.values(), ids=PLACES)
def test_place(chain: str, text: str, names: str) -> None:
    settings = resolve_settings(None, chain=chain, sets=[text])
    assert " ".join(step.name for step in settings.steps) == names


def test_other_parameters_keep_value_and_origin() -> None:
    mine = preset(chain=[{"top_p": {"p": 0.9, "min_keep": 2}}, "dist"])
    step = resolve_settings(mine, flags=[flag("top-p", "top_p.p", 0.5)]).steps[0]
    assert step.sampler.model_dump() == {"p": 0.5, "min_keep": 2, "boundary": "include"}
    assert step.origins == {"p": "--top-p", "min_keep": "preset mine", "boundary": "default"}
    assert step.origin == "preset mine"


def test_two_parameters_of_a_sampler_that_was_missing() -> None:
    sets = ["top_p=0.5", "top-p.min-keep=3"]
    step = resolve_settings(None, chain="dist", sets=sets).steps[0]
    assert step.sampler.model_dump() == {"p": 0.5, "min_keep": 3, "boundary": "include"}
    assert step.origins == {"p": "--set top_p", "min_keep": "--set top-p.min-keep", "boundary": "default"}


def test_second_of_that_name() -> None:
    settings = resolve_settings(None, chain="top_p0.9 > temp > top_p0.8", sets=["top_p#2.p=0.5"])
    assert [getattr(sampler, "p", None) for sampler in settings.samplers()] == [0.9, None, 0.5, None]


def test_biases_are_merged() -> None:
    mine = preset(chain=[{"logit_bias": {5: 1.0, 6: 2.0}}])
    flags = [flag("logit-bias", "logit_bias.bias", {6: -1.0}), flag("logit-bias", "logit_bias", {7: False})]
    step = resolve_settings(mine, flags=flags).steps[0]
    assert step.sampler.model_dump() == {"bias": {5: 1.0, 6: -1.0, 7: False}}
    assert step.origins == {"bias": "preset mine, --logit-bias"}


def test_off_and_build() -> None:
    settings = resolve_settings(load_preset("default"), sets=["temp=1", "top_k=0"])
    assert [step.name for step in settings.steps if step.is_off] == ["penalties", "top_k", "temperature"]
    assert [step.about.name for step in build(settings.steps).steps] == ["top_p", "min_p", "dist"]


SETS = {
    "parameter": ("top_k.k=20", "top_k.k", 20),
    "main": ("top_k=20", "top_k.k", 20),
    "alias": ("temp=1e-3", "temperature.t", 1e-3),
    "dashes": ("Top-P.min-keep = 2", "top_p.min_keep", 2),
    "occurrence": ("top_p#2.p=0.5", "top_p#2.p", 0.5),
    "occurrence_of_main": ("nucleus#1=0.5", "top_p#1.p", 0.5),
    "table": ("logit_bias={5: -inf}", "logit_bias.bias", {5: float("-inf")}),
    "switch": ("ignore-eos=true", "ignore_eos", True),
    "equals_in_value": ("system=a=b", "system", "a=b"),
    "setting": ("max-tokens=5", "max_tokens", 5),
}


@pytest.mark.parametrize(("text", "target", "value"), SETS.values(), ids=SETS)
def test_parse_set(text: str, target: str, value: Any) -> None:
    assert parse_set(text) == Override(f"--set {text.partition('=')[0].strip()}", target, value)


A_CHAIN = "choose another preset or give a --chain"
FORM = "is not name, name.parameter or name#2.parameter (from #1)"
REFUSED_SETS = {
    "no_equals": ("top_k", "--set top_k: write name.parameter=value, such as top_k.k=20 or seed=7"),
    "no_name": ("=3", "--set =3: write name.parameter=value, such as top_k.k=20 or seed=7"),
    "range": ("top_p.p=1.5", "--set top_p.p: 1.5 is not within 0..1"),
    "range_of_main": ("top-p=1.5", "--set top-p: 1.5 is not within 0..1"),
    "range_in_place": ("top_p=-1", "--set top_p: -1 is not within 0..1"),
    "kind": ("top_k=1.5", "--set top_k: 1.5 is not an integer (≥ -1)"),
    "nothing": ("top_k=", "--set top_k: null is not an integer (≥ -1)"),
    "nan": ("temp#1=.nan", "--set temp#1: nan is not a finite number (≥ 0)"),
    "unknown_parameter": (
        "top_p.min_kep=1",
        "--set top_p.min_kep: unknown parameter 'min_kep'; did you mean min_keep?",
    ),
    "choice": ("top_p.boundary=both", "--set top_p.boundary: 'both' is not include or exclude"),
    "bias_number": ("logit_bias=3", "--set logit_bias: 3 is not an object such as {42: -1.5}"),
    "bias_value": ("logit_bias={5: x}", "--set logit_bias.5: 'x' is not a number"),
    "yaml": (
        "stop=[a",
        "--set stop: line 1, column 1: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
    ),
    "occurrence_0": ("top_p#0=1", f"--set top_p#0: 'top_p#0' {FORM}"),
    "occurrence_word": ("top_p#x=1", f"--set top_p#x: 'top_p#x' {FORM}"),
    "occurrence_missing": ("top_p#2=1", "--set top_p#2: there is no top_p#2; the chain has 1 top_p step"),
    "occurrence_of_none": (
        "top_k#1=1",
        "--set top_k#1: there is no top_k#1; the chain has 0 top_k steps",
    ),
    "several": (
        "temp=1",
        "--set temp: the chain has 2 temperature steps; choose one, as in --set temperature#1.t=VALUE",
    ),
    "switch_number": ("ignore_eos=3", "--set ignore_eos: 3 is not true or false"),
    "another_selector": (
        "greedy=true",
        f"--set greedy: the chain selects by dist, not by greedy; {A_CHAIN} that ends in greedy",
    ),
    "selector_off": ("dist=false", f"--set dist: dist selects the token; {A_CHAIN}"),
    "seed": (
        "seed=9223372036854775808",
        f"--set seed: 9223372036854775808 is not {SEED_VALUES}",
    ),
    "stop": ("stop=['']", "--set stop[0]: '' is empty; a stop string has at least one character"),
    "system": ("system=a: b", "--set system: {'a': 'b'} is not a string"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED_SETS.values(), ids=REFUSED_SETS)
def test_set_refused(text: str, message: str) -> None:
    with pytest.raises(PresetError) as caught:
        resolve_settings(None, chain="temp0.5 > top_p0.9 > temp0.9 > dist", sets=[text])
    assert str(caught.value) == message


def test_unknown_sampler_names_the_settings_too() -> None:
    with pytest.raises(PresetError) as caught:
        parse_set("maxtokens=3")
    assert str(caught.value).startswith("--set maxtokens: unknown sampler 'maxtokens'; ")
    known = ", ".join(SETTINGS)
    assert str(caught.value).endswith(f"; other settings: {known}")


REFUSED_FLAGS = {
    "range": (flag("top-p", "top_p.p", 1.5), "--top-p: 1.5 is not within 0..1"),
    "max_tokens": (Override("-n", "max_tokens", -3), "-n: -3 is not an integer ≥ 1, or -1 for no limit"),
    "unknown": (flag("x", "nope.x", 1), "--x: unknown sampler 'nope'; "),
    "string": (flag("stop", "stop", ["a", ""]), "--stop: '' is empty"),
    "string_of_a_field": (Override("stop", "stop", ["a", ""]), "stop[1]: '' is empty"),
    "chain_of_a_phase": (
        flag("thinking-chain", "phases", [{"chain": "temp-1"}, {}]),
        "--thinking-chain: chain[0].temperature.t: -1 is not ≥ 0",
    ),
    "selectors_of_a_phase": (
        Override("phases", "phases", [{"chain": "dist > dist"}, {}]),
        "phases[0]: chain[0] dist and chain[1] dist both select a token",
    ),
}


@pytest.mark.parametrize(("override", "message"), REFUSED_FLAGS.values(), ids=REFUSED_FLAGS)
def test_flag_refused(override: Override, message: str) -> None:
    with pytest.raises(PresetError) as caught:
        resolve_settings(None, flags=[override])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p"])
@pytest.mark.parametrize(
    "chain", [None, "temp0.5 > top_k3 > top_p0.5 > min_p0.1 > greedy"], ids=["preset", "chain"]
)
def test_greedy_ignores_it(name: str, chain: str | None) -> None:
    value = 7 if name == "top_k" else 0.7
    with pytest.raises(PresetError) as caught:
        resolve_settings(load_preset("deterministic"), chain=chain, flags=[flag("x", name, value)])
    assert str(caught.value) == f"--x: the chain ends in greedy, which ignores {name}; {A_CHAIN}"


CHAINS = {
    "range": ("top_k40 > top_p1.5", "--chain: chain[1].top_p.p: 1.5 is not within 0..1"),
    "empty": (
        "",
        "--chain: chain[0] of '': a step is missing; write name, name0.8, name=value or name(key=value, …)",
    ),
    "order": (
        "greedy > temp",
        "--chain: chain[0] greedy selects a token, so it must be the last step; chain[1] temperature follows",
    ),
}


@pytest.mark.parametrize(("chain", "message"), CHAINS.values(), ids=CHAINS)
def test_chain_refused(chain: str, message: str) -> None:
    with pytest.raises(PresetError) as caught:
        resolve_settings(None, chain=chain)
    assert str(caught.value) == message


def test_a_chain_has_the_origin_that_its_front_end_knows() -> None:
    with pytest.raises(PresetError, match=r"^/chain: chain\[0\]\.top_p\.p: 1\.5 is not within 0\.\.1$"):
        resolve_settings(None, chain="top_p1.5", chain_origin="/chain")
    rearrangement = ChainRearrangement("samplers", new_selector="dist")
    with pytest.raises(PresetError, match=r"^samplers: the chain selects by greedy, not by dist; "):
        resolve_settings(None, chain="greedy", chain_origin="chain", rearrangements=[rearrangement])
    assert resolve_settings(None, chain="temp", chain_origin="chain").chain_origin == "chain"


def steps_after(chain: str, *sets: str) -> list[Any]:
    settings = resolve_settings(preset(chain=chain), sets=sets)
    return [{step.name: step.sampler.model_dump(exclude_unset=True)} for step in settings.steps[:-1]]


HOT = {"temperature": {"t": 1.2}}

# As in llama.cpp, temperature and dynatemp are one step.
ONE_TEMPERATURE: dict[str, tuple[str, list[str], list[Any]]] = {
    "the_range_makes_it_dynamic": (
        "top_k5 > temp1.2 > min_p",
        ["dynatemp.range=0.3"],
        [{"top_k": {"k": 5}}, {"dynatemp": {"temperature": 1.2, "range": 0.3}}, {"min_p": {}}],
    ),
    "temperature_finds_the_dynamic_one": (
        "dynatemp(range=0.3)",
        ["temp=0.5"],
        [{"dynatemp": {"range": 0.3, "temperature": 0.5}}],
    ),
    "both": ("temp1.2", ["dynatemp.exponent=2", "temp=0.5"], [{"dynatemp": {"temperature": 0.5, "exponent": 2}}]),
    "no_temperature_yet": ("top_k5", ["dynatemp=0.3"], [{"top_k": {"k": 5}}, {"dynatemp": {"range": 0.3}}]),
    "both_are_there": ("temp1.2 > dynatemp", ["dynatemp=0.3"], [HOT, {"dynatemp": {"range": 0.3}}]),
}


@pytest.mark.parametrize(("chain", "sets", "left"), ONE_TEMPERATURE.values(), ids=ONE_TEMPERATURE)
def test_temperature_and_dynatemp(chain: str, sets: list[str], left: list[Any]) -> None:
    assert steps_after(chain, *sets) == left


def test_dynatemp_has_no_other_parameters_for_temperature() -> None:
    with pytest.raises(PresetError, match=r"^--set temp\.x: unknown parameter 'x'"):
        steps_after("dynatemp(range=0.3)", "temp.x=0.5")


def test_the_temperature_keeps_its_origin() -> None:
    settings = resolve_settings(
        preset(chain=["temp"]), sets=["dynatemp=0.3"], flags=[flag("temp", "temperature.t", 0.4)]
    )
    (step,) = [step for step in settings.steps if step.name == "dynatemp"]
    assert step.origins == {"temperature": "--temp", "range": "--set dynatemp", "exponent": "default"}


def test_a_sampler_that_llama_cpp_lacks_goes_in_beside_the_like() -> None:
    steps = steps_after("top_k5 > temp1.2", "tfs=0.9", "min_tokens=3", "no_repeat_ngram=2", "quadratic=0.2")
    assert [name for step in steps for name in step] == [
        "min_tokens",
        "no_repeat_ngram",
        "top_k",
        "tfs",
        "quadratic",
        "temperature",
    ]


BOUND = {
    "preset": (["top_k", {"ban": "ab"}], None, [], "mine.yaml: chain[1].ban.tokens: 'ab' is 2 tokens"),
    "chain": ([], "top_k > ban=ab", [], "--chain: chain[1].ban.tokens: 'ab' is 2 tokens"),
    "set over a step": ([{"ban": "a"}], None, ["ban=ab"], "--set ban: 'ab' is 2 tokens"),
    "set puts a step in": (["top_k"], None, ["ban.tokens=ab"], "--set ban.tokens: 'ab' is 2 tokens"),
    "moved by a set": ([{"ban": "ab"}], None, ["ignore_eos=true"], "mine.yaml: chain[0].ban.tokens: 'ab' is"),
    "the second": ([{"ban": "a"}, {"ban": [500]}], None, [], "mine.yaml: chain[1].ban.tokens: token id 500"),
}


@pytest.mark.parametrize(("steps", "chain", "sets", "message"), BOUND.values(), ids=BOUND)
def test_what_does_not_fit_the_vocabulary_is_reported_with_its_origin(
    steps: list[Any], chain: str | None, sets: list[str], message: str
) -> None:
    mine = Preset.from_table({"chain": steps}, origin="mine.yaml", name="mine")
    settings = resolve_settings(mine, chain=chain, sets=sets)
    with pytest.raises(StepError) as caught:
        build(settings.steps, vocab=FakeVocabulary())
    assert str(caught.value).startswith(message)
