"""The page of `gen serve` through reloads, lost servers, several tabs and keys; its access for everyone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ..browser import expect
from .gen_serve import GenServe
from .page_driver import PageDriver, require_axe


@pytest.mark.slow
def test_settings_of_the_server_can_be_cleared(context, pruned_model):
    flags = ("--grammar", 'root ::= "yes" | "no"', "--stop", "zz")
    with GenServe("--slots", "1", *flags, model=pruned_model) as server:
        page = PageDriver(context, server.address)
        expect(page.grammar).not_to_have_value("")
        expect(page.locator("#stop-strings")).to_have_value("zz")
        page.grammar.fill("")
        page.locator("#stop-strings").fill("")
        assert page.write("The answer is ", tokens=6) not in ("The answer is yes", "The answer is no")
        expect(page.locator("#command")).to_contain_text("gen run")
        expect(page.locator("#command")).not_to_contain_text("--stop")
        expect(page.locator("#command")).not_to_contain_text("grammar")
        assert page.errors == []


def test_a_reload_keeps_text_reasons_branches_and_chain(page):
    text = page.write("The sea was", tokens=6)
    page.parameter("min_p", "p").fill("0.21")
    page.parameter("top_k", "on", "checkbox").uncheck()
    page.get_by_role("combobox", name="Tint").select_option("entropy")
    page.grammar.fill("[")
    names = page.names()
    page.tab.wait_for_timeout(700)  # the page stores its state after a pause
    for _ in range(2):
        page.reload()
        page.wait_until_ready()
        expect(page.text).to_have_value(text)
        assert page.names() == names
        expect(page.parameter("min_p", "p")).to_have_value("0.21")
        expect(page.parameter("top_k", "on", "checkbox")).not_to_be_checked()
        expect(page.get_by_role("combobox", name="Tint")).to_have_value("entropy")
        expect(page.grammar).to_have_value("[")
    page.items.last.click()
    expect(page.why).to_contain_text("lies in")
    page.press("Undo")
    expect(page.text).to_have_value("The sea was")


@pytest.mark.slow
def test_a_reload_keeps_what_a_saved_preset_gets(context, server, tmp_path):
    page = PageDriver(context, server.address)
    preset = "system: Be brief.\ngrammar: {name: yes_no}\nchain: [{min_p: 0.1}, dist]\n"
    page.open_file("preset", tmp_path / "mine.yaml", preset)
    expect(page.locator("#import-notes")).to_contain_text("mine")
    page.set("Seed", 99)
    page.press("Theme")
    page.reload_when_saved()
    expect(page.get_by_role("button", name="Light", exact=True)).to_have_count(1)
    assert page.download("Save preset", tmp_path / "saved.yaml") == "mine.yaml"
    assert yaml.safe_load((tmp_path / "saved.yaml").read_text()) == {
        "system": "Be brief.",
        "grammar": {"name": "yes_no"},  # as the file has it, because nobody has changed it
        "chain": [{"min_p": {"p": 0.1}}, "dist"],
        "seed": 99,
    }
    assert page.errors == []


@pytest.mark.slow
def test_tabs_do_not_disturb_each_other(context, server):
    page, other = (PageDriver(context, server.address) for _ in range(2))
    page.text.fill("first")
    page.settle()
    assert other.value() == ""
    other.text.fill("second")
    with context.expect_page() as opened:
        page.evaluate("window.open(location.href)")  # the copy of a tab has its session storage
    ready = "html[data-state=ready]"
    copy = opened.value
    copy.wait_for_selector(ready)
    copied_text = copy.get_by_role("textbox", name="Text")
    expect(copied_text).to_have_value("first")
    copied_text.fill("third")
    for tab in (page, other, copy):
        tab.evaluate("page.stories.saveSoon.settled()")
    for tab in (page.tab, other.tab, copy):
        tab.reload()
        tab.wait_for_selector(ready)
    expect(page.text).to_have_value("first")
    expect(other.text).to_have_value("second")
    expect(copied_text).to_have_value("third")
    assert page.errors == other.errors == []


@pytest.mark.slow
def test_a_lost_server_is_told_and_found_again(context, pruned_model):
    with GenServe(model=pruned_model) as server:
        page = PageDriver(context, server.address)
        page.text.fill("The sea was")
        page.set("Tokens", 3000)
        page.press("Generate")
        page.wait_until(lambda: len(page.value()) > 60)
        server.process.kill()
        expect(page.locator("#lost")).to_be_visible(timeout=5000)
        expect(page.locator("#lost")).to_contain_text("does not answer")
        page.wait_for_end()
        text = page.value()
        assert text.startswith("The sea was")
        assert len(text) > 60
        page.text.press("End")
        page.text.evaluate("area => area.setSelectionRange(area.value.length, area.value.length)")
        page.keyboard.type(" and more")
        assert page.value() == text + " and more"
        page.get_by_role("combobox", name="Preset", exact=True).select_option("creative")
        page.grammar.fill("root ::= [ a-z]+")
        expect(page.locator("#grammar-note")).to_contain_text("does not answer")
        expect(page.get_by_role("combobox", name="Preset", exact=True)).to_have_value("")
    with GenServe("--port", str(server.port), model=pruned_model):
        expect(page.locator("#lost")).to_be_hidden(timeout=10_000)
        page.wait_until(lambda: page.locator(".pending").count() == 0)
        expect(page.locator("#grammar-note")).to_have_text("gbnf")
        page.set("Tokens", 4)
        page.generate()
        assert page.value().startswith(text + " and more")
        assert len(page.value()) > len(text) + 9


@pytest.mark.slow
def test_slow_answers_do_not_overtake_each_other(page):
    page.text.fill("The sea was")
    page.wait_for_next()
    delays = iter([400, 0, 0, 0])

    def delay(route):
        page.tab.wait_for_timeout(next(delays, 0))
        route.continue_()

    page.route("**/gen/next", delay)
    for value in ("7", "6", "5"):
        page.parameter("top_k", "k").fill(value)
    page.wait_for_next()
    expect(page.locator("#next-note")).to_contain_text(re.compile(r"^[1-5] of"))
    expect(page.locator("#stages")).to_contain_text("top_k5")


STORED = """new Promise(done => {
    const open = indexedDB.open('gen-stories');
    open.onsuccess = () => {
        const names = ['stories', 'states', 'tokens'];
        const transaction = open.result.transaction(names);
        const found = names.map(name => transaction.objectStore(name).getAll());
        transaction.oncomplete = () => done(JSON.stringify(found.map(request => request.result)));
    };
})"""


@pytest.mark.slow
def test_the_key_is_asked_for_and_stays_in_the_tab(context, locked, tmp_path):
    key = "first-key"
    page = PageDriver(context, locked.address, is_ready=False)
    field = page.get_by_label("API key")
    for wrong in ("wrong", "Schl\u00fcssel \u9375"):
        field.fill(wrong)
        page.press("Use key")
        expect(page.locator("#key-problem")).to_contain_text("not the key")
        expect(page.locator("#lost")).to_be_hidden()
    field.fill(key)
    page.press("Use key")
    page.wait_until_ready()
    expect(field).to_be_hidden()
    assert page.write("The sea", tokens=3) != "The sea"
    page.export(tmp_path / "page.json")
    assert key not in (tmp_path / "page.json").read_text()
    page.settle()
    stored = page.evaluate(STORED)
    assert "The sea" in stored
    assert key not in stored
    assert key not in page.url
    assert page.evaluate("localStorage.length") == 0
    page.reload()
    page.wait_until_ready()
    assert page.value().startswith("The sea")
    other = PageDriver(context, locked.address, is_ready=False)
    expect(other.get_by_label("API key")).to_be_visible()


def test_the_page_may_load_and_run_only_its_own_files(page, server):
    status, headers, _ = server.request("GET", "/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
    status, headers, _ = server.request("GET", "/page/main.js")
    assert headers["content-type"].startswith("text/javascript")
    assert server.request("GET", "/page/main.js", if_none_match=headers["etag"])[0] == 304
    for name in ("../own.py", "%2e%2e/own.py", "nothing.js", "web/../../own.py"):
        assert server.request("GET", f"/page/{name}")[0] == 404
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert page.evaluate("window.ran") is None
    page.errors.clear()


def test_all_is_done_with_the_keyboard(page):
    page.text.focus()
    page.keyboard.type("The sea was")
    page.settle()
    assert page.items.count() == 3
    page.set("Tokens", 4)
    page.text.focus()
    page.keyboard.press("Control+Enter")
    page.wait_until(lambda: len(page.value()) > 11)
    page.wait_for_end()
    text = page.value()
    page.items.first.get_by_role("button").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.why).to_be_visible()
    page.why.get_by_role("button", name=re.compile("^Continue with")).first.focus()
    page.keyboard.press("Enter")
    page.wait_until(lambda: page.value() != text)
    page.wait_for_end()
    page.branches.last.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.value() == "The sea was"
    page.get_by_role("list", name="Chain").get_by_role("button", name="Remove").first.focus()
    page.keyboard.press("Enter")
    assert page.card("penalties").count() == 0
    page.keyboard.press("Escape")
    expect(page.why).to_be_hidden()


WINDOWS = [(400, "light")]
MORE_WINDOWS = [(400, "dark"), (820, "light"), (820, "dark"), (1440, "light"), (1440, "dark")]


@pytest.mark.parametrize(
    ("width", "scheme"), [*WINDOWS, *(pytest.param(*window, marks=pytest.mark.slow) for window in MORE_WINDOWS)]
)
def test_it_is_for_everyone_at_all_widths(browser, server, width, scheme):
    axe = require_axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = PageDriver(context, server.address)
    page.write("The old king looked at the sea and", tokens=30)
    page.get_by_role("checkbox", name="Chat template").scroll_into_view_if_needed()
    page.get_by_role("heading", name="Decide").click()
    page.get_by_role("textbox", name="Question").fill("Who looks at the sea?")
    page.get_by_role("combobox", name="Type").select_option("Choice")
    page.get_by_role("textbox", name="Options").fill("the king\nthe queen\nnobody")
    page.press("Decide")
    expect(page.get_by_role("table", name="Answer")).to_be_visible()
    page.items.last.click()
    expect(page.why).to_be_visible()
    page.press("Compare")
    page.wait_for_next()
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [(item["id"], [node["target"] for node in item["nodes"][:3]]) for item in found["violations"]]
    assert violations == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("SCREENSHOTS"):
        page.press("Compare")
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=Path(folder) / f"page-{width}-{scheme}.png", full_page=width < 1100)
    context.close()


PAGE = Path(__file__).parents[2] / "serve" / "page"


def test_the_scripts_pass_the_linter():
    linter, rules = Path(sys.executable).with_name("oxlint"), PAGE.parents[1] / ".oxlintrc.json"
    command = [linter, "--config", rules, "--deny-warnings", PAGE, PAGE.parents[1] / "logprobs" / "web"]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def test_the_scripts_make_no_markup():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|import\(|https?:"
    scripts = sorted(PAGE.glob("*.js"))
    assert scripts
    for path in scripts:
        assert re.findall(forbidden, path.read_text()) == [], path


def test_the_page_is_small():
    from logitsmith.serve.page_routes import page_files

    assert sum(len(file.content) for file in page_files().values()) < 260_000
