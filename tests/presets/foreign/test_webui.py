"""text-generation-webui: each rule of its keys, defaults and orders."""

import pytest
from logitsmith.presets import PresetError

from .conftest import steps

DRY = {
    "multiplier": 0.8,
    "base": 1.75,
    "allowed_length": 2,
    "last_n": 1024,
    "breakers": ["\n", ":", '"', "*"],
    "match": "last_token",
}

RULES = {
    "neutral values make no step": ("temperature: 1\ntop_k: 0\ntop_p: 1\ntfs: 1\ntop_a: 0\nmin_p: 0\n", []),
    "temperature": ("temperature: 0.7", [["temperature", {"t": 0.7}]]),
    "numbers as texts": ('temperature: "1.15"\ntop_k: "40"', [["temperature", {"t": 1.15}], ["top_k", {"k": 40}]]),
    "integers as floats": ("top_k: 256.0", [["top_k", {"k": 256}]]),
    "null is absent": ("top_k: null\ntop_p: 0.9", [["top_p", {"p": 0.9}]]),
    "truncation": (
        "top_n_sigma: 1.5\ntop_k: 5\ntop_p: 0.9\ntypical_p: 0.8\ntfs: 0.7\ntop_a: 0.2\nmin_p: 0.05",
        [
            ["top_n_sigma", {"n": 1.5}],
            ["top_k", {"k": 5}],
            ["top_p", {"p": 0.9}],
            ["typical", {"p": 0.8}],
            ["tfs", {"z": 0.7}],
            ["top_a", {"a": 0.2}],
            ["min_p", {"p": 0.05}],
        ],
    ),
    "cutoffs in units of 1e-4": (
        "epsilon_cutoff: 1.49\neta_cutoff: 10.42",
        [["epsilon_cutoff", {"epsilon": 0.000149}], ["eta_cutoff", {"epsilon": 0.001042}]],
    ),
    "dynatemp: the middle and half the width": (
        "dynamic_temperature: true\ndynatemp_low: 0.5\ndynatemp_high: 2\ndynatemp_exponent: 1.5",
        [["dynatemp", {"temperature": 1.25, "range": 0.75, "exponent": 1.5}]],
    ),
    "dynatemp from 1 to 1 is off": ("dynamic_temperature: true", []),
    "temperature and dynatemp both act": (
        "temperature: 0.9\ndynamic_temperature: yes\ndynatemp_high: 3",
        [["temperature", {"t": 0.9}], ["dynatemp", {"temperature": 2.0, "range": 1.0, "exponent": 1.0}]],
    ),
    "smoothing": ("smoothing_factor: 0.3", [["quadratic", {"factor": 0.3, "curve": 1.0}]]),
    "xtc cancels": (
        "xtc_probability: 0.5",
        [["xtc", {"probability": 0.5, "threshold": 0.1, "keep_special": "cancel"}]],
    ),
    "dry with the default window": ("dry_multiplier: 0.8", [["dry", DRY]]),
    "range 0 is all": (
        "dry_multiplier: 0.8\nrepetition_penalty: 1.1\nrepetition_penalty_range: 0",
        [["penalties", {"repeat": 1.1, "last_n": -1}], ["dry", {**DRY, "last_n": -1}]],
    ),
    "breakers as quoted texts": (
        'dry_multiplier: 0.8\ndry_sequence_breakers: \'"\\n", "#"\'',
        [["dry", {**DRY, "breakers": ["\n", "#"]}]],
    ),
    "breakers with a line break itself": (
        'dry_multiplier: 0.8\ndry_sequence_breakers: "\\"\\n\\", \\"#\\""',
        [["dry", {**DRY, "breakers": ["\n", "#"]}]],
    ),
    "breakers that are nearly JSON": (
        'dry_multiplier: 0.8\ndry_sequence_breakers: \'["\\n", "#", ",",]\'',
        [["dry", {**DRY, "breakers": ["\n", "#", ","]}]],
    ),
    "breakers in single quotes and in none": (
        """dry_multiplier: 0.8\ndry_sequence_breakers: "'\\\\n', '\\"', #, *" """,
        [["dry", {**DRY, "breakers": ["\n", '"', "#", "*"]}]],
    ),
    "breakers as a JSON array": (
        'dry_multiplier: 0.8\ndry_sequence_breakers: \'["\\n", "#"]\'',
        [["dry", {**DRY, "breakers": ["\n", "#"]}]],
    ),
    "three penalties are one step": (
        "repetition_penalty: 1.2\npresence_penalty: 0.3\nfrequency_penalty: 0.1",
        [["penalties", {"repeat": 1.2, "presence": 0.3, "frequency": 0.1, "last_n": 1024}]],
    ),
    "a repeat penalty behind presence stays apart": (
        "repetition_penalty: 1.2\npresence_penalty: 0.3\nsampler_priority: [presence_penalty, repetition_penalty]",
        [["penalties", {"presence": 0.3, "last_n": 1024}], ["penalties", {"repeat": 1.2, "last_n": 1024}]],
    ),
    "penalties apart in the order": (
        "repetition_penalty: 1.2\npresence_penalty: 0.3\ntop_k: 3\n"
        "sampler_priority: [repetition_penalty, top_k, presence_penalty]",
        [
            ["penalties", {"repeat": 1.2, "last_n": 1024}],
            ["top_k", {"k": 3}],
            ["penalties", {"presence": 0.3, "last_n": 1024}],
        ],
    ),
    "encoder penalty and n-grams come last": (
        "encoder_repetition_penalty: 1.1\nno_repeat_ngram_size: 3\ntop_k: 5",
        [["top_k", {"k": 5}], ["encoder_repetition_penalty", {"penalty": 1.1}], ["no_repeat_ngram", {"n": 3}]],
    ),
    "top_n_sigma before the temperature in files": (
        "top_n_sigma: 1\ntemperature: 2\nsmoothing_factor: 1",
        [["top_n_sigma", {"n": 1.0}], ["temperature", {"t": 2.0}], ["quadratic", {"factor": 1.0, "curve": 1.0}]],
    ),
    "an order as a list": (
        "temperature: 2\nmin_p: 0.1\nsampler_priority:\n- min_p\n- temperature",
        [["min_p", {"p": 0.1}], ["temperature", {"t": 2.0}]],
    ),
    "an order as one text with line breaks": (
        "temperature: 2\nmin_p: 0.1\nsampler_priority: |\n  min_p\n  temperature",
        [["min_p", {"p": 0.1}], ["temperature", {"t": 2.0}]],
    ),
    "an order as one text with commas": (
        "temperature: 2\nmin_p: 0.1\nsampler_priority: min_p, temperature",
        [["min_p", {"p": 0.1}], ["temperature", {"t": 2.0}]],
    ),
    "steps that an order lacks come first": (
        "temperature: 2\nmin_p: 0.1\ntop_k: 5\nsampler_priority: [min_p, temperature]",
        [["top_k", {"k": 5}], ["min_p", {"p": 0.1}], ["temperature", {"t": 2.0}]],
    ),
    "temperature_last moves three steps": (
        "temperature: 2\ndynamic_temperature: true\ndynatemp_high: 3\nsmoothing_factor: 1\nmin_p: 0.1\n"
        "temperature_last: true\nencoder_repetition_penalty: 1.1",
        [
            ["min_p", {"p": 0.1}],
            ["encoder_repetition_penalty", {"penalty": 1.1}],
            ["temperature", {"t": 2.0}],
            ["dynatemp", {"temperature": 2.0, "range": 1.0, "exponent": 1.0}],
            ["quadratic", {"factor": 1.0, "curve": 1.0}],
        ],
    ),
    "mirostat selects at its place": (
        "temperature: 2\ntop_k: 9\nmirostat_mode: 2\nmirostat_tau: 8",
        [["temperature", {"t": 2.0}], ["top_k", {"k": 9}], ["mirostat_v2", {"tau": 8.0, "eta": 0.1}]],
    ),
    "adaptive-p selects at its place, before mirostat": (
        "min_p: 0.1\nmirostat_mode: 2\nadaptive_target: 0.4",
        [["min_p", {"p": 0.1}], ["adaptive_p", {"target": 0.4, "decay": 0.9}]],
    ),
    "adaptive-p is off at 0": ("adaptive_target: 0", []),
    "greedy with the penalties before it": (
        "do_sample: false\ntop_k: 1\nrepetition_penalty: 1.2\nno_repeat_ngram_size: 2",
        [["penalties", {"repeat": 1.2, "last_n": 1024}], ["no_repeat_ngram", {"n": 2}], ["greedy", {}]],
    ),
    "temperature 0": ("temperature: 0\nrepetition_penalty_range: 5", [["greedy", {}]]),
}


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES)
def test_chain(load, text, expected):
    imported = load(text, "webui")
    assert steps(imported) == expected


