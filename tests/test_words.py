"""The words that the style of the project replaces, in code, messages and manual."""

import pytest

from tools.words import FOLDERS, PAGES, ROOT, files, find

EXCEPTIONS = (
    ("cli/completion/shells.py", "; else", "_files; fi ;; esac", "a script of zsh"),
    ("recover/results.py", "-ise, colour", "normalised", "a field of the JSON result, which keeps its name"),
)
"""Matches that stay: the file, the rule, a part of the text around the match, and the reason."""


def is_exception(match):
    return any(
        (str(match.path), match.rule.name) == (path, rule) and text in match.excerpt
        for path, rule, text, _reason in EXCEPTIONS
    )


def matches(name):
    return [match for path in files([ROOT / name]) for match in find(path)]


@pytest.mark.parametrize("name", [*FOLDERS, *PAGES])
def test_words_to_avoid(name):
    found = [match for match in matches(name) if not is_exception(match)]
    assert [f"{match.path}:{match.line} {match.rule.name}: {match.excerpt}" for match in found] == []


def test_exceptions_are_few_and_needed():
    assert len(EXCEPTIONS) <= 40
    everything = [match for name in (*FOLDERS, *PAGES) for match in matches(name)]
    for path, rule, text, reason in EXCEPTIONS:
        assert any((str(m.path), m.rule.name) == (path, rule) and text in m.excerpt for m in everything), (
            path,
            text,
        )
        assert reason


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        pytest.param('def run():\n    """Let a run\n    go on."""\n', ['"""Let', "go on"], id="across lines"),
        pytest.param("# all the\n# same\nx = 1\n", ["bookish"], id="comment of two lines"),
        pytest.param('f"{name} is\' and {value!r} came"\n', ["and X came"], id="f-string"),
        pytest.param("def f(some, *, stop_text):\n    pass\n", ["stop text", "parameter names"], id="names"),
        pytest.param("_MOST_TOKENS = 3\n", ["_MOST_"], id="constant"),
        pytest.param('size = 3\n"""How many there are."""\n', ['"""What'], id="docstring of an attribute"),
        pytest.param('"""The colour of a token."""\n', ["-ise, colour"], id="spelling"),
        pytest.param('"""Return the color. Keep on going at 1 is no longer wrong."""\n', [], id="clean"),
    ],
)
def test_rules_find(tmp_path, source, rules):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert sorted(match.rule.name for match in find(path)) == sorted(rules)
