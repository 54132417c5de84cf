import sys

import pytest
from logitsmith.samplers import (
    Sampler,
    SamplerInfo,
    SamplingError,
    build,
    catalogue,
    find_sampler,
    list_plugins,
    registry,
)
from logitsmith.samplers.registry import builtin_names, normalize_name

ENTRIES = catalogue()


def test_the_catalogue_is_alphabetical_and_complete():
    assert list(ENTRIES) == sorted(ENTRIES) == list(builtin_names())
    assert {"dist", "greedy", "min_p", "penalties", "temperature", "top_k", "top_p", "logit_bias"} <= set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_sampler_says_what_it_is(name):
    cls = ENTRIES[name]
    about = cls.about
    assert about.name == name == cls.__module__.rpartition(".")[2]
    for text in (about.summary, about.formula, about.reference, about.llama_cpp):
        assert text.strip() == text != ""
    assert cls.__doc__
    assert cls.__doc__.strip()
    for alias in about.aliases:
        assert normalize_name(alias) == alias


@pytest.mark.parametrize("name", ENTRIES)
def test_every_parameter_has_a_default_and_a_description(name):
    for parameter, field in ENTRIES[name].model_fields.items():
        assert field.description, parameter
        assert not field.is_required(), parameter


@pytest.mark.parametrize("name", ENTRIES)
def test_main_and_neutral_are_parameters(name):
    cls = ENTRIES[name]
    fields = set(cls.model_fields)
    assert cls.about.main_parameter is None or cls.about.main_parameter in fields
    assert set(cls.about.off_values) <= fields
    assert set(cls.about.inactive_while_off) <= fields
    assert set(cls.about.inactive_while_off.values()) <= set(cls.about.off_values)
    if cls.about.off_values:
        assert cls(**cls.about.off_values).is_neutral


@pytest.mark.parametrize("name", ENTRIES)
def test_defaults_are_within_their_ranges(name):
    cls = ENTRIES[name]
    assert cls(**cls().model_dump()) == cls()


# What presets go by, for the samplers named here. A further sampler needs no line.

# llama.cpp's default order, and the samplers that it lacks beside those that do the like.
ORDER = (
    "ignore_eos min_tokens ban logit_bias repetition_penalty encoder_repetition_penalty penalties dry "
    "no_repeat_ngram top_n_sigma top_k top_a typical top_p tfs min_p top_h epsilon_cutoff eta_cutoff xtc "
    "quadratic temperature dynatemp skew"
)
SELECTORS = {"adaptive_p", "dist", "greedy", "mirostat", "mirostat_v2"}
NAMED = [*ORDER.split(), "infill", *SELECTORS]
LIKELIEST_STAYS = "dynatemp epsilon_cutoff eta_cutoff min_p temperature tfs top_a top_h top_k top_n_sigma top_p"
FAMILIES = {
    "dynatemp": "temperature",
    "mirostat": "mirostat",
    "mirostat_v2": "mirostat",
    "temperature": "temperature",
}


def test_the_stages_are_llama_cpps_order():
    staged = [ENTRIES[name].about for name in NAMED if ENTRIES[name].about.stage is not None]
    assert len({about.stage for about in staged}) == len(staged)
    assert [about.name for about in sorted(staged, key=lambda about: about.stage)] == ORDER.split()
    assert {name for name in NAMED if ENTRIES[name].about.is_selector} == SELECTORS


@pytest.mark.parametrize("name", ENTRIES)
def test_a_selector_has_no_stage(name):
    about = ENTRIES[name].about
    assert not about.is_selector or about.stage is None


def test_facts_that_presets_go_by():
    abouts = {name: ENTRIES[name].about for name in NAMED}
    assert sorted(name for name, about in abouts.items() if about.keeps_top_token) == LIKELIEST_STAYS.split()
    biases = {name for name, about in abouts.items() if about.is_bias}
    assert biases == {"ban", "ignore_eos", "logit_bias", "min_tokens"}
    assert {name: about.family for name, about in abouts.items() if about.family} == FAMILIES
    assert {name for name, about in abouts.items() if about.is_greedy} == {"greedy"}
    for about in abouts.values():
        for other, names in about.covered_samplers.items():
            assert abouts[other].family == about.family
            assert ENTRIES[other].model_fields.keys() >= names.keys()
            assert ENTRIES[about.name].model_fields.keys() >= set(names.values())


NAMES = {
    "top_k": "top_k",
    "top-k": "top_k",
    "Top K": "top_k",
    "  TOP-P ": "top_p",
    "temp": "temperature",
    "Temp": "temperature",
    "nucleus": "top_p",
    "repeat-penalty": "penalties",
    "argmax": "greedy",
}


