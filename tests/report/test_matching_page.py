"""The page of a map by flow matching: everything escaped, nothing loaded, samples of all kinds, and
in a browser."""

import re

import pytest
import torch
from flow_cases import draw, labeled

import advect as ad
from advect.report import write_matching_report

EVIL = "<script>alert(1)</script>"


def matched(source, target, *more, **options):
    pairs = ad.PairSampler(source, target, *more, **options)
    carry = ad.maps.FlowMatchingMap(updates=3, width=16, progress=False).fit(pairs)
    return carry, pairs


def images(n, seed, names):
    y = torch.arange(n) % len(names)
    x = draw(n, 8, 8, seed=seed).float() * 0.1 + y[:, None, None] / len(names)
    return ad.LabeledDataset(x, [names[code] for code in y], classes=names)


def test_samples_on_their_way(tmp_path):
    made = matched(images(40, 0, ("a", "b")), images(60, 1, ("a", "b")))
    text = write_matching_report(*made, tmp_path / "deep" / "page.html", each=3).read_text()
    assert text.count("data:image/png;base64,") == 2 * 3 * (5 + 1)
    assert "pairs of other classes</dt><dd>0.0%" in text and "<b>100</b>" in text
    assert "polyline" in text and "<script" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)


@pytest.mark.slow
def test_what_is_worth_knowing(tmp_path):
    source, target = labeled([90, 10], 2, 0), labeled([20, 80], 2, 1)
    told = write_matching_report(*matched(source, target), tmp_path / "a.html").read_text()
    assert "differ by 70%" in told
    told = write_matching_report(*matched(source, target, 0.0), tmp_path / "b.html").read_text()
    share = re.search(r"(\d+)% of the pairs are of classes that do not belong", told)
    assert share and int(share[1]) >= 70  # that many have to
    named = matched(source, target.replace(classes=(1, 2)), match="names")
    told = write_matching_report(*named, tmp_path / "c.html").read_text()
    assert "never drawn: 0." in told and "carried blind" in told


def test_tables_names_and_missing_labels(tmp_path):
    columns = [EVIL, *map(str, range(9))]
    source = ad.LabeledDataset(draw(30, 10), [EVIL, "b", None] * 10, columns=columns)
    target = ad.LabeledDataset(draw(30, 10, seed=1), [EVIL, "b"] * 15, columns=columns)
    made = matched(source, target, 0.0)
    text = write_matching_report(*made, tmp_path / "page.html", title=EVIL).read_text()
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert "and 2 more columns" in text and "without a label" in text
    other = ad.LabeledDataset(draw(4, 10, seed=2), columns=columns)
    text = write_matching_report(*made, tmp_path / "page.html", new=other).read_text()
    assert "4 samples, carried blind" in text


def test_a_page_has_a_place(tmp_path):
    made = matched(images(12, 0, ("a", "b")), images(12, 1, ("a", "b")))
    with pytest.raises(ad.InputError, match="html"):
        write_matching_report(*made, tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="each"):
        write_matching_report(*made, tmp_path / "page.html", each=0)
    with pytest.raises(ad.InputError, match="FlowMatchingMap"):
        write_matching_report(ad.maps.NearestMap(), made[1], tmp_path / "page.html")
    with pytest.raises(ad.InputError, match="fitted first"):
        write_matching_report(ad.maps.FlowMatchingMap(), made[1], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [pytest.param(1200, marks=pytest.mark.slow), 390])
def test_in_a_browser(tmp_path, width, visit):
    made = matched(images(40, 0, (EVIL, "b")), images(60, 1, (EVIL, "b")))
    page = visit(
        write_matching_report(*made, tmp_path / "page.html", title="Two to two"), width=width
    )
    assert page.locator("h1").inner_text() == "Two to two"
    shown = page.locator(".way img")
    assert shown.count() == 2 * 6 * 6
    assert shown.first.evaluate("image => image.naturalWidth") == 8
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width  # nothing sticks out
