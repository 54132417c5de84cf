"""Tables that need no wrapping look as rich lays them out."""

import io
import os
import re
import sys
from contextlib import suppress

import pytest
from logitsmith.cli.render.tables import _column_widths, _print_blocks, _print_grid, _print_lines, print_table
from rich.cells import cell_len
from rich.console import Console

TABLES = {
    "names and numbers": (["model", "size"], [["a", "98.4 MB"], ["a longer name", ""]]),
    "one column": (["sampler"], [["min_p"]]),
    "wide characters": (["token", "p", "what"], [["日本", "0.5", "é"], ["x", "", "語"]]),
    "markup is text": (["name", "text"], [["[bold]", ":smile: [/]"]]),
    "no rows": (["a", "b"], []),
}


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_lines_are_those_of_the_grid(name, is_terminal):
    header, rows = TABLES[name]
    screens = []
    for show in (
        lambda console: _print_grid(console, header, rows),
        lambda console: _print_lines(console, [header, *rows], _column_widths(header, rows)),
    ):
        console = Console(file=io.StringIO(), width=60, highlight=False, force_terminal=is_terminal, record=True)
        show(console)
        lines = [line.rstrip() for line in console.export_text(clear=False).splitlines()]
        screens.append((lines, console.export_text(styles=True).count("\x1b[1m") > 0))
    assert screens[0] == screens[1]


TABLES_IN_A_PIPE = {
    **TABLES,
    "an empty cell at the end": (["a", "b", "c"], [["1", "long", ""], ["2", "", ""]]),
    "a cell of two lines": (["a", "b"], [["1", "first\nsecond line"], ["2", "x"]]),
}


@pytest.mark.parametrize("name", TABLES_IN_A_PIPE)
def test_a_table_in_a_pipe_has_no_trailing_spaces(capsys, name):
    print_table(*TABLES_IN_A_PIPE[name])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert len(lines) >= 2


def test_a_row_without_its_long_cell_leaves_no_empty_line():
    console = Console(file=io.StringIO(), width=30, highlight=False, record=True)
    _print_blocks(console, [["token", "p", "top"], ["0", "0.5", ""], ["1", "0.1", "was"]], 2)
    assert console.export_text() == "token  p\n    top\n0  0.5\n1  0.1\n    was\n"


def test_a_reader_that_closes_the_pipe_is_not_a_failure(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stdout = os.fdopen(writer, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(BrokenPipeError):  # `gen` ends with code 0 by this; rich's own way is code 1
        print_table(("preset", "from"), [("creative", "built-in")])
    with suppress(BrokenPipeError):
        stdout.close()


CONFIG = (
    "run",
    "Hi",
    "--show-config",
    "-P",
    "default",
    "--stop",
    "###",
    "--system",
    "日本 " * 30,
    "--dry-multiplier",
    "1",
)


@pytest.mark.parametrize("columns", [80, 50, 40])
def test_settings_are_wrapped_between_words(gen_server, environment, home, columns):
    """A narrow terminal has the words of a wide one, and a line for each step above its parameters."""
    screens = [
        gen_server.run_on_terminal(CONFIG, columns=width, cwd=home, env=on_terminal(environment), timeout=60)[0]
        for width in (columns, 300)
    ]
    narrow, wide = ([word for line in screen.splitlines() for word in line.split()] for screen in screens)
    assert max(map(cell_len, screens[0].splitlines())) <= columns
    names = {
        part for word in wide for part in (word.split(".") if re.fullmatch(r"[a-z_]+\.[a-z_]+", word) else [word])
    }
    assert names <= set(narrow)
    assert "[0] penalties preset default (off) repeat 1 preset default" in " ".join(narrow)


def test_steps_that_are_off_are_marked(gen):
    out = gen(*CONFIG).out
    assert "  [0] penalties.repeat            1 " in out
    assert re.search(r"penalties\.scope +all +default  \(off\)$", out, re.MULTILINE)
    assert re.search(r"min_p\.p +0\.05 +preset default$", out, re.MULTILINE)


def on_terminal(environment):
    return {key: value for key, value in environment.items() if key != "COLUMNS"}
