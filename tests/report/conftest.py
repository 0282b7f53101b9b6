"""A browser for pages: each opens with an empty profile and must cause no request and no error."""

import browsers
import pytest


# of one file: other files run event loops, and a folder has no end that pytest would know
@pytest.fixture(scope="module")
def browser():
    with browsers.opened() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """Open a file; ``width`` and ``scheme`` are those of the screen."""
    complaints, contexts = [], []

    def visit(path, *, width=1200, scheme="light", heard=complaints):
        screen = {"width": width, "height": 1000 if width > 500 else 844}
        contexts.append(browser.new_context(viewport=screen, color_scheme=scheme))
        page = contexts[-1].new_page()
        browsers.listen(page, heard, path.as_uri())
        page.goto(path.as_uri())
        if page.locator("#story").count():  # the page has a player, which tells when it has drawn
            page.wait_for_selector("html[data-ready=yes]")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def readable(visit):
    """Open a page and check its width, colours, images and text sizes."""

    def readable(path, *, width, scheme):
        page = visit(path, width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = "getComputedStyle(document.body).backgroundColor"
        expected = {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 19, 24)"}
        assert page.evaluate(ground) == expected[scheme]
        widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert all(widths)
        sizes = page.evaluate(
            """() => [...new Set([...document.querySelectorAll("main *, header *")].filter((node) =>
              !node.closest(".drawing") &&
              [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
              .map((node) => parseFloat(getComputedStyle(node).fontSize)))]"""
        )
        assert len(sizes) <= 5 and min(sizes) >= 11.9
        assert page.locator("h1").count() == 1
        return page

    return readable
