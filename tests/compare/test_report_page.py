"""The report of a comparison in a real browser, opened from a file."""

import json
from dataclasses import replace

import pytest
from logitsmith.compare.arms import make_arms
from logitsmith.compare.distribution_measures import PathValues, Place, TokenShare
from logitsmith.compare.plan import Plan, TextTable, text_prompt
from logitsmith.compare.result import ArmFacts, comparison_page, distribution_fields, make_result
from logitsmith.requests.resolve import RequestDefaults

from ..browser import expect
from ..serve.page_driver import require_axe

HOSTILE = '<img src=x onerror="document.title=1"></script><b>bold</b>'
PLAN = Plan(
    make_arms(["calm=temp0.5", "hot=temp1.5", "odd one=xtc(probability=0.5)"], None, []),
    [text_prompt("The sea was"), replace(text_prompt(HOSTILE), id="2", number=2)],
    0,
    4,
    RequestDefaults(),
)


def line(request_id, text, surprise):
    chain = {"logprob": -surprise, "entropy": surprise, "kept": 7}
    tokens = [{"id": token, "logprob": -surprise, "entropy": surprise, "chain": chain} for token in range(8)]
    return json.dumps({"id": request_id, "text": text, "finish_reason": "length", "tokens": tokens, "error": None})


@pytest.fixture(scope="module")
def result():
    """A comparison whose second arm is more surprising, and whose third one equals the first."""
    table = TextTable()
    for prompt in PLAN.prompts:
        for number, arm in enumerate(PLAN.arms):
            for seed in PLAN.seeds(prompt):
                surprise = 1 + 0.1 * (seed % 10) + (number == 1)
                text = (
                    f" calm and wide and grey, seed {seed}"
                    if number != 1
                    else f" calm and WILD and grey, {HOSTILE}"
                )
                table.add(line(PLAN.request_id(arm, prompt, seed), text, surprise))
    place = Place(
        0.5, "prompt 1", 3, "The sea was", (TokenShare(" calm", 0.7, 0.2), TokenShare(HOSTILE, 0.0, 0.1))
    )
    values = [PathValues([0], [0.1], [5])] + [
        PathValues([0], [0.2], [9], [0.5], [0.2], [float("inf")], [0.3], [True], worst=[place]) for _ in range(2)
    ]
    facts = [ArmFacts("tiny", PLAN.settings(arm, {}).steps) for arm in PLAN.arms]
    names = [arm.name for arm in PLAN.arms]
    fields = distribution_fields(names, "the model's greedy texts", values)
    return {"command": "gen compare …", **make_result(PLAN, facts, table, fields)}


@pytest.fixture
def open_report(browser, tmp_path, result):
    """Open the report, and check at the end that it requested nothing and had no error."""
    tabs, requests, errors = [], [], []

    def open_report(path=None, *, width=1200, scheme="light"):
        if path is None:
            path = tmp_path / "report.html"
            path.write_text(comparison_page(result))
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tabs.append(tab)
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text))
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-state=ready]")
        return tab

    yield open_report
    for tab in tabs:
        tab.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "blob:"))] == []


def test_the_plots_have_the_numbers_of_the_result(open_report, result):
    tab = open_report()
    rows = tab.locator(".measure")
    assert rows.count() == len(result["measures"])
    for measure in result["measures"]:
        row = tab.locator(f'[data-measure="{measure["name"]}"]')
        decimals = measure["decimals"]
        expected = [f"{arm['mean']:.{decimals}f}" for arm in measure["arms"] if arm]
        label = row.locator("svg").get_attribute("aria-label")
        for arm, mean in zip(filter(None, measure["arms"]), expected, strict=True):
            assert f"{arm['arm']} {mean}, from {arm['low']:.{decimals}f} to {arm['high']:.{decimals}f}" in label
    surprise = tab.locator('[data-measure="surprise"] li')
    assert surprise.all_inner_texts() == [
        "hot is higher by 1.000 (1.000 to 1.000)",
        "odd one: no difference is shown",
    ]


