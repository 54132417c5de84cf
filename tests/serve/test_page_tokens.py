"""What the model reads is what the page of `gen serve` shows, whatever a person has done to the text."""

import json
import random

import pytest

from ..browser import expect
from ..engine.small_models import write_model
from .gen_serve import GenServe
from .page_driver import HeldRequests, PageDriver

KINDS = ("BPE", "SPM")


@pytest.fixture(scope="module")
def servers(server, tmp_path_factory):
    """A server for each kind of vocabulary. SentencePiece's adds a space before a text."""
    spm_model = write_model(tmp_path_factory.mktemp("models") / "spm.gguf", "llama", "llama")
    with GenServe("--slots", "2", model=spm_model) as spm:
        yield {"BPE": server, "SPM": spm}


MIRRORED = """() => ({
    copy: page.editor.mirror.box.textContent.replaceAll("\u200b", ""),
    count: page.writer.tokens.length,
    different: new Set(page.writer.tokens.map(token => token.uid)).size,
})"""


def check_shown(page):
    """The page shows all characters of the text, and each token in one place."""
    shown = page.evaluate(MIRRORED)
    assert shown["copy"] == page.value()
    assert shown["different"] == shown["count"]


class ReadingPage(PageDriver):
    """A page that notes which tokens it sends."""

    def __init__(self, context, server):
        super().__init__(context, server.address)
        self.server, self.sent = server, []
        self.tab.on("request", self.note)

    def note(self, request):
        if request.url.endswith("/gen/generate"):
            self.sent.append(request.post_data_json["prompt"])

    def read(self):
        """The text of the tokens that were sent last, without BOS and the space that is added before a text."""
        ids = self.sent[-1]
        begins_with_bos = ids[0] == 1  # of both vocabularies
        _, answer = self.server.post("/detokenize", {"tokens": ids[begins_with_bos:]})
        _, again = self.server.post("/gen/text/tokens", {"text": ""})
        assert again["tokens"][0]["id"] == 1
        return answer["content"]

    def put(self, start, end, text=""):
        """Replace characters as a person does."""
        self.text.evaluate("(area, [a, b]) => { area.focus(); area.setSelectionRange(a, b); }", [start, end])
        if text:
            self.keyboard.insert_text(text)
        elif end > start:
            self.keyboard.press("Backspace")

    def put_cursor_at_end(self):
        self.put(10**9, 10**9)  # it stops at the end

    def undo_all(self):
        while self.locator("#undo").is_enabled():
            self.press("Undo")

    def stop_at(self, *strings):
        self.locator("#stop-strings").fill("\n".join(strings))

    def check_next(self):
        """Generate at the end of the text; check that the text was read as it is shown."""
        self.put_cursor_at_end()
        shown, count = self.value(), len(self.sent)
        self.generate()
        assert len(self.sent) == count + 1, self.locator("#problem").inner_text()
        assert self.read() in (shown, f" {shown}")
        # and that the page shows its tokens
        assert self.evaluate("page.writer.tokens.map(token => token.text).join('')") == self.value()


@pytest.fixture(params=KINDS)
def page(request, shared_context, servers):
    yield from reading_page(shared_context, servers[request.param])


@pytest.fixture
def bpe_page(shared_context, server):
    yield from reading_page(shared_context, server)


def reading_page(context, server):
    driver = ReadingPage(context, server)
    driver.set("Tokens", 5)
    driver.set("Seed", 0)
    yield driver
    driver.tab.close()
    assert driver.errors == []


@pytest.mark.slow
def test_what_a_stop_string_cuts_is_not_read(page):
    page.text.fill("Red, green")
    (comma,) = page.server.post("/tokenize", {"content": "x,"})[1]["tokens"][-1:]
    page.notation.fill(f"logit_bias({comma}=200) > greedy")
    page.stop_at(",")
    page.set("Tokens", 12)
    page.generate()
    assert page.value() == "Red, green"
    expect(page.locator("#problem")).to_contain_text("stop string")
    page.stop_at()
    page.put_cursor_at_end()
    for _ in range(5):
        page.keyboard.press("Backspace")
    page.keyboard.type("grapes were")
    assert page.value() == "Red, grapes were"
    page.check_next()
    # a token of which the string cuts the end
    page.notation.fill("min_p0.05 > dist")
    first = page.write("T", tokens=8, seed=3)
    page.press("Undo")
    page.stop_at(first[4:6])
    page.generate()
    page.stop_at()
    assert page.value() == first[: first.index(first[4:6])]
    page.check_next()


