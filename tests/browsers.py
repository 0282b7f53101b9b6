"""A browser for pages, where there is one; it asks nobody for anything by itself."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

OFF = ("gpu", "background-networking", "component-update", "sync", "dev-shm-usage")
FLAGS = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in OFF)]


@contextmanager
def opened() -> Iterator[Any]:
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
