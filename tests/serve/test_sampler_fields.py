"""The fields that set samplers: each tool's names, values that are off, and the order of the steps."""

import json

import pytest
import yaml
from logitsmith.presets.errors import PresetError
from logitsmith.presets.foreign.formats import import_text
from logitsmith.presets.preset import load_preset
from logitsmith.presets.settings import resolve_settings
from logitsmith.requests.fields import GenerationFields, read_settings
from logitsmith.requests.sampler_fields import SamplerFields, read_chain_changes
from logitsmith.samplers.building import chain_notation


def resolved(fields, chain=None):
    """Return the chain that the fields of a request lead to, in notation, and the names of unused fields."""
    preset = load_preset("default")
    before = resolve_settings(preset, chain=chain)
    changes = read_chain_changes(SamplerFields.model_validate(fields), [step.name for step in before.steps])
    arguments = {"flags": changes.overrides, "rearrangements": changes.rearrangements}
    settings = resolve_settings(preset, chain=chain, **arguments)
    steps = [{step.name: step.sampler.model_dump()} for step in settings.steps if not step.is_off]
    return chain_notation(steps), list(changes.unused_names)


DEFAULT = "top_k > top_p > min_p > temperature > dist"
CHAINS = {
    "nothing": ({}, DEFAULT),
    "off values": ({"top_a": 0, "tfs": 1, "typical": 1, "skew": 0, "nsigma": 0, "xtc_probability": 0}, DEFAULT),
    "numbers below 0 are off": ({"top_k": -2, "nsigma": -5}, "top_p > min_p > temperature > dist"),
    "top_k -1 is off": ({"top_k": -1}, "top_p > min_p > temperature > dist"),
    "a whole number as a fraction": ({"top_k": 7.0}, "top_k=7 > top_p > min_p > temperature > dist"),
    "allowed tokens of vLLM": ({"allowed_token_ids": [5, 6]}, "allow(tokens=[5, 6]) > " + DEFAULT),
    "allowed tokens of TabbyAPI": ({"allowed_tokens": [5, 6]}, "allow(tokens=[5, 6]) > " + DEFAULT),
    "allowed tokens as a text": ({"allowed_tokens": "5, 6"}, "allow(tokens=[5, 6]) > " + DEFAULT),
    "no allowed tokens": ({"allowed_tokens": []}, DEFAULT),
    "kobold's penalty": (
        {"rep_pen": 1.1, "rep_pen_range": 320},
        "penalties(repeat=1.1, last_n=320) > top_k > top_p > min_p > temperature > dist",
    ),
    "kobold's slope": (
        {"rep_pen": 1.1, "rep_pen_range": 320, "rep_pen_slope": 0.7},
        'repetition_penalty(penalty=1.1, range=320, slope=0.7, shape="halves") > ' + DEFAULT,
    ),
    "a slope over the range of another tool": (
        {"repetition_penalty": 1.1, "penalty_range": 320, "rep_pen_slope": 0.7},
        'repetition_penalty(penalty=1.1, range=320, slope=0.7, shape="halves") > ' + DEFAULT,
    ),
    "an order beside a mirostat that is off": (
        {"mirostat": 0, "mirostat_mode": 2, "sampler_order": [5, 0]},
        "top_p > min_p > temperature > top_k > dist",
    ),
    "a flat slope": (
        {"rep_pen": 1.1, "rep_pen_slope": 1},
        "penalties=1.1 > top_k > top_p > min_p > temperature > dist",
    ),
    "units of a cutoff": (
        {"epsilon_cutoff": 3},
        "top_k > top_p > min_p > epsilon_cutoff=0.0003 > temperature > dist",
    ),
    "a range around the temperature": (
        {"temperature": 1, "dynatemp_range": 0.5, "dynatemp_exponent": 2},
        "top_k > top_p > min_p > dynatemp(temperature=1.0, range=0.5, exponent=2.0) > dist",
    ),
    "a dynamic temperature in an order": (
        {"temperature": 1, "dynatemp_range": 0.5, "sampler_order": [6, 0, 1, 3, 4, 2, 5]},
        "top_k > top_p > min_p > dynatemp(temperature=1.0, range=0.5) > dist",
    ),
    "a dynamic temperature that is last": (
        {"temperature": 1, "dynatemp_range": 0.5, "temperature_last": True},
        "top_k > top_p > min_p > dynatemp(temperature=1.0, range=0.5) > dist",
    ),
    "ends of a range with an inexact middle": (
        {"dynatemp_low": 1, "dynatemp_high": 1.3},
        "top_k > top_p > min_p > dynatemp(temperature=1.15, range=0.15) > dist",
    ),
    "both ends of a range": (
        {"dynamic_temperature": True, "dynatemp_low": 0.5, "dynatemp_high": 1.5},
        "top_k > top_p > min_p > dynatemp(temperature=1.0, range=0.5) > dist",
    ),
    "a range that is not used": (
        {"dynamic_temperature": False, "dynatemp_low": 0.5, "dynatemp_high": 1.5},
        DEFAULT,
    ),
    "mirostat 1": ({"mirostat": 1, "mirostat_eta": 0.2}, "temperature > mirostat(eta=0.2)"),
    "mirostat 2 of text-generation-webui": (
        {"mirostat_mode": 2, "mirostat_tau": 3},
        "temperature > mirostat_v2=3.0",
    ),
    "mirostat, a boolean": ({"mirostat": False}, DEFAULT),
    "adaptive-p": (
        {"adaptive_target": 0.4, "adaptive_decay": 0.8},
        "top_k > top_p > min_p > temperature > adaptive_p(target=0.4, decay=0.8)",
    ),
    "adaptive-p is off": ({"adaptive_target": -0.01, "adaptive_decay": 0.9}, DEFAULT),
    "adaptive-p selects, wherever it is listed": (
        {"adaptive_target": 0.4, "samplers": ["top_k", "adaptive_p", "temperature"]},
        "top_k > temperature > adaptive_p=0.4",
    ),
    "no sampling": ({"do_sample": False, "temperature": 0.7}, "top_k > top_p > min_p > temperature=0.0 > dist"),
    "details of samplers that are off": (
        {"xtc_threshold": 0.2, "dry_base": 2, "smoothing_curve": 2, "mirostat_tau": 3, "rep_pen_range": 9},
        DEFAULT,
    ),
    "ids and texts with biases": (
        {"logit_bias": [[5, 1.5], ["x", False]]},
        "logit_bias(5=1.5, x=false) > top_k > top_p > min_p > temperature > dist",
    ),
    "bans": (
        {
            "custom_token_bans": "3, 4",
            "banned_strings": ["a b", ""],
            "banned_tokens": [5, "c"],
            "bad_words": ["d"],
        },
        'ban(tokens=[3, 4, 5], strings=["d"]) > top_k > top_p > min_p > temperature > dist',
    ),
    "no bans": ({"custom_token_bans": [], "banned_strings": "", "banned_tokens": []}, DEFAULT),
    "SillyTavern's names for llama.cpp": (
        {
            "samplers": [
                *("penalties", "dry", "top_k", "tfs_z", "typical_p"),
                *("top_p", "min_p", "xtc", "temperature", "adaptive_p"),
            ],
            "typical_p": 0.9,
        },
        "top_k > typical=0.9 > top_p > min_p > temperature > dist",
    ),
    "an empty list is no order": ({"samplers": [], "sampler_order": []}, DEFAULT),
    "KoboldCpp's default order": (
        {"sampler_order": [6, 0, 1, 3, 4, 2, 5], "top_a": 0.1, "xtc_probability": 0.5, "dry_multiplier": 1},
        "dry=1.0 > top_k > top_a=0.1 > top_p > min_p > temperature > xtc=0.5 > dist",
    ),
    "the temperature last": (
        {"sampler_priority": ["temperature", "top_k"], "temperature_last": True, "smoothing_factor": 0.2},
        "top_p > min_p > top_k > temperature > quadratic=0.2 > dist",
    ),
    "an order with semicolons": ({"samplers": "top_k;temperature"}, "top_k > temperature > dist"),
    "an order of letters": ({"samplers": "kt"}, "top_k > temperature > dist"),
    "an order as JSON text": ({"samplers": '["top_k", "temperature"]'}, "top_k > temperature > dist"),
    "an order of lines": (
        {"sampler_priority": "temperature\ntop_k"},
        "top_p > min_p > temperature > top_k > dist",
    ),
    "an order with commas": (
        {"sampler_priority": "temperature, top_k"},
        "top_p > min_p > temperature > top_k > dist",
    ),
    "an order in quotes": (
        {"sampler_priority": '"temperature", "top_k"'},
        "top_p > min_p > temperature > top_k > dist",
    ),
    "an order of numbers": ({"sampler_order": "[5, 0, 2]"}, "temperature > top_k > top_p > min_p > dist"),
    "numbers with blanks": ({"sampler_order": "5 0 2"}, "temperature > top_k > top_p > min_p > dist"),
    "bans in brackets": ({"custom_token_bans": "[3, 4]"}, f"ban(tokens=[3, 4]) > {DEFAULT}"),
    "bans with commas": ({"banned_tokens": "3,4"}, f"ban(tokens=[3, 4]) > {DEFAULT}"),
    "an empty ban": ({"custom_token_bans": " "}, DEFAULT),
    "allowed tokens": ({"allowed_token_ids": "5,6"}, f"allow(tokens=[5, 6]) > {DEFAULT}"),
    "biases as JSON text": ({"logit_bias": '{"5": 1.5}'}, f"logit_bias(5=1.5) > {DEFAULT}"),
    "biases as llama.cpp's flag": ({"logit_bias": "5+1.5,6-inf"}, f"logit_bias(5=1.5, 6=false) > {DEFAULT}"),
    "biases as objects": ({"logit_bias": [{"id": 5, "bias": 2}]}, f"logit_bias(5=2.0) > {DEFAULT}"),
    "biases as entries of a page": (
        {"logit_bias": [{"text": " the", "value": 2}]},
        f'logit_bias(" the"=2.0) > {DEFAULT}',
    ),
    "biases as texts of numbers": (
        {"logit_bias": {"5": "-inf", "6": "2"}},
        f"logit_bias(5=false, 6=2.0) > {DEFAULT}",
    ),
    "no biases": ({"logit_bias": ""}, DEFAULT),
}


