"""Take the picture of a report: `python -m docs.tools.report_picture` writes a run, its report, and the picture.

The script needs a browser: apt-get install chromium, and make browser.
"""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "images" / "report.webp"
WIDTH, HEIGHT = 1280, 760
QUALITY = 82
"""Quality of the picture, in percent. Text stays sharp, and the file is smaller than 100 KB."""
RUN = [
    *("The old king looked at the sea and", "-n", "150", "--seed", "5", "--format", "jsonl", "--trace"),
    *(
        "--chain",
        "penalties(repeat=1.1) > top_k40 > xtc(probability=0.3, threshold=0.1) > min_p0.1 > temp0.8 > dist",
    ),
]
"""The arguments of the run that is shown."""
KEYS = ("f", "f")
"""Keys to press: they select the second token whose most likely candidate was dropped."""


def write_report(folder: Path) -> Path:
    """Make a run and its report in a folder."""
    gen = Path(sys.executable).with_name("gen")
    run = subprocess.run([gen, *RUN], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (folder / "king.jsonl").write_bytes(run.stdout)
    subprocess.run([gen, "inspect", "king.jsonl", "--html", "king.html"], check=True, cwd=folder)
    return folder / "king.html"


def picture(report: Path) -> bytes:
    """The report in a browser, as WebP."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(report.as_uri())
        tab.wait_for_selector("html[data-state=ready]")
        for key in KEYS:
            tab.keyboard.press(key)
        tab.wait_for_timeout(500)
        options = {"format": "webp", "quality": QUALITY}
        data = tab.context.new_cdp_session(tab).send("Page.captureScreenshot", options)["data"]
        browser.close()
    return b64decode(data)


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        PICTURE.write_bytes(picture(write_report(Path(name))))
