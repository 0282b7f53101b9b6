"""The page and the map of an index: everything escaped, nothing loaded, readable in a browser."""

import html
import re

import numpy as np
import pytest
import torch

import advect as ad
from advect import viz
from advect.report import write_index_report
from advect.viz.pairwise_map import plane_map

EVIL = "<script>alert(1)</script>/x"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    def blobs(shift, seed):
        generator = torch.Generator().manual_seed(seed)
        return ad.datasets.gaussians(40, shift=(float(shift), 0.0), generator=generator)

    made = ad.DatasetIndex.create(tmp_path_factory.mktemp("index") / "index", blobs(0, 0))
    for at, shift in enumerate((0, 1, 6, 7, 30)):
        made.add(f"{'near' if shift < 5 else 'far'}/{shift}", blobs(shift, at))
    return made.add(EVIL, blobs(12, 9)).add("near/copy", blobs(0, 0))


@pytest.fixture(scope="module")
def page(index, tmp_path_factory):
    return index.report(tmp_path_factory.mktemp("page") / "deep" / "index.html", title="<i>")


@pytest.mark.slow
def test_names_are_escaped_and_neighbours_right(index, page):
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text and "<h1>&lt;i&gt;</h1>" in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "near/0 and near/copy have the same vector" in text
    rows = re.findall(
        r'<tr><th scope="row">(.*?)</th>.*?<span class="name">(.*?)</span>', text, re.S
    )
    order = {name: index.nearest(name, 1, rerank=0).names[0] for name in index.names}
    assert len(rows) == 7
    assert {html.unescape(name): html.unescape(near) for name, near in rows} == order
    assert text.index("Farthest from all others") < text.index("<li>far/30")


def test_a_page_has_a_place_and_three_datasets(index, tmp_path):
    with pytest.raises(ad.InputError, match="html"):
        write_index_report(index, tmp_path / "page.txt")
    with pytest.raises(ad.InputError, match="k must be"):
        write_index_report(index, tmp_path / "page.html", k=0)
    with pytest.raises(ad.InputError, match="DatasetIndex"):
        write_index_report("index", tmp_path / "page.html")  # pyright: ignore[reportArgumentType]
    few = ad.DatasetIndex.create(tmp_path / "few", ad.datasets.gaussians(9))
    few.add("a", ad.datasets.gaussians(9)).add("b", ad.datasets.gaussians(9))
    with pytest.raises(ad.InputError, match="three"):
        few.report(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_map_keeps_distances_that_a_plane_can_hold():
    places = np.random.default_rng(0).normal(size=(30, 2))
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    names = [f"{'ab'[at % 2]}/{at}" for at in range(30)]
    figure = viz.dataset_map(apart, names, title="Thirty")
    axes = figure.axes[0]
    assert axes.get_title() == "Thirty (map, stress 0.00)"
    drawn = np.concatenate([part.get_offsets() for part in axes.collections])
    order = [*range(0, 30, 2), *range(1, 30, 2)]
    found = np.linalg.norm(drawn[:, None] - drawn, axis=2)
    assert np.allclose(found, apart[np.ix_(order, order)], atol=1e-5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


@pytest.mark.slow
def test_maps_of_many_and_of_no_groups():
    places = np.random.default_rng(1).normal(size=(400, 3))
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    figure = viz.dataset_map(apart, [f"set {at}" for at in range(400)])
    assert not figure.legends and not figure.axes[0].texts
    _, stress = plane_map(apart, n_iter=20)
    assert f"stress {stress:.2f}" in figure.axes[0].get_title()
    with pytest.raises(ad.InputError, match="group for each"):
        viz.dataset_map(apart[:5, :5], list("abcde"), groups=["x"])


def test_in_a_browser(page, visit):
    """It loads, asks the network for nothing, runs nothing, and fits a phone, light and dark."""
    for width, scheme in ((1200, "light"), (390, "dark")):
        tab = visit(page, width=width, scheme=scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        shown = tab.evaluate("document.querySelector('.map img').naturalWidth")
        assert shown > 500
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(15, 19, 24)") == (scheme == "dark")
        assert tab.locator("tbody tr").count() == 7
