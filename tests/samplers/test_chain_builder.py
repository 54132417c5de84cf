from types import MappingProxyType

import pytest
from logitsmith.samplers import (
    Sampler,
    SamplerInfo,
    SamplingError,
    allowed_values,
    build,
    make_sampler,
    parse_chain,
)
from pydantic import Field

from .rows import row

FORMS = {
    "a name": (["top_k"], {"k": 40}),
    "a name with a null": ([{"top_k": None}], {"k": 40}),
    "an empty table": ([{"top_k": {}}], {"k": 40}),
    "the main value": ([{"top_k": 7}], {"k": 7}),
    "a table": ([{"top_k": {"k": 7}}], {"k": 7}),
    "an alias in odd spelling": ([{" Top-K ": 7}], {"k": 7}),
    "a read-only mapping": ([MappingProxyType({"top_k": MappingProxyType({"k": 7})})], {"k": 7}),
    "a tuple of steps": (({"top_k": 7},), {"k": 7}),
    "the notation": ("top_k7", {"k": 7}),
    "a sampler": ([make_sampler({"top_k": 7}, "step")], {"k": 7}),
}


@pytest.mark.parametrize(("steps", "params"), FORMS.values(), ids=FORMS)
def test_forms_of_a_step(steps, params):
    (sampler,) = parse_chain(steps)
    assert sampler.about.name == "top_k"
    assert sampler.model_dump() == params


def test_an_integer_will_do_where_a_number_is_needed():
    assert parse_chain([{"temperature": 2}])[0].model_dump() == {"t": 2.0}


def test_parse_keeps_what_is_neutral_and_adds_nothing():
    assert [sampler.about.name for sampler in parse_chain([{"top_k": 0}])] == ["top_k"]
    assert parse_chain([]) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"top_k": 4}, "chain: {'top_k': 4} is not a list of steps"),
        (None, "chain: None is not a list of steps"),
        (4, "chain: 4 is not a list of steps"),
        ([4], "chain[0]: 4 is not a step; write name, name: value or name: {parameters}"),
        (
            [6, 0, 5],
            "chain: these numbers are KoboldAI's sampler_order, which has no values; "
            "write names and values: 'rep_pen=… > top_k=… > temp=…'",
        ),
        ([None], "chain[0]: null is not a step; write name, name: value or name: {parameters}"),
        ([{}], "chain[0]: {} is not a step; write name, name: value or name: {parameters}"),
        (
            ["dist", {"top_k": 4, "top_p": 1}],
            "chain[1]: top_k and top_p are in one step; write each as an item of the list",
        ),
        ([{4: 4}], "chain[0]: {4: 4} is not a step; write name, name: value or name: {parameters}"),
        ([["top_k"]], "chain[0]: ['top_k'] is not a step; write name, name: value or name: {parameters}"),
        (["greddy"], "chain[0]: unknown sampler 'greddy'; did you mean greedy?"),
        ([{"top_k": {"k": 1, "j": 2}}], "chain[0].top_k: unknown parameter 'j'; known: k"),
        ([{"top_k": {4: 2}}], "chain[0].top_k: unknown parameter 4; known: k"),
        ([{"top_k": {"k": None}}], "chain[0].top_k.k: null is not an integer (≥ -1)"),
        ([{"temp": "hot"}], "chain[0].temperature.t: 'hot' is not a number (≥ 0)"),
        ([{"top_p": {"p": 0.5, "boundary": 3}}], "chain[0].top_p.boundary: 3 is not include or exclude"),
        (["dist", {"top_p": 2}], "chain[1].top_p.p: 2 is not within 0..1"),
        ([{"logit_bias": {"bias": -1}}], "chain[0].logit_bias.bias: -1 is not an object such as {42: -1.5}"),
    ],
)
def test_refusal(steps, message):
    with pytest.raises(SamplingError) as caught:
        build(steps)
    assert str(caught.value) == message


