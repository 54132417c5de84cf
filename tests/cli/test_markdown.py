"""Markdown on a terminal: what is shown does not depend on how the text came, and is only appended to."""

import io
import re

import pytest
from hypothesis import example, given, strategies as st
from logitsmith.cli.render.markdown import MarkdownStream, settled
from rich.cells import cell_len
from rich.console import Console

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def show(pieces, width=40, colors="standard"):
    out = io.StringIO()
    stream = MarkdownStream(
        Console(file=out, width=width, force_terminal=True, color_system=colors, no_color=False)
    )
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return out.getvalue()


def plain(pieces, width=40):
    return "".join(line.rstrip() + "\n" for line in STYLE.sub("", show(pieces, width)).splitlines())


BLOCKS = [
    ("words **bold** and *slanted*", "words bold and slanted\n"),
    ("`code` and 2 * 3 and snake_case", "code and 2 * 3 and snake_case\n"),
    ("one\ntwo", "one\ntwo\n"),
    ("one\n\ntwo", "one\n\ntwo\n"),
    ("# Title\ntext", "Title\ntext\n"),
    ("text\n## Title", "text\n\nTitle\n"),
    ("text\n---\nmore", f"text\n{'─' * 40}\nmore\n"),
    ("- one\n- two\n  - three", "• one\n• two\n  ◦ three\n"),
    ("9. one\n10. two", "9. one\n10. two\n"),
    ("> said\n> so", "│ said\n│ so\n"),
    ("```sh\na | b\n\n# c\n```\nafter", "```sh\na | b\n\n# c\n```\nafter\n"),
    ("```\nopen", "```\nopen\n```\n"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a   b\n─────\n1   2\n"),
    ("a | b\nand c", "a | b\nand c\n"),
    ("a | b\n---|---\n1 | 2", "a | b\n---|---\n1 | 2\n"),
    ("said\n| a | b |\n|---|---|\n| 1 | 2 |", "said\na   b\n─────\n1   2\n"),
    ("[name](http://x.y/z), <http://a.b>", "name (http://x.y/z), http://a.b\n"),
    ("![seen](p.png)", "seen (p.png)\n"),
    ("<b>text</b> &lt;", "<b>text</b> <\n"),
    ("*never closed", "*never closed\n"),
    ("[a]: http://x\n\n[a]", "[a]: http://x\n\n[a]\n"),
    ("text\n===", "text\n===\n"),
    (r"\*not slanted\*", "*not slanted*\n"),
    ("日本語の文章はスペースなしで続くので、改行できるはずです。",
     "日本語の文章はスペースなしで続くので、改\n行できるはずです。\n"),
    ("שלום עולם, right to left", "שלום עולם, right to left\n"),
    ("x" * 50, "x" * 40 + "\n" + "x" * 10 + "\n"),
    ("- " + "word " * 10, "• word word word word word word word\n  word word word\n"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shown"), BLOCKS, ids=[source[:20] for source, _ in BLOCKS])
def test_a_block_is_shown_as_it_is_meant_whole_and_by_characters(source, shown):
    assert plain([source]) == shown
    assert show(list(source)) == show([source])


MARKS = ["word ", "two", "\n", "\n\n", "**", "*", "_", "`", "```\n", "- ", "1. ", "> ", "# ", "|", "|-|-|\n",
         "[", "](x)", "!", "<", "http://a.b>", "&amp;", "\\", "~~", "  ", "    ", "日本",
         "שלום", "👩‍👧", "é", "---\n", "\t", ")"]  # fmt: skip


@example(["word ", "\n", "> ", "\n", "|-|-|\n", "word "], 10)
@example(["word ", "| b\n", "|-|-|\n"], 20)
@example(["<", "[", "> ", "](x)"], 10)
@example(["word ", "~~", "~~", "two", "~~"], 10)
@example(["**", "](x)", "**", "**", "- ", "two", "**", "_"], 10)
@example(["word ", "\n\n", "*", "\n", "|-|-|\n", "word "], 10)
@given(st.lists(st.sampled_from(MARKS), max_size=30), st.integers(10, 60))
def test_what_is_shown_does_not_depend_on_how_the_text_came(pieces, width):
    whole = STYLE.sub("", show(["".join(pieces)], width))
    assert STYLE.sub("", show(pieces, width)) == whole
    assert STYLE.sub("", show("".join(pieces), width)) == whole


@given(st.lists(st.sampled_from(MARKS), max_size=30))
def test_nothing_but_styles_and_text_is_written(pieces):
    assert "\x1b" not in STYLE.sub("", show(pieces))


def test_words_are_shown_as_they_come():
    out = io.StringIO()
    stream = MarkdownStream(Console(file=out, width=40, force_terminal=True, color_system=None))
    seen = []
    for piece in ["Hello wor", "ld, this is **bo", "ld** text ", "now.", " Yes\n\n- it", "em one\n"]:
        stream.feed(piece)
        seen.append(out.getvalue())
    assert seen == [
        "Hello",
        "Hello world, this is",
        "Hello world, this is bold",
        "Hello world, this is bold",
        "Hello world, this is bold text now. Yes\n\n• ",
        "Hello world, this is bold text now. Yes\n\n• item",
    ]


@pytest.mark.parametrize(
    ("source", "beginning"),
    [("a *b", "a "), ("a *b* c", "a *b* c"), ("2 * 3", "2 * 3"), ("a `b", "a "), ("a `b`", "a "),
     ("a [b](c", "a "), ("a [b] c", "a [b] c"), ("a ![b", "a "), ("a **b *c* d", "a "), ("a_b_c", "a_b_c"),
     ("a &am", "a "), ("a <htt", "a "), ("a < b", "a < b"), ("a \\", "a "), ("~5 km", "~5 km")],
)  # fmt: skip
def test_an_open_mark_waits(source, beginning):
    assert settled(source) == beginning


@pytest.mark.parametrize("width", [20, 50, 80])
def test_no_line_is_wider_than_the_terminal(width):
    source = (
        "A paragraph with 日本語 and **bold words** here.\n\n1. item of a list\n   - with more\n\n> quoted words\n"
    )
    assert max(map(cell_len, plain([source], width).splitlines())) <= width


def test_the_width_may_change_between_words():
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system=None)
    stream = MarkdownStream(console)
    stream.feed("one two three four five six seven eight ")
    console.width = 12
    stream.feed("nine ten eleven twelve")
    stream.finish()
    first = "one two three four five six seven"
    assert out.getvalue().splitlines() == [first, "eight nine", "ten eleven", "twelve"]


def test_a_long_answer_is_fast(monkeypatch):
    from logitsmith.cli.render import markdown as stream

    parsed = []
    monkeypatch.setattr(
        stream, "leaves", lambda source, of=stream.leaves: parsed.append(len(source)) or of(source)
    )
    show(["word " * 20 + "\n\n"] * 50)
    assert max(parsed) < 400
