"""Runs side by side: what differs and nothing else, numbers against the results themselves, names
escaped; in a browser the flows keep step.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from page_tags import Tags

import advect as ad
from advect.data.digest import digest
from advect.report import Story, write_runs_report
from advect.report.runs import different_names, differing, settings_of

EVIL = "<script>alert(1)</script>"


def gaussians(n, seed, **options):
    return ad.datasets.gaussians(n, generator=torch.Generator().manual_seed(seed), **options)


@pytest.fixture(scope="module")
def pair():
    source = gaussians(30, 0).replace(classes=("a", "b", EVIL))
    goal = ad.OTDD(gaussians(30, 1, shift=(9.0, 0.0)).replace(classes=("a", "b", EVIL)))
    plain = ad.flow(source, goal, integrator=ad.Euler(0.2), n_steps=4, callbacks=[ad.Recorder()])
    wild = ad.flow(
        source,
        goal,
        integrator=ad.Momentum(0.25, 0.93),
        control=ad.FixedSteps(),
        n_steps=8,
        callbacks=[ad.Recorder(every=2), ad.Metric("spread", lambda rho: rho.x.std())],
    )
    return plain, wild


@pytest.fixture(scope="module")
def page(pair, tmp_path_factory):
    plain, wild = pair
    return plain.report(tmp_path_factory.mktemp("runs") / "runs.html", beside={EVIL: wild})


def rows_of(text: str) -> dict[str, list[str]]:
    """Rows of all tables by the text of their heads."""
    found = {}
    for head, rest in re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', text, re.S):
        cells = re.findall(r"<td.*?>(.*?)</td>", rest, re.S)
        found[head] = [re.sub(r"<.*?>", "", cell) for cell in cells]
    return found


def test_it_tells_what_differs_and_how_each_ended(pair, page):
    plain, wild = pair
    text = page.read_text(encoding="utf-8")
    tags, rows = Tags(text), rows_of(text)
    assert tags.scripts[1:] and len(tags.scripts) == 2 and EVIL in tags.text
    assert not re.findall(r"https?://(?!www.w3.org/2000/svg)", text)
    assert rows["integrator"] == ["Euler(step_size=0.2)", "Momentum(step_size=0.25, momentum=0.93)"]
    assert "dynamics" not in rows and "solver" not in rows  # these are the same
    short = digest(plain.source)[:12]
    assert rows["source"] == [short, short, "the same"]
    assert rows["status"] == [plain.status, wild.status] == ["completed", "rose"]
    assert rows["value at last"] == [f"{run.values[-1]:.4g}" for run in pair]
    lowest = [int(np.argmin(run.values)) for run in pair]
    assert [cell.split(" at step ")[1] for cell in rows["lowest value"]] == list(map(str, lowest))
    rises = [sum(b > a for a, b in zip(run.values, run.values[1:], strict=False)) for run in pair]
    assert rows["steps that rose"] == list(map(str, rises)) and rises[1] > 0
    level = max(run.values[-1] for run in pair)
    first = [next(k for k, v in enumerate(run.values) if v <= level) for run in pair]
    assert rows[f"steps until {level:.4g}"] == list(map(str, first))
    assert rows["spread at last"][0] == "–"


def test_scenes_share_a_view_colours_and_a_time(pair, page):
    data = json.loads(Tags(page.read_text(encoding="utf-8")).scripts[0])
    one, two = data["scenes"]
    assert data["steps"] == [0, 1, 2, 3, 4, 6, 8]  # all that either has
    assert (one["steps"], two["steps"]) == ([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])
    for shared in ("centre", "half", "extent", "marks", "classes", "axes"):
        assert one[shared] == two[shared]
    objective, spread = data["charts"]
    assert [line["name"] for line in objective["series"]] == ["this run", EVIL]
    assert objective["series"][1]["y"] == pytest.approx(pair[1].values)
    assert [line["name"] for line in spread["series"]] == [EVIL]
    assert spread["series"][0]["colour"] == objective["series"][1]["colour"]


def test_other_objectives_are_not_compared_by_value(pair, tmp_path):
    elsewhere = ad.flow(pair[0].source, ad.OTDD(gaussians(30, 2)), n_steps=2)
    path = write_runs_report([pair[0], elsewhere], tmp_path / "runs.html")
    text = Tags(path.read_text(encoding="utf-8")).text
    assert "do not minimise the same thing (target differ)" in text
    assert "run 1 beside run 2" in text


def test_configurations_are_compared_option_by_option(pair):
    story = Story.of_result(pair[0])
    texts = (
        'steps = 4\n[solver]\nname = "sinkhorn"\n',
        'steps = 9\nseed = 1\n[solver]\nname = "sinkhorn"\nepsilon = 0.5',
    )
    known = {text: settings_of(replace(story, config=text)) for text in texts}
    assert list(differing(known)) == [
        ("steps", ["4", "9"]),
        ("seed", ["–", "1"]),
        ("solver.epsilon", ["–", "0.5"]),
    ]
    assert settings_of(replace(story, config="not [toml"))["configuration"] == "not [toml"


def test_what_cannot_be_set_side_by_side(pair, tmp_path):
    with pytest.raises(ad.InputError, match="two to 6 runs"):
        write_runs_report([pair[0]], tmp_path / "runs.html")
    with pytest.raises(ad.InputError, match="FlowResult"):
        write_runs_report([pair[0], 5], tmp_path / "runs.html")  # pyright: ignore
    with pytest.raises(ad.InputError, match="html"):
        write_runs_report(pair, tmp_path / "runs.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [5, "abc", None])
def test_runs_are_a_list_or_have_names(wrong, tmp_path):
    with pytest.raises(ad.InputError, match=r"a list, or a mapping.*\[one, other\]"):
        write_runs_report(wrong, tmp_path / "page.html")


def test_names_that_look_the_same_are_told(pair, tmp_path):
    with pytest.raises(ad.InputError, match=r"different names; got \[1, '1'\]"):
        write_runs_report(dict(zip((1, "1"), pair, strict=True)), tmp_path / "page.html")  # pyright: ignore


def test_directories_are_told_apart(tmp_path):
    places = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c", tmp_path / "c"]
    assert different_names(places) == ["a/run", "b/run", "c", "c (2)"]


def test_flows_of_other_dimensions_have_views_of_their_own(pair, tmp_path):
    line = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
    other = ad.flow(line, ad.Potential(ad.norm()), n_steps=2)
    path = write_runs_report([pair[0], other], tmp_path / "runs.html")
    text = Tags(path.read_text(encoding="utf-8")).text
    assert "The two features as they are." in text and "One feature, from left to right" in text


def test_the_flows_keep_step(page, readable):
    """The slider moves both; one that has ended waits; a sample is shown in both."""
    tab = readable(page, width=390, scheme="dark")

    def shown(prefix):
        return tab.eval_on_selector(f"#{prefix}-particles", "canvas => canvas.toDataURL()")

    seen = []
    for place in (0, 2, 4, 6):  # steps 0, 2, 4 and 8
        tab.eval_on_selector(
            "#time", f"time => {{ time.value = {place}; time.dispatchEvent(new Event('input')) }}"
        )
        seen.append((shown("run0"), shown("run1")))
    assert len({one for one, _ in seen[:3]}) == 3 and len({two for _, two in seen}) == 4
    assert seen[2][0] == seen[3][0]  # it has ended
    assert tab.inner_text("#now") == "step 8 of 8"
    tab.fill("#sample", "7")
    assert tab.inner_text("#run0-details").startswith("Sample 7, class b")
    assert tab.inner_text("#run1-details").startswith("Sample 7, class b")
    tab.fill("#sample", "99")
    assert tab.inner_text("#sample-help") == "There is no sample 99: they go from 0 to 29."
    readings = tab.locator("#charts .key b").all_inner_texts()
    assert len(readings) == 3 and readings[0] != readings[1]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_read(page, readable, width, scheme):
    tab = readable(page, width=width, scheme=scheme)
    assert tab.locator("h1").inner_text() == f"this run beside {EVIL}"
    boxes = [tab.locator(f"#run{k}-particles").bounding_box() for k in (0, 1)]
    assert (boxes[0]["y"] == boxes[1]["y"]) == (width > 500)  # side by side where there is room
    tab.click("#run0-legend button")
    assert tab.get_attribute("#run1-legend button", "aria-pressed") == "true"
    tab.keyboard.press("End")
    assert tab.inner_text("#now") == "step 8 of 8"
