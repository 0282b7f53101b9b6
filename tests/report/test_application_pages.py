"""The pages of transfer, repurpose, pairwise and sweep: their numbers against the results, names
escaped, nothing loaded; read in a browser on a desktop and a phone, light and dark.
"""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from page_tags import Tags

import advect as ad
from advect.apps.calibration import wilson
from advect.report import write_pairwise_report, write_sweep_report

EVIL = "<script>alert(1)</script>"


def gaussians(n, seed, **options):
    return ad.datasets.gaussians(n, generator=torch.Generator().manual_seed(seed), **options)


@pytest.fixture(scope="module")
def transferred():
    few = ad.datasets.load("digits", n=40, seed=9, balanced=True)
    few = few.replace(classes=(EVIL, *few.classes[1:]))
    return ad.apps.transfer(ad.datasets.load("digits", n=120), few)


@pytest.fixture(scope="module")
def repurposed():
    reference = gaussians(60, 1)
    data = reference.replace(x=reference.x * 0.5 + 20, classes=(EVIL, "y", "z"))
    means = reference.moments().means

    def nearest(x):
        return (x[:, None] - means).square().sum(2).argmin(1)

    options = ad.apps.RepurposeOptions(n_steps=6, every=2, progress=False)
    return ad.apps.repurpose(nearest, reference, data, options)


@pytest.fixture(scope="module")
def distances():
    rng = np.random.default_rng(0)
    places = np.array([0.0, 10.0, 1.0, 11.0])
    values = abs(places[:, None] - places)
    values[0, 3] = values[3, 0] = math.nan
    converged = ~np.isnan(values)
    names = ("near/a", "far/x", EVIL, "far/y")
    return ad.Pairwise(
        names, values, converged, rng.random((4, 4)), {("near/a", "far/y"): "no <data>"}
    )


@pytest.fixture(scope="module")
def swept():
    def loss(step, kind, seed):
        if kind == "b" and step == 10:
            raise ValueError("too <long>")
        return {"loss": (step - 1) ** 2 + (kind != EVIL) + 0.1 * seed, "word": kind}

    grid = {"step": [0.1, 1, 10], "kind": ["a", "b", EVIL]}
    return ad.sweep(loss, grid, seeds=2, progress=False)


@pytest.fixture(scope="module")
def scores():
    return ad.apps.TransferScores(
        {"target only": [0.5, 0.7, 0.6], EVIL: [0.62, 0.81, 0.7], "+ final": [0.4, 0.5, 0.5]}
    )


RESULTS = ("transferred", "repurposed", "distances", "swept", "scores")


@pytest.fixture(scope="module")
def written(request, tmp_path_factory):
    """The pages that were asked for, each written once."""
    known = {}

    def written(name):
        if name not in known:
            path = tmp_path_factory.mktemp(name) / "deep" / "page.html"
            known[name] = request.getfixturevalue(name).report(path)
        return known[name]

    return written


def read(path):
    return Tags(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RESULTS)
