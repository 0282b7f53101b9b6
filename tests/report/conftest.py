"""One browser for the pages of a file: a file is opened in a new window with an empty profile, and at the end
nothing may have been asked for or complained of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browsers
import pytest


# of one file: other files run event loops, and a folder has no end that pytest would know
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.opened() as browser:
        yield browser


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
