"""A report in a real browser, opened from a file: Debian's Chromium, driven by Playwright."""

import math
import re
from contextlib import contextmanager

import pytest

from ..traced_runs import jsonl, traced_events
from .test_report_data import packed_run, page

WINDOW = {"width": 1400, "height": 900}
DROPPED, GONE = "\u00d7", "\u00b7"


EVENTS = traced_events(80)
TOKENS = EVENTS[1:-1]


@contextmanager
def opening(browser):
    """A function that opens a report. At the end it is checked that it requested nothing and had no error."""
    pages, requests, errors = [], [], []

    def open_file(path):
        tab = browser.new_page(viewport=WINDOW, color_scheme="light")
        pages.append(tab)
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text))
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-state]")
        assert tab.evaluate("document.documentElement.dataset.state") == "ready"
        settle(tab)
        return tab

    yield open_file
    for tab in pages:
        tab.close()
    assert len(requests) == len(pages), requests
    assert all(url.startswith("file:///") for url in requests)
    assert errors == []


@pytest.fixture
def open_file(browser):
    with opening(browser) as open_file:
        yield open_file


def write_report(folder, runs):
    path = folder / "report.html"
    path.write_text(page([packed_run(events) for events in runs]))
    return path


@pytest.fixture
def open_report(open_file, tmp_path):
    """Open a report of runs that are given as lists of events."""
    return lambda *runs: open_file(write_report(tmp_path, runs))


@pytest.fixture(scope="module")
def opened_once(browser, tmp_path_factory):
    """The report of `EVENTS`."""
    with opening(browser) as open_file:
        yield open_file(write_report(tmp_path_factory.mktemp("report"), [EVENTS]))


@pytest.fixture
def tab(opened_once):
    """The report of `EVENTS` as it is when it is opened."""
    opened_once.set_viewport_size(WINDOW)
    opened_once.emulate_media(media="screen", color_scheme="light")
    opened_once.click("#tab-token")
    opened_once.click("#c0-0")
    settle(opened_once)
    return opened_once


def settle(tab):
    """Wait until the panel shows the chosen token."""
    if tab.locator(".t.selected").count():
        tab.locator("#token-name").wait_for(state="attached")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def wait_for_columns(tab, count):
    """Wait for this many columns. `wait_for_function` needs `eval` from its second try on; the page forbids it."""
    columns = tab.locator("#columns .text")
    columns.nth(count - 1).wait_for(state="attached")
    columns.nth(count).wait_for(state="detached")


def press(tab, *keys):
    for key in keys:
        tab.keyboard.press(key)
    settle(tab)


def chosen(tab):
    """The index of the chosen token."""
    return tab.evaluate("document.querySelector('.t.selected').tokenIndex")


def table(tab):
    """The cells of the candidates' table by id: their texts."""
    rows = tab.evaluate(
        "Array.from(document.querySelectorAll('.candidates tbody tr'),"
        " (row) => [Number(row.dataset.id), Array.from(row.querySelectorAll('td'), (cell) => cell.textContent)])"
    )
    return dict(rows)


def foot(tab):
    return tab.evaluate(
        "Array.from(document.querySelectorAll('.candidates tfoot tr'),"
        " (row) => Array.from(row.querySelectorAll('td'), (cell) => cell.textContent))"
    )


def check_table(tab, trace):
    """The panel has the numbers of a trace."""
    cells = table(tab)
    assert set(cells) == {candidate["id"] for candidate in trace["candidates"]}
    for candidate in trace["candidates"]:
        for text, prob in zip(cells[candidate["id"]], candidate["probs"], strict=True):
            if prob is None:
                assert text in (GONE, DROPPED)
            else:
                assert float(text) == pytest.approx(prob, abs=5.1e-5 if prob >= 1e-4 else 0, rel=0.06)
    kept, entropies = foot(tab)
    assert [int(text.replace(",", "")) for text in kept] == [stage["kept"] for stage in trace["stages"]]
    assert entropies == [f"{stage['entropy']:.3f}" for stage in trace["stages"]]
    if trace["draw"] is not None:
        numbers = re.findall(r"\d\.\d{4}", tab.inner_text(".decision"))[:3]
        assert numbers == [f"{trace['draw'][name]:.4f}" for name in ("u", "low", "high")]


