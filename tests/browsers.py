"""A browser for pages, where there is one; it asks nobody for anything by itself."""

import shutil
from contextlib import contextmanager

import pytest

OFF = ("gpu", "background-networking", "component-update", "sync", "dev-shm-usage")
FLAGS = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in OFF)]


@contextmanager
def opened():
    """A browser with an empty profile. While it is open, no other one can be, nor an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no chromium to open a page with")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def listen(page, heard, *allowed):
    """Note errors, warnings and dialogs of a page, and what it asks for that is not allowed."""
    page.on("pageerror", lambda error: heard.append(f"{page.url}: {error}"))
    page.on("console", lambda said: said.type in ("error", "warning") and heard.append(said.text))
    page.on("dialog", lambda dialog: heard.append(dialog.message) or dialog.dismiss())
    local = ("data:", *allowed)
    page.on("request", lambda asked: asked.url.startswith(local) or heard.append(asked.url))
