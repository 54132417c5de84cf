"""KoboldAI, SillyTavern's presets for it, KoboldCpp and Lite."""

import pytest
from logitsmith.presets import PresetError

from .conftest import steps

# Values with which no step acts.
OFF = {"temp": 1, "top_k": 0, "top_a": 0, "top_p": 1, "tfs": 1, "typical": 1, "rep_pen": 1}
ALL = {"temp": 0.7, "top_k": 9, "top_a": 0.2, "top_p": 0.9, "tfs": 0.95, "typical": 0.8, "rep_pen": 1.1}

KOBOLDAI = {
    "SillyTavern's defaults: top_a is 1": ({}, [["top_a", {"a": 1.0}]]),
    "KoboldAI's own settings file has KoboldAI's": (
        {"numseqs": 1},
        [
            ["repetition_penalty", {"penalty": 1.1, "range": 2048, "slope": 1.0}],
            ["top_p", {"p": 0.9}],
            ["temperature", {"t": 0.5}],
        ],
    ),
    "an order of seven": (
        {**ALL, "rep_pen_range": 1024, "rep_pen_slope": 0.7, "sampler_order": [6, 5, 4, 3, 2, 1, 0]},
        [
            ["repetition_penalty", {"penalty": 1.1, "range": 1024, "slope": 0.7}],
            ["temperature", {"t": 0.7}],
            ["typical", {"p": 0.8}],
            ["tfs", {"z": 0.95, "pad": True}],
            ["top_p", {"p": 0.9}],
            ["top_a", {"a": 0.2}],
            ["top_k", {"k": 9}],
        ],
    ),
    "SillyTavern's default order": (
        {**OFF, "temp": 0.7, "top_k": 9, "rep_pen": 1.1, "rep_pen_range": 64, "rep_pen_slope": 0},
        [
            ["top_k", {"k": 9}],
            ["temperature", {"t": 0.7}],
            ["repetition_penalty", {"penalty": 1.1, "range": 64, "slope": 0.0}],
        ],
    ),
    "six entries get 6 in front; one text": (
        {
            **OFF,
            "temp": "0.8",
            "rep_pen": "1.15",
            "rep_pen_range": 512,
            "rep_pen_slope": "3.4",
            "top_k": "100",
            "sampler_order": "5, 0, 2, 3, 1, 4",
        },
        [
            ["repetition_penalty", {"penalty": 1.15, "range": 512, "slope": 3.4}],
            ["temperature", {"t": 0.8}],
            ["top_k", {"k": 100}],
        ],
    ),
    "min_p stands behind top_p": (
        {**OFF, "min_p": 0.1, "top_p": 0.9, "top_k": 3, "sampler_order": [2, 0, 6, 1, 3, 4, 5]},
        [["top_p", {"p": 0.9}], ["min_p", {"p": 0.1}], ["top_k", {"k": 3}]],
    ),
    "mirostat": (
        {**ALL, "rep_pen_range": 0, "mirostat": 2, "mirostat_tau": 9.62, "mirostat_eta": 1},
        [
            ["repetition_penalty", {"penalty": 1.1, "range": 0, "slope": 0.9}],
            ["temperature", {"t": 0.7}],
            ["mirostat_v2", {"tau": 9.62, "eta": 1.0}],
        ],
    ),
    "temperature 0": (
        {**OFF, "temp": 0, "top_k": 4, "sampler_order": [0, 5, 1, 2, 3, 4, 6]},
        [["top_k", {"k": 4}], ["greedy", {}]],
    ),
}


@pytest.mark.parametrize(("values", "expected"), KOBOLDAI.values(), ids=KOBOLDAI)
def test_koboldai(load, values, expected):
    assert steps(load(values, "koboldai")) == expected


def test_presets_absent_keys_get_koboldais_defaults(load):
    imported = load([{"preset": "A", "Model Type": "opt"}], "koboldai")
    assert steps(imported) == [
        ["repetition_penalty", {"penalty": 1.1, "range": 2048, "slope": 1.0}],
        ["top_p", {"p": 0.9}],
        ["temperature", {"t": 0.5}],
    ]
    assert imported.sections == []


