"""The page of `gen serve` in Chromium: writing, reasons, chains, branches, grammars, presets and files."""

import json
import math
import re

import pytest
import yaml
from logitsmith.presets.foreign.formats import export_preset
from logitsmith.presets.foreign.registry import FORMATS

from ..browser import expect
from .page_driver import SECONDS_TO_WAIT, PageDriver, open_report


@pytest.fixture(scope="session")
def jsonl(gen):
    """Run a command for a text. Returns the lines of one kind."""

    def run(*words, event="token"):
        lines = gen("run", "--no-chat", "--format", "jsonl", "--trace", *words).splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]

    return run


CELLS = "rows => rows.map(row => Array.from(row.cells).slice(1, -1).map(cell => cell.textContent))"


def test_text_and_reasons_are_those_of_a_run(page, jsonl):
    lines = jsonl("The sea was", "-n", "8", "--seed", "7")
    text = page.write("The sea was", tokens=8, seed=7)
    assert text == "The sea was" + "".join(line["text"] for line in lines)
    names = page.names()
    assert names[-8:] == [line["token"].strip() or names[-8 + index] for index, line in enumerate(lines)]
    for index, line in enumerate(lines):
        page.items.nth(len(names) - 8 + index).click()
        expect(page.why).to_contain_text(f"id {line['id']} ")
        expect(page.locator("#probability")).to_have_text(f"{math.exp(line['logprob']):.4f}")
        draw, candidates = line["trace"]["draw"], line["trace"]["candidates"]
        assert re.findall(r"\d\.\d{4}", page.why.locator(".decision").inner_text())[:3] == [
            f"{draw[name]:.4f}" for name in ("u", "low", "high")
        ]
        rows = page.why.locator(".candidates tbody tr")
        assert rows.evaluate_all("rows => rows.map(row => Number(row.dataset.id))") == [
            c["id"] for c in candidates
        ]
        for cells, candidate in zip(rows.evaluate_all(CELLS), candidates, strict=True):
            for cell, prob in zip(cells, candidate["probs"], strict=True):
                assert (
                    cell in ("\u00d7", "\u00b7")
                    if prob is None
                    else float(cell) == pytest.approx(prob, abs=6e-5, rel=0.06)
                )
        foot = page.why.locator(".candidates tfoot tr").evaluate_all(CELLS)
        assert foot[0] == [f"{stage['kept']:,}" for stage in line["trace"]["stages"]]
        assert foot[1] == [f"{stage['entropy']:.3f}" for stage in line["trace"]["stages"]]
        assert page.why.locator("[aria-label^='Continue with']").count() == len(candidates) - 1
    assert "gen run --no-chat" in page.locator("#command").inner_text()
    seen = set()
    for measure in ("probability", "surprise", "entropy", "rank"):
        page.get_by_role("combobox", name="Tint").select_option(measure)
        seen.add(tuple(page.items.evaluate_all("items => items.map(item => item.className)")))
        assert page.get_by_role("list", name="Marks").get_by_role("listitem").count() == 7
    for measure, count in (("chain", 7), ("choices", 7), ("author", 4), ("off", 0)):
        page.get_by_role("combobox", name="Tint").select_option(measure)
        seen.add(tuple(page.items.evaluate_all("items => items.map(item => item.className)")))
        assert page.locator("#legend li").count() == count
    assert len(seen) >= 6


def test_a_change_of_the_chain_decodes_nothing(page, server, gen):
    page.text.fill("The sea was")
    page.wait_for_next()
    server.wait_until_no_text_runs()
    before = decoded(server)
    page.parameter("min_p", "p").fill("0.3")
    page.parameter("temperature", "t").fill("1.5")
    page.wait_for_next()
    flags = ("--chain", "top_k40 > top_p0.95 > min_p0.3 > temp1.5", "--top", "12")
    expected = json.loads(gen("next", "--no-chat", "--format", "json", *flags, "The sea was"))
    kept = expected["stages"][-1]["kept"]
    expect(page.locator("#next-note")).to_contain_text(f"{kept:,} of ")
    shares = page.next_shares()
    assert len(shares) >= 5
    for candidate in expected["candidates"]:
        prob = candidate["probs"][-1]
        assert shares[candidate["id"]] == pytest.approx(prob or 0, rel=0.05, abs=6e-5)
    assert decoded(server) == before


