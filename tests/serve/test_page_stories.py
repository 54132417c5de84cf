"""The stories of the page: their list, that none is lost, the folder of the server, files of other programs."""

import json

import pytest

from ..browser import expect
from .gen_serve import GenServe
from .page_driver import PageDriver, require_axe


def title(page):
    return page.get_by_role("textbox", name="Title", exact=True)


def listed(page):
    """The titles in the open list."""
    return page.locator("#story-list .word").all_inner_texts()


def open_story(page, name):
    page.stories().get_by_role("button", name=name, exact=True).click()
    expect(page.locator("#stories-dialog")).to_be_hidden()


def begin(page, text, name=None):
    """Begin a story."""
    page.press("Stories")
    page.press("New story")
    expect(page.text).to_have_value("")
    page.text.fill(text)
    if name is not None:
        title(page).fill(name)
        title(page).press("Tab")
    page.settle()


def test_the_list_opens_names_copies_finds_and_deletes_stories(context, server):
    page = PageDriver(context, server.address)
    text = page.write("The sea was", tokens=3)
    begin(page, "A lamp burns.", "Lamps")
    title(page).fill("Lanterns")
    title(page).press("Tab")
    page.reload_when_saved()
    expect(title(page)).to_have_value("Lanterns")
    title(page).fill("Lamps")
    title(page).press("Tab")
    page.stories()
    assert listed(page) == ["Lamps", text]
    expect(page.locator("#story-list")).to_contain_text("3 words")
    page.press("Duplicate Lamps")
    page.press("Rename Lamps (copy)")
    page.get_by_role("textbox", name="New title").fill("Lanterns")
    page.keyboard.press("Enter")
    page.wait_until(lambda: "Lanterns" in listed(page))
    page.get_by_role("searchbox", name="Search").fill("LAMP")
    assert sorted(listed(page)) == ["Lamps", "Lanterns"]  # one by its text
    page.press("Delete Lanterns")
    page.wait_until(lambda: listed(page) == ["Lamps"])
    page.locator("#undelete").click()
    page.wait_until(lambda: len(listed(page)) == 2)
    page.press("Delete Lamps")  # the one that is shown
    expect(page.text).to_have_value("")
    page.get_by_role("searchbox", name="Search").fill("")
    page.get_by_role("group").get_by_text("Deleted; kept").click()
    page.press("Restore Lamps")
    page.wait_until(lambda: "Lamps" in listed(page))
    page.get_by_role("list", name="Stories").get_by_role("button", name=text, exact=True).click()
    expect(page.text).to_have_value(text)
    assert page.branches.count() == 2
    page.items.last.click()
    expect(page.why).to_contain_text("lies in")  # tokens keep their traces
    assert page.errors == []


@pytest.mark.slow
def test_a_closed_browser_loses_nothing(context, server):
    page = PageDriver(context, server.address)
    page.text.fill("The sea was")
    page.set("Tokens", 3000)
    page.press("Generate")
    page.wait_until(lambda: len(page.value()) > 60)
    page.tab.wait_for_timeout(2000)  # it stores its state while the model writes
    page.tab.close()  # without the events of a closed window
    other = PageDriver(context, server.address)
    button = other.get_by_role("button", name="Continue The sea was")
    expect(button).to_be_visible()
    other.evaluate("Date.now = () => 9e12")  # after 200 years
    button.click()
    other.wait_until(lambda: len(other.value()) > 30)
    assert other.value().startswith("The sea was")
    other.evaluate("page.stories.store.purge()")
    other.reload_when_saved()
    assert other.value().startswith("The sea was")


@pytest.mark.slow
def test_a_second_tab_goes_on_with_a_copy(context, server):
    page, other = (PageDriver(context, server.address) for _ in range(2))
    page.text.fill("first")
    page.settle()
    open_story(other, "first")
    expect(other.locator("#remarks")).to_contain_text("is open in another tab")
    expect(title(other)).to_have_value("first (copy)")
    other.text.fill("second")
    other.settle()
    page.reload_when_saved()
    expect(page.text).to_have_value("first")
    # Also where a browser has no locks, as on pages without a secure origin.
    story = page.evaluate("page.stories.story.id")
    third = PageDriver(context, "about:blank", is_ready=False)
    third.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
    third.goto(server.address)
    third.wait_until_ready()
    third.evaluate(f"page.stories.open('{story}')")
    page.text.fill("first again")
    page.settle()
    third.text.fill("third")
    third.settle()
    expect(third.locator("#remarks")).to_contain_text("was changed in another tab")
    texts = third.evaluate("page.stories.store.list().then(all => all.map(story => story.text))")
    assert {"first again", "second", "third"} <= set(texts)
    assert page.errors == other.errors == third.errors == []


DAMAGE = """id => new Promise(done => {
    const transaction = page.stories.store.database.transaction("states", "readwrite");
    transaction.objectStore("states").put({ id, state: { nodes: [], settings: {}, current: 1, past: [] } });
    transaction.oncomplete = done;
})"""


