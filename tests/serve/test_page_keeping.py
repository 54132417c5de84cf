"""What the page keeps of a story: nothing that was typed is lost, and the page says where a story is."""

from ..browser import expect
from .page_driver import PageDriver


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
