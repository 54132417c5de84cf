"""The page of `gen serve` in Chromium: the time until it shows what a person has asked for.

python -m benchmarks.page [--moves 40]

- A move of min_p's slider, until the table of the next token has new numbers: with the bundled model (49,152
  tokens), and with a model of random weights with 151,936 tokens. The logits are kept, so nothing is decoded.
- With a text of 10,000 tokens that have traces: a press on a token until the panel shows it, a typed letter until
  the next frame, and a scroll until the next frame.
- A story of 100,000 words from the browser's store, until the frame that shows it.
- The bytes of the page's files.

Needs Chromium and Playwright, as the tests of the page do.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logitsmith.engine import locate
from logitsmith.serve.page_routes import page_files

from tests.browser import open_browser
from tests.engine.big_model import write_model
from tests.serve.gen_serve import GenServe
from tests.serve.page_driver import PageDriver

from .quartiles import quartiles

_TOKENS = 10_000
_WORDS = 100_000
_MOVE_SLIDER = """async (moves) => {
  const slider = document.querySelector('[aria-label="Chain"] [aria-label="min_p"] input[type=range]');
  const body = document.getElementById('next').tBodies[0];
  const times = [];
  for (let move = 0; move < moves; move += 1) {
    const start = performance.now();
    const shown = new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); requestAnimationFrame(() => done()); });
      observer.observe(body, { childList: true });
    });
    slider.value = String(0.02 + 0.3 * ((move * 7) % moves) / moves);
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await shown;
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 40));
  }
  return times;
}"""
_PRESS_TOKENS = """async (presses) => {
  const items = document.getElementById('tokens').children;
  const panel = document.getElementById('why-panel');
  const times = [];
  for (let press = 0; press < presses; press += 1) {
    const start = performance.now();
    const shown = new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); requestAnimationFrame(() => done()); });
      observer.observe(panel, { childList: true });
    });
    items[items.length - 1 - ((press * 97) % (items.length - 20))].firstChild.click();
    await shown;
    times.push(performance.now() - start);
  }
  return times;
}"""
_TYPE = """async (letters) => {
  const area = document.getElementById('text');
  const times = [];
  area.focus();
  for (let letter = 0; letter < letters; letter += 1) {
    const middle = Math.floor(area.value.length / 2);
    area.setSelectionRange(middle, middle);
    const start = performance.now();
    document.execCommand('insertText', false, 'x');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 400));
  }
  return times;
}"""
_SCROLL = """async (steps) => {
  const paper = document.getElementById('paper');
  const times = [];
  for (let step = 0; step < steps; step += 1) {
    const start = performance.now();
    paper.scrollTop = (step * 631) % paper.scrollHeight;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times;
}"""

_OPEN_STORY = """async ([id, times]) => {
  const { stories } = page;
  const measured = [];
  for (let opened = 0; opened < times; opened += 1) {
    await stories.begin({}); // another story is shown, and what it does after a pause is done
    await new Promise((done) => setTimeout(done, 500));
    const start = performance.now();
    await stories.open(id);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    measured.push(performance.now() - start);
  }
  return measured;
}"""


@contextmanager
def _opened_page(browser: Any, model: Path) -> Iterator[PageDriver]:
    with GenServe("--slots", "2", "-c", "4096", "--log-format", "none", model=model) as server:
        context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        yield PageDriver(context, f"http://127.0.0.1:{server.port}")
        context.close()


def _print_times(title: str, times: list[float]) -> None:
    low, median, high = quartiles(times)
    print(f"| {title} | {median:.0f} | {low:.0f} to {high:.0f} | {max(times):.0f} |", flush=True)


def _move_slider(page: PageDriver, title: str, moves: int) -> None:
    page.wait_for_next()
    page.evaluate(_MOVE_SLIDER, 5)
    _print_times(title, page.evaluate(_MOVE_SLIDER, moves))


def _open_tokens(page: PageDriver, tokens: list[dict[str, Any]]) -> None:
    """Open a file with a text of these tokens on the page."""
    numbered = [{**token, "uid": number} for number, token in enumerate(tokens, 1)]
    node = {"id": 1, "parent": None, "kind": "generated", "uids": list(range(1, len(tokens) + 1)), "run": None}
    exported = {"format": "gen serve page", "version": 1, "settings": {}, "current": 1, "nodes": [node]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**exported, "tokens": numbered}, file)
        file.flush()
        page.locator("#open-file").set_input_files(file.name)
        page.wait_until(lambda: page.evaluate("page.writer.tokens.length") == len(tokens))


def _show_long_text(page: PageDriver) -> None:
    """Show a text of `_TOKENS` tokens. The traces are those of a shorter text, again and again."""
    page.write("The old king looked at the sea and", tokens=200)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "story.json"
        page.export(path)
        tokens = json.loads(path.read_text())["tokens"]
    written = [token for token in tokens if token["event"] == "token"]
    _open_tokens(page, [written[index % len(written)] for index in range(_TOKENS)])
    page.tab.wait_for_timeout(2000)


def _store_novel(page: PageDriver) -> str:
    """Let the browser store a story of `_WORDS` words, in paragraphs. Return the story's id."""
    sentence = "The old king looked at the sea and said nothing, because the ships were late again. "
    paragraph = sentence * 8 + "\n"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(paragraph * (_WORDS // len(paragraph.split())))
        file.flush()
        page.locator("#open-file").set_input_files(file.name)
        # The text is one token until the server has tokenized it. A word has at least one.
        page.wait_until(lambda: page.evaluate("page.writer.tokens.length") > _WORDS)
    page.settle()
    return str(page.evaluate("page.stories.story.id"))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moves", type=int, default=40, help="number of times that each action is measured")
    moves = parser.parse_args().moves
    print(f"The files of the page have {sum(len(file.content) for file in page_files().values()):,} bytes.\n")
    print("| milliseconds | median | half of them | longest |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name, open_browser() as browser:
        with _opened_page(browser, locate()[0]) as page:
            page.text.fill("The old king looked at the sea and")
            _move_slider(page, "slider to table, 49,152 tokens", moves)
            _show_long_text(page)
            _print_times(f"press on one of {_TOKENS:,} tokens", page.evaluate(_PRESS_TOKENS, moves))
            _print_times(f"scroll in {_TOKENS:,} tokens", page.evaluate(_SCROLL, moves))
            _print_times(f"letter in {_TOKENS:,} tokens", page.evaluate(_TYPE, moves // 4))
            story = _store_novel(page)
            _print_times(f"story of {_WORDS:,} words", page.evaluate(_OPEN_STORY, [story, max(moves // 10, 3)]))
        big_model = Path(name) / "big.gguf"
        write_model(big_model, 151_936, 32, 2, 2, False, 32**-0.5, 0)
        with _opened_page(browser, big_model) as page:
            # No text has tokens of this model, because its tokenizer has one merge only.
            prompt = [
                {"event": "prompt", "id": i, "text": f"t{i}", "bytes": list(f"t{i}".encode())} for i in (5, 6)
            ]
            _open_tokens(page, prompt)
            _move_slider(page, "slider to table, 151,936 tokens", moves)


if __name__ == "__main__":
    main()
