import contextlib
import json

import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import (
    SamplingError,
    build,
    building as compact_notation,
    catalogue,
    parse_chain,
    parse_notation,
    registry,
)

READ = {
    "temp0.8 > typical0.19 > tfs0.97 > top-p0.6": [
        {"temp": 0.8},
        {"typical": 0.19},
        {"tfs": 0.97},
        {"top-p": 0.6},
    ],
    "top_k40": [{"top_k": 40}],
    "top_k 40": [{"top_k": 40}],
    "top_k=40": [{"top_k": 40}],
    "  top_k  =  40  ": [{"top_k": 40}],
    "top-k40>temp.5>greedy": [{"top-k": 40}, {"temp": 0.5}, "greedy"],
    "Top P 0.9": [{"Top P": 0.9}],
    "temp1.": [{"temp": 1.0}],
    "temp1e-2": [{"temp": 0.01}],
    "temp1E+2": [{"temp": 100.0}],
    "penalties-1.5": [{"penalties": -1.5}],
    "penalties=+2": [{"penalties": 2}],
    "mirostat_v2": ["mirostat_v2"],
    "mirostat_v2(tau=3)": [{"mirostat_v2": {"tau": 3}}],
    "mirostat v2": ["mirostat v2"],
    "top_p(p=0.6, boundary=exclude)": [{"top_p": {"p": 0.6, "boundary": "exclude"}}],
    "top_p(min-keep = 2)": [{"top_p": {"min_keep": 2}}],
    "penalties(penalize_newline=false)": [{"penalties": {"penalize_newline": False}}],
    "penalties(penalize_newline=true)": [{"penalties": {"penalize_newline": True}}],
    "logit_bias(42=-1, 7=-inf)": [{"logit_bias": {42: -1, 7: float("-inf")}}],
    "dist()": [{"dist": {}}],
    "dist( )": [{"dist": {}}],
    "xtc(probability=0.5, keep_special=cancel)": [{"xtc": {"probability": 0.5, "keep_special": "cancel"}}],
    'dry(multiplier=0.8, breakers=["\\n", ":", "a, b"])': [
        {"dry": {"multiplier": 0.8, "breakers": ["\n", ":", "a, b"]}}
    ],
    'ban(strings="x > (y", tokens=[1, 2]) > dist': [{"ban": {"strings": "x > (y", "tokens": [1, 2]}}, "dist"],
    'ban(strings="two  spaces")': [{"ban": {"strings": "two  spaces"}}],
    'ban(strings="a \\" quote")': [{"ban": {"strings": 'a " quote'}}],
    'logit_bias(" the-end"=-1)': [{"logit_bias": {" the-end": -1}}],
    "ban42": [{"ban": 42}],
    # A dash is an underscore only in the name of a parameter.
    "logit_bias(--=100, -=1, well-known=2)": [{"logit_bias": {"--": 100, "-": 1, "well-known": 2}}],
    'xtc(keep-special=all, "min-keep"=2)': [{"xtc": {"keep_special": "all", "min-keep": 2}}],
    # A main parameter may be of any kind.
    'ban="x"': [{"ban": "x"}],
    'ban = ["x > y", 5]': [{"ban": ["x > y", 5]}],
    'ban["x"] > dist': [{"ban": ["x"]}, "dist"],
    'ban "a  b"': [{"ban": "a  b"}],
    'ban="="': [{"ban": "="}],
    "ban=the": [{"ban": "the"}],
    # Digits in names: a known name takes precedence over a name and a number.
    "mirostat_v25.0": [{"mirostat_v2": 5.0}],
    "mirostat_v2 5": [{"mirostat_v2": 5}],
    "mirostat=2": [{"mirostat": 2}],
    "mirostat3": [{"mirostat": 3}],
    "sampler2(x=3)": [{"sampler2": {"x": 3}}],
    "sampler2=3": [{"sampler2": 3}],
    "nosuch4": [{"nosuch": 4}],
    "top-h.4": [{"top-h": 0.4}],
}  # fmt: skip


@pytest.mark.parametrize(("text", "steps"), READ.items(), ids=READ)
def test_read(text, steps):
    read = parse_notation(text)
    assert read == steps
    assert repr(read) == repr(steps), "an int must not become a float, nor the other way round"


