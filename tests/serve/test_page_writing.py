"""Writing on the page of `gen serve`: where the model writes, alternatives, acceptance, stops, the view, keys."""

import re
import signal

import pytest
import yaml

from ..browser import expect
from .gen_serve import GenServe
from .page_driver import HeldRequests, PageDriver

KEEP = "The old king looked at the sea and said nothing."


def select(page, words):
    """Select words of the text."""
    page.text.evaluate(
        """(area, words) => {
            const start = area.value.indexOf(words);
            area.focus();
            area.setSelectionRange(start, start + words.length);
        }""",
        words,
    )


def put_cursor_after(page, words):
    select(page, words)
    page.keyboard.press("ArrowRight")


def cursor(page):
    return page.text.evaluate("area => [area.selectionStart, area.selectionEnd]")


def options(page):
    return page.get_by_role("listbox", name="Alternatives").get_by_role("option")


def stop_at(page, place):
    page.get_by_role("combobox", name="Stop at").select_option(place)


def test_generate_continues_at_the_end_wherever_the_cursor_is(page):
    page.text.fill(KEEP)
    put_cursor_after(page, "The old")
    page.set("Tokens", 4)
    page.generate()
    text = page.value()
    assert text.startswith(KEEP)
    assert text != KEEP
    page.press("Undo")
    assert page.value() == KEEP
    page.generate()  # also after Undo, which puts the cursor at the end
    assert page.value().startswith(KEEP)


def test_undo_shows_the_place_of_the_change(page):
    page.text.fill("The sea.\n" * 60)
    page.evaluate("page.writer.endBurst()")  # as after a pause
    select(page, "The")
    page.keyboard.type("A")
    page.locator("#paper").evaluate("paper => { paper.scrollTop = paper.scrollHeight; }")
    page.press("Undo")
    assert cursor(page) == [3, 3]
    assert page.locator("#paper").evaluate("paper => paper.scrollTop") < 40
    page.press("Redo")
    assert cursor(page) == [1, 1]


def test_what_follows_the_cursor_stays_in_a_branch(page):
    page.text.fill(KEEP)
    page.set("Tokens", 4)
    expect(page.get_by_role("button", name="Continue from here")).to_be_disabled()
    put_cursor_after(page, "looked")
    page.press("Continue from here")
    page.wait_for_end()
    assert page.value().startswith("The old king looked")
    assert not page.value().startswith("The old king looked at the sea and")
    page.press("Undo")
    assert page.value() == KEEP


def test_a_selection_is_rewritten_and_the_rest_stays(page):
    page.text.fill(KEEP)
    select(page, "looked at the sea")
    page.press("Rewrite selection")
    page.wait_for_end()
    text = page.value()
    assert text.startswith("The old king")
    assert text.endswith(" and said nothing.")
    assert "looked at the sea" not in text
    start, end = cursor(page)
    assert text[:start] + text[end:] == "The old king and said nothing."
    assert page.evaluate("page.writer.tokens.map(token => token.text).join('')") == text
    page.press("Retry")
    page.wait_for_end()
    assert page.value().endswith(" and said nothing.")
    assert options(page).count() == 2
    page.press("Undo")
    page.press("Undo")
    assert page.value() == KEEP


def test_retry_writes_other_texts_whose_row_can_be_turned_over(page):
    first = page.write("The sea was", tokens=6, seed=7)
    page.text.press("Alt+r")
    page.wait_for_end()
    second = page.value()
    expect(options(page)).to_have_text(["1 seed 7", "2 seed 8"])
    assert first != second
    page.text.press("Alt+,")
    assert page.value() == first
    page.keyboard.type(" end")  # what was typed belongs to the text
    options(page).first.focus()
    page.keyboard.press("ArrowRight")
    assert page.value() == second
    page.keyboard.press("ArrowLeft")
    assert page.value() == first + " end"
    page.press("Side by side")
    texts = page.get_by_role("article").locator("p").all_inner_texts()
    assert texts == [text.removeprefix("The sea was").strip() for text in (first, second)]
    page.press("Take alternative 2")
    assert page.value() == second
    # the same seed once more makes no second branch
    page.branches.first.click()
    page.generate()
    assert page.value() == first
    expect(page.locator("#problem")).to_contain_text("has written this text before")
    assert options(page).count() == 2


