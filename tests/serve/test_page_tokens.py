"""What the model reads is what the page of `gen serve` shows, whatever a person has done to the text."""

import json
import random

import pytest

from ..engine.small_models import write_model
from .gen_serve import GenServe
from .page_driver import PageDriver, expect

KINDS = ("BPE", "SPM")


@pytest.fixture(scope="module")
def servers(pruned_model, tmp_path_factory):
    """A server for each kind of vocabulary. SentencePiece's adds a space before a text."""
    spm_model = write_model(tmp_path_factory.mktemp("models") / "spm.gguf", "llama", "llama")
    with GenServe("--slots", "2", model=pruned_model) as bpe, GenServe("--slots", "2", model=spm_model) as spm:
        yield {"BPE": bpe, "SPM": spm}


class ReadingPage(PageDriver):
    """A page that notes which tokens it sends."""

    def __init__(self, context, server):
        super().__init__(context, f"http://127.0.0.1:{server.port}")
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

    def chain(self, notation):
        self.get_by_role("textbox", name="Notation", exact=True).fill(notation)

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


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture(params=KINDS)
def page(request, context, servers):
    driver = ReadingPage(context, servers[request.param])
    driver.set("Tokens", 5)
    yield driver
    assert driver.errors == []


@pytest.fixture
def bpe_page(context, servers):
    driver = ReadingPage(context, servers["BPE"])
    driver.set("Tokens", 5)
    yield driver
    assert driver.errors == []


def test_what_a_stop_string_cuts_is_not_read(page):
    page.text.fill("Red, green")
    (comma,) = page.server.post("/tokenize", {"content": "x,"})[1]["tokens"][-1:]
    page.chain(f"logit_bias({comma}=200) > greedy")
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


def test_a_token_of_which_a_stop_string_cuts_the_end(page):
    first = page.write("T", tokens=8, seed=3)
    page.press("Undo")
    page.stop_at(first[4:6])
    page.generate()
    page.stop_at()
    assert page.value() == first[: first.index(first[4:6])]
    page.check_next()


@pytest.fixture
def ended(page):
    """A text that the model has ended."""
    page.text.fill("The sea")
    page.chain("logit_bias(2=100) > greedy")
    page.generate()
    assert page.value() == "The sea"
    page.chain("temp0.5 > min_p0.001 > dist")
    return page


def test_the_end_of_the_model_is_told_and_not_read(ended):
    expect(ended.locator("#problem")).to_contain_text("The model ended the text here.")
    expect(ended.locator("#state")).to_have_text("ended by the model")
    ended.check_next()
    assert 2 not in ended.sent[-1]
    expect(ended.locator("#state")).to_have_text("connected")


THREE_TOKENS = """\
phases: [{max_tokens: 3, chain: [greedy]}, {chain: [{logit_bias: {bias: {2: 100}}}, greedy]}]
"""


def test_the_state_of_a_text_that_the_model_ended(bpe_page, tmp_path):
    state, path = bpe_page.locator("#state"), tmp_path / "three.yaml"
    expect(state).to_have_text("connected")
    path.write_text(THREE_TOKENS)
    bpe_page.locator("#preset-file").set_input_files(path)
    expect(bpe_page.locator("#rules-note")).to_contain_text("phases")
    text = bpe_page.write("The sea", tokens=20)
    assert bpe_page.items.count() == 5
    expect(state).to_have_text("ended by the model")
    expect(bpe_page.locator("#problem")).to_be_hidden()
    bpe_page.press("Undo")
    expect(state).to_have_text("connected")
    bpe_page.press("Redo")
    expect(state).to_have_text("ended by the model")
    bpe_page.tab.wait_for_timeout(900)
    bpe_page.reload()
    bpe_page.wait_until_ready()
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
    page.sent.clear()
    page.press("Undo")


EMPTY = {
    "nothing typed": lambda _: None,
    "all text deleted": lambda page: page.text.fill(""),
    "undone to the beginning": lambda page: page.press("Undo"),
    "cursor before the text": lambda page: page.put(0, 0),
    "stopped before the first token, undone": stop_early,
}


@pytest.mark.parametrize("action", EMPTY.values(), ids=EMPTY)
def test_an_empty_text_begins_with_bos(page, action):
    if action is not EMPTY["nothing typed"]:
        page.text.fill("The sea")
        page.wait_until(lambda: page.items.count() and page.locator(".pending").count() == 0)
    action(page)
    page.generate()
    assert page.sent == [[1]]
    assert page.value() != ""
    expect(page.locator("#problem")).to_be_hidden()
    page.check_next()


def test_a_text_is_continued_after_stop_and_undo(page):
    page.chain("ignore_eos > temp1")  # otherwise the model may end the text before the button is pressed
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
                page.tab.wait_for_timeout(900)  # the page stores its text after a pause
                page.reload()
                page.wait_until_ready()
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
    page.check_next()


HEALED = "chain: [greedy]\nheal: true\n"


def test_healing_leaves_no_token_twice(bpe_page, tmp_path):
    path = tmp_path / "healing.yaml"
    path.write_text(HEALED)
    bpe_page.locator("#preset-file").set_input_files(path)
    expect(bpe_page.locator("#rules-note")).to_contain_text("heal")
    bpe_page.set("Tokens", 5)
    bpe_page.text.fill("The se")
    bpe_page.generate()
    assert bpe_page.value().startswith("The se")
    assert bpe_page.value() != "The se"
    path.write_text("chain: [greedy]\n")
    bpe_page.locator("#preset-file").set_input_files(path)
    expect(bpe_page.locator("#rules-note")).to_be_empty()
    bpe_page.check_next()


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