def decoded(server):
    """Return the numbers of tokens that the server has decoded."""
    _, _, text = server.request("GET", "/metrics")
    return re.findall(r"^gen_(?:prompt|completion)_tokens_total\S* \S+", text, re.MULTILINE)


def test_a_short_branch_is_shown_with_the_words_before_it(page):
    page.write("One, two, three, four", tokens=1)
    expect(page.branches.last.locator(".beginning")).to_have_text("\u2026, three, four,")


def test_another_token_begins_a_branch_and_undo_returns(page):
    first = page.write("Once upon a", tokens=6)
    count = page.items.count()
    word = page.take_another(count - 4)
    second = page.value()
    assert second != first
    assert page.names()[count - 4] == word.strip() or not word.strip()
    assert page.branches.count() == 4  # the text with the other token is one, too
    expect(page.text).to_be_focused()
    page.press("Undo")
    assert page.value() == first
    page.press("Undo")
    assert page.value() == "Once upon a"
    page.press("Redo")
    page.press("Redo")
    assert page.value() == second
    page.branches.nth(page.generated[0]).click()
    assert page.value() == first
    page.press("Undo")
    assert page.value() == second


def test_an_edit_keeps_the_marks_of_the_rest(page):
    text = page.write("The king", tokens=12)
    marks = "items => items.map(item => item.className)"
    before = page.items.evaluate_all(marks)
    page.text.evaluate("area => { area.focus(); area.setSelectionRange(4, 8); }")
    page.keyboard.type("queen")
    page.settle()
    assert page.locator(".pending").count() == 0
    assert page.value() == "The queen" + text[8:]
    assert page.items.evaluate_all(marks)[-12:] == before[-12:]
    page.keyboard.press("Control+z")
    assert page.value() == text


KEYS = "synthid(keys=[9223372036854775806])"
# Each row: steps, a control of the last one and what it shows, what is typed there, and the steps afterwards.
CONTROLS = {
    "keys of 64 bits": (
        KEYS,
        ("textbox", "keys", "[9223372036854775806]"),
        "[9223372036854775807, -9007199254740993, 5]",
        "synthid(keys=[9223372036854775807,-9007199254740993,5])",
    ),
    "one key": (
        KEYS,
        ("textbox", "keys", "[9223372036854775806]"),
        "9007199254740993",
        "synthid=9007199254740993",
    ),
    "a seed of 64 bits": (
        "synthid(keys=[5], sampling_table_seed=9007199254740993)",
        ("spinbutton", "sampling_table_seed", "9007199254740993"),
        "9007199254740995",
        "synthid(keys=[5], sampling_table_seed=9007199254740995)",
    ),
}


@pytest.mark.slow
def test_the_notation_and_the_controls_say_the_same(page):
    for notation, (role, name, shown), typed, changed in CONTROLS.values():
        page.notation.fill(f"{notation} > dist")
        page.settle()
        control = page.parameter("synthid", name, role)
        expect(control).to_have_value(shown)
        control.fill(typed)
        control.blur()
        assert page.notation.input_value() == f"{changed} > dist"
    # A bias on a text that is the name of a parameter.
    page.notation.fill('sequence_bias(bias={"ids": 2, "New York": 1}) > temp0.5 > dist')
    page.settle()
    expect(page.card("sequence_bias")).to_have_count(1)
    page.card("temperature").press("Alt+ArrowUp")
    notation = 'temperature=0.5 > sequence_bias(bias={"ids": 2, "New York": 1}) > dist'
    assert page.notation.input_value() == notation
    page.notation.fill(notation.replace("0.5", "0.6"))
    page.settle()
    expect(page.parameter("temperature", "t")).to_have_value("0.6")
    expect(page.locator("#chain .problem")).to_be_empty()


