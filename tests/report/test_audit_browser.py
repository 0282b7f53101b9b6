"""The page of an audit in a real browser: pictures are there, a phone fits it, nothing is asked for."""

import numpy as np

import advect as ad

EVIL = "<script>alert(1)</script>"


def test_the_page_shows_pictures_and_asks_for_nothing(tmp_path, visit):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = 0.2 * rng.random((60, 8, 8))
    for row, code in enumerate(y):
        x[row, :, 4 * code : 4 * code + 3] += 0.6
    y[3] = 1 - y[3]
    x[5], x[40] = rng.random((8, 8)), x[10]
    names = [(EVIL, "b")[code] for code in y]
    found = ad.audit(ad.LabeledDataset(x, names), progress=False)
    page = visit(found.report(tmp_path / "page.html"), width=390)
    seen = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    count = 2 * sum(map(len, (found.wrong, found.odd, found.copies)))
    assert len(seen) == count > 4 and min(seen) > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("h3", has_text=EVIL).count() > 0  # as text
    assert page.locator("#wrong-title").is_visible()
