"""The page of `gen serve` in a real browser, and what its tests do with it."""

import sys
import time
from pathlib import Path

import pytest

from ..browser import IS_REQUIRED

SECONDS_TO_WAIT = 60
WAIT = f"""async (isTrue) => {{
    const end = Date.now() + {SECONDS_TO_WAIT * 1000};
    while (!isTrue()) {{
        if (Date.now() > end) throw Error(`what the test waits for does not happen: ${{isTrue}}`);
        await new Promise(done => setTimeout(done, 10));
    }}
}}"""
DO_WHAT_IS_DUE = """async () => {
    await page.settings.chain.settle().catch(() => {});
    const { settings, chat, writing, details, stories } = page;
    for (const call of [settings.grammar.checkSoon, chat.renderTemplateSoon, writing.tokenizeSoon,
                        details.nextAfterMove, stories.saveSoon]) await call.settled();
}"""


class PageDriver:
    """A tab with the page.

    Args:
        context: the browser's context; tabs of one context share their stores.
        address: the address of the server.
        is_ready: False if the page cannot load its data, because the server wants a key.
    """

    def __init__(self, context, address, is_ready=True):
        self.tab = context.new_page()
        self.tab.set_default_timeout(SECONDS_TO_WAIT * 1000)
        self.errors, self.hosts = [], set()
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on(
            "console",
            lambda message: self.errors.append(message.text) if "Failed to load" not in message.text else None,
        )
        self.tab.on(
            "request", lambda request: self.hosts.add(request.url.split("/")[2]) if "//" in request.url else None
        )
        self.tab.goto(address)
        if is_ready:
            self.wait_until_ready()

    def wait_until_ready(self):
        self.wait_for("document.documentElement.dataset.state === 'ready'")

    def __getattr__(self, name):
        return getattr(self.tab, name)

    @property
    def text(self):
        return self.get_by_role("textbox", name="Text")

    @property
    def notation(self):
        return self.get_by_role("textbox", name="Notation", exact=True)

    @property
    def grammar(self):
        return self.get_by_role("textbox", name="Grammar", exact=True)

    @property
    def items(self):
        return self.get_by_role("list", name="Tokens").get_by_role("listitem")

    @property
    def why(self):
        return self.get_by_role("region", name="Why this token")

    @property
    def branches(self):
        return self.get_by_role("tree", name="Branches").get_by_role("treeitem")

    @property
    def generated(self):
        """The places of the branches that the model wrote."""
        return [place for place, text in enumerate(self.branches.all_inner_texts()) if "generated" in text]

    @property
    def next_rows(self):
        return self.get_by_role("table", name="Next token").locator("tbody tr")

    def card(self, name):
        return self.get_by_role("list", name="Chain").get_by_role("listitem", name=name, exact=True)

    def parameter(self, sampler, name, role="spinbutton"):
        """The control of a parameter."""
        return self.card(sampler).get_by_role(role, name=name, exact=True)

    def press(self, name):
        self.get_by_role("button", name=name, exact=True).click()

    def names(self):
        """The names of all tokens."""
        return self.items.evaluate_all("items => items.map(item => item.getAttribute('aria-label'))")

    def value(self):
        return self.text.input_value()

    def set(self, name, value):
        self.get_by_role("spinbutton", name=name, exact=True).fill(str(value))

    def write(self, text, *, tokens=8, seed=7):
        """Write a text, and let the model continue it. Returns the new text."""
        self.text.fill(text)
        self.set("Tokens", tokens)
        self.set("Seed", seed)
        self.generate()
        return self.value()

    def generate(self):
        self.press("Generate")
        self.wait_for_end()

    def take_another(self, place=-1):
        """Continue with another candidate for a token. Returns what its button says."""
        self.items.nth(place).click()
        button = self.why.locator("[aria-label^='Continue with']").first
        word = button.get_attribute("aria-label").removeprefix("Continue with ")
        button.click()
        self.wait_for_end()
        return word

    def stop_while_writing(self):
        """Generate, and press Stop when the seventh token comes.

        The page presses the button itself: the text of a small model would end before Python asks how long it is.
        """
        self.evaluate(
            """() => {
                const server = page.writer.server;
                const lines = server.lines;
                server.lines = async function* (...request) {
                    server.lines = lines;
                    let count = 0;
                    for await (const line of lines.apply(server, request)) {
                        if (line.event === "token" && ++count === 7) document.getElementById("stop").click();
                        yield line;
                    }
                };
            }"""
        )
        self.generate()

    def download(self, button, path):
        """Press a button, and keep the file that it makes. Returns its name."""
        with self.tab.expect_download() as download:
            self.press(button)
        download.value.save_as(path)
        return download.value.suggested_filename

    def export(self, path, kind="Story with details"):
        """Save the story as a file. Returns its name."""
        self.press("Export")
        return self.download(kind, path)

    def stories(self):
        """Open the list of stories. Returns the items."""
        self.press("Stories")
        self.wait_for("document.querySelector('#story-list li')")
        return self.get_by_role("list", name="Stories").get_by_role("listitem")

    def open_file(self, kind, path, content=None):
        """Choose a file, ``open`` or ``preset``, of this content if it is given."""
        if content is not None:
            path.write_text(content)
        self.locator(f"#{kind}-file").set_input_files(path)

    def reload_when_saved(self):
        self.settle()
        self.tab.reload()
        self.wait_until_ready()

    def wait_for(self, condition):
        """Wait until an expression is true in the page."""
        self.tab.evaluate(f"() => ({WAIT})(() => {condition})")

    def wait_for_end(self):
        """Wait until the model does not write any more."""
        self.wait_for("!document.getElementById('generate').disabled")

    def settle(self):
        """Let the page do now what it does after a pause, such as storing its state, and wait for it."""
        self.tab.evaluate(DO_WHAT_IS_DUE)

    def wait_for_next(self):
        """Wait until the table of the next token is that of the text."""
        self.settle()
        self.wait_for("!page.details.updateNext.isRunning && !document.querySelector('#next.is-stale')")

    def next_shares(self):
        """The probabilities in the table of the next token, by token id."""
        return dict(
            self.next_rows.evaluate_all(
                "rows => rows.map(row => [Number(row.dataset.id), Number(row.cells[1].textContent)])"
            )
        )

    def wait_until(self, is_true):
        """Wait until a function returns true."""
        end = time.monotonic() + SECONDS_TO_WAIT
        while not is_true():
            assert time.monotonic() < end, "what the test waits for does not happen"
            self.tab.wait_for_timeout(10)


class HeldRequests:
    """Requests of a tab, or of all tabs of a context, for a path, which are held until they are released."""

    def __init__(self, place, pattern):
        self.routes, self.is_holding = [], True
        place.route(pattern, self.take)

    def take(self, route):
        if self.is_holding:
            self.routes.append(route)
        else:
            route.continue_()

    def release(self):
        self.is_holding = False
        for route in self.routes:
            route.continue_()


def open_report(browser, path):
    """Open a report. Returns its tab."""
    tab = browser.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-state=ready]")
    return tab


AXE = Path(sys.prefix) / "browser" / "node_modules" / "axe-core" / "axe.min.js"
"""The checker of accessibility, which `make browser` installs if there is npm."""


def require_axe():
    """Return the source of axe-core. Without it, the test is skipped, or fails where a browser is required."""
    if not AXE.exists():
        (pytest.fail if IS_REQUIRED else pytest.skip)(
            "there is no axe-core: apt-get install npm, and make browser"
        )
    return AXE.read_text(encoding="utf-8")