def test_cards_are_moved_switched_off_repeated_and_removed(page):
    assert page.notation.input_value() == "penalties > top_k > top_p > min_p > temperature > dist"
    page.card("min_p").get_by_role("button", name="Move up").click()
    assert page.notation.input_value() == "penalties > top_k > min_p > top_p > temperature > dist"
    page.card("temperature").press("Alt+ArrowUp")
    page.parameter("top_k", "on", "checkbox").uncheck()
    page.card("penalties").get_by_role("button", name="Remove").click()
    page.get_by_role("combobox", name="Add sampler").select_option("min_p")
    assert page.notation.input_value() == "min_p > temperature > top_p > min_p > dist"
    page.card("min_p").nth(1).get_by_role("spinbutton", name="p", exact=True).fill("0.2")
    assert page.notation.input_value().endswith("min_p=0.2 > dist")
    page.get_by_role("combobox", name="Add sampler").select_option("greedy")
    assert page.notation.input_value().endswith("> greedy")
    page.notation.fill("temp0.5 > top_n_sigma1.5 > dist")
    page.settle()
    expect(page.parameter("top_n_sigma", "n")).to_have_value("1.5")
    expect(page.card("top_k")).to_have_count(1)
    page.notation.fill("temp0.5 > top_q")
    page.settle()
    expect(page.locator("#chain .problem")).to_contain_text("top_q")
    page.notation.fill("temp0.5 > top_n_sigma1.5 > dist")
    page.settle()
    expect(page.locator("#chain .problem")).to_be_empty()
    handle = page.card("top_n_sigma").locator(".handle")
    handle.drag_to(page.card("temperature"), target_position={"x": 40, "y": 3})
    cards = page.get_by_role("list", name="Chain").locator("> li")
    names = cards.evaluate_all("items => items.map(item => item.getAttribute('aria-label'))")
    assert names.index("top_n_sigma") < names.index("temperature")


@pytest.mark.slow
def test_what_was_just_typed_counts(page):
    page.text.fill("The answer is ")
    page.grammar.fill('root ::= "yes" | "no"')
    page.notation.fill("greedy")
    page.generate()
    assert re.fullmatch(r"The answer is (yes|no)", page.value())
    expect(page.locator("#command")).to_contain_text("--chain greedy")
    page.grammar.fill("")
    page.notation.fill("no_sampler")
    text = page.value()
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("no_sampler")
    assert page.value() == text


@pytest.mark.slow
def test_a_double_click_generates_once_and_stop_strings_end_the_text(page):
    requests = []
    page.tab.on(
        "request", lambda request: requests.append(request.url) if "/gen/generate" in request.url else None
    )
    page.text.fill("The sea was")
    page.set("Tokens", 12)
    page.set("Seed", 7)
    double_click = "button => { button.click(); button.click(); }"
    page.get_by_role("button", name="Generate", exact=True).evaluate(double_click)
    page.wait_for_end()
    assert len(requests) == 1
    assert page.branches.count() == 2
    text = page.value()
    end = text.split()[-3]
    page.press("Undo")
    page.locator("#stop-strings").fill(end)
    page.generate()
    assert page.value() == text[: text.index(end, len("The sea was"))]


def test_a_grammar_is_a_stage_and_its_errors_have_a_place(page):
    page.text.fill("The answer is ")
    page.grammar.fill('root ::= "yes" |\n | "no')
    page.settle()
    expect(page.locator("#grammar-note")).to_contain_text(re.compile(r"line \d+, column \d+"))
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("grammar")
    page.grammar.fill('root ::= ("yes" | "no") ", " ("yes" | "no")')
    page.wait_for_next()
    expect(page.locator("#grammar-note")).to_have_text("gbnf")
    expect(page.locator("#stages")).to_contain_text("grammar")
    page.set("Tokens", 1)
    page.generate()
    page.set("Tokens", 20)
    page.generate()
    assert re.fullmatch(r"The answer is (yes|no), (yes|no)", page.value())
    kind = page.get_by_role("combobox", name="Kind")
    kind.select_option("regex")
    page.grammar.fill("[0-9]{3}")
    page.text.fill("Number ")
    page.generate()
    assert re.fullmatch(r"Number [0-9]{3}", page.value())
    kind.select_option("json_schema")
    page.grammar.fill('{"type":\n  object}')
    page.settle()
    expect(page.locator("#grammar-note")).to_contain_text("line 2, column 3")
    page.grammar.fill('{"type": "boolean"}')
    page.text.fill("It is ")
    page.generate()
    assert re.fullmatch(r"It is (true|false)", page.value())


