"""Wrong values of parameters, ids and vocabularies, for every sampler: each is an error with its place."""

import math
from typing import Literal, get_origin

import numpy as np
import pytest
from logitsmith.samplers import SamplingError, allowed_values, build, catalogue

from .rows import NEG, FakeVocabulary, row, vocabulary_with_ends

SAMPLERS = catalogue()
PARAMETERS = [(name, key, field) for name, cls in SAMPLERS.items() for key, field in cls.model_fields.items()]

# The range of each number that is a parameter, as messages show it.
ALLOWED = {
    "": "penalties.frequency penalties.presence",
    "-20..20": "skew.skew",
    "-1..1": "adaptive_p.target",
    "0..0.99": "adaptive_p.decay",
    "0..1": "min_p.p tfs.z top_h.h top_p.p typical.p xtc.probability xtc.threshold",
    "1..16777216": "synthid.sampling_table_size",
    "2..1000": "synthid.ngram_len",
    "> 0": "encoder_repetition_penalty.penalty length_decay.factor p_less.temperature penalties.repeat "
    "repetition_penalty.penalty",
    "> 0 and ≤ 1": "edt.base epsilon_cutoff.unit eta_cutoff.unit",
    "≥ -1": "dry.last_n penalties.last_n top_k.k top_n_sigma.n",
    "≥ 0": "dry.multiplier dry.base dry.allowed_length dynatemp.temperature dynatemp.range dynatemp.exponent "
    "edt.temperature edt.theta epsilon_cutoff.epsilon eta_cutoff.epsilon k_shift.k k_shift.steps "
    "length_decay.start min_k.tau min_tokens.n mirostat.tau mirostat.eta mirostat_v2.tau mirostat_v2.eta "
    "no_repeat_ngram.n quadratic.factor repetition_penalty.range repetition_penalty.slope "
    "synthid.context_history_size synthid.sampling_table_seed temperature.t top_a.a top_h.top_n",
    "≥ 1": "min_p.min_keep mirostat.m quadratic.curve top_p.min_keep typical.min_keep xtc.min_keep",
}


@pytest.mark.parametrize(("allowed", "names"), ALLOWED.items(), ids=ALLOWED)
def test_ranges(allowed, names):
    for parameter in names.split():
        name, key = parameter.split(".")
        assert allowed_values(SAMPLERS[name].model_fields[key]) == allowed, parameter


def bounds_of(field):
    return {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("ge", "gt", "le", "lt")
        if hasattr(rule, key)
    }


def wrong_values(field):
    """Values that a parameter of this type and range cannot have; none of them has a wrong type inside of it."""
    kind, bounds = field.annotation, bounds_of(field)
    if get_origin(kind) is Literal:
        return ["nonsense", 3, None]
    if kind is bool:
        return [1, "yes", None]
    if kind is int:
        outside = [bounds[key] - 1 for key in ("ge",) if key in bounds]
        return [
            "5",
            1.5,
            40.0,
            True,
            math.nan,
            None,
            *outside,
            *(bounds[key] + 1 for key in ("le",) if key in bounds),
        ]
    if kind in (float, float | None):
        below = [bounds["ge"] - 0.1] if "ge" in bounds else [bounds["gt"], -1] if "gt" in bounds else []
        above = [bounds["le"] + 0.01] if "le" in bounds else [1e39]
        return ["0.5", True, math.nan, math.inf, -math.inf, *below, *above]
    return [1.5, True]  # a list or a table


@pytest.mark.parametrize(("name", "key", "field"), PARAMETERS, ids=lambda it: it if isinstance(it, str) else "")
def test_a_wrong_value_has_its_place(name, key, field):
    for value in wrong_values(field):
        with pytest.raises(SamplingError) as caught:
            build([{name: {key: value}}])
        assert caught.value.statement.startswith(f"chain[0].{name}.{key}: "), value


KEYS_ARE_TEXTS = {"logit_bias", "sequence_bias"}  # an unknown name is a text that is biased


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - KEYS_ARE_TEXTS))
def test_an_unknown_parameter_is_refused(name):
    with pytest.raises(SamplingError, match=rf"^chain\[0\]\.{name}: unknown parameter 'zzz'; known: "):
        build([{name: {"zzz": 1}}])


@pytest.mark.parametrize("name", [name for name, cls in SAMPLERS.items() if cls.about.main_parameter is None])
def test_without_a_main_parameter_there_is_no_single_value(name):
    with pytest.raises(SamplingError, match=rf"^chain\[0\]\.{name}: accepts no single value, but got 7$"):
        build([{name: 7}])