def test_a_table_of_tokens_may_be_alone_or_under_its_parameter():
    for step in ({"logit_bias": {1: 2.0}}, {"logit_bias": {"bias": {1: 2.0}}}):
        assert build([step]).apply(row(0, 0)).logits.tolist() == [0.0, 2.0]


class Ranges(Sampler):
    """A sampler with a parameter of each kind of range."""

    about = SamplerInfo(name="ranges", summary="s", formula="f", reference="r", llama_cpp="l")

    closed: float = Field(default=0, ge=0, le=1)
    right_open: float = Field(default=0, ge=0, lt=1)
    left_open: float = Field(default=1, gt=0, le=1)
    low: int = Field(default=0, ge=-1)
    above: float = Field(default=1, gt=0)
    high: float = Field(default=0, le=0.5)
    below: float = Field(default=0, lt=0.5)
    free: float = Field(default=0)


@pytest.mark.parametrize(
    ("parameter", "words", "wrong", "message"),
    [
        ("closed", "0..1", 1.5, "1.5 is not within 0..1"),
        ("right_open", "≥ 0 and < 1", 1.0, "1.0 is not ≥ 0 and < 1"),
        ("left_open", "> 0 and ≤ 1", 0.0, "0.0 is not > 0 and ≤ 1"),
        ("low", "≥ -1", -2, "-2 is not ≥ -1"),
        ("above", "> 0", 0.0, "0.0 is not > 0"),
        ("high", "≤ 0.5", 0.6, "0.6 is not ≤ 0.5"),
        ("below", "< 0.5", 0.5, "0.5 is not < 0.5"),
        ("free", "", "x", "'x' is not a number"),
    ],
)
def test_ranges_in_words(monkeypatch, parameter, words, wrong, message):
    assert allowed_values(Ranges.model_fields[parameter]) == words
    monkeypatch.setitem(make_sampler.__globals__, "find_sampler", lambda _: Ranges)
    with pytest.raises(SamplingError) as caught:
        make_sampler({"ranges": {parameter: wrong}}, "here")
    assert str(caught.value) == f"here.ranges.{parameter}: {message}"


def test_choices_in_words():
    top_p = type(make_sampler("top_p", "step"))
    assert allowed_values(top_p.model_fields["boundary"]) == "include or exclude"
    assert allowed_values(top_p.model_fields["min_keep"]) == "≥ 1"


STEPS_IN_NOTATION = {
    "a number": ("temp0.8", {"temperature": 0.8}),
    "a call with one value": ("top_k(40)", {"top_k": 40}),
    "a call with names": ("top-p(p=0.6, min_keep=2)", {"top_p": {"p": 0.6, "min_keep": 2}}),
    "an equals sign": ("typical = 0.9", {"typical": 0.9}),
}


@pytest.mark.parametrize(("text", "step"), STEPS_IN_NOTATION.values(), ids=STEPS_IN_NOTATION)
def test_a_step_of_a_list_may_be_written_in_the_notation(text, step):
    (written,), (table,) = parse_chain([text]), parse_chain([step])
    assert written == table


NO_STEPS = {
    "several": (
        "top_k40 > temp1",
        "chain[0]: 'top_k40 > temp1' is a chain of several steps; write each",
    ),
    "a colon": ("top_k:40", "chain[0]: 'top_k:40' is not a step; write name, name0.8, name=value or name("),
    "a call with two values": ("top_k(40, 2)", "chain[0]: '40' is not key=value"),
    "an unknown name": ("top_x40", "chain[0]: unknown sampler 'top_x40'; "),
    "a version": ("mirostat2", "chain[0]: 'mirostat2' may be mirostat_v2 or mirostat=2"),
}


@pytest.mark.parametrize(("text", "message"), NO_STEPS.values(), ids=NO_STEPS)
def test_a_step_that_is_none_says_how_to_write_it(text, message):
    with pytest.raises(SamplingError) as caught:
        parse_chain([text])
    assert str(caught.value).startswith(message)
