"""`gen settings`: every setting once, with the flags that set it and its names in other tools."""

import json
from dataclasses import fields
from typing import get_type_hints

import pytest
from logitsmith.cli.commands.run import RunOptions
from logitsmith.cli.flags import Options, flag_of_field
from logitsmith.presets.preset import Preset
from logitsmith.presets.settings_list import list_settings
from logitsmith.requests.fields import ChatFields, PromptFields
from logitsmith.samplers.registry import catalogue

LISTED = {each.name: each for each in list_settings()}


def declared_flags(options=RunOptions):
    """The names of the flags of `gen run`, by the setting that each of them sets."""
    for declared in fields(options):
        flag = flag_of_field(declared)
        if flag is not None:
            yield flag
        else:
            group = get_type_hints(options)[declared.name]
            if issubclass(group, Options):
                yield from declared_flags(group)


def test_the_list_is_complete():
    samplers = catalogue()
    parameters = {f"{name}.{key}" for name, cls in samplers.items() for key in cls.model_fields}
    switches = {name for name, cls in samplers.items() if not cls.model_fields}
    assert set(LISTED) == parameters | switches | set(Preset.model_fields) - {"description", "chain"}


FLAGS = list(declared_flags())


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.setting_name], ids=lambda flag: flag.name)
def test_a_flag_that_sets_a_setting_is_listed_there(flag):
    name = flag.setting_name if flag.setting_name in LISTED else flag.setting_name.partition(".")[0]
    assert set(flag.names) <= set(LISTED[name].flags)


def test_a_listed_flag_exists():
    names = {name for flag in FLAGS for name in flag.names}
    assert {flag for each in LISTED.values() for flag in each.flags} <= names


REQUESTS = {"openai", "llama-server", "koboldai", "koboldcpp", "webui", "tabbyapi", "clients"}


@pytest.mark.parametrize("name", [name for name, each in LISTED.items() if REQUESTS & set(each.names)])
def test_requests_have_the_names_of_their_clients(name):
    known = {field.alias or key for cls in (PromptFields, ChatFields) for key, field in cls.model_fields.items()}
    listed = {field for tool, names in LISTED[name].names.items() if tool in REQUESTS for field in names}
    assert listed <= known


def test_json(gen):
    found = {each["name"]: each for each in json.loads(gen("settings", "--format", "json").out)}
    assert list(found) == list(LISTED)
    assert found["max_tokens"]["names"]["openai"] == ["max_completion_tokens", "max_tokens", "max_output_tokens"]
    assert found["top_p.p"] == {
        "name": "top_p.p",
        "kind": "a number within 0..1",
        "default": 0.95,
        "help": "probability to keep; 1 = off",
        "flags": ["--top-p"],
        "names": found["top_p.p"]["names"],
        "doors": ["run", "chat", "batch", "serve", "preset"],
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("max-tokens", ["max_completion_tokens", "n_predict", "--predict"]),
        ("Top-P", ["top_p.p", "top_p.boundary"]),
        ("n_predict", ["max_tokens: "]),
        ("rep_pen", ["penalties.repeat", "repetition_penalty.penalty"]),
    ],
)
def test_one_setting_and_those_of_a_sampler(gen, name, shown):
    assert all(word in gen("settings", name).out for word in shown)


def test_an_unknown_setting(gen):
    result = gen("settings", "max_token", code=2)
    assert "did you mean max_tokens?" in result.err
