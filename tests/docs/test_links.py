"""Links between the Markdown files lead somewhere, and what is included is there."""

import re

import pytest

from docs.tools.pages import generated_pages

from .markdown import FILES, MANUAL, ROOT, name_of, without_blocks

GENERATED = {(ROOT / "docs" / path).as_posix(): text for path, text in generated_pages().items()}
INCLUSION = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+?)(?: \{ #(\w[\w-]*) \})?$", re.MULTILINE)


def anchors(text):
    found = set()
    for title, name in HEADING.findall(without_blocks(text)):
        found.add(name or re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.replace("`", "").lower()).strip()))
    return found


def text_of(path):
    known = GENERATED.get(path.as_posix())
    return path.read_text() if known is None else known


PAGES = [*((name_of(path), path) for path in FILES), *((path, ROOT / "docs" / path) for path in generated_pages())]


@pytest.mark.parametrize(("name", "path"), PAGES, ids=[name for name, _ in PAGES])
def test_links(name, path):
    for link in LINK.findall(without_blocks(text_of(path))):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists() or file.as_posix() in GENERATED, link
        if anchor:
            assert anchor in anchors(text_of(file)), link


@pytest.mark.parametrize("path", MANUAL, ids=name_of)
def test_what_is_included_is_there(path):
    for line in path.read_text().splitlines():
        if re.match(r"\s*-+\s*8", line):  # a formatter of code adds spaces, and nothing is included any more
            included = INCLUSION.fullmatch(line)
            assert included, line
            assert (ROOT / included[1]).is_file(), line


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "python").glob("*.py")), ids=name_of)
def test_every_script_is_shown_on_a_page(path):
    assert any(name_of(path) in INCLUSION.findall(page.read_text()) for page in MANUAL)


def test_a_page_of_the_manual_stays_inside_of_it():
    for path in MANUAL:
        for link in LINK.findall(without_blocks(path.read_text())):
            if not link.startswith(("http", "#")):
                assert (path.parent / link.partition("#")[0]).resolve().is_relative_to(ROOT / "docs"), link
