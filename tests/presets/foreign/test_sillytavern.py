"""SillyTavern's text completion: its own keys and its splicing of orders."""

import pytest

from .conftest import steps

RULES = {
    "temperature last in a fresh session": (
        {"temp": 0.7, "top_k": 40},
        [["top_k", {"k": 40}], ["temperature", {"t": 0.7}]],
    ),
    "temperature first if the file says so": (
        {"temp": 0.7, "top_k": 40, "temperature_last": False},
        [["temperature", {"t": 0.7}], ["top_k", {"k": 40}]],
    ),
    "range absent: all": ({"rep_pen": 1.1}, [["penalties", {"repeat": 1.1, "last_n": -1}]]),
    "range": (
        {"rep_pen": 1.1, "freq_pen": 0.1, "presence_pen": 0.2, "rep_pen_range": 512},
        [["penalties", {"repeat": 1.1, "presence": 0.2, "frequency": 0.1, "last_n": 512}]],
    ),
    "dynatemp replaces temp": (
        {"temp": 1.2, "dynatemp": True, "min_temp": 0.5, "max_temp": 1.5, "dynatemp_exponent": 1},
        [["dynatemp", {"temperature": 1.0, "range": 0.5, "exponent": 1.0}]],
    ),
    "the rest of the names": (
        {"nsigma": 1.5, "encoder_rep_pen": 1.07, "typical_p": 0.9, "tfs": 0.95, "eta_cutoff": 10.78},
        [
            ["top_n_sigma", {"n": 1.5}],
            ["typical", {"p": 0.9}],
            ["eta_cutoff", {"epsilon": 0.001078}],
            ["tfs", {"z": 0.95}],
            ["encoder_repetition_penalty", {"penalty": 1.07}],
        ],
    ),
    "the default has the temperature before top_n_sigma": (
        {"temp": 0.7, "nsigma": 1.5, "temperature_last": False},
        [["temperature", {"t": 0.7}], ["top_n_sigma", {"n": 1.5}]],
    ),
    "missing names are spliced in": (
        {
            "temp": 0.7,
            "rep_pen": 1.1,
            "nsigma": 1.5,
            "min_p": 0.1,
            "xtc_probability": 0.5,
            "temperature_last": False,
            "sampler_priority": ["min_p", "temperature", "dynamic_temperature", "quadratic_sampling"],
        },
        [
            ["penalties", {"repeat": 1.1, "last_n": -1}],
            ["min_p", {"p": 0.1}],
            ["temperature", {"t": 0.7}],
            ["top_n_sigma", {"n": 1.5}],
            ["xtc", {"probability": 0.5, "threshold": 0.1, "keep_special": "cancel"}],
        ],
    ),
    "adaptive-p is off below 0 only": (
        {"adaptive_target": 0, "typical_p": 1},
        [["adaptive_p", {"target": 0.0, "decay": 0.9}]],
    ),
    "adaptive-p off": ({"adaptive_target": -0.01, "typical_p": 1}, []),
    "min_length": ({"min_length": 200}, [["min_tokens", {"n": 200}]]),
    "ban_eos_token as text": ({"ban_eos_token": "true"}, [["ignore_eos", {}]]),
    "ban_eos_token": ({"ban_eos_token": True}, [["ignore_eos", {}]]),
    "bans": (
        {"banned_tokens": '[1, 2]\n"a string"\nword\n[no]'},
        [["ban", {"tokens": [1, 2, "word"]}]],
    ),
    "bans switched off": ({"banned_tokens": "[1]", "send_banned_tokens": False}, []),
    "logit bias": (
        {
            "logit_bias": [
                {"text": "hi ", "value": -5},
                {"text": "{verbatim}", "value": 1},
                {"text": " [7, 8]", "value": "2"},
                {"text": " ", "value": 3},
            ]
        },
        [["logit_bias", {"bias": {" hi": -5.0, "verbatim": 1.0, 7: 2.0, 8: 2.0}}]],
    ),
    "bans with the line ends of Windows": (
        {"banned_tokens": '[1, 2]\r\n"a string"\r\nword'},
        [["ban", {"tokens": [1, 2, "word"]}]],
    ),
    "do_sample false": (
        {"do_sample": False, "temp": 0, "rep_pen": 1.2, "rep_pen_range": 64, "top_k": 1},
        [
            ["penalties", {"repeat": 1.2, "last_n": 64}],
            ["greedy", {}],
        ],
    ),
    "a master export": ({"instruct": {}, "preset": {"temp": 0.7, "typical_p": 1}}, [["temperature", {"t": 0.7}]]),
}


@pytest.mark.parametrize(("values", "expected"), RULES.values(), ids=RULES)
def test_chain(load, values, expected):
    assert steps(load(values, "sillytavern")) == expected


EXTRAS = {
    "genamt, not max_length": ({"genamt": 250, "max_length": 8192}, {"max_tokens": 250}),
    "seed": ({"seed": 7}, {"seed": 7}),
    "no seed": ({"seed": -1}, {}),
    "grammar": ({"grammar_string": "root ::= 'a'"}, {"grammar": "root ::= 'a'"}),
    "schema": ({"json_schema": {"type": "object"}}, {"grammar": {"json_schema": {"type": "object"}}}),
    "no schema": ({"json_schema": {}, "grammar_string": ""}, {}),
}


@pytest.mark.parametrize(("values", "expected"), EXTRAS.values(), ids=EXTRAS)
def test_extras(load, values, expected):
    assert load(values, "sillytavern").other_settings == expected


REPORTS = {
    "no counterpart": (
        {"skew": 1, "rep_pen_decay": 10, "num_beams": 2},
        ["num_beams", "rep_pen_decay", "skew"],
    ),
    "neutral": ({"skew": 0, "guidance_scale": 1, "rep_pen_decay": 0, "num_beams": 1, "min_keep": 0}, []),
    "unknown, also if another tool has it": ({"temperature": 0.5, "typical": 0.2}, ["temperature", "typical"]),
    "not sampling": ({"streaming": True, "add_bos_token": True, "server_urls": {}, "n": 1, "type": "ooba"}, []),
    "behind mirostat": ({"temp": 1.17, "mirostat_mode": 2, "mirostat_tau": 9.91}, ["temp"]),
    "an order that is not a list": ({"sampler_priority": "top_k,temperature"}, ["sampler_priority"]),
    "an unknown step of the order": ({"sampler_priority": ["top_q"]}, ["sampler_priority"]),
    "a bias on no ids": ({"logit_bias": [{"text": "[x]", "value": 1}]}, ["logit_bias:"]),
    "temp beside dynatemp": ({"temp": 1.17, "dynatemp": True}, ["temp"]),
}


@pytest.mark.parametrize(("values", "keys"), REPORTS.values(), ids=REPORTS)
def test_reported(load, values, keys):
    assert [sentence.split()[0] for sentence in load(values, "sillytavern").unsupported_settings] == keys
