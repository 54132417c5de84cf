"""llama.cpp's INI files and general.sampling.* keys."""

import pytest
from logitsmith.presets import PresetError
from logitsmith.presets.foreign.ini import parse_ini

from .conftest import steps

K, P, M, T = ["top_k", {"k": 40}], ["top_p", {"p": 0.95}], ["min_p", {"p": 0.05}], ["temperature", {"t": 0.8}]

RULES = {
    "absent keys keep the chain": ("ctx-size = 4096", [K, P, M, T]),
    "long and short names": ("temperature = 0.5\nn = 9", [K, P, M, ["temperature", {"t": 0.5}]]),
    "environment names": ("LLAMA_ARG_TOP_K = 7", [["top_k", {"k": 7}], P, M, T]),
    "off": ("top-k = 0\ntop-p = 1\nmin-p = 0\ntemp = 1", []),
    "penalties and dry": (
        "repeat-penalty = 1.1\npresence-penalty = 0.2\ndry-multiplier = 0.8\ndry-sequence-breaker = \\n",
        [
            ["penalties", {"repeat": 1.1, "presence": 0.2, "last_n": 64}],
            ["dry", {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "last_n": 64, "breakers": ["\n"]}],
            *(K, P, M, T),
        ],
    ),
    "no breakers": (
        "dry-multiplier = 0.8\ndry-sequence-breaker = none\nsamplers = dry",
        [["dry", {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "last_n": 64, "breakers": []}]],
    ),
    "a window of 0 is off": ("repeat-penalty = 1.1\nrepeat-last-n = 0", [K, P, M, T]),
    "the rest of the order": (
        "top-n-sigma = 1.5\ntypical = 0.9\nxtc-probability = 0.5",
        [
            *(["top_n_sigma", {"n": 1.5}], K, ["typical", {"p": 0.9}], P, M),
            *(["xtc", {"probability": 0.5, "threshold": 0.1}], T),
        ],
    ),
    "xtc above a threshold of 0.5": ("xtc-probability = 0.5\nxtc-threshold = 0.6", [K, P, M, T]),
    "dynatemp": (
        "dynatemp-range = 0.5\ndynatemp-exp = 2",
        [K, P, M, ["dynatemp", {"temperature": 0.8, "range": 0.5, "exponent": 2.0}]],
    ),
    "temp 0": ("temp = 0", [K, P, M, ["greedy", {}]]),
    "temp below 0": ("temp = -1", [K, P, M, ["greedy", {}]]),
    "mirostat": ("mirostat = 2\nmirostat-ent = 4", [T, ["mirostat_v2", {"tau": 4.0, "eta": 0.1}]]),
    "mirostat 1": ("mirostat = 1\nmirostat-lr = 0.2\ntop-k = 40", [T, ["mirostat", {"tau": 5.0, "eta": 0.2}]]),
    "letters": ("sampler-seq = tmk", [T, M, K]),
    "one name only, since ; is a comment": ("samplers = min_p;top_k", [M]),
    "adaptive-p last, if it is listed": (
        "sampler-seq = akt\nadaptive-target = 0.3",
        [K, T, ["adaptive_p", {"target": 0.3, "decay": 0.9}]],
    ),
    "adaptive-p not listed": ("adaptive-target = 0.3", [K, P, M, T]),
    "biases first": (
        "logit-bias = 42-1.5\nignore-eos = true",
        [["ignore_eos", {}], ["logit_bias", {"bias": {42: -1.5}}], K, P, M, T],
    ),
    "ignore-eos off": ("ignore-eos = off", [K, P, M, T]),
    "underscored names, with a warning": ("top_k = 5", [["top_k", {"k": 5}], P, M, T]),
    "comments": (
        "top-k = 5 ; five\n# temp = 3\n  ; temp = 3\ntemp = 0.5# half",
        [
            ["top_k", {"k": 5}],
            P,
            M,
            ["temperature", {"t": 0.5}],
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES)
def test_chain(load, text, expected):
    imported = load(text)
    assert imported.format == "llama.cpp"
    assert steps(imported) == expected
    assert imported.sections == []


SECTIONS = "[*]\ntop-k = 20\ntemp = 0.5\n\n[a]\ntemperature = 0.6\n[ b ]\nmin-p = 0.1\n"


def test_sections(load):
    imported = load(SECTIONS, section="a")
    assert imported.sections == ["a", "b"]
    assert steps(imported) == [["top_k", {"k": 20}], P, M, ["temperature", {"t": 0.6}]]
    assert steps(load(SECTIONS, section="b"))[2:] == [["min_p", {"p": 0.1}], ["temperature", {"t": 0.5}]]
    for section in (None, "c"):
        with pytest.raises(PresetError, match="a, b"):
            load(SECTIONS, section=section)


def test_keys_before_a_header_are_the_default_section(load):
    text = "temp = 0.3\n[a]\ntemp = 0.4\n"
    assert load(text, section="default").chain[-2] == ["temperature", {"t": 0.3}]
    assert load(text, section="a").sections == ["default", "a"]


def test_only_the_global_section(load):
    assert load("version = 1\n[*]\ntop-k = 3\n[a]\ntemp = 0.6\n").sections == ["a"]  # not what stands first
    assert load("[*]\ntop-k = 3\n").chain[0] == ["top_k", {"k": 3}]


REPORTS = {
    "underscored": ("top_p = 0.5", ["top_p"]),
    "repetition-penalty": ("repetition-penalty = 1.1", ["repetition-penalty"]),
    "cut by a comment": ("samplers = top_k;top_p", ["samplers"]),
    "a comment after a space": ("top-k = 5 ;top_p", []),
    "a negative window": ("repeat-penalty = 1.1\nrepeat-last-n = -1", ["repeat-last-n"]),
    "unknown": ("tempp = 1", ["tempp"]),
    "not sampling": ("c = 4096\nn-gpu-layers = 99\nmodel = a.gguf\nload-on-startup = true\nversion = 1", []),
    "unknown letters": ("sampler-seq = kq", ["sampler-seq"]),
    "adaptive-p not listed": ("adaptive-target = 0.3", ["adaptive-target"]),
}


@pytest.mark.parametrize(("text", "keys"), REPORTS.values(), ids=REPORTS)
def test_reported(load, text, keys):
    assert [sentence.split()[0] for sentence in load(text, "llama.cpp").unsupported_settings] == keys


def test_extras(load):
    text = "seed = 7\npredict = 99\nreverse-prompt = \\nUser:\nsystem-prompt = hi\ngrammar-file = a.gbnf\n"
    assert load(text).other_settings == {
        "seed": 7,
        "max_tokens": 99,
        "stop": ["\nUser:"],
        "system": "hi",
        "grammar": {"file": "a.gbnf"},
    }
    assert load("seed = -1\nn-predict = -1\n").other_settings == {"max_tokens": -1}
    assert load("n-predict = -2\n").other_settings == {"max_tokens": -1}
    imported = load("n-predict = 0\n")
    assert imported.other_settings == {}
    assert [sentence.split()[0] for sentence in imported.unsupported_settings] == ["n-predict"]


def test_metadata(load):
    keys = {"temp": 0.6, "top_k": 20, "penalty_repeat": 1.1, "penalty_last_n": 32, "mirostat_tau": 4, "odd": 1}
    values = {"general.name": "x", **{f"general.sampling.{key}": value for key, value in keys.items()}}
    imported = load(values)
    assert imported.format == "llama.cpp"
    assert steps(imported) == [
        ["penalties", {"repeat": 1.1, "last_n": 32}],
        ["top_k", {"k": 20}],
        *(P, M),
        ["temperature", {"t": 0.6}],
    ]
    assert [sentence.split()[0] for sentence in imported.unsupported_settings] == ["general.sampling.odd"]
    ordered = load({"general.sampling.sequence": "temperature;top_k", "general.sampling.mirostat": 0})
    assert steps(ordered) == [T, K]


@pytest.mark.parametrize("line", ["  top-k = 3", "top-k 3", "= 3", "[a", "3k = 1"])
def test_a_line_that_is_not_ini_is_rejected(line):
    with pytest.raises(PresetError, match="line 2"):
        parse_ini(f"temp = 1\n{line}\n", "x.ini")


def test_a_section_that_stands_twice_counts_from_its_last_header():
    assert parse_ini("[a]\nb = 1\n[a]\nc = 2\n", "x.ini")["a"].values == {"c": "2"}