@pytest.mark.slow
def test_a_random_seed_is_drawn_and_shown(page):
    expect(page.get_by_role("spinbutton", name="Seed")).to_have_value("-1")
    page.write("The sea was", tokens=3, seed=-1)
    page.press("Retry")
    page.wait_for_end()
    seeds = [int(text.rpartition(" ")[2]) for text in options(page).all_inner_texts()]
    assert len(set(seeds)) == 2
    expect(page.locator("#command")).to_contain_text(f"--seed {seeds[1]}")
    expect(page.get_by_role("spinbutton", name="Seed")).to_have_value("-1")


def test_undo_does_not_go_through_the_alternatives_that_were_looked_at(page):
    texts = [page.write("The sea was", tokens=3, seed=7)]
    for _ in range(2):
        page.press("Retry")
        page.wait_for_end()
        texts.append(page.value())
    for key in ("Alt+,", "Alt+,", "Alt+.", "Alt+,"):
        page.text.press(key)
    assert page.value() == texts[0]
    page.press("Undo")
    assert page.value() == texts[1]  # the text before the last generation


def test_undo_works_from_everywhere_but_other_fields(page):
    text = page.write("The sea was", tokens=3, seed=7)
    memory = page.get_by_role("textbox", name="Memory")
    page.locator("#story-fields").evaluate("details => { details.open = true; }")
    memory.fill("A quiet story.")
    page.press("Generate")  # with the mouse, which brings the cursor back to the text
    page.wait_for_end()
    expect(page.text).to_be_focused()
    page.keyboard.press("Control+z")
    assert page.value() == text
    page.get_by_role("button", name="Redo").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Undo")).to_be_enabled()
    page.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Control+z")
    assert page.value() == text
    expect(memory).to_have_value("A quiet story.")


def test_a_button_that_was_pressed_by_a_key_keeps_the_focus(page):
    page.write("The sea was", tokens=3, seed=7)
    retry = page.get_by_role("button", name="Retry")
    retry.focus()
    page.keyboard.press("Enter")
    page.wait_for_end()
    expect(retry).to_be_focused()


def test_a_text_is_accepted_word_by_word(page):
    text = page.write("The sea was", tokens=16, seed=7)
    words = re.findall(r"\s*\S+", text.removeprefix("The sea was"))
    for count in (1, 2):
        page.text.press("Alt+w")
        accepted = "The sea was" + "".join(words[:count])
        assert page.value() == accepted
        rest = page.locator("#mirror").evaluate("mirror => mirror.textContent")
        assert rest == text + "\u200b"
    page.press("Undo")
    assert page.value() == "The sea was" + words[0]  # a word less
    page.press("Undo")
    assert page.value() == text
    page.press("Redo")
    page.press("Redo")
    page.reload_when_saved()
    assert page.value() == accepted
    assert page.locator("#mirror").evaluate("mirror => mirror.textContent") == text + "\u200b"
    expect(options(page)).to_have_attribute("aria-selected", "true")
    page.set("Tokens", 2)
    page.generate()  # what was not accepted is not read
    assert page.value().startswith(accepted)
    for _ in range(3):
        page.press("Undo")
    assert page.value() == text
    page.press("Accept word")
    page.press("Accept rest")
    assert page.value() == text


STOPS = {
    "sentence": ('root ::= " It was Mr. B. He left." " Then it rained."', " It was Mr. B. He left."),
    "paragraph": (r'root ::= "\n\nOne line. Two.\n" "Another."', "\n\nOne line. Two."),
}


@pytest.mark.parametrize("place", STOPS)
def test_a_text_stops_where_it_is_to_stop(page, place):
    """A grammar says what the model writes."""
    grammar, expected = STOPS[place]
    page.text.fill("So.")
    page.grammar.fill(grammar)
    stop_at(page, place)
    page.set("Tokens", 60)
    page.generate()
    assert page.value() == "So." + expected
    stop_at(page, "length")
    page.press("Retry")
    page.wait_for_end()
    assert page.value().startswith("So." + expected)
    assert len(page.value()) > len("So." + expected)


def test_the_end_of_the_model_is_a_mark_that_goes(page):
    page.text.fill("The sea")
    page.notation.fill("logit_bias(2=100) > greedy")
    page.generate()
    mark = page.locator("#mirror .ended")
    expect(mark).to_have_count(1)
    page.text.press("End")
    page.keyboard.type(" was")
    expect(mark).to_have_count(0)


