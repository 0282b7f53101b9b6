"""The page of an audit in a real browser: pictures are there, a phone fits it, nothing is asked for."""

import shutil

import numpy as np
import pytest

import advect as ad

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("no chromium to open a page with", allow_module_level=True)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
EVIL = "<script>alert(1)</script>"


def test_the_page_shows_pictures_and_asks_for_nothing(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = 0.2 * rng.random((60, 8, 8))
    for row, code in enumerate(y):
        x[row, :, 4 * code : 4 * code + 3] += 0.6
    y[3] = 1 - y[3]
    x[5], x[40] = rng.random((8, 8)), x[10]
    names = [(EVIL, "b")[code] for code in y]
    found = ad.audit(ad.LabeledDataset(x, names), progress=False)
    path, heard = found.report(tmp_path / "page.html"), []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("data:", path.as_uri())) or heard.append(request.url)
            ),
        )
        page.goto(path.as_uri())
        seen = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        count = 2 * sum(map(len, (found.wrong, found.odd, found.copies)))
        assert len(seen) == count > 4 and min(seen) > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("h3", has_text=EVIL).count() > 0  # as text
        assert page.locator("#wrong-title").is_visible()
        browser.close()
    assert heard == []
