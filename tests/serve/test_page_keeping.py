"""What the page keeps of a story: nothing that was typed is lost, and the page says where a story is."""

import json

import pytest

from ..browser import expect
from .gen_serve import GenServe
from .page_driver import PageDriver
from .test_page_stories import FULL, SETTLE_FOLDER


def begin(page):
    page.press("Stories")
    page.press("New story")
    expect(page.text).to_have_value("")


def name_story(page, title):
    field = page.get_by_role("textbox", name="Title", exact=True)
    field.fill(title)
    field.press("Tab")
    page.settle()


def test_a_reload_while_somebody_types_keeps_every_character(context, server):
    page = PageDriver(context, server.address)
    for text in ("The sea", "The sea was grey", "The sea was grey, and"):
        page.text.fill(text)
        page.reload()
        page.wait_until_ready()
        expect(page.text).to_have_value(text)
    page.text.fill("The tide")
    page.evaluate("void page.stories.save()")  # which has not ended
    page.reload()
    page.wait_until_ready()
    expect(page.text).to_have_value("The tide")
    page.text.fill("The tide turns")
    page.goto("about:blank")
    page.go_back()
    page.wait_until_ready()
    expect(page.text).to_have_value("The tide turns")
    page.text.fill("The tide has turned")
    page.tab.close(run_before_unload=False)
    other = PageDriver(context, server.address)
    other.get_by_role("button", name="Continue The tide").click()
    expect(other.text).to_have_value("The tide has turned")
    assert page.errors == other.errors == []


TYPE_WITHOUT_A_PAUSE = """async () => {
    const { area } = page.editor;
    for (const end = performance.now() + 5000; performance.now() < end && !page.stories.story.text;) {
        area.value += "a";
        area.dispatchEvent(new Event("input"));
        await new Promise(done => setTimeout(done, 50));
    }
    return page.stories.story.text;
}"""


def test_a_person_who_types_without_a_pause_is_saved(context, server):
    page = PageDriver(context, server.address)
    assert page.evaluate(TYPE_WITHOUT_A_PAUSE)
    assert page.errors == []


def test_a_reload_keeps_what_redo_brings_back(context, server):
    page = PageDriver(context, server.address)
    page.text.fill("The sea")
    page.press("Undo")
    page.reload_when_saved()
    page.press("Redo")
    expect(page.text).to_have_value("The sea")
    assert page.errors == []


def test_the_text_can_be_read_while_the_model_is_loaded(context, server):
    page = PageDriver(context, server.address)
    page.text.fill("The sea was grey.")
    page.settle()
    page.route(
        "**/health", lambda route: route.fulfill(status=503, json={"error": {"message": "The model is loading."}})
    )
    page.reload()
    expect(page.text).to_have_value("The sea was grey.")
    expect(page.text).to_be_disabled()
    page.unroute("**/health")
    page.wait_until_ready()
    expect(page.text).to_be_enabled()
    expect(page.text).to_have_value("The sea was grey.")
    assert page.errors == []


def test_a_story_without_room_stays_in_the_tab(context, server):
    page = PageDriver(context, server.address)
    page.evaluate(FULL)
    page.text.fill("No room")
    page.settle()
    expect(page.locator("#unsaved")).to_be_visible()
    begin(page)
    expect(page.locator("#unsaved")).to_be_hidden()
    expect(page.stories().filter(has_text="No room")).to_contain_text("in this tab only")
    page.press("Duplicate No room")
    expect(page.locator("#story-list li")).to_have_count(3)
    page.press("Delete No room (copy)")
    page.get_by_role("button", name="No room", exact=True).click()
    expect(page.text).to_have_value("No room")
    expect(page.locator("#unsaved")).to_be_visible()
    page.evaluate("isFull = false")
    page.text.fill("Room")
    page.settle()
    expect(page.locator("#unsaved")).to_be_hidden()
    page.reload()
    page.wait_until_ready()
    expect(page.text).to_have_value("Room")
    assert page.errors == []


def test_the_text_has_the_focus(context, server):
    page = PageDriver(context, server.address)
    expect(page.text).to_be_focused()
    page.text.fill("The sea")
    page.settle()
    page.stories()
    page.press("Duplicate The sea")
    expect(page.get_by_role("button", name="The sea (copy)", exact=True)).to_be_focused()
    page.press("Delete The sea (copy)")
    page.locator("#undelete").click()
    expect(page.get_by_role("button", name="The sea (copy)", exact=True)).to_be_focused()
    page.press("New story")
    expect(page.text).to_be_focused()
    assert page.errors == []


WORLD_INFO = {"entries": {"0": {"key": ["lamp"], "content": "It burns oil."}}}


def test_world_info_is_added_to_the_open_story(context, server, tmp_path):
    page = PageDriver(context, server.address)
    page.text.fill("The lamp")
    for count in (1, 2):
        page.open_file("open", tmp_path / "world.json", json.dumps(WORLD_INFO))
        page.wait_until(lambda count=count: page.locator("#world-entries > li").count() == count)
    expect(page.locator("#remarks")).to_contain_text("Its entry belongs to this story now")
    expect(page.text).to_have_value("The lamp")
    assert page.evaluate("page.context.fields.world_info.entries.map(entry => entry.keys)") == [["lamp"]] * 2
    assert page.errors == []