def test_sections(load):
    presets = [
        {**OFF, "preset": "A", "Model Type": "opt", "top_k": 1, "genamt": 80, "max_length": 1024},
        {**OFF, "preset": "A", "Model Type": "xglm", "top_k": 2},
        {**OFF, "preset": "B", "Model Type": "opt", "top_k": 3},
        {**OFF, "preset": "C", "Model Type": "opt", "top_k": 4, "uid": 1},
        {**OFF, "preset": "C", "Model Type": "xglm", "top_k": 4, "uid": 2},
    ]
    names = ["A (opt)", "A (xglm)", "B", "C (opt)", "C (xglm)"]
    imported = load(presets, section="B")
    assert imported.format == "koboldai"
    assert imported.sections == names
    assert steps(imported) == [["top_k", {"k": 3}]]
    assert steps(load(presets, section="A (xglm)")) == [["top_k", {"k": 2}]]
    assert load(presets, section="A (opt)").other_settings == {"max_tokens": 80}
    assert steps(load(presets, section="C")) == [["top_k", {"k": 4}]]  # both have the same settings
    for section in (None, "A", "D"):
        with pytest.raises(PresetError, match=r"A \(opt\), A \(xglm\)") as caught:
            load(presets, section=section)
        assert str(caught.value).count("theirs: ") == 1


KOBOLDCPP = {
    "the default order": (
        {**ALL, "rep_pen_range": 320, "min_p": 0.1},
        [
            ["penalties", {"repeat": 1.1, "last_n": 320}],
            ["top_k", {"k": 9}],
            ["top_a", {"a": 0.2}],
            ["tfs", {"z": 0.95, "pad": False}],
            ["typical", {"p": 0.8}],
            ["top_p", {"p": 0.9}],
            ["min_p", {"p": 0.1}],
            ["temperature", {"t": 0.7}],
        ],
    ),
    "an order of six is not taken": (
        {**OFF, "temp": 0.7, "top_k": 3, "sampler_order": [5, 0, 1, 2, 3, 4]},
        [["top_k", {"k": 3}], ["temperature", {"t": 0.7}]],
    ),
    "5 is the temperature, the smoothing and nsigma": (
        {
            **OFF,
            "temp": 0.7,
            "smoothing_factor": 0.3,
            "nsigma": 1.5,
            "top_k": 3,
            "sampler_order": [6, 5, 0, 1, 3, 4, 2],
        },
        [
            ["temperature", {"t": 0.7}],
            ["quadratic", {"factor": 0.3, "curve": 1.0}],
            ["top_n_sigma", {"n": 1.5}],
            ["top_k", {"k": 3}],
        ],
    ),
    "dynatemp": (
        {**OFF, "temp": 1.25, "dynatemp_range": 0.75},
        [["dynatemp", {"temperature": 1.25, "range": 0.75, "exponent": 1.0}]],
    ),
    "presence penalty": (
        {**OFF, "presence_penalty": 0.2},
        [["penalties", {"presence": 0.2, "last_n": 320}]],
    ),
    "range 0 is the last token": (
        {**OFF, "rep_pen": 1.1, "rep_pen_range": 0},
        [["penalties", {"repeat": 1.1, "last_n": 1}]],
    ),
    "a slope": (
        {**OFF, "rep_pen": 1.1, "rep_pen_range": 360, "rep_pen_slope": 0.7, "presence_penalty": 0.2, "top_k": 3},
        [
            ["repetition_penalty", {"penalty": 1.1, "range": 360, "slope": 0.7, "shape": "halves"}],
            ["penalties", {"presence": 0.2, "last_n": 360}],
            ["top_k", {"k": 3}],
        ],
    ),
    "a slope below a penalty of 1 is flat": (
        {**OFF, "rep_pen": 0.9, "rep_pen_slope": 0.7},
        [["penalties", {"repeat": 0.9, "last_n": 320}]],
    ),
    "a slope under mirostat, and smoothing": (
        {**ALL, "rep_pen_range": 64, "rep_pen_slope": 0.7, "smoothing_factor": 0.3, "mirostat": 2},
        [
            ["repetition_penalty", {"penalty": 1.1, "range": 64, "slope": 0.7, "shape": "halves"}],
            ["temperature", {"t": 0.7}],
            ["quadratic", {"factor": 0.3, "curve": 1.0}],
            ["mirostat_v2", {"tau": 5.0, "eta": 0.1}],
        ],
    ),
    "dry first, xtc and adaptive-p last": (
        {**OFF, "temp": 0.7, "dry_multiplier": 0.8, "xtc_probability": 0.5, "adaptive_target": 0.4},
        [
            [
                "dry",
                {
                    "multiplier": 0.8,
                    "base": 1.75,
                    "allowed_length": 2,
                    "last_n": 320,
                    "breakers": ["\n", ":", '"', "*"],
                },
            ],
            ["temperature", {"t": 0.7}],
            ["xtc", {"probability": 0.5, "threshold": 0.2}],
            ["adaptive_p", {"target": 0.4, "decay": 0.9}],
        ],
    ),
    "adaptive-p off": ({**OFF, "adaptivep_target": -1}, []),
    "mirostat": (
        {**ALL, "rep_pen_range": 64, "mirostat": 1},
        [
            ["penalties", {"repeat": 1.1, "last_n": 64}],
            ["temperature", {"t": 0.7}],
            ["mirostat", {"tau": 5.0, "eta": 0.1}],
        ],
    ),
    "temperature 0": ({**OFF, "temp": 0}, [["greedy", {}]]),
    "logit bias and bans first": (
        {**OFF, "top_k": 3, "logit_bias": {"42": -100}, "banned_tokens": ["a phrase"]},
        [["logit_bias", {"bias": {42: -100.0}}], ["top_k", {"k": 3}]],
    ),
}