def test_a_press_on_a_word_tells_why_and_leaves_the_cursor(page):
    page.write("The sea was", tokens=8, seed=7)
    put_cursor_after(page, "The")
    word = page.locator("#mirror .t").nth(6)
    place = word.evaluate(
        "span => { const r = span.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }"
    )
    page.keyboard.down("Alt")
    page.mouse.click(*place)
    page.keyboard.up("Alt")
    expect(page.why).to_be_visible()
    assert cursor(page) == [3, 3]
    page.keyboard.press("Escape")
    page.press("Why")
    page.mouse.click(*place)
    expect(page.why).to_be_visible()
    assert cursor(page) == [3, 3]
    page.press("Why")
    page.mouse.click(*place)
    assert cursor(page) != [3, 3]
    assert page.items.locator("xpath=self::*[@data-cursor]").count() == 1


def test_the_view_is_kept_in_the_browser(context, server):
    page = PageDriver(context, server.address)
    page.locator("#look summary").click()
    page.get_by_role("combobox", name="Font").select_option("mono")
    page.get_by_role("slider", name="Size").fill("24")
    page.get_by_role("slider", name="Width").fill("60")
    assert page.text.evaluate("area => area.spellcheck")
    page.get_by_role("checkbox", name="Check spelling").uncheck()
    page.text.press("Alt+c")
    for _ in range(2):
        expect(page.get_by_role("region", name="Settings")).to_be_hidden()
        style = page.text.evaluate(
            "area => { const s = getComputedStyle(area); return [s.fontSize, s.fontFamily]; }"
        )
        assert style[0] == "24px"
        assert "mono" in style[1]
        assert not page.text.evaluate("area => area.spellcheck")
        page.reload()
        page.wait_until_ready()
    page.press("Calm")
    expect(page.get_by_role("region", name="Settings")).to_be_visible()
    assert page.errors == []


def test_keys_are_shown_and_a_wrong_ban_is_told_at_once(page):
    page.get_by_role("button", name="Theme").focus()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys and marks")
    expect(keys).to_contain_text("retry: another text in the same place")
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.locator("#bans").fill("fine\n/a(/")
    expect(page.locator("#bans-note")).to_contain_text("a closing parenthesis is missing")
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("a closing parenthesis is missing")
    page.locator("#bans").fill("fine")
    expect(page.locator("#bans-note")).to_be_empty()


def test_the_story_is_read_before_the_text(page):
    page.text.fill("The lamp was on.\nA man said")
    page.get_by_text("Memory, author's note, world info").click()
    page.get_by_role("textbox", name="Memory").fill("A quiet story.\n")
    page.get_by_role("textbox", name="Author's note").fill("short")
    page.get_by_role("spinbutton", name="Lines after the note").fill("1")
    for keys, content in (("lamp, light", "It burns oil.\n"), ("Odile", "She reads.\n")):
        page.press("Add entry")
        page.get_by_role("textbox", name="Keys").last.fill(keys)
        page.get_by_role("textbox", name="Content").last.fill(content)
    page.press("What the model reads")
    dialog = page.get_by_role("dialog", name="What the model reads")
    expect(dialog.get_by_role("list", name="Parts").locator("h3")).to_have_text(
        [re.compile(name) for name in ("^Memory", "^World info", "^Text", "^Author's note", "^Text")]
    )
    expect(dialog.get_by_role("list", name="Left out")).to_contain_text("Odile")
    page.press("Close parts")
    sent = []
    page.tab.on("request", lambda r: sent.append(r.post_data_json) if r.url.endswith("/gen/generate") else None)
    page.set("Tokens", 3)
    page.generate()
    assert page.value().startswith("The lamp was on.\nA man said")
    (body,) = sent
    assert body["memory"] == "A quiet story.\n"
    assert body["authors_note"] == {"text": "short", "depth": 1}
    assert [entry["keys"] for entry in body["world_info"]["entries"]] == [["lamp", "light"], ["Odile"]]
    page.reload_when_saved()
    expect(page.get_by_role("textbox", name="Memory")).to_have_value("A quiet story.\n")
    expect(page.get_by_role("list", name="World info").get_by_role("listitem")).to_have_count(2)


STORY_PRESET = """
chain: [dist]
memory: A quiet story.
authors_note: {text: short, depth: 1}
world_info: [{keys: [lamp], content: It burns oil.}]
"""