def test_a_token_is_chosen_by_click_and_by_key(tab):
    tab.click("#c0-5")
    settle(tab)
    assert chosen(tab) == 5
    check_table(tab, TOKENS[5]["trace"])
    assert f"id {TOKENS[5]['id']}" in tab.inner_text("#token")
    assert tab.inner_text("#probability") == f"{math.exp(TOKENS[5]['logprob']):.4f}"
    press(tab, "ArrowRight", "ArrowRight")
    assert chosen(tab) == 7
    check_table(tab, TOKENS[7]["trace"])
    press(tab, "ArrowLeft")
    assert chosen(tab) == 6
    press(tab, "End", "ArrowRight")
    assert chosen(tab) == 79
    press(tab, "Home", "ArrowDown")
    assert chosen(tab) > 1
    press(tab, "ArrowUp")
    assert chosen(tab) in (0, 1)
    press(tab, "Home")
    tab.click("button[aria-label='Next token']")
    settle(tab)
    assert chosen(tab) == 1


DRAWN = """(() => {
  const box = (name) => document.querySelector(name).getBoundingClientRect();
  const bar = box('.draw .others'), part = box('.draw .part.chosen'), needle = box('.draw .needle');
  return [part.left, part.right, needle.left].map((x) => (x - bar.left) / bar.width);
})()"""
ROOMS = """Array.from(document.querySelectorAll('.draw .label'), (label) =>
  label.parentNode.getBoundingClientRect().width - label.getComputedTextLength())"""


def test_the_numbers_and_the_draw_are_those_of_the_run(tab):
    tab.set_viewport_size({"width": 390, "height": 900})
    for line in TOKENS[:10]:
        check_table(tab, line["trace"])
        draw = line["trace"]["draw"]
        assert tab.evaluate(DRAWN) == pytest.approx([draw["low"], draw["high"], draw["u"]], abs=0.01)
        assert all(room >= 0 for room in tab.evaluate(ROOMS))
        press(tab, "ArrowRight")


def test_steps_are_counted_as_in_the_chain(tab):
    places = ["" if stage["step"] is None else f"[{stage['step']}]" for stage in TOKENS[0]["trace"]["stages"]]
    assert places[:3] == ["", "[0]", "[1]"]
    for numbers in (".candidates thead .number", ".stages td.number", ".entropy .tick"):
        assert tab.locator(numbers).all_text_contents() == places
    tab.click("#tab-run")
    assert tab.evaluate("getComputedStyle(document.querySelector('.chain')).listStyleType") == "step"


def test_logits_stand_in_the_same_table(tab):
    press(tab, "l")
    cells = table(tab)
    press(tab, "l")
    for candidate in TOKENS[0]["trace"]["candidates"]:
        expected = [
            (DROPPED if stage == candidate["dropped_by"] else GONE) if logit is None else f"{logit:.3f}"
            for stage, logit in enumerate(candidate["logits"])
        ]
        texts = [[text.replace("-0.000", "0.000") for text in row] for row in (cells[candidate["id"]], expected)]
        assert texts[0] == texts[1]


@pytest.mark.slow
def test_keys_go_to_surprises_and_to_dropped_tokens(tab):
    order = sorted(range(80), key=lambda index: TOKENS[index]["logprob"])
    surprises = sorted(order[:10])
    seen = []
    for _ in surprises:
        press(tab, "n")
        seen.append(chosen(tab))
    assert sorted(seen) == surprises
    top = [max(line["trace"]["candidates"], key=lambda item: item["probs"][0]) for line in TOKENS]
    dropped = [index for index, candidate in enumerate(top) if candidate["dropped_by"] is not None]
    press(tab, "Home", *(["ArrowRight"] if dropped[0] == 0 else []))
    press(tab, "f")
    assert chosen(tab) == next(index for index in dropped if index > 0)
    stage = TOKENS[chosen(tab)]["trace"]["stages"][top[chosen(tab)]["dropped_by"]]["name"]
    assert stage in tab.inner_text(".verdict")
    press(tab, "End", "F")
    assert chosen(tab) == max(index for index in dropped if index < 79)
    marks = tab.evaluate("Array.from(document.querySelectorAll('.texts .top-dropped'), (span) => span.tokenIndex)")
    assert marks == dropped


