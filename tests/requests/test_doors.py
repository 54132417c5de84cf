"""Each setting can be set at the doors that the table names, and at no others."""

import pytest
from logitsmith.common.errors import InvalidFieldError
from logitsmith.presets import Preset
from logitsmith.presets.setting_table import DOORS, SETTINGS
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.fields import PromptFields, read_body
from logitsmith.requests.grammar_fields import GRAMMAR_FIELDS
from logitsmith.requests.lines import read_request_line

from .setting_values import VALUES


def is_field_of_server(name):
    try:
        read_body(PromptFields, {"prompt": "a", name: VALUES[name]}, is_strict=True)
    except InvalidFieldError:
        return False
    return True


def is_field_of_line(name):
    try:
        read_request_line({"prompt": "a", name: VALUES[name]}, 1)
    except InvalidLineError:
        return False
    return True


OPENS = {
    "run": lambda name: bool(SETTINGS[name].flags),
    "batch": is_field_of_line,
    "serve": is_field_of_server,
    "preset": lambda name: getattr(Preset.from_table({name: VALUES[name]}), name) not in (None, []),
}


@pytest.mark.parametrize("door", OPENS)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_the_doors_of_the_table(name, door):
    assert OPENS[door](name) == (door in SETTINGS[name].doors)


def test_each_door_is_known():
    assert {door for setting in SETTINGS.values() for door in setting.doors} == set(DOORS)
    assert set(VALUES) == set(SETTINGS)


def test_each_field_of_a_grammar_is_read():
    assert set(GRAMMAR_FIELDS) == set(SETTINGS["grammar"].names)