@pytest.mark.parametrize(("fields", "chain"), CHAINS.values(), ids=CHAINS)
def test_the_chain(fields, chain):
    assert resolved(fields)[0] == chain


UNUSED = {
    "greedy with mirostat": ({"do_sample": False, "mirostat": 2}, ["do_sample"]),
    "greedy with adaptive_p": ({"do_sample": False, "adaptive_target": 0.5}, ["do_sample"]),
    "adaptive_p with mirostat": ({"adaptive_target": 0.5, "mirostat": 1}, ["adaptive_target"]),
    "one value twice": ({"typical": 0.5, "typical_p": 0.5}, []),
    "two values": ({"typical": 0.5, "typical_p": 0.6, "typ_p": 0.7}, ["typical_p", "typ_p"]),
    "an order beside mirostat": ({"mirostat": 2, "samplers": ["top_k"]}, ["samplers"]),
    "two orders": ({"samplers": ["top_k"], "sampler_order": [0]}, ["sampler_order"]),
    "one end of a range": ({"dynatemp_high": 2}, ["dynatemp_high"]),
}


@pytest.mark.parametrize(("fields", "names"), UNUSED.values(), ids=UNUSED)
def test_fields_without_effect(fields, names):
    assert resolved(fields)[1] == names


WRONG = {
    "a number that KoboldCpp does not have": ("sampler_order", {"sampler_order": [7]}),
    "a name that llama.cpp does not have": ("samplers", {"samplers": ["top_x"]}),
    "a name that nobody has": ("sampler_priority", {"sampler_priority": ["top_x"]}),
    "a cutoff in units": ("epsilon_cutoff", {"epsilon_cutoff": -1}),
    "another cutoff in units": ("eta_cutoff", {"eta_cutoff": 10000}),
    "an end of a range": ("dynatemp_low", {"dynatemp_low": -1, "dynatemp_high": 1}),
    "a list of biases": ("logit_bias", {"logit_bias": "5:1"}),
    "a version of mirostat": ("mirostat", {"mirostat": 3}),
    "a bias without a number": ("logit_bias", {"logit_bias": {"5": "x"}}),
    "a bias without a token": ("logit_bias", {"logit_bias": [[None, 1]]}),
    "bans that are no ids": ("custom_token_bans", {"custom_token_bans": "a,b"}),
    "breakers that are no JSON": (
        "dry_sequence_breakers",
        {"dry_multiplier": 1, "dry_sequence_breakers": '["a'},
    ),
    "a range upside down": ("dynatemp_low", {"dynatemp_low": 2, "dynatemp_high": 1}),
}