def test_search_finds_text_across_tokens(tab):
    texts = [line["text"] for line in TOKENS]
    wanted = (texts[40] + texts[41])[1:-1].upper()
    press(tab, "/")
    tab.keyboard.type(wanted)
    settle(tab)
    count = "".join(texts).lower().count(wanted.lower())
    assert tab.inner_text("#matches") == f"1 of {count}"
    assert texts[chosen(tab)][1:] in wanted.lower()
    marked = tab.evaluate("Array.from(document.querySelectorAll('.match'), (span) => span.tokenIndex)")
    assert {40, 41} <= set(marked)
    seen = set()
    for _ in range(count):
        seen.add(chosen(tab))
        press(tab, "Enter")
    assert len(seen) == count
    assert 40 in seen
    tab.fill("#query", "no such text")
    assert tab.inner_text("#matches") == "none"
    tab.fill("#query", "")
    press(tab, "Escape", "ArrowRight")
    assert tab.evaluate("document.activeElement.getAttribute('role')") == "listbox"


HOSTILE = {
    2: b"</script><script>document.title='hacked'</script>",
    4: b"<img src=x onerror=document.title='hacked'>",
    6: b"\x1b]0;hacked\x07\x1b[31m",
    8: "\u202eevil\u2066".encode(),
    10: b"\xed\xa0\x80",
    12: "שלום עולם".encode(),
    14: "مرحبا".encode(),
    16: b"&lt;b&gt;${x}`",
    18: "😀".encode(),
}


def test_text_of_a_model_is_never_markup(open_report):
    events = traced_events(20, pieces=HOSTILE)
    events[0]["model"] = events[0]["command"] = "<img src=x onerror=document.title='hacked'>"
    events[0]["<b>hacked"] = ["<i>", {"</dl>": 1}]
    events[-1]["finish_reason"] = "<script>document.title='hacked'</script>"
    tab = open_report(events)
    for index in HOSTILE:
        tab.click(f"#c0-{index}")
        settle(tab)
        assert chosen(tab) == index
    tab.click("#tab-run")
    assert "hacked" not in tab.title()
    assert tab.evaluate("document.querySelectorAll('main img, main script, main b:empty, main i').length") == 0
    text = tab.inner_text("#columns")
    assert "</script><script>document.title='hacked'</script>" in text
    assert "⟨ESC⟩]0;hacked⟨BEL⟩⟨ESC⟩[31m" in text
    assert "⟨U+202E⟩evil⟨U+2066⟩" in text
    assert "שלום עולם" in text
    assert "&lt;b&gt;${x}`" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