@pytest.mark.parametrize(("values", "expected"), KOBOLDCPP.values(), ids=KOBOLDCPP)
def test_koboldcpp(load, values, expected):
    assert steps(load({"preset": "x", **values}, "koboldcpp")) == expected


REPORTS = {
    "slope in between": ("koboldcpp", {**OFF, "rep_pen": 1.1, "rep_pen_slope": 0.7}, []),
    "slope below a penalty of 1": ("koboldcpp", {**OFF, "rep_pen": 0.9, "rep_pen_slope": 0.7}, []),
    "min_p": ("koboldai", {**OFF, "min_p": 0.1}, ["min_p"]),
    "min_p under mirostat": ("koboldai", {**OFF, "min_p": 0.1, "mirostat": 2}, ["mirostat", "min_p"]),
    "slope 1": ("koboldcpp", {**OFF, "rep_pen": 1.1, "rep_pen_slope": 1}, []),
    "slope 0": ("koboldcpp", {**OFF, "rep_pen": 1.1, "rep_pen_slope": 0}, []),
    "slope above 1": ("koboldcpp", {**OFF, "rep_pen": 1.1, "rep_pen_slope": 6.8}, []),
    "slope without a penalty": ("koboldcpp", {**OFF, "rep_pen_slope": 0.7}, []),
    "seed": ("koboldcpp", {**OFF, "sampler_seed": 0}, []),
    "unknown": ("koboldcpp", {**OFF, "typical_q": 0.5}, ["typical_q"]),
    "left out of an order": ("koboldai", {**OFF, "top_k": 3, "sampler_order": [6, 5]}, ["top_k"]),
    "unknown to KoboldAI": ("koboldai", {**OFF, "top_q": 3}, ["top_q"]),
    "the context is quiet": ("koboldai", {**OFF, "max_length": 2048, "ikgen": 200, "n": 1}, []),
}


@pytest.mark.parametrize(("form", "values", "keys"), REPORTS.values(), ids=REPORTS)
def test_reported(load, form, values, keys):
    assert [sentence.split()[0] for sentence in load(values, form).unsupported_settings] == keys


def test_extras(load):
    values = {**OFF, "genamt": 80, "grammar": 'root ::= "a"', "seed": -1}
    assert load(values, "koboldai").other_settings == {"max_tokens": 80, "grammar": 'root ::= "a"'}
    request = {**OFF, "max_length": 99, "max_context_length": 4096, "sampler_seed": 7, "stop_sequence": ["a", ""]}
    assert load(request, "koboldcpp").other_settings == {"max_tokens": 99, "seed": 7, "stop": ["a"]}


@pytest.mark.parametrize("order", [[0, 9], "a, b", 7, [True]])
def test_a_wrong_order_is_refused(load, order):
    with pytest.raises(PresetError, match="sampler_order"):
        load({**OFF, "sampler_order": order}, "koboldai")


def test_the_comments_say_whose_defaults_hold(load):
    assert "SillyTavern's default: top_a 1.0" in load({"temp": 0.7, "typical": 1}, "koboldai").yaml_text()
    assert "KoboldAI's default: top_p 0.9" in load([{"preset": "x", "temp": 0.7}], "koboldai").yaml_text()