@pytest.mark.parametrize(("typed", "name"), NAMES.items())
def test_names_as_people_type_them(typed, name):
    assert find_sampler(typed) is ENTRIES[name]


def test_every_name_and_alias_is_found():
    for name, cls in ENTRIES.items():
        for word in (name, *cls.about.aliases):
            assert find_sampler(word) is cls


@pytest.mark.parametrize(
    ("typed", "near"),
    [("topk", "top_k"), ("tempreature", "temperature"), ("penalty_", "penalty"), ("min-q", "min_p"),
     ("tpo_p", "top_p")],
)  # fmt: skip
def test_a_near_miss_is_suggested(typed, near):
    with pytest.raises(SamplingError) as caught:
        find_sampler(typed)
    assert str(caught.value) == f"unknown sampler {typed!r}; did you mean {near}?"


@pytest.mark.parametrize("typed", ["", "zzzzzz", "999"])
def test_what_is_known_is_listed_when_nothing_is_near(typed):
    with pytest.raises(SamplingError) as caught:
        find_sampler(typed)
    assert str(caught.value) == f"unknown sampler {typed!r}; known: {', '.join(ENTRIES)}"


def test_an_unknown_step_names_its_place():
    with pytest.raises(SamplingError, match=r"^chain\[1\]: unknown sampler 'topp'; did you mean top_p\?$"):
        build(["top_k", "topp"])


# Samplers of other packages

PLUGIN = '''
from logitsmith.samplers import SamplerInfo, Sampler, Selector
from pydantic import Field

def about(name, **rest):
    return SamplerInfo(name=name, summary="s", formula="f", reference="r", llama_cpp="l", **rest)

class Odd(Sampler):
    """Keep the tokens with an odd id."""

    about = SamplerInfo("odd_ids", summary="s", formula="f", reference="r", llama_cpp="l", main_parameter="base")
    base: int = Field(default=2, ge=2, description="the modulus")

    def apply(self, candidates):
        odd = candidates.ids % self.base == 1
        if odd.any():
            candidates.filter_rows(odd)

class Nameless(Sampler):
    pass

number = 7

class TextAbout(Sampler):
    about = "hello"

class NumberName(Sampler):
    about = about(5)

class OtherName(Sampler):
    about = about("another")

class NoMain(Sampler):
    about = about("no_main", main_parameter="nope")

class NoNeutral(Sampler):
    about = about("no_neutral", off_values={"zz": 1})

class SilentSelector(Selector):
    about = about("silent_selector")

class LoudStep(Sampler):
    about = about("loud_step", is_selector=True)

class TextStage(Sampler):
    about = about("text_stage", stage="early")

class NoDefault(Sampler):
    about = about("no_default")
    x: int
'''

ENTRY_POINTS = """
[logitsmith.samplers]
Odd-Ids = lib_of_odd_samplers:Odd
top_k = lib_of_odd_samplers:Odd
no_module = lib_that_is_not_there:Odd
no_class = lib_of_odd_samplers:Even
no_sampler = lib_of_odd_samplers:number
no_about = lib_of_odd_samplers:Nameless
broken = lib_that_breaks:Odd
exits = lib_that_exits:Odd
temp = lib_of_odd_samplers:Odd
text_about = lib_of_odd_samplers:TextAbout
number_name = lib_of_odd_samplers:NumberName
other-name = lib_of_odd_samplers:OtherName
no_main = lib_of_odd_samplers:NoMain
no_neutral = lib_of_odd_samplers:NoNeutral
silent_selector = lib_of_odd_samplers:SilentSelector
loud_step = lib_of_odd_samplers:LoudStep
text_stage = lib_of_odd_samplers:TextStage
no_default = lib_of_odd_samplers:NoDefault
"""


def forget():
    registry.plugins.cache_clear()
    registry.load_plugin.cache_clear()


@pytest.fixture
def _plugin(tmp_path, monkeypatch):
    (tmp_path / "lib_of_odd_samplers.py").write_text(PLUGIN)
    (tmp_path / "lib_that_breaks.py").write_text("raise RuntimeError('out of order')")
    (tmp_path / "lib_that_exits.py").write_text("import sys; sys.exit(3)")
    info = tmp_path / "lib_of_odd_samplers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lib-of-odd-samplers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield
    forget()
    sys.modules.pop("lib_of_odd_samplers", None)