def luminance(color):
    linear = [(part / 255) / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    bright, dark = sorted([luminance(first), luminance(second)], reverse=True)
    return (bright + 0.05) / (dark + 0.05)


CONTRASTS = """() => Array.from(document.querySelectorAll(
  '.t, .note, h1, h2, h3, button:not(:disabled), dt, dd, th, .verdict p, .legend li'))
  .filter((node) => node.checkVisibility() && node.textContent.trim()).map((node) => {
    const numbers = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
    let ground = node;
    while (ground && numbers(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    return [node.className || node.tagName, numbers(getComputedStyle(node).color).slice(0, 3),
      numbers(getComputedStyle(ground || document.body).backgroundColor).slice(0, 3)];
  })"""


def low_contrasts(tab):
    return [(name, ink, ground) for name, ink, ground in tab.evaluate(CONTRASTS) if contrast(ink, ground) < 4.5]


def background(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(tab, scheme):
    tab.emulate_media(color_scheme=scheme)
    assert (luminance(map(int, re.findall(r"\d+", background(tab))[:3])) > 0.5) == (scheme == "light")
    for panel in ("token", "run"):
        tab.click(f"#tab-{panel}")
        assert low_contrasts(tab) == []


def test_the_theme_is_changed_by_a_key_and_printed_light(tab):
    colors, printed = [], []
    for _ in range(3):
        colors.append(background(tab))
        tab.emulate_media(media="print")
        printed.append((background(tab), tab.evaluate("getComputedStyle(document.documentElement).colorScheme")))
        tab.emulate_media(media="screen")
        press(tab, "t")
    assert colors[0] == colors[1] != colors[2]
    assert len(set(printed)) == 1
    assert printed[0][0] != colors[2]


@pytest.mark.slow
def test_several_runs_stand_side_by_side_from_the_first_difference_on(open_report):
    runs = [traced_events(50, seed, same=12) for seed in (1, 2, 3)]
    tokens = [events[1:-1] for events in runs]
    rows = zip(*[[line["id"] for line in run] for run in tokens], strict=True)
    first = next(index for index, ids in enumerate(rows) if len(set(ids)) > 1)
    tab = open_report(*runs)
    shared = tab.inner_text("#shared").replace("▾", "")
    assert shared.strip() == "Once" + "".join(line["text"] for line in tokens[0][:first]).rstrip()
    assert f"{first} tokens" in tab.inner_text("#shared-note")
    tops = tab.evaluate(
        "Array.from(document.querySelectorAll('#columns .text'), (e) => e.getBoundingClientRect().top)"
    )
    assert len(tops) == 3
    assert len(set(tops)) == 1
    press(tab, "d")
    assert chosen(tab) == first
    for column in range(3):
        check_table(tab, tokens[column][first]["trace"])
        assert tab.evaluate("document.querySelector('.t.selected').id") == f"c{column}-{first}"
        press(tab, "]")
    press(tab, "[", "Home")
    check_table(tab, tokens[1][0]["trace"])
    tab.click("#column-headers .column-header:first-child .remove")
    wait_for_columns(tab, 2)
    tab.select_option("#column-headers .column-header:first-child select", "0")
    tab.locator("#column-headers .column-header:first-child .note", has_text="seed 1").wait_for()


@pytest.mark.slow
def test_many_runs_are_chosen_from(open_report):
    tab = open_report(*[traced_events(4, seed) for seed in range(6)])
    assert tab.locator("#columns .text").count() == 1
    tab.click("button[aria-label='Show another run next to this one']")
    wait_for_columns(tab, 2)


def test_a_run_says_how_it_was_made(tab):
    assert tab.locator(".cut-off").count() == 0
    tab.click("#tab-run")
    text = tab.inner_text("#run").replace("\n\n", "\n")
    assert tab.inner_text(".command") == "gen Once --seed 7 --format jsonl"
    for part in (
        "tiny",
        "Seed\n7",
        "Tokens\n80",
        "length",
        "min_p p 0.05",
        "temperature t 0.8",
        "logitsmith 0.1.0",
    ):
        assert part in text
    listed = tab.locator("#run ol.jumps button")
    assert listed.count() == 10
    order = sorted(range(80), key=lambda index: TOKENS[index]["logprob"])
    listed.first.click()
    settle(tab)
    assert chosen(tab) == order[0]
    assert tab.is_visible("#token")


@pytest.mark.slow
def test_a_run_without_a_trace_says_what_one_would_add(open_report):
    events = traced_events(5, traced=False)
    tab = open_report(events)
    assert "--format jsonl --trace" in tab.inner_text("#token")
    rows = tab.evaluate(
        "Array.from(document.querySelectorAll('.alternatives tbody td:first-of-type'), (cell) => cell.textContent)"
    )
    assert rows == [f"{math.exp(other['logprob']):.4f}" for other in events[1]["top_logprobs"]]
    assert not tab.is_visible("#next-dropped")


def test_a_run_without_logprobs_or_without_tokens_is_shown(open_report):
    bare = [{"event": "token", "id": 1, "bytes": [65], "logprob": None, "text": "A"}]
    tab = open_report(bare)
    assert "no logprob is recorded" in tab.inner_text("#token")
    press(tab, "n", "f", "d", "ArrowDown")
    empty = open_report([{"event": "start", "model": "m", "seed": 1}])
    assert empty.is_visible("#run")
    assert "without a trace" not in empty.inner_text("#run")


HALVES = '{"event": "token", "bytes": [237, 160, 128], "logprob": -1, "text": "a\\ud800b", "x": "\\udc00"}\n'


@pytest.mark.slow
def test_a_half_written_file_shows_its_complete_lines(open_file, gen, home):
    """Halves of surrogate pairs in it are shown as replaced."""
    data = jsonl(traced_events(9))
    start, rest = data.split("\n", 1)
    cut = f"{start}\n{HALVES}" + rest[: rest.rindex('"trace"') + 300]
    assert "9 tokens" in gen("inspect", "-", "--html", "report.html", stdin=cut).err
    tab = open_file(home / "work" / "report.html")
    assert tab.locator("#columns .t").count() == 9
    assert "a\ufffdb" in tab.inner_text("#columns")
    assert tab.locator("#columns .cut-off").count() == 1
    tab.click("#tab-run")
    assert "cut off" in tab.inner_text("#run")


def echoed(events):
    """The run with the tokens of its prompt."""
    prompt = {"event": "prompt", "index": 0, "id": 1, "token": "Once", "bytes": list(b"Once"), "logprob": None,
              "text": "Once"}  # fmt: skip
    return [events[0], prompt, *events[1:]]


def prompt_parts(tab):
    """The texts of the prompt, and their colors."""
    return tab.evaluate(
        "Array.from(document.querySelectorAll('.prompt'),"
        " (node) => [node.textContent, getComputedStyle(node).color])"
    )


def check_prompt(tab, events):
    """The prompt stands before the text, in the color of a note."""
    press(tab, "ArrowRight")  # the chosen token has other colors
    text = "Once" + "".join(line["text"] for line in events if line["event"] == "token")
    assert tab.evaluate("document.querySelector('#columns .text').textContent").replace("\u21b5", "") == text
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        note = tab.evaluate("getComputedStyle(document.querySelector('.column-header .note')).color")
        assert prompt_parts(tab) == [["Once", note]]
        assert low_contrasts(tab) == []


@pytest.mark.slow
def test_the_prompt_is_dimmed_before_the_text(tab, open_report):
    check_prompt(tab, EVENTS)
    events = echoed(traced_events(12))
    check_prompt(open_report(events), events)


PROMPTS = {"Once": (b" upon", "inline"), "Once\n": (b"upon", "inline"), "Who?": (b"Me", "block")}
"""Prompts with the first token of the text: one that would touch its prompt begins on a new line."""


@pytest.mark.slow
def test_runs_with_different_prompts_have_nothing_in_common(open_report):
    runs = [traced_events(3, pieces={0: first}) for first, _ in PROMPTS.values()]
    for events, prompt in zip(runs, PROMPTS, strict=True):
        events[0]["prompt"] = prompt
    tab = open_report(*runs)
    assert not tab.is_visible("#shared")
    assert [prompt.replace("\u21b5", "") for prompt, _ in prompt_parts(tab)] == [*PROMPTS]
    shown = tab.evaluate(
        "Array.from(document.querySelectorAll('.prompt'), (node) => getComputedStyle(node).display)"
    )
    assert shown == [display for _, display in PROMPTS.values()]


SPLIT_MARKS = """(width) => {
  const column = document.querySelector('#columns .text');
  column.style.width = `${width}px`;
  const tops = (boxes) => Array.from(boxes).filter((box) => box.width > 0).map((box) => Math.round(box.bottom));
  return Array.from(document.querySelectorAll('.top-dropped')).filter((span) => {
    const range = document.createRange();
    range.selectNodeContents(span);
    return Math.max(...tops(span.getClientRects())) > Math.max(...tops(range.getClientRects())) + 4;
  }).map((span) => span.textContent);
}"""


@pytest.mark.slow
def test_the_mark_stays_with_its_word(open_report):
    tab = open_report(traced_events(200))
    assert tab.locator(".top-dropped").count() > 10
    assert [tab.evaluate(SPLIT_MARKS, width) for width in range(120, 400, 7)] == [[]] * 40


def test_it_speaks_to_a_screen_reader(tab):
    press(tab, "ArrowRight")
    active = tab.evaluate(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        ".getAttribute('aria-label')"
    )
    assert f"{math.exp(TOKENS[1]['logprob']):.4f}" in active
    assert TOKENS[1]["text"] in active
    tree = tab.locator("main").aria_snapshot()
    for role in ("listbox", "option", "tab ", "tabpanel", "table", "rowheader", "columnheader"):
        assert role in tree, role
    unnamed = tab.evaluate(
        "Array.from(document.querySelectorAll('button, input, select, [role=img], [role=listbox]'))"
        ".filter((node) => node.checkVisibility() && !(node.textContent.trim() || node.getAttribute('aria-label')"
        " || (node.labels && node.labels.length))).length"
    )
    assert unnamed == 0
    press(tab, "?")
    assert tab.is_visible("#help-dialog")
    press(tab, "Escape")
    assert not tab.is_visible("#help-dialog")


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 820])
def test_a_narrow_window_shows_all_without_scrolling_sideways(tab, width):
    tab.set_viewport_size({"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.click("#c0-20")
    settle(tab)
    span, panel = (tab.evaluate(f"document.querySelector('{name}').getBoundingClientRect().toJSON()")
                   for name in (".t.selected", ".panel"))  # fmt: skip
    assert span["bottom"] <= panel["top"]


@pytest.mark.slow
def test_it_prints_text_and_panel(tab):
    tab.emulate_media(media="print")
    assert [tab.is_visible(name) for name in ("#run", "#token", "#query")] == [True, True, False]
    assert tab.pdf().startswith(b"%PDF")


def test_a_run_of_the_model_is_shown_and_repeated(open_file, gen, home, pruned_model):
    command = ["The sea was", "-m", pruned_model, "-n", "6", "-t", "1", "--format", "jsonl", "--trace"]
    command += ["--logprobs", "3", "--chain", "top_k40 > typical0.9 > min_p0.05 > temp0.9 > dist"]
    run = gen(*command, stdin="Once upon\n")
    (home / "work" / "run.jsonl").write_text(run.out)
    gen("inspect", "run.jsonl", "--html", "report.html")
    tab = open_file(home / "work" / "report.html")
    for line in run.lines[1:-1]:
        check_table(tab, line["trace"])
        press(tab, "ArrowRight")
    tab.click("#tab-run")
    shown = tab.inner_text(".command")
    assert shown == run.lines[0]["command"]
    assert re.fullmatch(r"printf %s 'Once upon' \| gen 'The sea was' .* --seed \d+", shown)
    assert gen(*command, "--seed", shown.split()[-1], stdin="Once upon").text == run.text


def cpu_seconds(tab):
    """The processor time of the page's process, which does not depend on what else the machine does."""
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable")
    metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    return metrics["ProcessTime"]


@pytest.mark.slow
def test_2000_tokens_take_less_than_2_megabytes_and_a_second(open_report, tmp_path):
    events = traced_events(2000)
    tab = open_report(events)
    assert cpu_seconds(tab) < 1
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    press(tab, "End")
    check_table(tab, events[-2]["trace"])


@pytest.mark.slow
def test_20000_tokens_scroll(open_report):
    short = traced_events(1000, top=8)
    tokens = short[1:-1] * 20
    tab = open_report([short[0], *tokens, short[-1]])
    before = cpu_seconds(tab)
    press(tab, "End")
    assert chosen(tab) == 19_999
    check_table(tab, tokens[-1]["trace"])
    span = tab.evaluate("document.querySelector('.t.selected').getBoundingClientRect().toJSON()")
    assert 0 < span["top"] < 900
    for _ in range(20):
        tab.mouse.move(400, 500)
        tab.mouse.wheel(0, -2000)
        settle(tab)
    assert cpu_seconds(tab) - before < 10
    press(tab, "/")
    tab.keyboard.type("king")
    settle(tab)
    assert tab.inner_text("#matches").startswith("1 of ")