def test_the_end_of_the_model_is_told_and_not_read(page):
    page.text.fill("The sea")
    page.notation.fill("logit_bias(2=100) > greedy")
    page.generate()
    assert page.value() == "The sea"
    page.notation.fill("temp0.5 > min_p0.001 > dist")
    expect(page.locator("#problem")).to_contain_text("The model ended the text here.")
    expect(page.locator("#state")).to_have_text("ended by the model")
    page.check_next()
    assert 2 not in page.sent[-1]
    expect(page.locator("#state")).to_have_text("connected")


THREE_TOKENS = """\
phases: [{max_tokens: 3, chain: [greedy]}, {chain: [{logit_bias: {bias: {2: 100}}}, greedy]}]
"""


@pytest.mark.slow
def test_the_state_of_a_text_that_the_model_ended(bpe_page, tmp_path):
    state = bpe_page.locator("#state")
    expect(state).to_have_text("connected")
    bpe_page.open_file("preset", tmp_path / "three.yaml", THREE_TOKENS)
    expect(bpe_page.locator("#rules-note")).to_contain_text("phases")
    text = bpe_page.write("The sea", tokens=20)
    assert bpe_page.items.count() == 5
    expect(state).to_have_text("ended by the model")
    expect(bpe_page.locator("#problem")).to_be_hidden()
    bpe_page.press("Undo")
    expect(state).to_have_text("connected")
    bpe_page.press("Redo")
    expect(state).to_have_text("ended by the model")
    bpe_page.reload_when_saved()
    expect(state).to_have_text("ended by the model")
    bpe_page.put(len(text), len(text), " and")
    expect(state).to_have_text("connected")
    bpe_page.check_next()
    assert 2 not in bpe_page.sent[-1]


def stop_early(page):
    page.route("**/gen/generate", lambda _: None)  # no answer comes
    page.press("Generate")
    page.press("Stop")
    page.wait_for_end()
    page.unroute("**/gen/generate")
    page.undo_all()


EMPTY = {
    "nothing typed": lambda _: None,
    "all text deleted": lambda page: page.text.fill(""),
    "undone to the beginning": lambda page: page.undo_all(),
    "stopped before the first token, undone": stop_early,
}


@pytest.mark.slow
def test_an_empty_text_begins_with_bos(page):
    for name, action in EMPTY.items():
        if name != "nothing typed":
            page.text.fill("The sea")
            page.settle()
            assert page.items.count() > 0
        action(page)
        page.sent.clear()
        page.generate()
        assert page.sent == [[1]], name
        assert page.value() != ""
        page.check_next()


@pytest.mark.slow
def test_a_text_is_continued_after_stop_and_undo(page):
    page.notation.fill("ignore_eos > temp1")  # otherwise the model may end the text before the button is pressed
    page.text.fill("The sea")
    page.set("Tokens", 400)
    for _ in range(20):  # a busy machine may write all tokens before the page reads the seventh
        page.stop_while_writing()
        if page.evaluate("page.writer.tree.current.run.done.finish_reason") == "interrupted":
            break
        page.press("Undo")
    else:
        pytest.fail("Stop never came before the end of the text")
    for button in (None, "Undo", "Redo"):
        if button is not None:
            page.press(button)
        page.set("Tokens", 5)
        page.check_next()
        page.press("Undo")


def test_stop_counts_while_the_text_is_being_read(bpe_page):
    delays = iter([True])
    held = []
    bpe_page.route("**/gen/text/tokens", lambda r: held.append(r) if next(delays, False) else r.continue_())
    bpe_page.text.fill("The sea")
    bpe_page.wait_until(lambda: held)
    bpe_page.press("Generate")
    bpe_page.press("Stop")
    held[0].continue_()
    bpe_page.wait_for_end()
    assert bpe_page.sent == []
    bpe_page.check_next()