@pytest.mark.usefixtures("_plugin")
class TestPlugins:
    def test_a_third_partys_sampler_is_a_step_like_any_other(self):
        chain = build([{"odd_ids": 3}, "greedy"])
        assert [step.about.name for step in chain.steps] == ["odd_ids", "greedy"]
        assert build("odd-ids > greedy").config == [{"odd_ids": {"base": 2}}, {"greedy": {}}]

    def test_its_parameters_are_checked_like_any_others(self):
        with pytest.raises(SamplingError, match=r"^chain\[0\]\.odd_ids\.base: 1 is not ≥ 2$"):
            build([{"odd_ids": 1}])

    def test_it_is_not_part_of_the_catalogue(self):
        assert list(catalogue()) == list(ENTRIES)

    def test_a_built_in_sampler_takes_precedence_over_a_plug_in_of_its_name(self):
        assert find_sampler("top_k") is ENTRIES["top_k"]
        assert find_sampler("temp") is ENTRIES["temperature"]
        place = "lib_of_odd_samplers:Odd"
        assert list_plugins()["odd_ids"] == place
        assert list_plugins()["top_k"] == f"{place} (hidden by the built-in top_k)"
        assert list_plugins()["temp"] == f"{place} (hidden by the built-in temperature)"

    def test_it_is_suggested(self):
        with pytest.raises(SamplingError, match=r"did you mean odd_ids\?$"):
            find_sampler("odd_id")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "no_module",
                "the plug-in 'no_module' of lib-of-odd-samplers ("
                "lib_that_is_not_there:Odd) failed to load: "
                "No module named 'lib_that_is_not_there'",
            ),
            (
                "no_class",
                "the plug-in 'no_class' of lib-of-odd-samplers ("
                "lib_of_odd_samplers:Even) failed to load: "
                "module 'lib_of_odd_samplers' has no attribute 'Even'",
            ),
            (
                "broken",
                "the plug-in 'broken' of lib-of-odd-samplers (lib_that_breaks:Odd) failed to load: out of order",
            ),
            (
                "exits",
                "the plug-in 'exits' of lib-of-odd-samplers ("
                "lib_that_exits:Odd) failed to load: it called sys.exit(3)",
            ),
            (
                "no_sampler",
                "the plug-in 'no_sampler' of lib-of-odd-samplers ("
                "lib_of_odd_samplers:number) is not a Sampler with an `about`",
            ),
            (
                "no_about",
                "the plug-in 'no_about' of lib-of-odd-samplers ("
                "lib_of_odd_samplers:Nameless) is not a Sampler with an `about`",
            ),
        ],
    )
    def test_a_broken_one_is_named_and_harms_no_other(self, name, message):
        with pytest.raises(SamplingError) as caught:
            find_sampler(name)
        assert str(caught.value) == message
        assert find_sampler("odd-ids").about.name == "odd_ids"
        assert find_sampler("top_k") is ENTRIES["top_k"]

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("text_about", "its `about` is 'hello', not a SamplerInfo"),
            ("number_name", "name, summary, formula, reference and llama_cpp of its `about` must be strings"),
            (
                "other_name",
                "the name in its `about` is 'another', not 'other_name' as in its entry point",
            ),
            ("no_main", "its `about` names a parameter 'nope' that the sampler does not have"),
            ("no_neutral", "its `about` names a parameter 'zz' that the sampler does not have"),
            (
                "silent_selector",
                "`is_selector` in its `about` must be true for a Selector, and false for other samplers",
            ),
            (
                "loud_step",
                "`is_selector` in its `about` must be true for a Selector, and false for other samplers",
            ),
            ("text_stage", "the stage in its `about` is 'early', neither an integer nor None"),
            ("no_default", "its parameter 'x' has no default"),
        ],
    )
    def test_one_that_would_break_later_is_reported_when_it_is_loaded(self, name, fault):
        with pytest.raises(SamplingError) as caught:
            find_sampler(name)
        assert str(caught.value).endswith(f") cannot be used: {fault}")


def test_without_the_package_the_name_is_unknown():
    with pytest.raises(SamplingError, match="unknown sampler 'odd_ids'"):
        find_sampler("odd_ids")


def test_two_samplers_with_one_alias_are_rejected(monkeypatch):
    class Clone(Sampler):
        about = SamplerInfo(
            name="clone", summary="s", formula="f", reference="r", llama_cpp="l", aliases=("nucleus",)
        )

    classes = {"clone": Clone, "top_p": ENTRIES["top_p"]}
    monkeypatch.setattr(registry, "builtin_names", lambda: tuple(classes))
    monkeypatch.setattr(registry, "_builtin_sampler", classes.__getitem__)
    with pytest.raises(SamplingError, match=r"^the alias 'nucleus' of top_p is already clone$"):
        registry._name_by_alias.__wrapped__()