@pytest.mark.parametrize(("field", "fields"), WRONG.values(), ids=WRONG)
def test_wrong_values(field, fields):
    with pytest.raises(PresetError) as caught:
        resolved(fields)
    assert str(caught.value).startswith(f"{field}: ")


QUOTES = '"\\n", ":", "\\"", "#"'
"""A list as text-generation-webui writes it."""
BREAKERS = {
    "JSON text": ('["\\n", ":"]', ["\n", ":"]),
    "list": (["\n", ":"], ["\n", ":"]),
    "empty text": ("", []),
    "empty list": ([], []),
    "lines": ("a\nb", ["a", "b"]),
    "quoted strings": (QUOTES, ["\n", ":", '"', "#"]),
    "one quoted string": ('"a, b"', ["a, b"]),
    "single quotes": ("'a', 'b'", ["a", "b"]),
    "no quotes": ("a, b,c", ["a", "b", "c"]),
    "a trailing comma": ('"a", "b",', ["a", "b"]),
    "a real newline in quotes": ('"\n", "a"', ["\n", "a"]),
}


@pytest.mark.parametrize(("breakers", "expected"), BREAKERS.values(), ids=BREAKERS)
def test_breakers(breakers, expected):
    """They are those of an imported file, too."""
    chain, _ = resolved({"dry_multiplier": 2, "dry_sequence_breakers": breakers})
    assert chain == f"dry(multiplier=2.0, breakers={json.dumps(expected)}) > {DEFAULT}"
    if breakers:
        text = yaml.safe_dump({"dry_multiplier": 2, "dry_sequence_breakers": breakers})
        ((_, params), *_) = import_text(text, "file", "webui").chain
        assert params["breakers"] == expected


