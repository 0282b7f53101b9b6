"""The page of an audit: pictures beside what they are confused with, everything escaped, nothing
loaded.
"""

import re

import numpy as np
import pytest
import torch

import advect as ad
from advect.report import write_audit_report

HOSTILE = "<img src=x onerror=alert(1)>", "'\"&</style>"


def images(names=("a", "b"), n=60, shape=(8, 8), seed=0):
    """Two kinds of pictures; row 3 has the other's label, 5 is noise, 40 is a copy of 10."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(names)
    x = 0.2 * rng.random((n, *shape))
    for row, code in enumerate(y):
        x[row, ..., 2 * code : 2 * code + 3] += 0.6
    x[5] = rng.random(shape)
    x[40] = x[10]
    y[3] = (y[3] + 1) % len(names)
    return ad.LabeledDataset(x, y, classes=range(len(names))).replace(classes=tuple(names))


def test_suspects_are_shown_beside_what_they_are_confused_with(tmp_path):
    data = images()
    found = ad.audit(data, progress=False)
    assert 3 in found.wrong and 5 in found.odd and found.copies.tolist() == [40]
    text = found.report(tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    for row in (3, found.confused_with[3], 5, 10, 40):
        assert f'alt="Sample {row}"' in text
    count = len(found.wrong) + len(found.odd) + len(found.copies)
    assert text.count("data:image/png;base64,") == 2 * count
    assert "Labels in doubt" in text and "<script" not in text and "What is missing" not in text


def test_with_a_reference_what_is_missing_is_shown(tmp_path):
    data, reference = images(), images(("a", "b", "c"), seed=1)
    found = ad.audit(data, reference, progress=False)
    text = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What is missing" in text and "no such class in the data" in text
    assert re.search(r'alt="Reference sample \d+"', text)


@pytest.mark.parametrize("shape", [(8, 8), (12,)])
def test_names_are_escaped(tmp_path, shape):
    data = images(HOSTILE, shape=shape)
    if len(shape) == 1:
        data = data.replace(columns=("<script>", *map(str, range(11))))
    found = ad.audit(data, progress=False)
    text = found.report(tmp_path / "a.html", title="</title><b>").read_text(encoding="utf-8")
    for bad in ("<img src=x", "</title><b>", "'\"&</style>", "<script>"):
        assert bad not in text
    assert "http" not in re.sub("http-equiv", "", text)
    assert ("and 4 more columns" in text) == (len(shape) == 1)


def test_clean_data_unlabeled_samples_and_many_classes_have_a_page(tmp_path):
    clean = ad.datasets.load("toy:gaussians?n=60&classes=3")
    assert (
        "None, by the rule"
        in ad.audit(clean, progress=False).report(tmp_path / "a.html").read_text()
    )
    rng = np.random.default_rng(0)
    labels = [None if row % 9 == 0 else row % 80 for row in range(240)]
    many = ad.LabeledDataset(torch.from_numpy(rng.random((240, 3, 9, 9))), labels)
    text = ad.audit(many, progress=False).report(tmp_path / "b.html", each=1).read_text()
    assert "var(--c79)" in text


def test_a_page_has_a_place(tmp_path):
    found = ad.audit(images(), progress=False)
    with pytest.raises(ad.InputError, match="html"):
        write_audit_report(found, tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="each"):
        write_audit_report(found, tmp_path / "page.html", each=0)
    assert not list(tmp_path.iterdir())