MINE = "description: mine\nsystem: Be brief.\nchain:\n- logit_bias: {bias: {5: -1.5}}\n- min_p: 0.1\n- dist\n"
TAVERN = {"temp": 1.2, "top_k": 30, "top_p": 1, "rep_pen": 1.1, "guidance_scale": 1.5, "skew": 1}


def test_presets_are_chosen_imported_and_saved(page, tmp_path):
    saved = tmp_path / "saved.yaml"
    page.parameter("top_k", "on", "checkbox").uncheck()
    page.download("Save preset", saved)
    assert "top_k" not in saved.read_text()
    expect(page.locator("#import-notes")).to_contain_text("top_k")  # the steps that are off are named
    page.get_by_role("combobox", name="Preset", exact=True).select_option("creative")
    expect(page.parameter("min_p", "p")).to_have_value("0.08")
    page.open_file("preset", tmp_path / "mine.yaml", MINE)
    expect(page.card("logit_bias")).to_have_count(1)
    page.parameter("min_p", "p").fill("0.2")
    assert page.download("Save preset", saved) == "mine.yaml"
    found = yaml.safe_load(saved.read_text())
    assert found["system"] == "Be brief."
    assert found["chain"] == [{"logit_bias": {"bias": {5: -1.5}}}, {"min_p": {"p": 0.2}}, "dist"]
    content = json.dumps(TAVERN | {"sampler_priority": ["top_k", "temperature"]})
    page.open_file("preset", tmp_path / "tavern.json", content)
    expect(page.locator("#import-notes")).to_contain_text("skew")
    expect(page.locator("#guidance-scale")).to_have_value("1.5")
    expect(page.parameter("top_k", "k")).to_have_value("30")


@pytest.mark.slow
def test_presets_of_other_tools_are_imported(page, tmp_path):
    for number, form in enumerate(FORMATS):
        content = export_preset(f"temperature=1.25 > top_k={33 + number}", form).text
        page.open_file("preset", tmp_path / "preset.txt", content)
        expect(page.locator("#import-notes")).to_contain_text(f"a preset of {form}")
        expect(page.parameter("top_k", "k")).to_have_value(str(33 + number))
        expect(page.parameter("temperature", "t")).to_have_value("1.25")


HOSTILE_PRESETS = {
    "object": "chain: !!python/object/apply:os.system [ls]\n",
    "nesting": "chain: " + "[" * 10_000,
    "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nchain: [*b, *b]\n",
    "markup": "chain: ['<img src=x onerror=alert(1)>']\n",
    "binary": "\0\1\2",
    "large": "description: " + "x" * 3_000_000,
}


@pytest.mark.slow
def test_hostile_presets_are_refused_with_a_sentence(page, tmp_path):
    before = page.notation.input_value()
    for name, content in HOSTILE_PRESETS.items():
        page.open_file("preset", tmp_path / f"{name}.yaml", content)
        expect(page.locator("#import-notes")).to_contain_text(
            "more than 1,000,000 bytes" if name == "large" else f"{name}.yaml", timeout=SECONDS_TO_WAIT * 1000
        )
        assert page.notation.input_value() == before
        assert page.locator("#import-notes img").count() == 0


WRONG_NUMBERS = {"Seed": -2, "Tokens": 0, "p": 5}


@pytest.mark.slow
def test_a_wrong_number_is_told(page):
    page.notation.fill("min_p0.1 > dist")
    page.settle()
    expect(page.card("top_p")).to_have_count(0)
    page.set("Tokens", 2)
    for name, value in WRONG_NUMBERS.items():
        page.text.fill("The sea")
        field = page.get_by_role("spinbutton", name=name, exact=True).last
        field.fill(str(value))
        page.press("Generate")
        expect(page.locator("#problem")).to_contain_text(re.compile("number|integer"))
        assert page.value() == "The sea"
        field.fill("1")
        page.generate()
        expect(page.locator("#problem")).to_be_hidden()
        assert page.value() != "The sea"


