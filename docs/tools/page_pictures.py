"""Take the pictures of the server's page: `python -m docs.tools.page_pictures` starts the server and a browser.

It writes the page at three widths in both themes, the pictures of the manual, and a recorded walk, which is an
animated WebP. The script needs a browser: apt-get install chromium, and make browser.
"""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "images"
WIDTHS = (400, 820, 1440)
WALK_SIZE = (1280, 700)
PROMPT = "The lighthouse keeper opened the door and"
QUALITY, WALK_QUALITY = 80, 62
"""Quality of a picture and of a frame of the walk, in percent."""


@contextmanager
def running_server() -> Iterator[str]:
    """Run `gen serve` with the bundled model; yield its address."""
    command = [sys.executable, "-m", "logitsmith.cli", "serve", "--port", "0", "-t", "1", "--log-format", "none"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                if found := re.search(r"is served at (http://\S+);", line):
                    yield found[1]
                    break
        finally:
            process.terminate()


def opened_page(browser: Browser, address: str, width: int, height: int, theme: str = "light") -> Page:
    """Return a tab with the page."""
    tab = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme).new_page()  # type: ignore[arg-type]
    tab.goto(address)
    tab.wait_for_selector("html[data-state=ready]")
    return tab


def picture(tab: Page, quality: int = QUALITY) -> bytes:
    """Return what the tab shows, as WebP."""
    options: dict[str, Any] = {"format": "webp", "quality": quality}
    return b64decode(tab.context.new_cdp_session(tab).send("Page.captureScreenshot", options)["data"])


def write(tab: Page, tokens: int = 40, seed: int = 3) -> None:
    """Write the prompt, and let the model continue it."""
    tab.get_by_role("textbox", name="Text").fill(PROMPT)
    tab.get_by_role("spinbutton", name="Tokens").fill(str(tokens))
    tab.get_by_role("spinbutton", name="Seed").fill(str(seed))
    tab.get_by_role("button", name="Generate").click()
    wait_for_end(tab)


def wait_for_end(tab: Page) -> None:
    """Wait until the model does not write any more."""
    tab.wait_for_timeout(100)
    tab.locator("#generate:not(:disabled)").wait_for(timeout=120_000)
    tab.locator("#next:not(.is-stale)").wait_for(timeout=120_000)
    tab.wait_for_timeout(300)


def select_dropped(tab: Page) -> None:
    """Show why a token was chosen whose most likely candidate was dropped, or else the tenth token."""
    items = tab.get_by_role("list", name="Tokens").get_by_role("listitem")
    dropped = tab.locator("#tokens li.top-dropped")
    (dropped.first if dropped.count() else items.nth(10)).click()
    tab.wait_for_timeout(500)


def take_widths(browser: Browser, address: str) -> None:
    """Take the page at all widths, light and dark."""
    for theme in ("light", "dark"):
        for width in WIDTHS:
            tab = opened_page(browser, address, width, 900, theme)
            write(tab)
            select_dropped(tab)
            tab.evaluate("scrollTo(0, 0)")
            (IMAGES / f"page-{width}-{theme}.webp").write_bytes(picture(tab))
            tab.context.close()


def take_manual(browser: Browser, address: str) -> None:
    """Take the pictures of the manual: the next token while the chain changes, and two chains."""
    tab = opened_page(browser, address, 1440, 860)
    tab.get_by_role("textbox", name="Text").fill(PROMPT)
    set_min_p(tab, 0.3)
    tab.wait_for_timeout(800)
    (IMAGES / "page-chain.webp").write_bytes(picture(tab))
    tab.get_by_role("button", name="Compare").click()
    tab.get_by_role("textbox", name="Compared steps in notation").fill("temperature=1.4 > dist")
    tab.wait_for_timeout(900)
    tab.get_by_role("button", name="Run both").click()
    tab.locator(".compared-tokens .selected").first.wait_for()
    tab.locator("#comparison").evaluate("section => section.scrollIntoView()")
    tab.wait_for_timeout(600)
    (IMAGES / "page-compare.webp").write_bytes(picture(tab))
    tab.context.close()


def set_min_p(tab: Page, value: float) -> None:
    """Move the slider of min_p."""
    slider = (
        tab.get_by_role("list", name="Chain").get_by_role("listitem", name="min_p").get_by_role("slider", name="p")
    )
    slider.first.evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(value),
    )
    tab.wait_for_timeout(500)


def record_walk(browser: Browser, address: str) -> bytes:
    """Return the walk: write, see why, take another token, and move a slider."""
    width, height = WALK_SIZE
    tab = opened_page(browser, address, width, height)
    frames: list[tuple[bytes, int]] = []

    def frame(milliseconds: int) -> None:
        frames.append((picture(tab, WALK_QUALITY), milliseconds))

    text = tab.get_by_role("textbox", name="Text")
    for end in (len("The lighthouse keeper"), len(PROMPT)):
        text.fill(PROMPT[:end])
        tab.wait_for_timeout(900)
        frame(900)
    for value in (0.1, 0.2, 0.35):
        set_min_p(tab, value)
        frame(900)
    set_min_p(tab, 0.05)
    tab.get_by_role("spinbutton", name="Tokens").fill("36")
    tab.get_by_role("spinbutton", name="Seed").fill("3")
    tab.get_by_role("button", name="Generate").click()
    for _ in range(3):
        tab.wait_for_timeout(160)
        frame(350)
    wait_for_end(tab)
    frame(1600)
    select_dropped(tab)
    frame(2400)
    tab.get_by_role("region", name="Why this token").get_by_role(
        "button", name=re.compile("^Continue with")
    ).first.click()
    tab.wait_for_timeout(250)
    frame(450)
    wait_for_end(tab)
    frame(2600)
    tab.context.close()
    return animation(frames, width, height)


def animation(frames: list[tuple[bytes, int]], width: int, height: int) -> bytes:
    """Return an animated WebP that repeats forever.

    Args:
        frames: WebP pictures of this size, each with its duration in milliseconds.
        width: width of each picture, pixels.
        height: height of each picture, pixels.
    """
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = [_chunk(b"VP8X", bytes((2, 0, 0, 0)) + size), _chunk(b"ANIM", bytes(6))]
    for data, milliseconds in frames:
        place = bytes(6) + size + milliseconds.to_bytes(3, "little") + bytes((2,))  # 2: replaces the frame before
        chunks.append(_chunk(b"ANMF", place + _bitstream(data)))
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + len(data).to_bytes(4, "little") + data + bytes(len(data) % 2)


def _bitstream(data: bytes) -> bytes:
    """Return the chunk of a still picture that has the pixels."""
    at = 12
    while at < len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        end = at + 8 + length + length % 2
        if data[at : at + 4] in (b"VP8 ", b"VP8L"):
            return data[at:end]
        at = end
    raise ValueError("the picture has no pixels")


def main() -> None:
    """Take all pictures."""
    with running_server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        take_widths(browser, address)
        take_manual(browser, address)
        (IMAGES / "page-walk.webp").write_bytes(record_walk(browser, address))
        browser.close()


if __name__ == "__main__":
    main()