def test_pages_are_whole_and_escaped(name, written):
    path = written(name)
    text, tags = path.read_text(encoding="utf-8"), read(path)
    assert tags.scripts == [] and "<script" not in text and EVIL in tags.text
    assert "http" not in text.replace("http-equiv", "")
    for _, attributes in tags.tags:
        for link in ("src", "href", "srcset", "action"):
            assert (attributes.get(link) or "data:").startswith("data:")
    assert "default-src 'none'" in next(
        attributes["content"]
        for tag, attributes in tags.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    opened = [tag for tag, _ in tags.tags if tag in ("section", "table", "ul", "dl", "figure")]
    assert all(text.count(f"</{tag}>") == opened.count(tag) for tag in set(opened))


@pytest.mark.parametrize("name", RESULTS)
def test_pages_have_a_place(name, request, tmp_path):
    with pytest.raises(ad.InputError, match="html"):
        request.getfixturevalue(name).report(tmp_path / "page.txt")
    assert not list(tmp_path.iterdir())


def test_a_transfer_tells_the_ways_and_the_chosen_one(transferred, written):
    text, choice = read(written("transferred")).text, transferred.choice
    assert choice.reason in text and choice.way in text
    for right in choice.accuracies.values():
        low, high = wilson(round(right * choice.held_out), choice.held_out)
        assert f"{100 * right:.1f} % {100 * low:.0f} to {100 * high:.0f} %" in text
    assert "The flow to the few" not in text  # it has not run, and does not for a page
    assert "result" not in vars(transferred)
    pictures = [a for tag, a in read(written("transferred")).tags if tag == "img"]
    assert len(pictures) == 10 * (4 + 8)  # all of the few, eight that were added


def test_a_transfer_tells_of_its_flow(tmp_path):
    source, few = (
        gaussians(45, 0),
        gaussians(9, 1, shift=(9.0, 0.0)).replace(classes=("a", EVIL, "c")),
    )
    options = ad.apps.TransferOptions(n_steps=3, among=("borrowed",), progress=False)
    made = ad.apps.transfer(source, few, options=options)
    with pytest.warns(UserWarning, match="classes have mixed"):
        text = read(made.report(tmp_path / "page.html", flow=True)).text
    assert "The flow to the few" in text and f"{made.purity:.1%}" in text
    assert "nothing else was asked for" in text and "where the flow ended" in text
    with pytest.raises(ad.InputError, match="each"):
        made.report(tmp_path / "other.html", each=0)


def test_scores_tell_what_helps(scores, written):
    text = read(written("scores")).text
    assert f"{EVIL} best 71.0 %" in text
    for way in (EVIL, "+ final"):
        mean, half = scores.gain(way)
        said = "within chance" if abs(mean) <= half else "helps" if mean > 0 else "harms"
        assert f"{way} {100 * mean:+.1f} ± {100 * half:.1f} {said}" in text
    one = ad.apps.TransferScores({"final": [0.5]})
    assert "One draw says nothing" in read(one.report(written("scores").with_name("one.html"))).text


def test_a_model_on_other_data_is_told_by_labels_kept_aside(repurposed, written, tmp_path):
    text, found = read(written("repurposed")).text, repurposed.comparison
    assert found.why in text and f"Right, of {found.n} labels kept aside" in text
    for right in found.accuracies.values():
        assert f"{100 * right:.1f} %" in text
    assert f"{EVIL} → {repurposed.matching.hard[EVIL]}" in text
    assert "after the flow" in text and text.count("x0 x1") == 2 * 3  # samples are rows here
    quick = read(repurposed.report(tmp_path / "page.html", compare=False)).text
    assert "Not compared" in quick and found.why not in quick


def test_a_model_without_labels_tells_what_stood_in(tmp_path):
    reference = gaussians(45, 1)
    data = ad.LabeledDataset(reference.x, [None] * 45)
    means = reference.moments().means

    def nearest(x):
        return (x[:, None] - means).square().sum(2).argmin(1)

    options = ad.apps.RepurposeOptions(n_steps=2, progress=False)
    found = ad.apps.repurpose(nearest, reference, data, options)
    text = read(found.report(tmp_path / "page.html")).text
    assert f"κ = {found.labeling.agreement:.2f}: it knows such data" in text
    assert "What samples of each class were called" not in text


def test_distances_are_in_the_order_of_likeness(distances, written):
    text, tags = written("distances").read_text(encoding="utf-8"), read(written("distances"))
    table = text[text.index('<table class="heat">') : text.index("</table>")]
    heads = re.findall(r'<th scope="row" title="(.*?)">', table)
    order = [heads.index(name) for name in ("near/a", "&lt;script&gt;alert(1)&lt;/script&gt;")]
    assert abs(order[0] - order[1]) == 1  # the two that are alike
    assert "far/x far/y 1" in tags.text  # nearest to far/x
    assert "1 of the pairs failed" in tags.text and "no <data>" in tags.text
    assert sum(tag == "source" for tag, _ in tags.tags) == 3  # maps of other screens


@pytest.mark.slow
def test_intervals_are_shown_where_a_result_knows_them(distances, tmp_path):
    class Sure(ad.Pairwise):
        notes = ("two are within chance",)

        def interval(self, one, other):
            return self[one, other] - 0.25, self[one, other] + 0.25

    found = Sure(*(getattr(distances, name) for name in ad.Pairwise.__dataclass_fields__))
    text = read(write_pairwise_report(found, tmp_path / "page.html")).text
    assert "far/y 1 (0.75 to 1.25)" in text and "two are within chance" in text


@pytest.mark.slow
def test_many_datasets_have_no_table(tmp_path):
    places = np.random.default_rng(0).normal(size=(40, 2))
    values = np.linalg.norm(places[:, None] - places, axis=2)
    names = tuple(f"set {k}" for k in range(40))
    whole = np.ones_like(values, dtype=bool)
    found = ad.Pairwise(names, values, whole, np.zeros_like(values), {})
    text = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'class="heat"' not in text and "40 × 40 distances is left out" in text
    with pytest.raises(ad.InputError, match="Pairwise"):
        write_pairwise_report(values, tmp_path / "other.html")  # pyright: ignore


def test_a_sweep_marks_its_best_run_and_what_failed(swept, written, tmp_path):
    text = written("swept").read_text(encoding="utf-8")
    best = swept.best("loss")
    assert best.parameters == {"step": 1, "kind": EVIL, "seed": 0}
    (row,) = re.findall(r'<tr class="taken">(.*?)</tr>', text, re.S)
    cells = re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row)
    assert cells[:4] == ["1", "&lt;script&gt;alert(1)&lt;/script&gt;", "0", "0"]
    assert text.count("ValueError: too &lt;long&gt;") == 2
    assert text.count("<svg") == 2 and text.count('class="best"') == 2  # seed is no axis
    assert text.count('class="point"') == 2 * 16  # every run that did not fail, in both
    largest = read(swept.report(tmp_path / "page.html", key="loss", largest=True)).text
    assert "largest loss 82.1" in largest
    with pytest.raises(ad.InputError, match="no run has a number called 'word'"):
        swept.report(tmp_path / "other.html", key="word")
    with pytest.raises(ad.InputError, match="Sweep"):
        write_sweep_report([], tmp_path / "other.html")  # pyright: ignore
    words = ad.sweep(lambda a: {"word": "x"}, {"a": [1]}, progress=False)
    with pytest.raises(ad.InputError, match="no run has a number to compare by"):
        words.report(tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_a_table_on_a_phone_shows_that_it_scrolls(written, readable):
    """The right edge fades where more is to the right, and not at the end, nor where all fits."""
    page = readable(written("repurposed"), width=390, scheme="light")
    for _ in range(3):
        page.evaluate(
            "document.querySelector('.heat tbody tr').append(...[...Array(9)].map(() => document.createElement('td')))"
        )
    fade = partial(
        page.eval_on_selector,
        ".scroll:has(.heat)",
        "box => getComputedStyle(box).getPropertyValue('--fade')",
    )
    assert fade() == "44px"
    page.eval_on_selector(".scroll:has(.heat)", "box => (box.scrollLeft = 9999)")
    page.wait_for_timeout(100)
    assert fade() == "0px"
    fits = page.eval_on_selector(
        ".scroll:has(.scores)", "box => getComputedStyle(box).getPropertyValue('--fade')"
    )
    assert fits == "0px"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", RESULTS)
def test_pages_can_be_read(name, width, scheme, written, readable):
    page = readable(written(name), width=width, scheme=scheme)
    assert page.get_by_text(EVIL).count() > 0
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every((box) => box.tabIndex === 0)"
    )