PARTS = ["", " ", "x", " and", "\U0001f98a\u00e9", "\n\n", "T Bf", "  ", "\ufffd", "\u00fc\u4e2d"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_read_is_what_is_shown_after_any_edits(page, seed):
    dice = random.Random(seed)
    page.text.fill("The sea was \U0001f98a")
    for _ in range(12):
        match dice.choice(["edit"] * 6 + ["generate", "undo", "redo", "stop string", "reload", "candidate"]):
            case "edit":
                start = dice.randint(0, len(page.value()))
                page.put(start, start + dice.choice([0, 0, 1, 2, 5]), dice.choice(PARTS))
            case "stop string":
                page.stop_at(*dice.choice([["a"], ["e", " "], [], ["\ufffd"]]))
            case "reload":
                page.reload_when_saved()
            case "candidate":
                page.put_cursor_at_end()
                if page.value():
                    page.wait_for_next()
                    page.next_rows.nth(dice.randint(0, 3)).get_by_role("button").click()
            case "generate":
                page.check_next()
            case name:
                button = page.locator(f"#{name}")
                if button.is_enabled():
                    button.click()
        page.settle()
        check_shown(page)
    page.check_next()


HEALED = "chain: [greedy]\nheal: true\n"


@pytest.mark.slow
def test_healing_leaves_no_token_twice(bpe_page, tmp_path):
    bpe_page.open_file("preset", tmp_path / "healing.yaml", HEALED)
    expect(bpe_page.locator("#rules-note")).to_contain_text("heal")
    bpe_page.set("Tokens", 5)
    bpe_page.text.fill("The se")
    bpe_page.generate()
    assert bpe_page.value().startswith("The se")
    assert bpe_page.value() != "The se"
    bpe_page.open_file("preset", tmp_path / "greedy.yaml", "chain: [greedy]\n")
    expect(bpe_page.locator("#rules-note")).to_be_empty()
    bpe_page.check_next()


@pytest.mark.slow
def test_a_text_typed_after_generated_tokens_is_not_divided_otherwise(page):
    """The generated tokens keep their ids, and what was typed alone has the tokens of `gen`."""
    page.text.fill("The sea")
    page.generate()
    written = page.evaluate("page.writer.tokens.filter(token => token.event === 'token').map(token => token.id)")
    page.put(2, 3, "T Bf")
    page.put_cursor_at_end()
    page.keyboard.insert_text(" end")
    page.check_next()
    assert [token for token in page.sent[-1] if token in written][: len(written)] == written
    _, whole = page.server.post("/gen/text/tokens", {"text": "ThT Bf sea"})
    first = [token["id"] for token in whole["tokens"]]
    assert page.sent[-1][: len(first)] == first


@pytest.mark.slow
def test_old_stores_and_files_are_mended(page, tmp_path):
    page.write("The sea", tokens=5)
    shown = page.value()
    page.export(tmp_path / "page.json")
    data = json.loads((tmp_path / "page.json").read_text())
    made = data["tokens"][-1]
    end = {**made, "uid": made["uid"] + 1, "id": 2, "bytes": list(b"</s>"), "token": "</s>", "text": ""}
    cut = {**made, "uid": made["uid"] + 2, "bytes": list(b" cut"), "token": " cut", "text": " c"}
    for token in data["tokens"]:
        token.pop("added", None)
    data["tokens"] += [end, cut]
    data["nodes"][-1]["uids"] += [end["uid"], cut["uid"]]
    page.open_file("open", tmp_path / "old.json", json.dumps(data))
    expect(page.text).to_have_value(shown + " c")
    page.settle()
    page.check_next()
    assert 2 not in page.sent[-1]


@pytest.mark.slow
def test_an_export_cannot_hide_tokens(bpe_page, tmp_path):
    bpe_page.write("The sea", tokens=3)
    bpe_page.export(tmp_path / "page.json")
    data = json.loads((tmp_path / "page.json").read_text())
    data["tokens"][-1] |= {"added": len(data["tokens"][-1]["bytes"]), "text": ""}
    data["title"] = "hidden"
    bpe_page.open_file("open", tmp_path / "hidden.json", json.dumps(data))
    bpe_page.wait_until(lambda: bpe_page.evaluate("page.stories.story.title") == "hidden")
    bpe_page.check_next()


@pytest.mark.slow
def test_a_text_of_a_closed_tab_is_opened(context, server):
    first, other = (ReadingPage(context, server) for _ in range(2))
    text = first.write("The old king", tokens=4)
    first.settle()
    first.tab.close()
    other.stories().get_by_role("button", name=text, exact=True).click()
    expect(other.text).to_have_value(text)
    other.items.last.click()
    expect(other.why).to_contain_text("lies in")
    expect(other.get_by_role("spinbutton", name="Tokens", exact=True)).to_have_value("4")
    other.press("Undo")
    assert other.value() == "The old king"
    other.press("Redo")
    other.check_next()
    assert other.errors == []


SLOW = ("models", "samplers", "presets", "grammars", "chain")


@pytest.mark.slow
def test_actions_before_the_lists_have_come_wait_for_them(context, server, tmp_path):
    saved = ReadingPage(context, server)
    text = saved.write("The old", tokens=3)
    saved.export(tmp_path / "page.json")
    for slow in SLOW:
        held = HeldRequests(context, f"**/{slow}")
        page = PageDriver(context, server.address, is_ready=False)
        page.wait_until(lambda held=held: held.routes)
        for name in ("Generate", "Export", "Save report", "Save preset", "Compare", "Stories"):
            assert page.get_by_role("button", name=name, exact=True).is_disabled(), (slow, name)
        assert page.text.is_disabled()
        page.keyboard.press("Control+Enter")
        page.keyboard.press("Escape")
        page.locator("#theme").click()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.open_file("open", tmp_path / "page.json")
        page.open_file("preset", tmp_path / "mine.yaml", "chain: [{min_p: 0.21}, dist]\n")
        page.tab.wait_for_timeout(100)  # nothing may happen now
        held.release()
        page.wait_until_ready()
        expect(page.text).to_have_value(text)
        expect(page.notation).to_have_value("min_p=0.21 > dist")
        assert page.errors == []
        page.tab.close()
        context.unroute(f"**/{slow}")


TYPED_ON = {
    "a sentence": ("The sea was calm.", " And after."),
    "a quotation": ("The sea said", ' "Stay," and "Stay,"'),
    "a repetition": ("the sea the sea", " the sea the sea the sea"),
}


@pytest.mark.parametrize(("text", "more"), TYPED_ON.values(), ids=TYPED_ON)
def test_all_characters_are_shown_after_a_pause(page, text, more):
    page.text.fill(text)
    page.settle()
    page.text.press("Control+End")
    page.keyboard.type(more)
    page.settle()
    assert page.value() == text + more
    check_shown(page)


@pytest.mark.slow
def test_lists_that_fail_are_asked_for_again(context, server):
    answers = iter([500])
    context.route("**/gen/samplers", lambda r: r.fulfill(status=s) if (s := next(answers, 0)) else r.continue_())
    page = PageDriver(context, server.address)
    expect(page.locator("#problem")).to_be_hidden()
    assert page.write("The old", tokens=2) != "The old"
    assert page.errors == []


TEXTS = {
    "beginning": ("hello in", None),
    "beginning with a blank": (" in", None),
    "empty": ("", None),
    "middle": ("T Bf Re", "x"),
    "middle, with a blank": (" in th", "x"),
    "middle, newline": ("\n\nhello", "x"),
    "after a control token": ("hello", "</s>"),
    "control token": ("a</s>b", "x"),
    "characters of several bytes": ("\U0001f98a\u00e9\ufffd", "x"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_text_have_tokens_of_their_bytes(servers, kind):
    server = servers[kind]
    for name, (text, after) in TEXTS.items():
        previous = None if after is None else server.post("/tokenize", {"content": after})[1]["tokens"][-1]
        status, answer = server.post("/gen/text/tokens", {"text": text, "after": previous})
        assert status == 200, name
        data = b"".join(bytes(token["bytes"][token["added"] :]) for token in answer["tokens"])
        assert data == text.encode(), name
        if kind == "SPM" and after == "x" and "</s>" not in text:
            assert not any(token["added"] for token in answer["tokens"]), name
        if after is None:
            _, whole = server.post("/v1/tokenize", {"prompt": text})
            assert [token["id"] for token in answer["tokens"]] == (whole["tokens"] or [1]), name


@pytest.mark.parametrize("fields", [{"text": "a", "after": 10**9}, {"text": "\ud800"}, {"after": 5}, {"text": 5}])
def test_wrong_parts_of_a_text_are_refused(servers, fields):
    for server in servers.values():
        assert server.post("/gen/text/tokens", fields)[0] == 400
