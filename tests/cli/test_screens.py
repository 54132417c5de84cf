"""Screens at 80 and 50 columns are as they were recorded, and nothing on them is cut."""

import re
import shlex

import pytest
from rich.cells import cell_len

from docs.tools.commands import group

from .. import record_screens

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


def examples(command):
    """The command lines in a help text."""
    return [line.strip() for line in (command.help or "").splitlines() if re.match(r" {2,}\S", line)]


COMMANDS = {"": group(), **{name: group().get_command(None, name) for name in group().list_commands(None)}}
EXAMPLES = {name: lines for name, command in COMMANDS.items() if (lines := examples(command))}


@pytest.mark.parametrize("columns", [40, 50, 64, 80, 100])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_shell_reads_the_examples_of_a_help_page_as_they_are_meant(gen, environment, name, columns):
    environment["COLUMNS"] = str(columns)
    page = gen(*name.split(), "--help").out
    lines = page.replace("\\\n", "").splitlines()
    assert [shlex.split(line) for line in lines if re.match(r"  (gen|echo|printf) ", line)] == list(
        map(shlex.split, EXAMPLES[name])
    )


def test_commands_have_examples():
    assert {"", "chat", "completion", "inspect", "next"} <= set(EXAMPLES)


QUOTED = re.compile(r"(?<![\w\\])'[^']+'(?!\w)|-?\d+ = [a-z]+")
"""What is to be typed, and what a special value means."""


@pytest.mark.parametrize("columns", record_screens.WIDTHS)
def test_values_in_a_help_page_are_not_divided(gen, environment, columns):
    environment["COLUMNS"] = str(columns)
    lines = gen("run", "--help").out.splitlines()
    helps = [flag.flag.help for flag in COMMANDS["run"].flags]
    values = {value for text in helps for value in QUOTED.findall(text.replace(r"\[", "["))}
    assert len(values) > 5
    assert [value for value in sorted(values) if not any(value in line for line in lines)] == []
    assert [line for line in lines if re.match(r" *= ", line)] == []


def test_facts_of_the_build_are_not_divided(gen, environment):
    environment["COLUMNS"] = "50"
    page = gen("doctor").out
    assert re.search(r"\w+=1 \|", page)
    assert not re.search(r"(?m)^ *= 1", page)
