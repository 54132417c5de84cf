"""A real browser, for the tests of reports and of the server's page."""

import os
import shutil
from contextlib import contextmanager

import pytest

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    sync_playwright = expect = None

IS_REQUIRED = bool(os.environ.get("REQUIRE_BROWSER"))
"""Set where a browser was installed, as by .ci/run: then its absence is a failure."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "there is no browser to test pages in: apt-get install chromium, and make browser"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def open_browser():
    """Start Chromium. Without it, the test is skipped, or fails where a browser is required."""
    if CHROMIUM is None or sync_playwright is None:
        (pytest.fail if IS_REQUIRED else pytest.skip)(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