@pytest.mark.slow
def test_an_export_brings_everything_back(page, browser, server, tmp_path):
    text = page.write("The old", tokens=6)
    page.take_another(page.items.count() - 3)
    branch, names = page.value(), page.names()
    page.export(tmp_path / "page.json")
    context = browser.new_context()
    other = PageDriver(context, server.address)
    other.open_file("open", tmp_path / "page.json")
    expect(other.text).to_have_value(branch)
    assert other.names() == names
    expect(other.get_by_role("spinbutton", name="Seed")).to_have_value("7")
    expect(other.get_by_role("spinbutton", name="Tokens", exact=True)).to_have_value("6")
    other.items.last.click()
    expect(other.why).to_contain_text("lies in")
    assert other.branches.count() == page.branches.count()
    other.branches.nth(other.generated[0]).click()
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


@pytest.mark.slow
def test_other_exports_are_refused_or_mended(page, tmp_path):
    """Damaged ones are refused; settings that the page lacks have no effect; other models have other tokens."""
    page.write("The old", tokens=3)
    page.export(tmp_path / "exported.json")
    exported = (tmp_path / "exported.json").read_text()
    page.text.fill("")
    for name, (path, value) in DAMAGES.items():
        data = json.loads(exported)
        set_at(data, path, value)
        page.open_file("open", tmp_path / f"{name}.json", json.dumps(data))
        expect(page.locator("#problem")).to_contain_text(f"{name}.json cannot be opened: ")
        assert page.value() == ""
    for name in ("constructor", "toString"):
        data = json.loads(exported)
        data["settings"] |= {"measure": name, "preset": name, "grammarKind": name, "seed": -5, name: name}
        page.text.fill("")
        page.open_file("open", tmp_path / f"{name}.json", json.dumps(data))
        expect(page.text).to_have_value(re.compile("^The old"))
        expect(page.get_by_role("combobox", name="Tint")).to_have_value("probability")
    data = json.loads(exported)
    data["settings"]["model"] = "another model"
    for token in data["tokens"]:
        token["id"] = 999_999_999
    page.text.fill("")
    page.open_file("open", tmp_path / "another.json", json.dumps(data))
    expect(page.locator("#problem")).to_contain_text("written with another model")
    expect(page.text).to_have_value(re.compile("^The old"))
    before = page.value()
    page.wait_for_next()
    page.generate()
    assert page.value().startswith(before)
    assert page.value() != before


@pytest.mark.slow
def test_bans_go_back_and_are_shown_here_and_in_the_report(page, gen, jsonl, tmp_path, browser):
    words = ("--seed", 5, "-n", 30, "--ban-phrase", "the", "--ban-regex", " (a|an|and) ", "The old")
    rewinds = jsonl(*words, event="rewind")
    assert rewinds
    page.locator("#bans").fill("the\n/ (a|an|and) /")
    (done,) = jsonl(*words, event="done")
    assert page.write("The old", tokens=30, seed=5) == "The old" + done["text"]
    returned = page.locator("#tokens li.returned")
    assert returned.count() == len({line["index"] for line in rewinds})
    returned.first.click()
    expect(page.why).to_contain_text("matched the ban")
    expect(page.locator("#command")).to_contain_text("bans=")
    page.download("Save report", tmp_path / "report.html")
    report = open_report(browser, tmp_path / "report.html")
    assert report.locator("#columns .t").count() == page.items.count()
    assert report.locator("#columns .returned").count() == returned.count()
    report.close()
    page.reload_when_saved()
    assert page.locator("#bans").input_value() == "the\n/ (a|an|and) /"
    expect(returned).not_to_have_count(0)
    page.locator("#bans").fill('{"text": ')
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("Bans, line 1")