HINT = "; write name, name0.8, name=value or name(key=value, …)"
JOINED = " is not one step; write > between steps"
KOBOLDAI = ": these numbers are KoboldAI's sampler_order, which has no values; write names and values: "
ALL_SEVEN = "'rep_pen=… > top_k=… > top_a=… > tfs=… > typical=… > top_p=… > temp=…'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "chain[0] of '': a step is missing" + HINT),
        ("6,0,1,3,4,2,5", "chain '6,0,1,3,4,2,5'" + KOBOLDAI + ALL_SEVEN),
        ("[6, 0, 1, 3, 4, 2, 5]", "chain '[6, 0, 1, 3, 4, 2, 5]'" + KOBOLDAI + ALL_SEVEN),
        ("5 > 0>5", "chain '5 > 0>5'" + KOBOLDAI + "'temp=… > top_k=…'"),
        ("5;0", "chain '5;0'" + KOBOLDAI + "'temp=… > top_k=…'"),
        ("5, 7", "chain[0] of '5, 7': '5, 7' is not a step" + HINT),
        ("5", "chain[0] of '5': '5' is not a step" + HINT),
        ("top_k >", "chain[1] of 'top_k >': a step is missing" + HINT),
        ("a >> b", "chain[1] of 'a >> b': a step is missing" + HINT),
        ("0.8", "chain[0] of '0.8': '0.8' is not a step" + HINT),
        ("temp=", "chain[0] of 'temp=': 'temp=' is not a step" + HINT),
        ("temp0.8.1", "chain[0] of 'temp0.8.1': 'temp0.8.1' is not a step" + HINT),
        ("temp(t=1", "chain[0] of 'temp(t=1': 'temp(t=1' is not a step" + HINT),
        ("a > temp(0.8, 1)", "chain[1] of 'a > temp(0.8, 1)': '0.8' is not key=value"),
        ("temp(t=)", "chain[0] of 'temp(t=)': 't=' is not key=value"),
        ("temp(=1)", "chain[0] of 'temp(=1)': '=1' is not key=value"),
        ("temp(t=1,)", "chain[0] of 'temp(t=1,)': '' is not key=value"),
        ('ban(strings="a)', """chain[0] of 'ban(strings="a)': 'ban(strings="a)' is not a step""" + HINT),
        ("ban(tokens=[1)", "chain[0] of 'ban(tokens=[1)': 'ban(tokens=[1)' is not a step" + HINT),
        ("ban(tokens=[1 2])", "chain[0] of 'ban(tokens=[1 2])': '[1 2]' is not a string, list or table"),
        ('ban=["x"', """chain[0] of 'ban=["x"': '["x"' is not a string, list or table"""),
        (
            "mirostat2",
            "chain[0] of 'mirostat2': 'mirostat2' may be mirostat_v2 or mirostat=2; write one of these",
        ),
        ("top_k40, temp0.8", "chain[0] of 'top_k40, temp0.8': 'top_k40, temp0.8'" + JOINED),
        ("top-k40 temp0.8", "chain[0] of 'top-k40 temp0.8': 'top-k40 temp0.8'" + JOINED),
        ("top_k40 | temp", "chain[0] of 'top_k40 | temp': 'top_k40 | temp'" + JOINED),
        ("temp(t=1, t=2)", "chain[0] of 'temp(t=1, t=2)': a parameter appears twice"),
    ],
)  # fmt: skip
def test_refusal(text, message):
    with pytest.raises(SamplingError) as caught:
        parse_notation(text)
    assert str(caught.value) == message


def test_a_plug_ins_name_may_end_in_digits(monkeypatch):
    monkeypatch.setattr(registry, "plugins", lambda: {"sampler2": (), "sampler": ()})
    assert parse_notation("sampler2 > sampler20.5 > Sampler3") == ["sampler2", {"sampler2": 0.5}, {"Sampler": 3}]


@given(st.text(alphabet='temp_k-v20.18eE+>=(), \n"[]\\', max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(SamplingError):
        assert len(parse_notation(text)) <= text.count(">") + 1


MAIN = {name: cls for name, cls in catalogue().items() if cls.about.main_parameter}


@pytest.mark.parametrize("name", MAIN)
def test_every_main_parameter(name):
    cls = MAIN[name]
    if name in ("logit_bias", "sequence_bias"):  # their main parameters are tables
        assert parse_chain(f'{name}("a b"=1)')[0].bias == {"a b": 1}
        return
    if name == "scripts":
        assert parse_chain('scripts=["Latin"]') == parse_chain("scripts=Latin")
        return
    default = cls.model_fields[cls.about.main_parameter].get_default(call_default_factory=True)
    value = 7 if default == [] else default
    for text in (f"{name}{value}", f"{name} {value}", f"{name}={value}"):
        (sampler,) = parse_chain(text)
        assert getattr(sampler, cls.about.main_parameter) == ([7] if default == [] else value)


@pytest.mark.parametrize("name", catalogue())
def test_every_parameter(name):
    """A chain's own description of itself, written in the notation, is that sampler again."""
    cls = catalogue()[name]
    given = (f"{key}={json.dumps(value)}" for key, value in cls().model_dump().items())
    (sampler,) = parse_chain(f"{name}({', '.join(given)})")
    assert sampler == cls()


def test_the_notation_of_kobold_ai_builds_the_chain_it_names():
    samplers = parse_chain("top-k40 > Top P=0.9 > temp.5 > greedy")
    assert [sampler.about.name for sampler in samplers] == ["top_k", "top_p", "temperature", "greedy"]
    assert [sampler.model_dump() for sampler in samplers[:3]] == [
        {"k": 40},
        {"p": 0.9, "min_keep": 1, "boundary": "include"},
        {"t": 0.5},
    ]


@pytest.mark.parametrize(
    "text",
    ['ban(texts=["' + '\\"' * 20_000 + "])", '\\"' * 20_000, '"' + '\\"' * 20_000, 'top_k(x="' * 5_000],
    ids=["in a list", "alone", "not closed", "often opened"],
)
def test_quotes_are_searched_once(text, monkeypatch):
    """A quote that does not close is searched to the end of the text, so it must be done only once a pass."""
    characters = []
    quoted = compact_notation._QUOTED_PATTERN

    class Counting:
        def match(self, text, start=0):
            found = quoted.match(text, start)
            characters.append((found.end() if found else len(text)) - start)
            return found

    monkeypatch.setattr(compact_notation, "_QUOTED_PATTERN", Counting())
    with pytest.raises(SamplingError) as caught:
        parse_notation(text)
    assert sum(characters) < 20 * len(text)
    assert len(str(caught.value)) < 1000


def test_a_chain_of_too_many_steps_is_refused():
    for steps in ("top_k1 > " * 2000 + "dist", ["top_k"] * 2000 + ["dist"]):
        with pytest.raises(SamplingError, match=r"2,001 steps; at most 1,000 are allowed$"):
            build(steps)
    assert len(build("top_k1 > " * 999 + "dist").steps) == 1000