# What a type does not say: parameters, and the place of the error.
REFUSED = [
    ("allow", {"tokens": [-1]}, "tokens.0"),
    ("allow", {"tokens": [""]}, "tokens.0"),
    ("allow", {"tokens": [1.5]}, "tokens.0"),
    ("ban", {"tokens": [-1]}, "tokens.0"),
    ("ban", {"tokens": [""]}, "tokens.0"),
    ("ban", {"tokens": [1, True]}, "tokens.1"),
    ("ban", {"strings": ["a", ""]}, "strings.1"),
    ("ban", {"strings": ["a", 3]}, "strings.1"),
    ("dry", {"breakers": ["\n", 3]}, "breakers.1"),
    ("dry", {"breakers": 5}, "breakers.0"),
    ("epsilon_cutoff", {"epsilon": 1.0}, ""),
    ("epsilon_cutoff", {"epsilon": 10_000, "unit": 1e-4}, ""),
    ("eta_cutoff", {"epsilon": 1.0}, ""),
    ("eta_cutoff", {"epsilon": 10_000, "unit": 1e-4}, ""),
    ("length_decay", {"factor": [15, 1.1]}, "factor"),
    ("logit_bias", {"bias": {-1: 1}}, "bias"),
    ("logit_bias", {"bias": {1.5: 1}}, "bias"),
    ("logit_bias", {"bias": [3]}, "bias"),
    *(("logit_bias", {"bias": {1: value}}, "bias.1") for value in ("low", True, math.nan, math.inf, 1e39)),
    ("scripts", {"allow": ["Latin", "xyz"]}, "allow.1"),
    ("scripts", {"allow": [""]}, "allow.0"),
    ("scripts", {"allow": ["Latin}|\\p{Greek"]}, "allow.0"),
    ("scripts", {"allow": [3]}, "allow.0"),
    ("sequence_bias", {"bias": {"": 1}}, "bias"),
    ("sequence_bias", {"bias": {2024: 1}}, "bias"),
    *(("sequence_bias", {"bias": {"a": value}}, "bias.a") for value in ("x", math.inf)),
    ("sequence_bias", {"ids": 3}, "ids"),
    ("sequence_bias", {"ids": [[1, 2]]}, "ids.0.0"),
    ("sequence_bias", {"ids": [[[], 2]]}, "ids.0.0"),
    ("sequence_bias", {"ids": [[[1, -1], 2]]}, "ids.0.0"),
    ("sequence_bias", {"ids": [[[1, True], 2]]}, "ids.0.0.1"),
    ("sequence_bias", {"ids": [[[1]]]}, "ids.0.1"),
    ("sequence_bias", {"ids": [[[1], 2], [[1], 3]]}, "ids"),
    ("synthid", {"keys": [1.5]}, "keys.0"),
    ("synthid", {"keys": [1, 2**63]}, "keys.1"),
    ("synthid", {"keys": [0] * 257}, "keys"),
]


@pytest.mark.parametrize(("name", "params", "place"), REFUSED, ids=lambda it: str(it)[:50])
def test_a_value_that_only_this_sampler_refuses_has_its_place(name, params, place):
    with pytest.raises(SamplingError) as caught:
        build([{name: params}], vocab=FakeVocabulary())
    assert caught.value.statement.startswith(".".join(filter(None, ("chain[0]", name, place))) + ": ")


# Steps that read texts or know the end of a text, and the parameter because of which they do.
NEEDY = [
    ({"ban": "a"}, "ban.tokens"),
    ({"ban": {"strings": "a"}}, "ban.strings"),
    ({"dry": 0.8}, "dry.breakers"),
    ({"dry": {"multiplier": 0.8, "breakers": ["x"], "match": "last_token"}}, "dry.breakers"),
    ("ignore_eos", "ignore_eos"),
    ("infill", "infill"),
    ({"length_decay": 1.1}, "length_decay.factor"),
    ({"logit_bias": {"a": 1}}, "logit_bias.bias"),
    ({"min_tokens": 3}, "min_tokens.n"),
    ({"penalties": {"repeat": 2.0, "penalize_newline": False}}, "penalties.penalize_newline"),
    ({"scripts": "Latin"}, "scripts.allow"),
    ({"sequence_bias": {"a": 1}}, "sequence_bias.bias"),
    ({"xtc": {"probability": 0.5, "keep_special": True}}, "xtc.keep_special"),
    ({"xtc": {"probability": 0.5, "keep_special": "cancel"}}, "xtc.keep_special"),
]


@pytest.mark.parametrize(("step", "place"), NEEDY, ids=str)
def test_a_vocabulary_is_needed(step, place):
    with pytest.raises(SamplingError, match=r"needs a vocabulary: build the chain with vocab=$") as caught:
        build([step])
    assert caught.value.statement.startswith(f"chain[0].{place}: ")