RULES = """\
bans: [xyz, {text: Elara, case: true}, {regex: a+b}, "/x"]
loop_guard: stop
phases: [{until: END, max_tokens: 5}, {chain: [{min_p: 0.1}, dist]}]
"""


@pytest.mark.slow
def test_rules_of_a_preset_apply_and_are_saved(page, tmp_path):
    page.open_file("preset", tmp_path / "mine.yaml", RULES)
    expect(page.locator("#rules-note")).to_contain_text("loop_guard")
    assert page.locator("#bans").input_value() == 'xyz\n{"text":"Elara","case":true}\n/a+b/\n"/x"'
    page.write("The old", tokens=12)
    assert page.evaluate("window.page.writer.tree.current.run.start.phases.length") > 0
    page.parameter("min_p", "p").fill("0.2")
    page.download("Save preset", tmp_path / "saved.yaml")
    expected = yaml.safe_load(RULES)
    expected["phases"][-1] = {"chain": [{"min_p": {"p": 0.2}}, "dist"]}
    expected |= {"max_tokens": 12, "seed": 7}
    assert yaml.safe_load((tmp_path / "saved.yaml").read_text()) == expected


@pytest.mark.slow
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
    page.settle()
    prompt = page.value()
    assert "<|im_start|>user\nWho are you?<|im_end|>" in prompt
    page.set("Tokens", 6)
    page.generate()
    answer = page.value().removeprefix(prompt)
    page.press("Keep answer")
    expect(page.get_by_role("textbox", name="Message 2")).to_have_value(answer)


def test_several_texts_are_branches_with_the_next_seeds(page, jsonl):
    prompt = "The sea was"
    page.set("Texts", 3)
    page.write(prompt, tokens=6, seed=7)
    texts = []
    generated = page.generated
    assert len(generated) == 3
    for index in generated:
        page.branches.nth(index).click()
        texts.append(page.value())
    lines = [jsonl(prompt, "-n", "6", "--seed", seed) for seed in (7, 8, 9)]
    assert texts == [prompt + "".join(line["text"] for line in text) for text in lines]
    page.reload_when_saved()
    expect(page.get_by_role("spinbutton", name="Texts", exact=True)).to_have_value("3")
    assert len(page.generated) == 3
    page.branches.nth(generated[1]).click()
    assert page.value() == texts[1]
    page.set("Texts", 1)
    page.generate()
    assert page.value().startswith(texts[1])


@pytest.mark.slow
def test_stop_ends_all_texts_and_keeps_what_was_written(page):
    page.set("Texts", 4)
    page.set("Tokens", 3000)
    page.text.fill("The sea was")
    page.press("Generate")
    page.items.nth(6).wait_for()
    page.press("Stop")
    page.wait_for_end()
    text = page.value()
    counts = [page.branches.all_inner_texts()[place] for place in page.generated]
    assert 1 <= len(counts) <= 4
    assert not any(f" {3000:,} tokens" in count for count in counts)
    page.tab.wait_for_timeout(100)  # nothing comes afterwards
    assert page.value() == text
    assert text.startswith("The sea was")
    page.press("Undo")
    assert page.value() == "The sea was"


HOSTILE = {
    "markup": "</script><script>document.title='hacked'</script><img src=x onerror=document.title='hacked'>",
    "right to left": "שלום עולם مرحبا \u202eevil",
    "combining": "e\u0301a\u0308\u0323 \U0001f98a\U0001f469\u200d\U0001f680 \u0000\u0007x",
    "no blank": "x" * 20_000,
}


@pytest.mark.slow
def test_any_text_is_text(page):
    for text in HOSTILE.values():
        page.text.fill(text)
        page.settle()
        assert page.items.count() > 0
        assert page.locator(".pending").count() == 0
        assert page.value() == text
        assert page.locator("#mirror").evaluate("mirror => mirror.textContent.slice(0, -1)") == text
        assert page.locator("main img, main script").count() == 0
        assert "hacked" not in page.title()
        text_height, copy_height, least = page.evaluate(
            """() => {
                const [text, mirror] = ["text", "mirror"].map((id) => document.getElementById(id));
                return [text.scrollHeight, mirror.scrollHeight, text.clientHeight];
            }"""
        )
        assert abs(text_height - max(copy_height, least)) <= 2