def test_a_preset_brings_a_memory_which_is_saved_with_it(page, tmp_path):
    page.text.fill("The lamp was on.\nA man")
    page.open_file("preset", tmp_path / "story.yaml", STORY_PRESET)
    memory = page.get_by_role("textbox", name="Memory")
    expect(memory).to_have_value("A quiet story.")
    expect(page.get_by_role("list", name="World info").get_by_role("listitem")).to_have_count(1)
    assert "memory" not in page.locator("#rules-note").inner_text()
    page.press("What the model reads")
    dialog = page.get_by_role("dialog", name="What the model reads")
    expect(dialog.get_by_role("list", name="Parts")).to_contain_text("A quiet story.")
    page.press("Close parts")
    memory.fill("A loud story.")
    page.settle()
    page.download("Save preset", tmp_path / "saved.yaml")
    saved = yaml.safe_load((tmp_path / "saved.yaml").read_text())
    assert saved["memory"] == "A loud story."
    assert saved["world_info"][0]["content"] == "It burns oil."


def test_a_chat_has_memory_and_note_in_its_messages(page):
    page.locator("#story-fields").evaluate("details => { details.open = true; }")
    page.get_by_role("textbox", name="Memory").fill("A quiet story.")
    page.get_by_role("textbox", name="Author's note").fill("short")
    page.get_by_role("checkbox", name="Chat template").check()
    page.get_by_role("textbox", name="Message 1").fill("Where is it?")
    page.settle()
    system = "<|im_start|>system\nA quiet story.<|im_end|>\n"
    chat = f"{system}<|im_start|>user\n[Author's note: short]\n\nWhere is it?<|im_end|>\n"
    assert page.value() == f"{chat}<|im_start|>assistant\n"
    sent = []
    page.tab.on("request", lambda r: sent.append(r.post_data_json) if r.url.endswith("/gen/generate") else None)
    page.set("Tokens", 3)
    page.generate()
    assert "memory" not in sent[0]
    assert page.value().startswith(chat)


def test_retry_of_a_rewritten_part_stops_where_it_is_said(page):
    text = page.write("The sea was", tokens=40, seed=7)
    select(page, "sea was")
    sent = []
    page.tab.on("request", lambda r: sent.append(r.post_data_json) if r.url.endswith("/gen/generate") else None)
    page.press("Rewrite selection")
    page.wait_for_end()
    page.get_by_role("combobox", name="Stop at").select_option("sentence")
    page.press("Retry")
    page.wait_for_end()
    assert [body["max_tokens"] for body in sent] == [2, 40]
    assert page.value().endswith(text[11:])


STATES = """() => {
    const seen = new Set();
    const state = document.getElementById("state");
    new MutationObserver(() => seen.add(state.textContent)).observe(state, { childList: true });
    return seen;
}"""


@pytest.mark.slow
def test_a_text_that_is_longer_than_the_context_is_continued(page):
    text = "the sea was old and in. " * 800
    page.text.fill(text)
    page.set("Tokens", 4)
    expect(page.locator("#left-out")).to_contain_text("Left out: the first")
    states = page.evaluate_handle(STATES)
    page.generate()
    assert page.value().startswith(text)
    assert page.value() != text
    assert "reading" in states.evaluate("seen => Array.from(seen)")


@pytest.mark.slow
def test_a_key_in_a_long_text_tokenizes_only_what_is_near(page):
    page.text.fill("the sea was old and in. \n" * 400)
    page.settle()
    sent = []
    page.tab.on(
        "request", lambda r: sent.append(len(r.post_data_json["text"])) if r.url.endswith("/text/tokens") else None
    )
    page.text.evaluate("area => { area.focus(); area.setSelectionRange(5000, 5000); }")
    page.keyboard.type("x")
    page.settle()
    assert page.locator(".pending").count() == 0
    (length,) = sent
    assert length < 5_000
    page.set("Tokens", 1)
    page.generate()  # what is generated follows the tokens of `gen`
    assert sent[-1] > 9_000
    expect(page.locator("#command")).to_contain_text("gen run")


GAPS = """() => {
    const [paper, actions] = ["paper", "actions"].map(id => document.getElementById(id));
    const bar = getComputedStyle(actions).position === "fixed" ? actions.getBoundingClientRect().top : innerHeight;
    return [paper.scrollHeight - paper.clientHeight - paper.scrollTop, bar - paper.getBoundingClientRect().bottom];
}"""


