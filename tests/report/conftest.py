"""One browser for all pages: a file is opened in a new window with an empty profile, and at the end
nothing may have been asked for or complained of.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
]


# while it is open, no other test may run an event loop: it is closed after the last page
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no chromium to open a page with")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Any]]:
    """Open a file; ``width`` and ``scheme`` are those of the screen."""
    complaints: list[str] = []
    contexts = []

    def visit(
        path: Path,
        *,
        width: int = 1200,
        scheme: str = "light",
        heard: list[str] = complaints,
        **options: Any,
    ) -> Any:
        screen = {"viewport": {"width": width, "height": 1000 if width > 500 else 844}}
        context = browser.new_context(**{**screen, "color_scheme": scheme, **options})
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: message.type in ("error", "warning") and heard.append(message.text),
        )
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )
        allowed = path.as_uri()
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("data:", allowed))
                or heard.append(f"request: {request.url}")
            ),
        )
        page.goto(allowed)
        if page.locator("#story").count():  # the page has a player, which tells when it has drawn
            page.wait_for_selector("html[data-ready=yes]")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def readable(visit) -> Callable[..., Any]:
    """Open a page as one who reads it does: it does not scroll sideways, what it should be is light or
    dark, every picture is there, and no text is covered or cut where it should not be.
    """

    def readable(path: Path, *, width: int, scheme: str) -> Any:
        page = visit(path, width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = "getComputedStyle(document.body).backgroundColor"
        assert (
            page.evaluate(ground)
            == {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 19, 24)"}[scheme]
        )
        widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert all(widths)
        small = page.evaluate(
            """() => [...document.querySelectorAll("main *, header *")].filter((node) =>
              [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) &&
              parseFloat(getComputedStyle(node).fontSize) < 11.9).map((node) => node.outerHTML.slice(0, 80))"""
        )
        assert small == []
        sizes = page.evaluate(
            """() => [...new Set([...document.querySelectorAll("main *, header *")].filter((node) =>
              [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
              .map((node) => getComputedStyle(node).fontSize))]"""
        )
        assert len(sizes) <= 5
        assert page.locator("h1").count() == 1
        return page

    return readable
