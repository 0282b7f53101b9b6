"""The page of a comparison: everything escaped, nothing loaded, pictures where samples are images; and
in a browser.
"""

import re

import pytest
import torch

import advect as ad
from advect.report import write_compare_report

FAST = {"repeats": 3, "max_samples": 20, "progress": False}


def compared(shape=(8, 8), names=("a", "b"), n=60, drop=False, columns=None):
    sides = []
    for seed in (1, 0):
        y = torch.arange(n) % len(names)
        x = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))
        x = x + 0.8 * y.reshape(-1, *[1] * len(shape))
        sides.append(ad.LabeledDataset(x, [names[c] for c in y], classes=names, columns=columns))
    fake, real = sides
    fake = fake.replace(x=torch.cat([real.x[:6], fake.x[6:]]))  # some copies
    return ad.compare(fake.subset(fake.y > 0) if drop else fake, real, **FAST)


@pytest.mark.slow
def test_images_verdicts_and_copies_are_shown(tmp_path):
    found = compared(drop=True)
    text = found.report(tmp_path / "deep" / "page.html", each=4).read_text(encoding="utf-8")
    assert "a: real samples but no synthetic one: dropped." in text
    first = re.findall(r'<h3 class="class">(\w)', text)
    assert first == list(found.classes) == ["a", "b"]
    assert len(re.findall(r'alt="Synthetic, row', text)) == min(len(found.copies), 8) > 0
    assert text.count("data:image/png;base64,") >= 4 + 4
    assert "beyond the floor" in text and "<script" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert text.count('class="strip"') > 5


@pytest.mark.slow
def test_names_of_classes_and_columns_are_escaped(tmp_path):
    hostile = "<img src=x onerror=alert(1)>", "'\"&</style>"
    text = compared(names=hostile).report(tmp_path / "a.html", title="</title><b>").read_text()
    assert "<img src=x" not in text and "</title><b>" not in text and "'\"&</style>" not in text
    columns = ["<script>", *map(str, range(11))]
    text = compared((12,), columns=columns).report(tmp_path / "b.html").read_text()
    assert "<script>" not in text and "&lt;script&gt;" in text and "data:image" not in text


@pytest.mark.slow
def test_many_classes_in_colour(tmp_path):
    found = compared(shape=(3, 9, 9), names=tuple(range(45)), n=180)
    text = write_compare_report(found, tmp_path / "page.html", each=1).read_text(encoding="utf-8")
    assert "5 more classes" in text and "Which class is taken" not in text


def test_a_page_has_a_place(tmp_path):
    found = compared()
    with pytest.raises(ad.InputError, match="html"):
        found.report(tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="each"):
        found.report(tmp_path / "page.html", each=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [pytest.param(1200, marks=pytest.mark.slow), 390])
def test_the_page_in_a_browser(tmp_path, width, visit):
    hostile = "<script>alert(1)</script>", "b"
    page = visit(compared(names=hostile, drop=True).report(tmp_path / "page.html"), width=width)
    assert page.locator("h3.class").first.inner_text().startswith(hostile[0])
    assert page.locator(".badge.off").count() >= 2
    loaded = page.locator("img").evaluate_all("all => all.map(one => one.naturalWidth)")
    assert loaded and min(loaded) > 0
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width  # wide tables scroll inside
