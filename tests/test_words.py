"""The words that the style of the project replaces, in code, messages and manual."""

import pytest

from tools.words import FOLDERS, PAGES, ROOT, all_files, files, find

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
    for path, rule, text, reason in EXCEPTIONS:
        assert any(match.rule.name == rule and text in match.excerpt for match in find(ROOT / path)), (path, text)
        assert reason


def test_every_package_and_table_is_searched():
    searched = {str(path.relative_to(ROOT)) for path in all_files()}
    packages = [path.parent.name for path in ROOT.glob("*/py.typed")]
    assert "serve" in packages
    assert {f"{package}/__init__.py" for package in packages} <= searched
    assert {"presets/llama_cpp_flags.tsv", "mkdocs.yml"} <= searched


def test_a_file_that_is_not_utf_8_is_skipped(tmp_path):
    (tmp_path / "latin1.yaml").write_bytes("# grüner".encode("latin-1"))
    assert [match for path in files([tmp_path]) for match in find(path)] == []


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