STRINGS = {
    "phrases": ({"banned_strings": "a, b\nc"}, "bans", ["a, b", "c"]),
    "quoted phrases": ({"banned_strings": '"a, b", "c"'}, "bans", ["a, b", "c"]),
    "phrases as JSON text": ({"banned_strings": '["a", "b"]'}, "bans", ["a", "b"]),
    "phrases for KoboldCpp": ({"banned_tokens": "a b\nc"}, "bans", ["a b", "c"]),
    "stop strings": ({"stopping_strings": QUOTES}, "stop", ["\n", ":", '"', "#"]),
    "stop strings of the page": ({"custom_stopping_strings": '"a", "b"'}, "stop", ["a", "b"]),
    "stop strings as JSON text": ({"stopping_strings": '["a", "b"]'}, "stop", ["a", "b"]),
    "one stop string": ({"stopping_strings": "a, b"}, "stop", ["a, b"]),
    "one stop string of OpenAI's API": ({"stop": '"a", "b"'}, "stop", ['"a", "b"']),
}


@pytest.mark.parametrize(("fields", "target", "expected"), STRINGS.values(), ids=STRINGS)
def test_strings_that_are_texts(fields, target, expected):
    values = {o.target: o.value for o in read_settings(GenerationFields.model_validate(fields), [])}
    assert values == {target: expected}


def test_token_ids_that_are_texts():
    fields = GenerationFields.model_validate({"stop_token_ids": "1, 2", "logprob_token_ids": "[3]"})
    assert (fields.stop_token_ids, fields.logprob_token_ids) == ([1, 2], [3])


def test_phrases_of_other_servers_are_bans():
    fields = GenerationFields.model_validate(
        {
            "banned_strings": ["a b", ""],
            "banned_tokens": [5, "c"],
            "banned_regex": ["d+"],
            "banned_regex_case_insensitive": "e+",
            "rewind_count_max": 7,
            "bans": {"text": "f", "words": True},
        }
    )
    values = {override.target: override.value for override in read_settings(fields, [])}
    phrases = [{"text": "f", "words": True}, "a b", "c", {"regex": "d+"}, {"regex": "e+", "case": False}]
    assert values == {"bans": phrases, "ban_retries": 7}
