"""Screens at 80 and 50 columns are as they were recorded."""

import re

import pytest
from logitsmith.cli.app import INTRODUCTION
from rich.cells import cell_len

from .. import record_screens
from ..docs.test_commands import COMMANDS

SCREENS = [(name, columns) for name in record_screens.command_lines() for columns in record_screens.WIDTHS]
IDS = [f"{name} at {columns}" for name, columns in SCREENS]
AGAIN = "if this change is wanted: python -m tests.record_screens, then look at the difference"


@pytest.mark.parametrize(("name", "columns"), SCREENS, ids=IDS)
def test_a_screen_is_as_it_was_recorded(gen_server, tmp_path, name, columns):
    words = record_screens.command_lines()[name]
    screen = record_screens.take_screen(gen_server, words, columns, tmp_path)
    assert screen == record_screens.file_of(name, columns).read_text(), AGAIN
    assert max(map(cell_len, screen.splitlines())) <= columns


def test_every_recorded_screen_is_one_of_these():
    assert {path.name for path in record_screens.SCREENS.iterdir()} == {
        record_screens.file_of(*screen).name for screen in SCREENS
    }


def test_every_command_of_a_group_has_a_screen():
    from ..docs.test_commands import LEAVES

    names = record_screens.command_lines()
    for words, _ in LEAVES:
        assert f"gen {' '.join(words)} --help" in names


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("name", ["", "chat", "completion", "inspect", "next"])
def test_a_help_page_has_the_examples_of_the_command(gen, environment, name, columns):
    environment["COLUMNS"] = str(columns)
    words = " ".join(gen(*name.split(), "--help").out.split())
    text = COMMANDS[name].callback.__doc__ if name else INTRODUCTION
    examples = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    assert examples
    assert [line for line in examples if " ".join(line.split()) not in words] == []


def test_facts_of_the_build_are_not_divided(gen, environment):
    environment["COLUMNS"] = "50"
    page = gen("doctor").out
    assert re.search(r"\w+=1 \|", page)
    assert not re.search(r"(?m)^ *= 1", page)
