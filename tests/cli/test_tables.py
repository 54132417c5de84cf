"""Tables that need no wrapping look as rich lays them out."""

import io

import pytest
from logitsmith.cli.render.tables import _column_widths, _print_grid, _print_lines
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
        screens.append((console.export_text(clear=False), console.export_text(styles=True).count("\x1b[1m") > 0))
    assert screens[0] == screens[1]
