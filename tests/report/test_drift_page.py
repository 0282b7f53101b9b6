"""The page of a drift: everything escaped, nothing loaded; in a browser it fits a phone and asks for
nothing.
"""

import re

import numpy as np
import pytest
import torch

import advect as ad
from advect.report import write_drift_report

EVIL = "<script>alert(1)</script>"


def images(swap=True, names=(EVIL, "'\"&</style>", "c"), n=120):
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(3, 9, 9, generator=generator)
    sides = []
    for _ in range(2):
        y = torch.randint(0, 3, (n,), generator=generator)
        x = base[y] + 0.2 * torch.rand(n, 9, 9, generator=generator)
        sides.append(ad.LabeledDataset(x, [names[code] for code in y.tolist()], classes=names))
    before, after = sides
    if swap:
        after = after.replace(y=torch.tensor([1, 0, 2])[after.y])
    return ad.drift(before, after, progress=False)


def table(**options):
    rng = np.random.default_rng(0)
    x, y = rng.random((80, 15)), rng.integers(0, 2, 80).tolist()
    columns = [EVIL, *(f"c{k}" for k in range(14))]
    before = ad.LabeledDataset(x, y, columns=columns)
    return ad.drift(before, ad.LabeledDataset(x + 1, y, columns=columns, **options), progress=False)


def test_what_changed_is_shown(tmp_path):
    found = images()
    text = found.report(tmp_path / "deep" / "page.html", title="</title><b>", each=3).read_text()
    assert found.traded and "trade labels" in text and "drift found" in text
    assert text.count("data:image/png;base64,") == 2 * 2 * 4  # two classes, two sides, mean + 3
    assert text.count('class="observed"') == 5 and "mark-found" in text
    assert EVIL not in text and "&lt;script&gt;" in text and "</title><b>" not in text
    assert "'\"&</style>" not in text and "<script" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)


@pytest.mark.slow
def test_no_drift_missing_labels_and_tables(tmp_path):
    text = images(swap=False).report(tmp_path / "a.html").read_text()
    assert "no drift found" in text and "What it looks like" not in text
    text = table().report(tmp_path / "b.html").read_text()
    assert "Columns" in text and EVIL not in text and text.count("<td") > 20
    x = torch.rand(30, 5, 5)
    unlabeled = ad.drift(ad.LabeledDataset(x), ad.LabeledDataset(x + 1), progress=False)
    text = unlabeled.report(tmp_path / "c.html").read_text()
    assert "All samples" in text and "Classes" not in text
    lost = ad.drift(
        ad.LabeledDataset(torch.rand(60, 5, 5), ["a", "b"] * 30),
        ad.LabeledDataset(torch.rand(60, 5, 5), ["a"] * 60),
        progress=False,
    )
    text = lost.report(tmp_path / "d.html").read_text()
    assert "none in the window" in text and "no samples" in text
    many = [str(k) for k in range(80)] * 2
    few = ad.LabeledDataset(torch.rand(160, 2), many)
    text = ad.drift(few, few, progress=False).report(tmp_path / "e.html").read_text()
    assert "20 more classes are not shown" in text and "too few samples" in text


def test_a_page_has_a_place(tmp_path):
    found = table()
    with pytest.raises(ad.InputError, match="html"):
        write_drift_report(found, tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="each"):
        write_drift_report(found, tmp_path / "page.html", each=0)
    assert not list(tmp_path.iterdir())


def test_in_a_browser(tmp_path, visit):
    path = images().report(tmp_path / "page.html")
    for width, scheme in ((1200, "light"), (390, "dark")):
        page = visit(path, width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".verdict").inner_text() == "drift found"
        assert page.locator("tbody th", has_text="<script>").count() >= 2
        loaded = "[...document.images].every(i => i.complete && i.naturalWidth > 0)"
        assert page.evaluate(loaded)
        charts = page.locator(".charts svg")
        assert charts.count() == 5 and charts.first.bounding_box()["height"] > 100
