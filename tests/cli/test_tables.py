"""Tables at any width of a terminal, and in a pipe."""

import re

import pytest
from hypothesis import given, strategies as st
from logitsmith.cli.render.table import Column, Table, print_table
from logitsmith.cli.text import text_width, wrap_words
from rich.cells import cell_len

TEXT = Table(
    [Column("preset"), Column("from"), Column("what it is for", is_text=True)],
    [("creative", "built-in", "stories and ideas, varied"), ("mine", "", "see /home/me/presets/a-long-name.yaml")],
)
NUMBERS = Table(
    [Column("text"), *(Column(title, align="right") for title in ("tokens", "mean", "p value"))],
    [("a.txt", "1,000", "0.5", "0.01"), ("日本", "2", "", "0.5")],
)
MODELS = Table([Column("model"), Column("size"), Column("chat")], [("SmolLM2-135M-Instruct", "98 MB", "yes")])
SCREENS = [
    (TEXT, None, """\
preset     from       what it is for
───────────────────────────────────────────────────────────
creative   built-in   stories and ideas, varied
mine                  see /home/me/presets/a-long-name.yaml
"""),
    (TEXT, 45, """\
preset     from       what it is for
─────────────────────────────────────────────
creative   built-in   stories and ideas,
                      varied
mine
    see /home/me/presets/a-long-name.yaml
"""),
    (TEXT, 40, """\
preset     from       what it is for
────────────────────────────────────────
creative   built-in
    stories and ideas, varied
mine
    see
    /home/me/presets/a-long-name.yaml
"""),
    (NUMBERS, 40, """\
text    tokens   mean   p value
───────────────────────────────
a.txt    1,000    0.5      0.01
日本         2              0.5
"""),
    (NUMBERS, 20, """\
text    tokens
──────────────
a.txt    1,000
日本         2

text    mean
────────────
a.txt    0.5
日本

text    p value
───────────────
a.txt      0.01
日本        0.5
"""),
    (MODELS, 30, """\
model  size  chat
──────────────────────────────
SmolLM2-135M-Instruct  98 MB
    yes
"""),
    (Table([Column(width=6), Column(is_text=True)], [("CPU", "two cores"), ("hardware", "none of any kind")],
           gap=1, indent=2), 24, """\
  CPU    two cores
  hardware
      none of any kind
"""),
    (Table([Column("a"), Column("b")], [("1", "first\nsecond line"), ("2", "")]), None, """\
a   b
───────────────
1   first
    second line
2
"""),
    (Table([Column("a"), Column("b")], []), 80, "a   b\n─────\n"),
    (Table([Column("name"), Column("source", is_optional=True)], [("x", "a paper")]), 12, "name\n────\nx\n"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "width", "screen"), SCREENS)
def test_a_table(table, width, screen):
    assert "".join(f"{line}\n" for line in table.render(width)) == screen


WORDS = st.text("ab 日é/", max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=5), st.integers(1, 120), st.booleans())
def test_no_word_is_cut_or_lost(rows, width, is_text):
    table = Table([Column("name"), Column("from"), Column("text", is_text=is_text)], rows)
    words = sorted(word for row in [("name", "from", "text"), *rows] for cell in row for word in cell.split())
    lines = table.render(width)
    assert set(words) <= {word for line in lines for word in line.split()}
    assert all(line == line.rstrip() for line in lines)
    if width >= table.width:
        assert all(text_width(line) <= width for line in lines)


@given(
    st.lists(st.tuples(st.text("ab", max_size=9), st.text("ab cd", max_size=60)), max_size=5), st.integers(40, 120)
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    table = Table([Column("name"), Column("what", is_text=True)], rows)
    longest = max((len(word) for _, text in rows for word in text.split()), default=0)
    assert all(text_width(line) <= max(width, longest + 4) for line in table.render(width))


def test_titles_and_names_are_bold():
    lines = Table([Column("name"), Column("text")], [("a b", "c")]).render(80, is_bold=True)
    assert lines == ["\x1b[1mname   text\x1b[0m", "───────────", "\x1b[1ma b\x1b[0m    c"]


def test_words_are_wrapped_at_spaces():
    assert wrap_words("one  two-three /a/long/path four", 9, indent=2) == [
        "one",
        "  two-three",
        "  /a/long/path",
        "  four",
    ]
    assert wrap_words("a\n\nb", 9) == ["a", "", "b"]


def test_control_characters_are_visible(capsys):
    print_table(["name"], [("\x1b[2Ja\tb",)])
    assert capsys.readouterr().out.splitlines()[-1] == "␛[2Ja   b"


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
    narrow, wide = (
        gen_server.run_on_terminal(CONFIG, columns=width, cwd=home, env=on_terminal(environment), timeout=60)[0]
        for width in (columns, 300)
    )
    assert max(map(cell_len, narrow.splitlines())) <= columns
    assert narrow.split() == wide.split()


def test_steps_that_are_off_are_marked(gen):
    out = gen(*CONFIG).out
    assert "  [0] penalties.repeat            1 " in out
    assert re.search(r"penalties\.scope +all +default  \(off\)$", out, re.MULTILINE)
    assert re.search(r"min_p\.p +0\.05 +preset default$", out, re.MULTILINE)


def on_terminal(environment):
    return {key: value for key, value in environment.items() if key != "COLUMNS"}