@pytest.mark.parametrize("width", [400, 1440])
def test_new_text_is_in_view(browser, server, width):
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        page = PageDriver(context, server.address)
        page.set("Tokens", 8)
        page.text.fill("the sea was old and in. \n" * 80)
        page.settle()
        for button in ("Generate", "Retry"):
            page.evaluate("() => { document.getElementById('paper').scrollTop = 0; scrollTo(0, 0); }")
            page.press(button)
            page.wait_for_end()
            hidden, room = page.evaluate(GAPS)
            assert hidden < 2
            assert room >= 0
        assert page.errors == []


def test_what_is_typed_without_a_server_is_one_text(page):
    page.route("**/gen/text/tokens", lambda _: None)  # no answer comes
    page.text.focus()
    page.keyboard.type("The sea was")
    assert page.names() == ["The sea was"]


@pytest.mark.slow
def test_a_text_that_is_longer_than_the_context_is_not_tokenized_again(page):
    page.text.fill("the sea was old and in. " * 800)
    page.settle()
    sent = []
    page.tab.on(
        "request", lambda r: sent.append(len(r.post_data_json["text"])) if r.url.endswith("/text/tokens") else None
    )
    page.text.press("Control+End")
    page.keyboard.type("x")
    page.set("Tokens", 1)
    page.generate()
    assert sent
    assert max(sent) < 5_000  # the server gets the text, and the tokens are those near the change


CHANGED_BY_A_KEY = """async () => {
    const area = document.getElementById("text");
    area.focus();
    area.setSelectionRange(3, 3);
    const changed = new Set();
    const observer = new MutationObserver((records) => records.forEach(({ target }) => changed.add(target)));
    for (const id of ["mirror", "alternatives"]) {
        observer.observe(document.getElementById(id), { childList: true, characterData: true, subtree: true });
    }
    document.execCommand("insertText", false, "x");
    await new Promise((done) => setTimeout(done));
    observer.disconnect();
    return Array.from(changed, (node) => Array.from(node.parentElement.children).indexOf(node));
}"""


def test_a_key_changes_the_elements_of_its_paragraph_only(page):
    page.write("The sea\n\nwas old.\n\nAnd the king", tokens=2)
    page.press("Retry")
    page.wait_for_end()
    assert page.evaluate(CHANGED_BY_A_KEY) == [0]


def test_text_and_copy_have_the_same_lines(page):
    page.text.fill("The old king looked at the sea.\n\n" * 20 + "the sea was old and in " * 200)
    page.settle()
    heights = page.evaluate("['text', 'mirror'].map(id => document.getElementById(id).scrollHeight)")
    widths = page.evaluate(
        "['text', 'mirror'].map(id => document.getElementById(id).getBoundingClientRect().width)"
    )
    assert heights[0] == heights[1]
    assert widths[0] == widths[1]


def test_text_that_is_not_tokenized_has_about_so_many_tokens(page):
    held = HeldRequests(page.tab, "**/gen/text/tokens")
    page.text.fill("The old king looked.")
    expect(page.locator("#counts")).to_have_text("4 words, about 5 tokens")
    held.release()
    page.settle()
    expect(page.locator("#counts")).to_have_text(f"4 words, {page.items.count()} tokens")


def test_the_state_says_that_the_text_is_being_prepared(page):
    page.text.fill("The sea was")
    page.settle()
    held = HeldRequests(page.tab, "**/gen/generate")
    page.press("Generate")
    expect(page.locator("#state")).to_have_text("preparing")
    held.release()
    page.wait_for_end()
    expect(page.locator("#state")).not_to_have_text("preparing")


@pytest.mark.slow
def test_a_server_that_stops_says_so(context, pruned_model):
    with GenServe("--grace", "20", model=pruned_model) as server:
        page = PageDriver(context, server.address)
        page.notation.fill("ignore_eos > temp1")
        page.text.fill("The sea was")
        page.set("Tokens", 3000)
        page.press("Generate")
        page.wait_until(lambda: len(page.value()) > 40)
        server.stop(signal.SIGINT)
        expect(page.locator("#state")).to_have_text(
            re.compile("the server is stopping|no connection"), timeout=8_000
        )