def test_a_file_of_a_story_is_checked(context, server, tmp_path):
    page = PageDriver(context, server.address)
    page.text.fill("The sea")
    page.settle()
    kinds = {
        "Story": "The sea.json",
        "Story with details": "The sea.details.json",
        "KoboldAI": "The sea.koboldai.json",
    }
    assert {kind: page.export(tmp_path / name, kind) for kind, name in kinds.items()} == kinds
    story = json.loads((tmp_path / "The sea.json").read_text())
    story["title"] = "sea " * 1000
    story["settings"] |= {"seed": -7, "length": 10**18, "samples": 17}
    page.open_file("preset", tmp_path / "preset.yaml", "chain: [dist]")
    expect(page.locator("#import-notes")).to_be_visible()
    page.open_file("open", tmp_path / "long.json", json.dumps(story))
    expect(page.get_by_role("textbox", name="Title", exact=True)).to_have_value("sea " * 50)
    numbers = page.evaluate("page.settings.numbers()")
    assert (numbers["seed"], numbers["length"], numbers["samples"]) == (-1, 64, 1)
    expect(page.locator("#import-notes")).to_be_hidden()
    assert page.errors == []


@pytest.mark.slow
def test_the_folder_has_each_story_at_once(browser, pruned_model, tmp_path):
    folder = tmp_path / "stories"
    with (
        GenServe("--slots", "1", "--stories", str(folder), model=pruned_model) as server,
        browser.new_context() as context,
    ):
        page = PageDriver(context, server.address)
        page.locator("#memory").evaluate("field => { field.closest('details').open = true; }")
        page.locator("#memory").fill("A quiet story.")
        page.settle()
        page.evaluate(SETTLE_FOLDER)
        [empty] = folder.glob("*.txt")
        assert empty.read_text() == ""
        (folder / "Harbor.txt").write_text("A gull cries.")
        begin(page)
        page.text.fill("The tide came in.")
        name_story(page, "Tide")
        page.evaluate(SETTLE_FOLDER)
        page.stories()
        page.press("Duplicate Tide")
        page.wait_until((folder / "Tide (copy).txt").exists)
        page.press("Delete Tide (copy)")
        page.wait_until(lambda: not (folder / "Tide (copy).txt").exists())
        page.locator("#undelete").click()
        page.wait_until((folder / "Tide (copy).txt").exists)
        # A story that is in the folder only.
        page.get_by_role("searchbox", name="Search").fill("gull")
        expect(page.locator("#story-list li")).to_have_count(1)
        page.press("Rename Harbor")
        page.get_by_role("textbox", name="New title").fill("Pier")
        page.keyboard.press("Enter")
        page.wait_until(lambda: (folder / "Pier.txt").exists() and not (folder / "Harbor.txt").exists())
        page.press("Delete Pier")
        page.wait_until(lambda: not (folder / "Pier.txt").exists())
        page.locator("#undelete").click()
        page.wait_until((folder / "Pier.txt").exists)
        assert (folder / "Pier.txt").read_text() == "A gull cries."
        page.keyboard.press("Escape")
        # The folder has what the browser has no room for, and the page says where the story is.
        page.evaluate(FULL)
        page.text.fill("The tide went out.")
        page.settle()
        expect(page.locator("#unsaved")).to_be_hidden()
        page.evaluate(SETTLE_FOLDER)
        assert (folder / "Tide.txt").read_text() == "The tide went out."
        page.route("**/gen/stories/**", lambda route: route.abort())
        page.text.fill("The tide is low.")
        page.settle()
        page.evaluate(SETTLE_FOLDER)
        expect(page.locator("#remarks")).to_contain_text("not in the folder")
        expect(page.locator("#unsaved")).to_be_visible()
        page.unroute("**/gen/stories/**")
        page.wait_until(lambda: (folder / "Tide.txt").read_text() == "The tide is low.")  # when the server is back
        expect(page.locator("#remarks-area")).to_be_hidden()
        expect(page.locator("#unsaved")).to_be_hidden()


@pytest.mark.slow
def test_the_folder_gets_what_a_closed_tab_had_no_time_for(browser, pruned_model, tmp_path):
    with (
        GenServe("--slots", "1", "--stories", str(tmp_path), model=pruned_model) as server,
        browser.new_context() as context,
    ):
        page = PageDriver(context, server.address)
        page.text.fill("A lamp burns.")
        page.settle()
        page.evaluate(SETTLE_FOLDER)
        page.text.fill("A lamp burns all night.")
        page.tab.close(run_before_unload=False)
        page = PageDriver(context, server.address)
        (file,) = tmp_path.glob("*.txt")
        page.wait_until(lambda: file.read_text() == "A lamp burns all night.")
        begin(page)
        page.text.fill("A gull cries.")
        page.tab.close(run_before_unload=False)
        other = PageDriver(context, server.address)
        other.wait_until(lambda: len(list(tmp_path.glob("*.txt"))) == 2)
        assert {file.read_text() for file in tmp_path.glob("*.txt")} == {
            "A lamp burns all night.",
            "A gull cries.",
        }
        assert page.errors == other.errors == []