def test_a_plain_draw_ends_the_chain_unless_a_step_selects(load):
    assert load("top_k: 5").chain == [["top_k", {"k": 5}], ["dist", {}]]
    assert load("mirostat_mode: 2").chain[-1][0] == "mirostat_v2"


REPORTS = {
    "beam search": (
        "num_beams: 10\nlength_penalty: 1.4\nearly_stopping: true",
        ["num_beams", "length_penalty", "early_stopping"],
    ),
    "contrastive search": ("do_sample: false\npenalty_alpha: 0.3\ntop_k: 4", ["penalty_alpha", "top_k"]),
    "mirostat 1 does nothing": ("mirostat_mode: 1", ["mirostat_mode"]),
    "behind mirostat": ("mirostat_mode: 2\nxtc_probability: 0.5", ["xtc_probability"]),
    "early 2024": ("dynatemp: 1.4\ndynamic_temperature_low: 0.1", ["dynatemp", "dynamic_temperature_low"]),
    "unknown": ("temprature: 0.5", ["temprature"]),
    "not sampling": ("negative_prompt: x\nadd_bos_token: true\ntruncation_length: 2048", []),
    "neutral": ("num_beams: 1\nguidance_scale: 1\npenalty_alpha: 0\nlength_penalty: 1.4", []),
    "deterministic": ("do_sample: false\ntop_k: 1", []),
}


