"""The page of a labeled pool: everything escaped, nothing loaded, samples of all kinds."""

import re

import pytest
import torch

import advect as ad
from advect.report import write_label_report


def labelled(shape=(8, 8), names=("a", "b"), n=40, each=3):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % len(names)
    x = torch.rand(n, *shape, generator=generator) + y.reshape(-1, *[1] * len(shape)) * 0.4
    known = [names[code] if row < each * len(names) else None for row, code in enumerate(y)]
    return ad.apps.label(ad.LabeledDataset(x, known, classes=names), progress=False)


def test_images_are_shown_with_their_two_likeliest_classes(tmp_path):
    made = labelled()
    path = made.report(tmp_path / "deep" / "page.html", each=4)
    text = path.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 8
    shown = [int(row) for row in re.findall(r'alt="Sample (\d+)"', text)]
    order = [*made.unsure(len(made))]
    for code in (0, 1):
        mine = [row for row in order if made.dataset.y[row] == code]
        assert set(mine[:4]) <= set(shown)
    assert "circle" in text and "should be right" in text and "<script" not in text


@pytest.mark.slow
def test_names_of_classes_and_columns_are_escaped(tmp_path):
    hostile = "<img src=x onerror=alert(1)>", "'\"&</style>"
    text = labelled(names=hostile).report(tmp_path / "a.html", title="</title><b>").read_text()
    assert "<img src=x" not in text and "</title><b>" not in text and "'\"&</style>" not in text
    data = ad.LabeledDataset(
        torch.rand(20, 12),
        ["a", "b", "a", "b", *[None] * 16],
        columns=["<script>", *map(str, range(11))],
    )
    text = ad.apps.label(data, progress=False).report(tmp_path / "b.html").read_text()
    assert "<script>" not in text and "&lt;script&gt;" in text and "and 4 more columns" in text
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_colour_images_one_label_a_class_and_many_classes(tmp_path):
    made = labelled(shape=(3, 9, 9), names=tuple(range(70)), n=210, each=1)
    text = made.report(tmp_path / "page.html", each=1).read_text(encoding="utf-8")
    assert "unknown" in text and "cannot be estimated" in text
    assert text.count("data:image/png;base64,") <= 60 and "var(--c69)" in text


def test_a_page_has_a_place(tmp_path):
    made = labelled()
    with pytest.raises(ad.InputError, match="html"):
        write_label_report(made, tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="each"):
        write_label_report(made, tmp_path / "page.html", each=0)
    assert not list(tmp_path.iterdir())
