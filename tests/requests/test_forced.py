"""`gen serve --force NAME=VALUE` wins over what a request says under any name, and the request is told."""

import pytest
from logitsmith.presets.errors import PresetError
from logitsmith.requests.asked import ask
from logitsmith.requests.fields import PromptFields, read_body
from logitsmith.requests.forced import read_forced
from logitsmith.requests.resolve import RequestDefaults, RequestResolver
from logitsmith.samplers.building import chain_notation

REST = "top_p > min_p > temperature > dist"
COOL = REST.replace("temperature", "temperature=0.5")
SENT_BY_KOBOLD = {"sampler_order": [6, 0, 1, 3, 4, 2, 5], "rep_pen_slope": 0.7, "rep_pen": 2.0}
# Each row: the forced values, the fields of a request, then what counts: settings or the chain, and what is told.
ROWS = {
    "a setting": (["max_tokens=3"], {"max_tokens": 9}, {"max_tokens": 3}, ["max_tokens"]),
    "another name": (["n_predict=3"], {"max_output_tokens": 9}, {"max_tokens": 3}, ["max_output_tokens"]),
    "the same value": (["n_predict=3"], {"max_tokens": 3}, {"max_tokens": 3}, []),
    "--set": (["seed=3"], {"set": {"seed": 4, "stop": ["x"]}}, {"seed": 3, "stop": ["x"]}, ["set seed"]),
    "nothing sent": (["seed=3", "stop=[x, yz]"], {}, {"seed": 3, "stop": ["x", "yz"]}, []),
    "a grammar": (["guided_regex=a+"], {"grammar": "json"}, {"grammar": {"regex": "a+"}}, ["grammar"]),
    "a part of a table": (
        ["guidance_scale=2"],
        {"guidance": {"scale": 3, "negative_prompt": "x"}},
        {"guidance": {"scale": 2, "negative_prompt": "x"}},
        ["guidance"],
    ),
    "another part": (
        ["negative_prompt=y"],
        {"guidance": {"scale": 3}},
        {"guidance": {"scale": 3, "negative_prompt": "y"}},
        [],
    ),
    "a parameter": (["temperature=0.5"], {"temp": 2, "top_k": 7}, f"top_k=7 > {COOL}", ["temp"]),
    "greedy by its temperature": (["temp=0.5"], {"temperature": 0}, f"top_k > {COOL}", ["temperature"]),
    "a parameter in a chain": (["temp=0.5"], {"chain": "temp2 > dist"}, "temperature=0.5 > dist", []),
    "a parameter in --set": (["top_k=7"], {"set": {"top_k": 3}}, f"top_k=7 > {REST}", ["set top_k"]),
    "another sampler of the name": (
        ["repeat_penalty=1.3"],
        SENT_BY_KOBOLD,
        f"penalties=1.3 > top_k > {REST}",
        ["rep_pen"],
    ),
    "a chain that cannot use it": (["temp=0.5"], {"chain": "greedy"}, "greedy", ["--force temp"]),
    "a chain": (
        ["chain=top_k5 > dist"],
        {"chain": "greedy", "temperature": 2, "set": {"top_p.p": 0.2}, "max_tokens": 4},
        "top_k=5 > dist",
        ["chain", "set top_p.p", "temperature"],
    ),
    "a chain and a parameter": (
        ["chain=top_k5 > dist", "top_k=6"],
        {"preset": "creative"},
        "top_k=6 > dist",
        [],
    ),
    "a preset": (["preset=deterministic"], {"preset": "creative", "chain": "dist"}, None, ["chain"]),
    "a bias": (
        ['logit_bias={"5": 1}'],
        {"logit_bias": {"6": 2}},
        f"logit_bias={{5: 1}} > top_k > {REST}",
        ["logit_bias"],
    ),
}


def resolve(forced, body):
    resolver = RequestResolver(RequestDefaults(forced=read_forced(forced)), {}, print)
    fields, unused = read_body(PromptFields, {"prompt": "", **body}, is_strict=True)
    return resolver.settings(ask(fields), unused), unused, resolver


@pytest.mark.parametrize(("forced", "body", "expected", "told"), ROWS.values(), ids=ROWS)
def test_a_forced_value_wins(forced, body, expected, told):
    settings, unused, _ = resolve(forced, body)
    assert sorted(dict.fromkeys(unused)) == sorted(told)
    if isinstance(expected, dict):
        assert {name: settings[name].value for name in expected} == expected
    elif expected is not None:
        chain = chain_notation(
            [{step.name: step.sampler.model_dump()} for step in settings.steps if not step.is_off]
        )
        assert chain == expected.replace("temperature >", "temperature=0.5 >") if "temp" in forced[0] else expected


def test_a_forced_preset_is_that_preset():
    settings, _, resolver = resolve(["preset=deterministic"], {"preset": "creative", "temperature": 2})
    assert settings.steps == resolver.default_settings().steps
    expected = RequestResolver(RequestDefaults(preset="deterministic"), {}, print).default_settings()
    assert [step.sampler for step in settings.steps] == [step.sampler for step in expected.steps]


def test_what_the_server_tells_as_its_default_is_forced():
    assert resolve(["n_predict=3"], {})[2].default_settings().token_limit == 3


WRONG = {
    "temprature=1": "'temprature': there is no such field; did you mean temperature?",
    "temperature=-1": "--force temperature: -1 is not",
    "n=2": "--force n: it is no setting",
    "prompt=x": "--force prompt: it is no setting",
    "seed": "--force seed: write NAME=VALUE",
    "seed=x": "seed: ",
    "chain=top_q": "--force chain: ",
    "preset=nope": "--force preset: unknown preset 'nope'",
}


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_argument_is_named(argument):
    with pytest.raises(PresetError) as caught:
        RequestResolver(RequestDefaults(forced=read_forced([argument])), {}, print).default_settings()
    assert WRONG[argument] in str(caught.value)