@pytest.mark.parametrize(("text", "keys"), REPORTS.values(), ids=REPORTS)
def test_reported(load, text, keys):
    assert [sentence.split()[0] for sentence in load(text, "webui").unsupported_settings] == keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temperature: hot", "temperature: 'hot' is not a number"),
        ("top_k: 2.5", "top_k: 2.5 is not an integer"),
        ("temperature: .inf", "temperature: inf is not a finite number"),
        ("do_sample: perhaps", "do_sample: 'perhaps' is not true or false"),
        ("top_p: -1", "top_p: top_p.p: -1.0 is not within 0..1"),
        ("epsilon_cutoff: -1", "epsilon_cutoff: -1 is not within 0..10000, in units of 1e-4"),
        ("eta_cutoff: 20000", "eta_cutoff: 20000 is not within 0..10000"),
        ("mirostat_mode: 1.5", "mirostat_mode: 1.5 is not an integer"),
        ("xtc_probability: 0.5\nxtc_threshold: 7", "xtc_threshold: xtc.threshold: 7.0 is not within 0..1"),
        ("dynamic_temperature: true\ndynatemp_low: -1", "dynatemp_low: -1 is not a temperature of at least 0"),
        ("dynamic_temperature: true\ndynatemp_high: 0.5", "dynatemp_high: 0.5 is not at least dynatemp_low"),
        ("dynamic_temperature: true\ndynatemp_low: 3", "dynatemp_low: 3 is not at most dynatemp_high 1"),
        ("a: [1\nb: 2", "line 2"),
    ],
)
def test_refused(load, text, message):
    with pytest.raises(PresetError, match=r".") as caught:
        load(text, "webui")
    assert message in str(caught.value)