def test_old_stores_and_files_are_mended(page, tmp_path):
    page.write("The sea", tokens=5)
    shown = page.value()
    with page.expect_download() as download:
        page.press("Export")
    data = json.loads(download.value.path().read_text())
    made = data["tokens"][-1]
    end = {**made, "uid": made["uid"] + 1, "id": 2, "bytes": list(b"</s>"), "token": "</s>", "text": ""}
    cut = {**made, "uid": made["uid"] + 2, "bytes": list(b" cut"), "token": " cut", "text": " c"}
    for token in data["tokens"]:
        token.pop("added", None)
    data["tokens"] += [end, cut]
    data["nodes"][-1]["uids"] += [end["uid"], cut["uid"]]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    page.locator("#open-file").set_input_files(path)
    expect(page.text).to_have_value(shown + " c")
    page.wait_until(lambda: page.locator(".pending").count() == 0)
    page.check_next()
    assert 2 not in page.sent[-1]


def test_an_export_cannot_hide_tokens(bpe_page, tmp_path):
    bpe_page.write("The sea", tokens=3)
    with bpe_page.expect_download() as download:
        bpe_page.press("Export")
    data = json.loads(download.value.path().read_text())
    data["tokens"][-1] |= {"added": len(data["tokens"][-1]["bytes"]), "text": ""}
    path = tmp_path / "hidden.json"
    path.write_text(json.dumps(data))
    bpe_page.locator("#open-file").set_input_files(path)
    bpe_page.wait_until(lambda: bpe_page.branches.count() > 2)
    bpe_page.check_next()


def test_a_text_of_a_closed_tab_is_opened(context, servers):
    first = ReadingPage(context, servers["BPE"])
    text = first.write("The old king", tokens=4)
    first.tab.wait_for_timeout(900)
    other = ReadingPage(context, servers["BPE"])
    other.press("Closed tabs")
    expect(other.locator("#closed-note")).to_contain_text("No closed tab")  # it is open
    other.press("Close list")
    first.tab.close()
    other.press("Closed tabs")
    other.get_by_role("list", name="Closed tabs").get_by_role("button").first.click()
    assert other.value() == text
    other.items.last.click()
    expect(other.why).to_contain_text("lies in")
    expect(other.get_by_role("spinbutton", name="Tokens", exact=True)).to_have_value("4")
    other.press("Undo")
    assert other.value() == ""
    other.press("Redo")
    other.check_next()
    assert other.errors == []


SLOW = ("models", "samplers", "presets", "grammars", "chain")


@pytest.mark.parametrize("slow", SLOW)
def test_actions_before_the_lists_have_come_wait_for_them(context, servers, tmp_path, slow):
    saved = ReadingPage(context, servers["BPE"])
    text = saved.write("The old", tokens=3)
    with saved.expect_download() as download:
        saved.press("Export")
    path, preset = tmp_path / "page.json", tmp_path / "mine.yaml"
    path.write_bytes(download.value.path().read_bytes())
    preset.write_text("chain: [{min_p: 0.21}, dist]\n")
    held, is_slow = [], [True]
    context.route(f"**/{slow}", lambda route: held.append(route) if is_slow else route.continue_())
    page = PageDriver(context, f"http://127.0.0.1:{servers['BPE'].port}", is_ready=False)
    page.wait_until(lambda: held)
    for name in ("Generate", "Export", "Save report", "Save preset", "Compare", "Closed tabs"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.text).to_be_disabled()
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    page.press("Theme")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#open-file").set_input_files(path)
    page.locator("#preset-file").set_input_files(preset)
    page.tab.wait_for_timeout(100)
    is_slow.clear()
    for route in held:
        route.continue_()
    page.wait_until_ready()
    expect(page.text).to_have_value(text)
    expect(page.get_by_role("textbox", name="Notation", exact=True)).to_have_value("min_p=0.21 > dist")
    assert page.errors == []


def test_lists_that_fail_are_asked_for_again(context, servers):
    answers = iter([500])
    context.route("**/gen/samplers", lambda r: r.fulfill(status=s) if (s := next(answers, 0)) else r.continue_())
    page = PageDriver(context, f"http://127.0.0.1:{servers['BPE'].port}")
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
@pytest.mark.parametrize(("text", "after"), TEXTS.values(), ids=TEXTS)
def test_parts_of_a_text_have_tokens_of_their_bytes(servers, kind, text, after):
    server = servers[kind]
    previous = None if after is None else server.post("/tokenize", {"content": after})[1]["tokens"][-1]
    status, answer = server.post("/gen/text/tokens", {"text": text, "after": previous})
    assert status == 200
    data = b"".join(bytes(token["bytes"][token["added"] :]) for token in answer["tokens"])
    assert data == text.encode()
    if kind == "SPM" and after == "x" and "</s>" not in text:
        assert not any(token["added"] for token in answer["tokens"])
    if after is None:
        _, whole = server.post("/v1/tokenize", {"prompt": text})
        assert [token["id"] for token in answer["tokens"]] == (whole["tokens"] or [1])


@pytest.mark.parametrize("fields", [{"text": "a", "after": 10**9}, {"text": "\ud800"}, {"after": 5}, {"text": 5}])
def test_wrong_parts_of_a_text_are_refused(servers, fields):
    for server in servers.values():
        status, _ = server.post("/gen/text/tokens", fields)
        assert status == 400