@pytest.mark.slow
def test_guidance_is_that_of_the_command_and_is_saved(page, gen, tmp_path):
    negative = "A dry land of dust"
    flags = ["--cfg-scale", 2, "--cfg-negative-prompt", negative]
    expected = gen("run", "--no-chat", "--seed", 5, "-n", 12, "The old", *flags)
    page.locator("#negative-prompt").fill(negative)
    page.locator("#guidance-scale").fill("2")
    assert page.write("The old", tokens=12, seed=5) == ("The old" + expected).rstrip("\n")
    expect(page.locator("#command")).to_contain_text("guidance=")
    page.items.last.click()
    expect(page.why).to_contain_text("guidance")
    page.download("Save preset", tmp_path / "saved.yaml")
    saved = yaml.safe_load((tmp_path / "saved.yaml").read_text())
    assert saved["guidance"] == {"scale": 2, "negative_prompt": negative}
    page.reload_when_saved()
    assert page.locator("#negative-prompt").input_value() == negative
    assert page.locator("#guidance-scale").input_value() == "2"
    page.locator("#guidance-scale").fill("")
    page.press("Generate")
    expect(page.locator("#problem")).to_contain_text("scale of guidance")
    guided = "guidance: {scale: 1.5, negative_prompt: Be rude., model: other.gguf}\n"
    page.open_file("preset", tmp_path / "mine.yaml", guided)
    expect(page.locator("#guidance-scale")).to_have_value("1.5")
    expect(page.locator("#guidance-note")).to_contain_text("other.gguf")


QUESTIONS = {
    "Yes or no": ("", ["Yes", "No"]),
    "Choice": ("the sea\n\n the land \n", ["the sea", "the land"]),
    "Score": ("calm\nrough\nwild", ["calm", "rough", "wild"]),
}


def test_a_question_about_the_text_is_answered(page, server):
    page.text.fill("The old king looked at the sea.")
    table = page.get_by_role("table", name="Answer")
    expect(table).to_be_hidden()
    panel = page.get_by_role("region", name="Decide")
    panel.get_by_role("heading", name="Decide").click()
    fields = {
        "Yes or no": {"type": "predicate"},
        "Choice": {"type": "choice", "choices": ["the sea", "the land"]},
        "Score": {"type": "score", "levels": [{"label": "calm"}, {"label": "rough"}, {"label": "wild"}]},
    }
    panel.get_by_role("textbox", name="Question").fill("What is it?")
    for name, (options, labels) in QUESTIONS.items():
        panel.get_by_role("combobox", name="Type").select_option(name)
        box = panel.get_by_role("textbox", name="Options")
        expect(box).to_be_visible(visible=bool(options))
        if options:
            box.fill(options)
        panel.get_by_role("button", name="Decide").click()
        expect(table.get_by_role("rowheader")).to_have_text(labels)
        expect(panel.get_by_role("status")).to_contain_text("of the model's probability")
        body = {"input": page.value(), "questions": [{"instructions": "What is it?", **fields[name]}]}
        (answer,) = server.post("/v1/decisions", body)[1]["answers"]
        shares = [each["probability"] for each in answer.get("probabilities", [answer])]
        cells = [float(text) for text in table.get_by_role("cell").all_inner_texts()]
        assert cells[: len(shares)] == pytest.approx(shares, abs=0.05)
        assert sum(cells) == pytest.approx(1, abs=0.001)
    assert panel.get_by_role("status").inner_text().startswith("The score is ")
    expect(table).not_to_have_class("is-stale")
    page.text.fill("The old king looked at the land.")
    expect(table).to_have_class("is-stale")
    panel.get_by_role("textbox", name="Options").fill("calm")
    panel.get_by_role("button", name="Decide").click()
    expect(page.locator("#problem")).to_contain_text("2 to 255")
    page.reload_when_saved()
    expect(panel.get_by_role("textbox", name="Question")).to_have_value("What is it?")
    expect(panel.get_by_role("textbox", name="Options")).to_have_value("calm")
