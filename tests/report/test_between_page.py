"""Pages of paths, barycenters and triangles: everything escaped, nothing loaded, what is odd is said."""

import re

import pytest

import advect as ad
from advect.report import write_barycenter_report, write_path_report, write_triangle_report

EVIL = "<script>alert(1)</script>"
A, B, C = (ad.datasets.load(f"toy:gaussians?n=24&shift={at},0&seed={at}") for at in (0, 6, 12))


def safe(path):
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text and "http" not in re.sub(r"http-equiv", "", text)
    return text


@pytest.mark.slow
def test_a_path_tells_which_classes_are_paired(tmp_path):
    b = B.replace(classes=(EVIL, "1", "2"))
    path = ad.interpolate(A, b, [0, 0.5, 1])
    text = safe(path.report(tmp_path / "deep" / "path.html", title=EVIL))
    assert text.count("&lt;script&gt;") >= 3  # the title, twice, and the class
    assert text.count("data:image/png") == 2 and "Which classes are paired" in text
    whole = f"{path.distance.value:.4g}"
    assert f'<td class="number">{whole}</td>' in text
    split = ad.interpolate(B.replace(y=B.y % 2, classes=("x", "y")), A, [0.5])
    assert "go to several of b" in safe(split.report(tmp_path / "split.html"))


def test_samples_on_a_line_and_without_labels_have_a_page(tmp_path):
    a, b = (ad.LabeledDataset(data.x[:, :1], data.y) for data in (A, B))
    text = safe(ad.interpolate(a, b, [0, 1]).report(tmp_path / "line.html"))
    assert "data:image" not in text
    bare = b.replace(y=b.y - 3)
    blind = ad.GroundCost(label=ad.NoLabels())
    text = safe(ad.interpolate(a, bare, [0, 1], cost=blind).report(tmp_path / "bare.html"))
    assert "no label laws" in text and "no label</td>" in text


def test_a_barycenter_tells_how_far_it_is(tmp_path):
    found = ad.barycenter([A, B, C], [1, 0, 1])
    text = safe(write_barycenter_report(found, tmp_path / "x.html", names=[EVIL, "b", "c"]))
    assert "&lt;script&gt;" in text and f"{found.value:.8g}" in text and "–" in text
    late = ad.barycenter([A, B, C], max_iterations=0)
    assert "It has not converged" in safe(late.report(tmp_path / "late.html"))


def test_a_triangle_has_its_nodes(tmp_path):
    found = ad.triangle(A, B, C, n=2, progress=False)
    text = safe(write_triangle_report(found, tmp_path / "x.html", names=[EVIL, "b", "c"]))
    assert text.count('<tr><th scope="row">') == 6


def test_what_is_no_page_is_told(tmp_path):
    path, middle = ad.interpolate(A, B, [0, 1]), ad.barycenter([A, B])
    for write, given, options, told in (
        (write_path_report, path, {}, "html"),
        (write_path_report, path[0], {}, "several times"),
        (write_barycenter_report, path, {}, "Barycenter"),
        (write_triangle_report, middle, {}, "Triangle"),
        (write_barycenter_report, middle, {"names": ["a"]}, "name for each"),
    ):
        place = tmp_path / ("page.txt" if told == "html" else "page.html")
        with pytest.raises(ad.InputError, match=told):
            write(given, place, **options)
    assert not list(tmp_path.iterdir())