@pytest.mark.slow
def test_a_damaged_story_is_told_and_left_alone(context, server):
    page = PageDriver(context, server.address)
    begin(page, "Damaged")
    damaged = page.evaluate("page.stories.story.id")
    page.tab.goto("about:blank")
    page.tab.goto(server.address)
    page.wait_until_ready()
    begin(page, "Whole")
    page.evaluate(DAMAGE, damaged)
    open_story(page, "Damaged")
    expect(page.locator("#problem")).to_contain_text("the text that it shows is missing")
    expect(page.text).to_have_value("Whole")
    page.evaluate(f"sessionStorage.setItem('gen-tab', '{damaged}')")
    page.reload()
    page.wait_until_ready()
    expect(page.locator("#problem")).to_contain_text("the text that it shows is missing")
    page.text.fill("Another")
    page.settle()
    texts = page.evaluate("page.stories.store.list().then(all => all.map(story => story.text))")
    assert {"Damaged", "Whole", "Another"} <= set(texts)


FULL = """() => {
    const { put } = IDBObjectStore.prototype;
    window.isFull = true;
    IDBObjectStore.prototype.put = function (...row) {
        if (window.isFull) throw new DOMException("", "QuotaExceededError");
        return put.apply(this, row);
    };
}"""


@pytest.mark.slow
def test_a_full_store_is_told_and_the_story_is_downloaded(context, server, tmp_path):
    page = PageDriver(context, server.address)
    page.evaluate(FULL)
    page.text.fill("No room")
    page.settle()
    expect(page.get_by_role("alert").filter(has_text="only in this tab")).to_contain_text("has no room")
    page.download("Download", tmp_path / "story.json")
    assert json.loads((tmp_path / "story.json").read_text())["format"] == "gen serve page"
    page.evaluate("isFull = false")
    page.text.fill("No room?")
    page.settle()
    expect(page.locator("#unsaved")).to_be_hidden()
    assert page.errors == []


SETTLE_FOLDER = "async () => { await page.stories.saveToFolderSoon.settled(); await page.stories.savingToFolder; }"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "stories"


@pytest.mark.slow
def test_stories_lie_in_a_folder_of_the_server(browser, pruned_model, folder):
    with (
        GenServe("--slots", "1", "--stories", str(folder), model=pruned_model) as server,
        browser.new_context() as first,
        browser.new_context() as second,
    ):
        page, other = PageDriver(first, server.address), PageDriver(second, server.address)
        begin(page, "The tide came in.", "Tide: a/b")
        page.evaluate(SETTLE_FOLDER)
        text, data = folder / "Tide a b.txt", folder / "Tide a b.json"
        assert text.read_text() == "The tide came in."
        assert json.loads(data.read_text())["title"] == "Tide: a/b"
        written = text.stat().st_mtime_ns
        page.reload_when_saved()
        page.evaluate(SETTLE_FOLDER)
        assert text.stat().st_mtime_ns == written
        # Another browser, and an editor.
        open_story(other, "Tide a b")
        expect(other.text).to_have_value("The tide came in.")
        text.write_text("The tide went out.")
        other.text.fill("The tide came in again.")
        other.settle()
        other.evaluate(SETTLE_FOLDER)
        expect(other.locator("#remarks")).to_contain_text("changed or removed elsewhere")
        assert text.read_text() == "The tide went out."
        assert (folder / "Tide a b 2.txt").read_text() == "The tide came in again."
        page.reload()
        page.wait_until_ready()
        expect(page.text).to_have_value("The tide went out.")
        page.press("Undo")
        expect(page.text).to_have_value("The tide came in.")
        page.press("Redo")
        # Renamed, deleted and back.
        title(page).fill("Ebb")
        title(page).press("Tab")
        page.wait_until(lambda: (folder / "Ebb.txt").exists() and not text.exists())
        page.stories()
        page.press("Delete Ebb")
        page.wait_until(lambda: not (folder / "Ebb.json").exists())
        page.locator("#undelete").click()
        page.wait_until(lambda: "Ebb" in listed(page))
        assert page.errors == other.errors == []


