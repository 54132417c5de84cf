"""The page of `gen serve` in Chromium: writing, reasons, chains, branches, grammars, presets and files."""

import json
import math
import re
import subprocess
import sys

import pytest
import yaml
from logitsmith.presets.foreign.formats import export_preset
from logitsmith.presets.foreign.registry import FORMATS

from .gen_serve import GenServe
from .page_driver import SECONDS_TO_WAIT, PageDriver, expect


@pytest.fixture(scope="module")
def address(pruned_model):
    with GenServe("--slots", "2", "-c", "4096", model=pruned_model) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def page(browser, address):
    """A page in a context of its own, without errors and without requests to other hosts."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    driver = PageDriver(context, address)
    yield driver
    context.close()
    assert driver.errors == []
    assert driver.hosts <= {address.split("/")[2], ""}


def gen(*words):
    """Run a command; return what it printed."""
    command = [sys.executable, "-m", "logitsmith.cli", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def jsonl(model, *words):
    lines = gen("run", "-m", model, "-t", "1", "--no-chat", "--format", "jsonl", "--trace", *words).splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "token"]


def next_json(model, *words):
    return json.loads(gen("next", "-m", model, "-t", "1", "--no-chat", "--format", "json", *words))


def test_text_and_reasons_are_those_of_a_run(page, pruned_model):
    lines = jsonl(pruned_model, "The sea was", "-n", "8", "--seed", "7")
    text = page.write("The sea was", tokens=8, seed=7)
    assert text == "The sea was" + "".join(line["text"] for line in lines)
    names = page.names()
    assert names[-8:] == [line["token"].strip() or names[-8 + index] for index, line in enumerate(lines)]
    for index, line in enumerate(lines):
        page.items.nth(len(names) - 8 + index).click()
        expect(page.why).to_contain_text(f"id {line['id']} ")
        draw = line["trace"]["draw"]
        assert re.findall(r"\d\.\d{4}", page.why.locator(".decision").inner_text())[:3] == [
            f"{draw[name]:.4f}" for name in ("u", "low", "high")
        ]
        rows = page.why.locator(".candidates tbody tr").evaluate_all(
            "rows => rows.map(row => [Number(row.dataset.id),"
            " Array.from(row.cells).slice(1, -1).map(cell => cell.textContent)])"
        )
        assert [row[0] for row in rows] == [candidate["id"] for candidate in line["trace"]["candidates"]]
        for (_, cells), candidate in zip(rows, line["trace"]["candidates"], strict=True):
            for cell, prob in zip(cells, candidate["probs"], strict=True):
                assert (
                    cell in ("\u00d7", "\u00b7")
                    if prob is None
                    else float(cell) == pytest.approx(prob, abs=6e-5, rel=0.06)
                )
        foot = page.why.locator(".candidates tfoot tr").evaluate_all(
            "rows => rows.map(row => Array.from(row.cells).slice(1, -1).map(cell => cell.textContent))"
        )
        assert foot[0] == [f"{stage['kept']:,}" for stage in line["trace"]["stages"]]
        assert foot[1] == [f"{stage['entropy']:.3f}" for stage in line["trace"]["stages"]]
        buttons = page.why.get_by_role("button", name=re.compile("^Continue with"))
        assert buttons.count() == len(line["trace"]["candidates"]) - 1
    assert "gen run --no-chat" in page.locator("#command").inner_text()


def test_a_change_of_the_chain_decodes_nothing(page, pruned_model, address):
    page.text.fill("The sea was")
    page.wait_for_next()
    before = metric(page, address)
    page.card("min_p").get_by_role("spinbutton", name="p", exact=True).fill("0.3")
    page.card("temperature").get_by_role("spinbutton", name="t").fill("1.5")
    page.wait_for_next()
    chain = "top_k40 > top_p0.95 > min_p0.3 > temp1.5"
    expected = next_json(pruned_model, "The sea was", "--chain", chain, "--top", "12")
    kept = expected["stages"][-1]["kept"]
    expect(page.locator("#next-note")).to_contain_text(f"{kept:,} of ")
    shares = page.next_shares()
    assert len(shares) >= 5
    for candidate in expected["candidates"]:
        prob = candidate["probs"][-1]
        assert shares[candidate["id"]] == pytest.approx(prob or 0, rel=0.05, abs=6e-5)
    assert metric(page, address) == before


def metric(page, address):
    text = page.request.get(f"{address}/metrics").text()
    return re.findall(r"^gen_(?:prompt|completion)_tokens_total\S* \S+", text, re.MULTILINE)


def test_another_token_begins_a_branch_and_undo_returns(page):
    first = page.write("Once upon a", tokens=6)
    count = page.items.count()
    page.items.nth(count - 4).click()
    button = page.why.get_by_role("button", name=re.compile("^Continue with")).first
    word = button.get_attribute("aria-label").removeprefix("Continue with ")
    button.click()
    page.wait_for_end()
    second = page.value()
    assert second != first
    assert page.names()[count - 4] == word.strip() or not word.strip()
    assert page.branches.count() == 3
    page.press("Undo")
    assert page.value() == first
    page.press("Undo")
    assert page.value() == "Once upon a"
    page.press("Redo")
    page.press("Redo")
    assert page.value() == second
    texts = page.branches.all_inner_texts()
    page.branches.nth(next(i for i, text in enumerate(texts) if "generated" in text)).click()
    assert page.value() == first
    page.press("Undo")
    assert page.value() == second


def test_an_edit_keeps_the_marks_of_the_rest(page):
    text = page.write("The king", tokens=12)
    marks = "items => items.map(item => item.className)"
    before = page.items.evaluate_all(marks)
    page.text.evaluate("area => { area.focus(); area.setSelectionRange(4, 8); }")
    page.keyboard.type("queen")
    page.wait_until(lambda: page.locator(".pending").count() == 0)
    assert page.value() == "The queen" + text[8:]
    assert page.items.evaluate_all(marks)[-12:] == before[-12:]
    page.keyboard.press("Control+z")
    assert page.value() == text
    page.text.evaluate("area => area.setSelectionRange(3, 3)")
    page.wait_until(lambda: "continues after token 1" in page.locator("#counts").inner_text())
    page.generate()
    assert page.value().startswith("The")
    assert page.value() != text
    page.press("Undo")
    assert page.value() == text


INTEGERS = {
    "keys": (
        "keys",
        "[9223372036854775807, -9007199254740993, 5]",
        "synthid(keys=[9223372036854775807,-9007199254740993,5])",
    ),
    "one key": ("keys", "9007199254740993", "synthid=9007199254740993"),
}


@pytest.mark.parametrize(("parameter", "typed", "notation"), INTEGERS.values(), ids=INTEGERS)
def test_integers_of_64_bits_are_not_rounded(page, parameter, typed, notation):
    field = page.get_by_role("textbox", name="Notation", exact=True)
    field.fill("synthid(keys=[9223372036854775806]) > dist")
    control = page.card("synthid").get_by_role("textbox", name=parameter, exact=True)
    expect(control).to_have_value("[9223372036854775806]")
    control.fill(typed)
    control.blur()
    assert field.input_value() == f"{notation} > dist"


def test_a_seed_of_64_bits_is_not_rounded(page):
    field = page.get_by_role("textbox", name="Notation", exact=True)
    field.fill("synthid(keys=[5], sampling_table_seed=9007199254740993) > dist")
    seed = page.card("synthid").get_by_role("spinbutton", name="sampling_table_seed", exact=True)
    expect(seed).to_have_value("9007199254740993")
    seed.fill("9007199254740995")
    assert field.input_value() == "synthid(keys=[5], sampling_table_seed=9007199254740995) > dist"


def test_a_bias_on_a_text_that_is_the_name_of_a_parameter(page):
    field = page.get_by_role("textbox", name="Notation", exact=True)
    field.fill('sequence_bias(bias={"ids": 2, "New York": 1}) > temp0.5 > dist')
    expect(page.card("sequence_bias")).to_have_count(1)
    page.card("temperature").press("Alt+ArrowUp")
    notation = 'temperature=0.5 > sequence_bias(bias={"ids": 2, "New York": 1}) > dist'
    assert field.input_value() == notation
    field.fill(notation.replace("0.5", "0.6"))
    expect(page.card("temperature").get_by_role("spinbutton", name="t", exact=True)).to_have_value("0.6")
    expect(page.locator("#chain .problem")).to_be_empty()


def test_cards_are_moved_switched_off_repeated_and_removed(page):
    page.text.fill("The sea")
    page.wait_for_next()
    notation = page.get_by_role("textbox", name="Notation", exact=True)
    assert notation.input_value() == "penalties > top_k > top_p > min_p > temperature > dist"
    page.card("min_p").get_by_role("button", name="Move up").click()
    assert notation.input_value() == "penalties > top_k > min_p > top_p > temperature > dist"
    page.card("temperature").press("Alt+ArrowUp")
    page.card("top_k").get_by_role("checkbox", name="on", exact=True).uncheck()
    page.card("penalties").get_by_role("button", name="Remove").click()
    page.get_by_role("combobox", name="Add sampler").select_option("min_p")
    assert notation.input_value() == "min_p > temperature > top_p > min_p > dist"
    page.card("min_p").nth(1).get_by_role("spinbutton", name="p", exact=True).fill("0.2")
    assert notation.input_value().endswith("min_p=0.2 > dist")
    page.get_by_role("combobox", name="Add sampler").select_option("greedy")
    assert notation.input_value().endswith("> greedy")
    notation.fill("temp0.5 > top_n_sigma1.5 > dist")
    expect(page.card("top_n_sigma").get_by_role("spinbutton", name="n", exact=True)).to_have_value("1.5")
    expect(page.card("top_k")).to_have_count(1)
    notation.fill("temp0.5 > top_q")
    expect(page.locator("#chain .problem")).to_contain_text("top_q")
    dragged, target = page.card("top_n_sigma").locator(".handle"), page.card("temperature")
    notation.fill("temp0.5 > top_n_sigma1.5 > dist")
    expect(page.locator("#chain .problem")).to_be_empty()
    dragged.drag_to(target, target_position={"x": 40, "y": 3})
    names = (
        page.get_by_role("list", name="Chain")
        .locator("> li")
        .evaluate_all("items => items.map(item => item.getAttribute('aria-label'))")
    )
    assert names.index("top_n_sigma") < names.index("temperature")


def test_what_was_just_typed_counts(page):
    page.text.fill("The answer is ")
    page.get_by_role("textbox", name="Grammar", exact=True).fill('root ::= "yes" | "no"')
    page.get_by_role("textbox", name="Notation", exact=True).fill("greedy")
    page.generate()
    assert re.fullmatch(r"The answer is (yes|no)", page.value())
    expect(page.locator("#command")).to_contain_text("--chain greedy")
    page.get_by_role("textbox", name="Grammar", exact=True).fill("")
    page.get_by_role("textbox", name="Notation", exact=True).fill("no_sampler")
    text = page.value()
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("no_sampler")
    assert page.value() == text


def test_a_double_click_generates_once(page):
    requests = []
    page.tab.on(
        "request", lambda request: requests.append(request.url) if "/gen/generate" in request.url else None
    )
    page.text.fill("The sea was")
    page.set("Tokens", 4)
    page.get_by_role("button", name="Generate", exact=True).evaluate(
        "button => { button.click(); button.click(); }"
    )
    page.wait_for_end()
    assert len(requests) == 1
    assert page.branches.count() == 2


def test_a_grammar_is_a_stage_and_its_errors_have_a_place(page):
    page.text.fill("The answer is ")
    grammar = page.get_by_role("textbox", name="Grammar", exact=True)
    grammar.fill('root ::= "yes" |\n | "no')
    expect(page.locator("#grammar-note")).to_contain_text(re.compile(r"line \d+, column \d+"))
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("grammar")
    grammar.fill('root ::= ("yes" | "no") ", " ("yes" | "no")')
    expect(page.locator("#grammar-note")).to_have_text("gbnf")
    page.wait_for_next()
    expect(page.locator("#stages")).to_contain_text("grammar")
    page.set("Tokens", 1)
    page.generate()
    page.set("Tokens", 20)
    page.generate()
    assert re.fullmatch(r"The answer is (yes|no), (yes|no)", page.value())
    page.get_by_role("combobox", name="Kind").select_option("regex")
    grammar.fill("[0-9]{3}")
    expect(page.locator("#grammar-note")).to_have_text("regex")
    page.text.fill("Number ")
    page.generate()
    assert re.fullmatch(r"Number [0-9]{3}", page.value())
    page.get_by_role("combobox", name="Kind").select_option("json_schema")
    grammar.fill('{"type":\n  object}')
    expect(page.locator("#grammar-note")).to_contain_text("line 2, column 3")
    grammar.fill('{"type": "boolean"}')
    page.text.fill("It is ")
    page.generate()
    assert re.fullmatch(r"It is (true|false)", page.value())


def test_presets_are_chosen_imported_and_saved(page, tmp_path):
    page.get_by_role("combobox", name="Preset", exact=True).select_option("creative")
    expect(page.card("min_p").get_by_role("spinbutton", name="p", exact=True)).to_have_value("0.08")
    own = tmp_path / "mine.yaml"
    own.write_text(
        "description: mine\nsystem: Be brief.\nchain:\n- logit_bias: {bias: {5: -1.5}}\n- min_p: 0.1\n- dist\n"
    )
    page.locator("#preset-file").set_input_files(own)
    expect(page.card("logit_bias")).to_have_count(1)
    page.card("min_p").get_by_role("spinbutton", name="p", exact=True).fill("0.2")
    with page.expect_download() as download:
        page.press("Save preset")
    assert download.value.suggested_filename == "mine.yaml"
    saved = yaml.safe_load(download.value.path().read_text())
    assert saved["system"] == "Be brief."
    assert saved["chain"] == [{"logit_bias": {"bias": {5: -1.5}}}, {"min_p": {"p": 0.2}}, "dist"]
    other = tmp_path / "tavern.json"
    other.write_text(
        json.dumps(
            {
                "temp": 1.2,
                "top_k": 30,
                "top_p": 1,
                "rep_pen": 1.1,
                "guidance_scale": 1.5,
                "skew": 1,
                "sampler_priority": ["top_k", "temperature"],
            }
        )
    )
    page.locator("#preset-file").set_input_files(other)
    expect(page.locator("#import-notes")).to_contain_text("skew")
    expect(page.locator("#guidance-scale")).to_have_value("1.5")
    expect(page.card("top_k").get_by_role("spinbutton", name="k", exact=True)).to_have_value("30")


@pytest.mark.parametrize("form", FORMATS)
def test_presets_of_other_tools_are_imported(page, tmp_path, form):
    path = tmp_path / "preset.txt"
    path.write_text(export_preset("temperature=1.25 > top_k=33", form).text)
    page.locator("#preset-file").set_input_files(path)
    expect(page.locator("#import-notes")).to_contain_text(f"a preset of {form}")
    expect(page.card("top_k").get_by_role("spinbutton", name="k", exact=True)).to_have_value("33")
    expect(page.card("temperature").get_by_role("spinbutton", name="t", exact=True)).to_have_value("1.25")


HOSTILE_PRESETS = {
    "object": "chain: !!python/object/apply:os.system [ls]\n",
    "nesting": "chain: " + "[" * 10_000,
    "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nchain: [*b, *b]\n",
    "markup": "chain: ['<img src=x onerror=alert(1)>']\n",
    "binary": "\0\1\2",
    "large": "description: " + "x" * 3_000_000,
}


@pytest.mark.parametrize("text", HOSTILE_PRESETS.values(), ids=HOSTILE_PRESETS)
def test_hostile_presets_are_refused_with_a_sentence(page, tmp_path, text):
    before = page.get_by_role("textbox", name="Notation", exact=True).input_value()
    path = tmp_path / "preset.yaml"
    path.write_text(text)
    page.locator("#preset-file").set_input_files(path)
    expect(page.locator("#import-notes")).to_contain_text(
        re.compile("preset.yaml|more than 1,000,000 bytes"), timeout=SECONDS_TO_WAIT * 1000
    )
    assert page.get_by_role("textbox", name="Notation", exact=True).input_value() == before
    assert page.locator("#import-notes img").count() == 0


def test_a_saved_preset_names_the_steps_that_are_off(page):
    page.card("top_k").get_by_role("checkbox", name="on", exact=True).uncheck()
    with page.expect_download() as download:
        page.press("Save preset")
    assert "top_k" not in download.value.path().read_text()
    expect(page.locator("#import-notes")).to_contain_text("top_k")


WRONG_NUMBERS = {
    "seed": ("Seed", -1, "The seed must be an integer, 0 to 4294967295"),
    "tokens": ("Tokens", 0, "The number of tokens must be an integer, at least 1"),
    "parameter": ("p", 5, "min_p: p must be a number, 0 to 1"),
}


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_a_wrong_number_is_told(page, name, value, sentence):
    page.get_by_role("textbox", name="Notation", exact=True).fill("min_p0.1 > dist")
    expect(page.card("top_p")).to_have_count(0)
    page.text.fill("The sea")
    field = page.get_by_role("spinbutton", name=name, exact=True).last
    field.fill(str(value))
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text(sentence)
    assert page.value() == "The sea"
    field.fill("1")
    page.generate()
    expect(page.locator("#problem")).to_be_hidden()
    assert page.value() != "The sea"


def test_an_export_brings_everything_back(page, browser, address, tmp_path):
    text = page.write("The old", tokens=6)
    page.items.nth(page.items.count() - 3).click()
    page.why.get_by_role("button", name=re.compile("^Continue with")).first.click()
    page.wait_for_end()
    branch, names = page.value(), page.names()
    with page.expect_download() as download:
        page.press("Export")
    path = tmp_path / "page.json"
    path.write_bytes(download.value.path().read_bytes())
    context = browser.new_context()
    other = PageDriver(context, address)
    other.locator("#open-file").set_input_files(path)
    expect(other.text).to_have_value(branch)
    assert other.names() == names
    expect(other.get_by_role("spinbutton", name="Seed")).to_have_value("7")
    expect(other.get_by_role("spinbutton", name="Tokens", exact=True)).to_have_value("6")
    other.items.last.click()
    expect(other.why).to_contain_text("lies in")
    assert other.branches.count() == page.branches.count()
    other.branches.nth(next(i for i, t in enumerate(other.branches.all_inner_texts()) if "generated" in t)).click()
    expect(other.text).to_have_value(text)
    context.close()
    assert other.errors == []


def set_at(data, path, value):
    """Set a value inside nested data."""
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


DAMAGES = {
    "token id": (["tokens", -1, "id"], "<b>"),
    "bytes": (["tokens", -1, "bytes"], [256]),
    "no trace": (["tokens", -1, "trace"], {"stages": [], "candidates": []}),
    "dropped by no stage": (["tokens", -1, "trace", "candidates", 0, "dropped_by"], 99),
    "note of a stage": (["tokens", -1, "trace", "stages", 0, "note"], 5),
    "command": (["nodes", -1, "run", "start", "command"], 5),
    "no tree": (["nodes", -1, "parent"], 1000),
    "no text": (["current"], 1000),
    "version": (["version"], 2),
}


@pytest.fixture(scope="module")
def exported(browser, address):
    """The data of an exported file."""
    context = browser.new_context(accept_downloads=True)
    page = PageDriver(context, address)
    page.write("The old", tokens=3)
    with page.expect_download() as download:
        page.press("Export")
    data = download.value.path().read_text()
    context.close()
    return data


@pytest.mark.parametrize(("path", "value"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_export_is_refused(page, exported, tmp_path, path, value):
    data = json.loads(exported)
    set_at(data, path, value)
    file = tmp_path / "page.json"
    file.write_text(json.dumps(data))
    page.locator("#open-file").set_input_files(file)
    expect(page.locator("#problem")).to_contain_text("page.json cannot be opened: ")
    assert page.value() == ""


@pytest.mark.parametrize("name", ["constructor", "toString"])
def test_settings_of_an_export_that_the_page_lacks_have_no_effect(page, exported, tmp_path, name):
    data = json.loads(exported)
    data["settings"] |= {"measure": name, "preset": name, "grammarKind": name, "seed": -5, name: name}
    file = tmp_path / "page.json"
    file.write_text(json.dumps(data))
    page.locator("#open-file").set_input_files(file)
    expect(page.text).to_have_value(re.compile("^The old"))
    expect(page.get_by_role("combobox", name="Tint")).to_have_value("probability")


def test_the_text_of_another_model_is_tokenized_again(page, exported, tmp_path):
    data = json.loads(exported)
    data["settings"]["model"] = "another model"
    for token in data["tokens"]:
        token["id"] = 999_999_999
    file = tmp_path / "page.json"
    file.write_text(json.dumps(data))
    page.locator("#open-file").set_input_files(file)
    expect(page.locator("#problem")).to_contain_text("written with another model")
    expect(page.text).to_have_value(re.compile("^The old"))
    before = page.value()
    page.wait_for_next()
    page.generate()
    assert page.value().startswith(before)
    assert page.value() != before


def test_the_report_is_that_of_inspect(page, tmp_path, browser):
    page.write("The old", tokens=5)
    with page.expect_download() as download:
        page.press("Save report")
    path = tmp_path / "report.html"
    path.write_bytes(download.value.path().read_bytes())
    tab = browser.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-state=ready]")
    assert tab.locator("#columns .t").count() == page.items.count()
    tab.close()


def test_bans_go_back_and_are_shown(page, pruned_model, tmp_path, browser):
    bans = ["--ban-phrase", "the", "--ban-regex", " (a|an|and) "]
    lines = gen(
        *("run", "-m", pruned_model, "-t", "1", "--no-chat", "--format", "jsonl", "--trace"),
        *("--seed", 5, "-n", 30, *bans, "The old"),
    ).splitlines()
    rewinds = [line for line in map(json.loads, lines) if line["event"] == "rewind"]
    assert rewinds
    page.locator("#bans").fill("the\n/ (a|an|and) /")
    assert page.write("The old", tokens=30, seed=5) == "The old" + json.loads(lines[-1])["text"]
    returned = page.locator("#tokens li.returned")
    assert returned.count() == len({line["index"] for line in rewinds if line["event"] == "rewind"})
    returned.first.click()
    expect(page.why).to_contain_text("matched the ban")
    expect(page.locator("#command")).to_contain_text("bans=")
    with page.expect_download() as download:
        page.press("Save report")
    path = tmp_path / "report.html"
    path.write_bytes(download.value.path().read_bytes())
    tab = browser.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-state=ready]")
    assert tab.locator("#columns .returned").count() == returned.count()
    tab.close()
    page.reload()
    page.wait_until_ready()
    assert page.locator("#bans").input_value() == "the\n/ (a|an|and) /"
    expect(returned).not_to_have_count(0)
    page.locator("#bans").fill('{"text": ')
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("Bans, line 1: this is not JSON")


RULES = """\
bans: [xyz, {text: Elara, case: true}, {regex: a+b}, "/x"]
loop_guard: stop
phases: [{until: END, max_tokens: 5}, {chain: [{min_p: 0.1}, dist]}]
"""


def test_rules_of_a_preset_apply_and_are_saved(page, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(RULES)
    page.locator("#preset-file").set_input_files(path)
    expect(page.locator("#rules-note")).to_contain_text("loop_guard")
    assert page.locator("#bans").input_value() == 'xyz\n{"text":"Elara","case":true}\n/a+b/\n"/x"'
    page.write("The old", tokens=12)
    assert page.evaluate("window.page.writer.tree.current.run.start.phases.length") > 0
    page.card("min_p").get_by_role("spinbutton", name="p", exact=True).fill("0.2")
    with page.expect_download() as download:
        page.press("Save preset")
    saved = yaml.safe_load(download.value.path().read_text())
    expected = yaml.safe_load(RULES)
    expected["phases"][-1] = {"chain": [{"min_p": {"p": 0.2}}, "dist"]}
    expected |= {"max_tokens": 12, "seed": 7}
    assert saved == expected


def test_two_chains_part_at_a_token(page):
    page.text.fill("The sea was")
    page.set("Tokens", 10)
    page.wait_for_next()
    page.press("Compare")
    page.get_by_role("textbox", name="Compared steps in notation").fill("temp3 > dist")
    page.wait_until(lambda: page.get_by_role("list", name="Compared steps").locator("li.card").count() == 2)
    page.press("Run both")
    expect(page.locator(".difference")).to_contain_text(re.compile("the texts part|differ from their first"))
    assert page.locator(".compared-tokens .selected").count() == 2
    assert page.get_by_role("region", name="Token of A").is_visible()
    assert page.get_by_role("region", name="Token of B").is_visible()
    assert page.value() == "The sea was"


def test_messages_become_the_text_of_the_template(page):
    page.get_by_role("checkbox", name="Chat template").check()
    page.get_by_role("textbox", name="Message 1").fill("Who are you?")
    page.wait_until(lambda: "<|im_start|>user\nWho are you?<|im_end|>" in page.value())
    prompt = page.value()
    page.set("Tokens", 6)
    page.generate()
    answer = page.value().removeprefix(prompt)
    page.press("Keep answer")
    expect(page.get_by_role("textbox", name="Message 2")).to_have_value(answer)


def test_several_texts_are_branches_with_the_next_seeds(page, pruned_model):
    prompt = "The sea was"
    page.set("Texts", 3)
    page.write(prompt, tokens=6, seed=7)
    texts = []
    generated = [index for index, text in enumerate(page.branches.all_inner_texts()) if "generated" in text]
    assert len(generated) == 3
    for index in generated:
        page.branches.nth(index).click()
        texts.append(page.value())
    expected = [
        "".join(
            line["text"]
            for line in jsonl(pruned_model, prompt, "-n", "6", "--seed", seed)
            if line["event"] == "token"
        )
        for seed in ("7", "8", "9")
    ]
    assert texts == [prompt + text for text in expected]
    page.reload()
    page.wait_until_ready()
    expect(page.get_by_role("spinbutton", name="Texts", exact=True)).to_have_value("3")
    assert sum("generated" in text for text in page.branches.all_inner_texts()) == 3
    page.branches.nth(generated[1]).click()
    assert page.value() == texts[1]
    page.set("Texts", 1)
    page.generate()
    assert page.value().startswith(texts[1])


def test_stop_ends_all_texts(page):
    page.set("Texts", 4)
    page.set("Tokens", 3000)
    page.text.fill("The sea was")
    page.press("Generate")
    page.items.nth(6).wait_for()
    page.press("Stop")
    page.wait_for_end()
    counts = [text for text in page.branches.all_inner_texts() if "generated" in text]
    assert 1 <= len(counts) <= 4
    assert not any(f" {3000:,} tokens" in text for text in counts)


def test_stop_strings_end_the_text(page):
    text = page.write("The sea was", tokens=12)
    end = text.split()[-3]
    page.press("Undo")
    page.get_by_role("textbox", name=re.compile("^Stop strings")).fill(end)
    page.generate()
    assert page.value() == text[: text.index(end, len("The sea was"))]


HOSTILE = [
    "</script><script>document.title='hacked'</script><img src=x onerror=document.title='hacked'>",
    "שלום עולם مرحبا \u202eevil",
    "e\u0301a\u0308\u0323 \U0001f98a\U0001f469\u200d\U0001f680 \u0000\u0007x",
    "x" * 20_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=["markup", "right to left", "combining", "no blank"])
def test_any_text_is_text(page, text):
    page.text.fill(text)
    page.wait_until(lambda: page.items.count() and page.locator(".pending").count() == 0)
    assert page.value() == text
    assert page.locator("#mirror").evaluate("mirror => mirror.textContent.slice(0, -1)") == text
    assert page.locator("main img, main script").count() == 0
    assert "hacked" not in page.title()
    heights = page.evaluate(
        "[document.getElementById('text').scrollHeight, document.getElementById('mirror').scrollHeight]"
    )
    assert abs(heights[0] - heights[1]) <= 2


def test_tints_have_four_measures(page):
    page.write("The sea was", tokens=8)
    seen = set()
    for measure in ("probability", "surprise", "entropy", "rank"):
        page.get_by_role("combobox", name="Tint").select_option(measure)
        seen.add(tuple(page.items.evaluate_all("items => items.map(item => item.className)")))
        assert page.get_by_role("list", name="Marks").get_by_role("listitem").count() == 7
    assert len(seen) >= 3


def test_logprobs_are_shown(page, pruned_model):
    line = jsonl(pruned_model, "The sea was", "-n", "1", "--seed", "7")[0]
    page.write("The sea was", tokens=1)
    page.items.last.click()
    expect(page.locator("#probability")).to_have_text(f"{math.exp(line['logprob']):.4f}")


def test_guidance_is_that_of_the_command_and_is_saved(page, pruned_model, tmp_path):
    flags = ["--cfg-scale", 2, "--cfg-negative-prompt", "A dry land of dust"]
    words = ["-m", pruned_model, "-t", "1", "--no-chat"]
    expected = gen("run", *words, "--seed", 5, "-n", 12, "The old", *flags)
    shown = json.loads(gen("next", *words, "--format", "json", "--top", 5, "The old", *flags))
    page.write("The old", tokens=1, seed=5)
    plain = page.value()
    page.locator("#negative-prompt").fill("A dry land of dust")
    page.locator("#guidance-scale").fill("2")
    written = page.write("The old", tokens=12, seed=5)
    assert written == ("The old" + expected).rstrip("\n")
    assert not written.startswith(plain) or len(written) > len(plain)
    expect(page.locator("#command")).to_contain_text("guidance=")
    page.items.last.click()
    expect(page.why).to_contain_text("guidance")
    assert [stage["name"] for stage in shown["stages"]][1] == "guidance"
    with page.expect_download() as download:
        page.press("Save preset")
    saved = yaml.safe_load(download.value.path().read_text())
    assert saved["guidance"] == {"scale": 2, "negative_prompt": "A dry land of dust"}
    page.tab.wait_for_timeout(1500)  # the page stores its text after a pause
    page.reload()
    page.wait_until_ready()
    assert page.locator("#negative-prompt").input_value() == "A dry land of dust"
    assert page.locator("#guidance-scale").input_value() == "2"
    page.locator("#guidance-scale").fill("")
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("The scale of guidance must be a number.")
    path = tmp_path / "mine.yaml"
    path.write_text("guidance: {scale: 1.5, negative_prompt: Be rude., model: other.gguf}\n")
    page.locator("#preset-file").set_input_files(path)
    expect(page.locator("#guidance-scale")).to_have_value("1.5")
    expect(page.locator("#guidance-note")).to_contain_text("other.gguf")
