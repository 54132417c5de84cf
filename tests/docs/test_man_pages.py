"""The manual pages name every command and option, and are clean roff."""

import re
import shutil
import subprocess

import pytest

from tools.man_pages import man_pages

from .test_commands import COMMANDS, LEAVES, names_of_flags

PAGES = man_pages("1.2")


def plain(page):
    """The page as a reader sees it, in one line."""
    text = re.sub(r"\\\[u([0-9A-F]{4,})\]", lambda match: chr(int(match[1], 16)), page)
    for escape, character in (("\\-", "-"), ("\\(dq", '"'), ("\\&", ""), ("\\e", "\\")):
        text = text.replace(escape, character)
    return " ".join(text.split())


def test_there_is_a_page_for_each_command():
    assert set(PAGES) == {"gen.1", *(f"gen-{name}.1" for name in COMMANDS)}
    for name in COMMANDS:
        assert f".BR gen-{name} (1)" in plain(PAGES["gen.1"])


@pytest.mark.parametrize(("words", "command"), LEAVES, ids=[" ".join(words) for words, _ in LEAVES])
def test_a_page_has_every_option_with_its_help(words, command):
    page = plain(PAGES[f"gen-{words[0]}.1"])
    for name in names_of_flags(command):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", page), name
    for flag in getattr(command.callback, "flags", ()):
        assert " ".join(flag.flag.help.split()) in page


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("command", [("groff", "-man", "-ww", "-z"), ("mandoc", "-T", "lint", "-W", "error")])
def test_a_page_is_clean_roff(command, name):
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    done = subprocess.run(command, input=PAGES[name].encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert PAGES[name].isascii()