def test_distances_and_places_are_shown(open_report):
    tab = open_report()
    tab.click("#tab-distributions")
    panel = tab.locator("#distributions")
    expect(panel).to_contain_text("∞ at 100 %")
    expect(panel).to_contain_text("Where hot is farthest from calm")
    expect(panel).to_contain_text("0.7000, 0.2000")
    assert tab.locator("#distributions img, #distributions b").count() == 0


@pytest.mark.slow
def test_pairs_have_their_different_words_marked(open_report):
    tab = open_report()
    tab.click("#tab-texts")
    marked = tab.locator("#texts mark").all_inner_texts()
    assert marked[0] == "wide"
    assert "WILD" in marked
    assert "calm" not in marked
    tab.get_by_label("Right").select_option("odd one")
    assert tab.locator("#texts mark").count() == 0
    tab.get_by_label("Seed").select_option("3")
    expect(tab.locator("#texts article").first).to_contain_text("seed 3")
    tab.get_by_label("Prompt").select_option("2")
    expect(tab.locator("#texts .given")).to_contain_text("<img src=x")
    assert "WILD" not in tab.locator("#texts").inner_text()


@pytest.mark.slow
def test_blind_votes_are_counted_and_kept_in_the_file(open_report, tmp_path):
    tab = open_report()
    tab.click("#tab-votes")
    tab.click("#start-votes")
    for _ in range(6):
        shown = tab.locator("#votes-panel")
        assert "hot" not in shown.inner_text()
        assert "calm" not in shown.locator("h3").all_inner_texts()
        is_left_wild = "WILD" in tab.locator("#votes-panel article").first.inner_text()
        tab.keyboard.press("1" if is_left_wild else "2")
    tab.keyboard.press("0")
    tab.keyboard.press("s")
    counts = tab.locator("#vote-counts")
    expect(counts).to_contain_text("7 votes: 0 for calm, 6 for hot, 1 for neither.")
    expect(counts).to_contain_text("95 % interval: 0 to 39 %")
    expect(counts).to_contain_text("hot is preferred")
    with tab.expect_download() as download:
        tab.click("#save-votes")
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    assert download.value.suggested_filename == "report.html"
    again = open_report(saved)
    again.click("#tab-votes")
    expect(again.locator("#vote-counts")).to_contain_text("7 votes: 0 for calm, 6 for hot")
    again.click("#start-votes")
    expect(again.locator("#votes-panel")).to_contain_text("7 votes, 0 pairs after this one")
    again.click("#tab-measures")
    assert again.locator(".measure").count() == tab.locator(".measure").count()


@pytest.mark.slow
def test_sides_are_random(open_report):
    tab = open_report()
    tab.click("#tab-votes")
    sides = set()
    for _ in range(60):  # two or three times, nearly always
        tab.click("#start-votes")
        sides.add("WILD" in tab.locator("#votes-panel article").first.inner_text())
        tab.keyboard.press("q")
        if len(sides) == 2:
            break
    assert sides == {True, False}


def test_tabs_and_theme_have_keys(open_report):
    tab = open_report()
    tab.focus("#tab-measures")
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#distributions").is_visible()
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowLeft")
    assert tab.locator("#votes-panel").is_visible()
    tab.keyboard.press("t")
    expect(tab.locator("#theme")).to_have_text("Light")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_page_is_accessible(open_report, scheme):
    axe = require_axe()
    tab = open_report(scheme=scheme)
    tab.evaluate(axe)
    for name in ("measures", "distributions", "texts", "votes"):
        tab.click(f"#tab-{name}")
        violations = tab.evaluate("axe.run()")["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == []
    tab.click("#start-votes")
    assert tab.evaluate("axe.run()")["violations"] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_the_page_fits_its_window(open_report, width):
    tab = open_report(width=width)
    for name in ("measures", "distributions", "texts", "votes"):
        tab.click(f"#tab-{name}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
