"""The pages that are made from the code name all that there is, and the site has a place for each."""

import re

import pytest
import yaml
from logitsmith.presets.settings_list import list_settings
from logitsmith.samplers import catalogue

from docs.tools.markdown import code, plain, prose, table
from docs.tools.pages import generated_pages
from docs.tools.samplers import samplers_table

from .markdown import MANUAL, ROOT
from .test_commands import COMMANDS, LEAVES

PAGES = generated_pages()
NAVIGATION = re.findall(r"- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def test_every_page_is_in_the_navigation_once():
    manual = [path.relative_to(ROOT / "docs").as_posix() for path in MANUAL]
    assert sorted(NAVIGATION) == sorted([*manual, *PAGES])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_page(name):
    assert f"[`gen {name}`]({name}.md)" in PAGES["commands/index.md"]
    assert PAGES[f"commands/{name}.md"].startswith(f"# gen {name}\n")


@pytest.mark.parametrize(("words", "command"), LEAVES, ids=[" ".join(words) for words, _ in LEAVES])
def test_a_page_has_every_option(words, command):
    page = PAGES[f"commands/{words[0]}.md"]
    for flag in getattr(command.callback, "flags", ()):
        assert all(name in page for name in flag.names), flag.names
        assert plain(flag.flag.help).replace("|", r"\|") in page


def test_every_setting_has_a_row():
    for each in list_settings():
        assert f"| `{each.name}` |" in PAGES["reference/settings.md"]


def test_the_table_of_samplers_has_a_row_for_each():
    rows = samplers_table().splitlines()[2:]
    assert len(rows) == len(catalogue())
    for row, (name, cls) in zip(rows, catalogue().items(), strict=True):
        assert row.startswith(
            f"| [`{name}`](#{name}) | {f'`{cls.about.main_parameter}`' if cls.about.main_parameter else ''} |"
        )
        assert plain(cls.about.summary).replace("|", r"\|") in row


@pytest.mark.parametrize("name", catalogue())
def test_a_sampler_has_a_section_with_all_its_parameters(name):
    cls = catalogue()[name]
    section = PAGES["reference/samplers.md"].split(f"## {name} {{ #{name} }}")[1].split("\n## ")[0]
    for parameter, field in cls.model_fields.items():
        assert f"| `{parameter}` |" in section
        assert plain(field.description).replace("|", r"\|") in section


def test_every_built_in_preset_is_shown_whole():
    for path in (ROOT / "presets").rglob("*.yaml"):
        section = PAGES["reference/presets.md"].split(f"## {path.stem} {{")[1].split("\n## ")[0]
        assert yaml.safe_load(section.split("```yaml")[1].split("```")[0]) == yaml.safe_load(path.read_text())


def test_every_built_in_grammar_is_named():
    for path in (ROOT / "grammars").rglob("*.gbnf"):
        assert f"[`{path.stem}`](#{path.stem})" in PAGES["reference/grammars.md"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (code("a`b"), "``a`b``"),
        (code("`a`"), "`` `a` ``"),
        (code(""), ""),
        (plain("a_b * <c> [d]"), r"a\_b \* &lt;c\> \[d\]"),
        (prose("x_i of ``top_k`` and `p`"), r"x\_i of `top_k` and `p`"),
        (table(("a",), [("x|y\nz",)]), "| a |\n| --- |\n| x\\|y z |\n"),
    ],
    ids=["a backtick", "backticks at the ends", "nothing", "markup", "a docstring", "a cell"],
)
def test_pieces_of_markdown(made, expected):
    assert made == expected