ALL_OF_THE_VOCABULARY = [
    {"ban": {"strings": ["ab"]}},
    {"dry": {"multiplier": 0.8, "breakers": [":"]}},
    "ignore_eos",
    "infill",
    {"length_decay": 1.1},
    {"min_tokens": 3},
    {"scripts": "Latin"},
    {"sequence_bias": {"ab": 1}},
]


@pytest.mark.parametrize("size", [98, 200])
@pytest.mark.parametrize("step", ALL_OF_THE_VOCABULARY, ids=str)
def test_a_row_of_another_size_than_the_vocabulary(step, size):
    chain = build([step], vocab=FakeVocabulary(size))
    chain.reset([1, 2, 3, 1, 2])
    with pytest.raises(SamplingError, match=rf"^\w+: the row has 128 logits, the vocabulary {size}$"):
        chain.apply(row(*[0.0] * 128))


IN_PARAMETERS = [
    ({"allow": [3]}, "allow.tokens"),
    ({"ban": [3]}, "ban.tokens"),
    ({"logit_bias": {3: 1}}, "logit_bias.bias"),
    ({"sequence_bias": {"ids": [[[3], 1]]}}, "sequence_bias.ids"),
]


@pytest.mark.parametrize(("step", "place"), IN_PARAMETERS, ids=str)
def test_a_parameter_with_an_id_outside_the_vocabulary(step, place):
    with pytest.raises(SamplingError, match=rf"^{place}: token id 3 is not within 0\.\.2$"):
        build([step]).apply(row(1, 3, 2))
    with pytest.raises(SamplingError, match=rf"^chain\[0\]\.{place}: token id 3 is not within 0\.\.2$"):
        build([step], vocab=FakeVocabulary(3))


IN_TEXTS = [
    {"dry": {"multiplier": 1.0, "breakers": []}},
    {"dry": {"multiplier": 1.0, "breakers": ["\x01"]}},
    {"encoder_repetition_penalty": 2.0},
    {"no_repeat_ngram": 2},
    {"penalties": 2.0},
    {"repetition_penalty": 2.0},
]


@pytest.mark.parametrize("token", [-1, -300, 3, 50_000])
@pytest.mark.parametrize("step", IN_TEXTS, ids=str)
def test_a_text_with_an_id_outside_the_vocabulary(step, token):
    chain = build([step], vocab=FakeVocabulary(3))
    chain.reset([0, token, 0])
    with pytest.raises(SamplingError, match=rf"^\w+: token id {token} in the text is not within 0\.\.2$"):
        chain.apply(row(1, 3, 2))
    chain.reset([0])
    chain.apply(row(1, 3, 2))


@pytest.mark.parametrize("name", ["penalties", "repetition_penalty"])
def test_a_token_outside_the_vocabulary_is_no_part_of_the_text(name):
    chain = build([{name: 2.0}])
    chain.reset([0])
    chain.apply(row(1, 3, 2))
    with pytest.raises(SamplingError, match=rf"^{name}: token id 3 in the text is not within 0\.\.2$"):
        chain.accept(3)
    assert chain.apply(row(1, 3, 2)).logits.tolist() == [0.5, 3.0, 2.0]


# Steps after which nothing is left, and the logits.
NOTHING_LEFT = {
    "all are banned": ([{"ban": [0, 1]}], (1, 3)),
    "all but -inf are banned": ([{"ban": [0, 2]}], (1, NEG, 2)),
    "all that a step before left are banned": ([{"top_k": 1}, {"ban": 1}], (1, 3)),
    "a bias bans what is left": ([{"top_k": 1}, {"logit_bias": {1: False}}], (1, 3)),
    "a bias leaves -inf": ([{"logit_bias": {1: False}}], (NEG, 3)),
    "sequences ban all": ([{"sequence_bias": {"ids": [[[0], False], [[1], False]]}}], (0, 1)),
    "none is allowed": ([{"top_k": 1}, {"allow": 0}], (1, 9)),
    "none is in the script": ([{"top_k": 1}, {"scripts": "Greek"}], (*[0] * 97, 1, 0)),
    "only ends": ([{"top_k": 1}, "ignore_eos"], (1, 3)),
    "only ends, and -inf": ([{"min_tokens": 1}], (NEG, 3)),
}


@pytest.mark.parametrize(("steps", "logits"), NOTHING_LEFT.values(), ids=NOTHING_LEFT)
def test_a_step_that_would_leave_nothing_says_so(steps, logits):
    chain = build(steps, vocab=vocabulary_with_ends(len(logits), 1))
    name = chain.steps[-2].about.name
    with pytest.raises(SamplingError, match=rf"^{name}: (every|no allowed|only end-of-gen|left no finite)"):
        chain.apply(np.array(logits, np.float32))
