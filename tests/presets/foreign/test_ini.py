"""llama.cpp's INI files."""

import pytest
from logitsmith.presets import PresetError
from logitsmith.presets.foreign.ini import parse_ini


@pytest.mark.parametrize("line", ["  top-k = 3", "top-k 3", "= 3", "[a", "3k = 1"])
def test_a_line_that_is_not_ini_is_rejected(line):
    with pytest.raises(PresetError, match="line 2"):
        parse_ini(f"temp = 1\n{line}\n", "x.ini")


def test_a_section_that_stands_twice_counts_from_its_last_header():
    assert parse_ini("[a]\nb = 1\n[a]\nc = 2\n", "x.ini")["a"].values == {"c": "2"}