KINDS = {
    "Text": ("Tale.txt", "The sea"),
    "Markdown": ("Tale.md", "# Tale\n\nThe sea\n"),
    "Story": ("Tale.json", None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_a_story_is_saved_and_opened_as_files(context, server, tmp_path, kind, expected):
    name, content = expected
    page = PageDriver(context, server.address)
    begin(page, "The sea", "Tale")
    assert page.export(tmp_path / name, kind) == name
    if content is not None:
        assert (tmp_path / name).read_text() == content
    begin(page, "")
    page.open_file("open", tmp_path / name)
    expect(page.text).to_have_value("The sea")
    expect(title(page)).to_have_value("Tale")
    assert page.errors == []


@pytest.mark.slow
def test_an_exported_story_without_details_keeps_texts_and_tints(context, server, tmp_path):
    page = PageDriver(context, server.address)
    text = page.write("The old", tokens=6)
    names, tints = page.names(), page.items.evaluate_all("items => items.map(item => item.className)")
    branches = page.branches.count()
    page.export(tmp_path / "large.json")
    page.export(tmp_path / "story.json", "Story")
    assert (tmp_path / "story.json").stat().st_size < (tmp_path / "large.json").stat().st_size / 4
    begin(page, "")
    page.open_file("open", tmp_path / "story.json")
    expect(page.text).to_have_value(text)
    assert page.names() == names
    assert [tint.replace(" marked top-dropped", "") for tint in tints] == page.items.evaluate_all(
        "items => items.map(item => item.className)"
    )
    assert page.branches.count() == branches
    assert page.errors == []


KOBOLDAI = {
    "gamestarted": True,
    "prompt": "The sea",
    "actions": [" was grey.", " A lamp burned."],
    "memory": "A quiet story.",
    "authorsnote": "short",
    "anotetemplate": "[Author's note: <|>]",
    "worldinfo": [{"key": "lamp", "content": "It burns oil.", "selective": False, "constant": False}],
}


@pytest.mark.slow
def test_a_story_of_koboldai_is_opened_and_saved(context, server, tmp_path):
    page = PageDriver(context, server.address)
    page.open_file("open", tmp_path / "koboldai.json", json.dumps(KOBOLDAI))
    expect(page.text).to_have_value("The sea was grey. A lamp burned.")
    expect(page.locator("#remarks")).to_contain_text("KoboldAI story")
    expect(page.locator("#memory")).to_have_value("A quiet story.")
    assert page.evaluate("page.context.fields.world_info.entries.map(entry => entry.keys)") == [["lamp"]]
    page.settle()
    page.export(tmp_path / "saved.json", "KoboldAI")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved["prompt"] + "".join(saved["actions"]) == page.value()
    assert saved["memory"].strip() == "A quiet story."
    assert saved["worldinfo"][0]["key"] == "lamp"
    page.open_file("open", tmp_path / "none.json", '{"a": 1}')
    expect(page.locator("#problem")).to_contain_text("none.json cannot be opened: ")
    expect(page.text).to_have_value("The sea was grey. A lamp burned.")
    assert page.errors == []


@pytest.mark.slow
def test_a_card_gets_the_name_of_the_writer(context, server, tmp_path):
    data = {"name": "Ada", "description": "{{char}} knows {{user}}.", "first_mes": "Hello!"}
    card = json.dumps({"spec": "chara_card_v2", "data": data})
    page = PageDriver(context, server.address)
    page.open_file("open", tmp_path / "ada.json", card)
    expect(page.locator("#memory")).to_have_value("Ada knows User.\n")
    page.get_by_role("textbox", name="Your name in cards").fill("Kim & Lee")
    page.reload_when_saved()
    page.open_file("open", tmp_path / "ada.json", card)
    expect(page.locator("#memory")).to_have_value("Ada knows Kim & Lee.\n")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1440])
def test_everyone_reaches_the_stories(browser, server, width):
    """Axe finds no fault in the lists, and nothing is wider than the window."""
    axe = require_axe()
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        page = PageDriver(context, server.address)
        begin(page, "A lamp burns.", "A lamp with a title that is longer than the window of a phone")
        page.stories()
        page.press("Duplicate A lamp with a title that is longer than the window of a phone")
        page.wait_until(lambda: len(listed(page)) == 2)
        page.locator("#story-list").get_by_role("button", name="Delete").last.click()
        page.evaluate(axe)
        for dialog in ("#stories-dialog", "#export-dialog"):
            found = page.evaluate("where => axe.run(where, {resultTypes: ['violations']})", dialog)
            assert [item["id"] for item in found["violations"]] == []
            inner, outer = page.locator(dialog).evaluate("box => [box.scrollWidth, box.clientWidth]")
            assert inner <= outer
            page.keyboard.press("Escape")
            if dialog == "#stories-dialog":
                page.press("Export")


def test_another_story_has_no_next_token_of_the_last_one(page):
    page.text.fill("The sea was")
    page.wait_for_next()
    assert page.next_rows.count() > 0
    page.press("Stories")
    page.press("New story")
    expect(page.next_rows).to_have_count(0)
    expect(page.locator("#stages li")).to_have_count(0)
    page.settle()
    expect(page.locator("#next-note")).to_have_text("Write a text first.")


OPEN = """async ([words]) => {
    const line = (_, row) => `Row ${row} has ten words of a very long story.\\n`;
    const lines = Array.from({ length: words / 10 }, line);
    await page.stories.read(new File(lines, "long.txt"));
    await page.stories.save();
    const { id } = page.stories.story;
    await page.stories.begin({});
    const start = performance.now();
    await page.stories.open(id);
    await new Promise(shown => requestAnimationFrame(() => setTimeout(shown)));
    return [performance.now() - start, document.querySelectorAll("*").length];
}"""


@pytest.mark.slow
def test_a_long_story_opens_quickly(context, server):
    page = PageDriver(context, server.address)
    milliseconds, elements = page.evaluate(OPEN, [100_000])
    assert elements < 20_000  # an element for each token only where a person sees it
    assert milliseconds < 10_000  # 2 s on a machine that does nothing else
    heights = page.evaluate("['text', 'mirror'].map(id => document.getElementById(id).scrollHeight)")
    assert heights[0] == heights[1]
