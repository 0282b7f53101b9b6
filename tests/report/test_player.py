"""The page of a flow is one file that loads nothing, shows what was recorded, and escapes names."""

import base64
import hashlib
import io
import json
import re

import numpy as np
import pytest
import torch
from flow_cases import gaussians
from page_tags import Tags
from PIL import Image

import advect as ad
from advect.cli.rundir import Curves
from advect.io.trajectory import Frame
from advect.report import write_report
from advect.report.frames import Story
from advect.report.images import Shades

EVIL = "<script>alert(1)</script>"


def short_flow(source: ad.LabeledDataset, functional: ad.Functional, n_steps: int = 4, **options):
    options = {"integrator": ad.Euler(0.2), "callbacks": [ad.Recorder()], **options}
    return ad.flow(source, functional, n_steps=n_steps, **options)


@pytest.fixture(scope="module")
def target() -> ad.LabeledDataset:
    return gaussians(40, 1, shift=(9.0, 0.0))


@pytest.fixture(scope="module")
def result(target):
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    return short_flow(gaussians(), objective, callbacks=[ad.Recorder(), metric])


def page_of(result, folder, **options):
    text = write_report(result, folder / "report.html", **options).read_text(encoding="utf-8")
    tags = Tags(text)
    return text, json.loads(tags.scripts[0]), tags


def numbers(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_the_file_loads_nothing_and_runs_the_player_alone(result, tmp_path):
    text, _, tags = page_of(result, tmp_path)
    for _, attributes in tags.tags:
        for name in ("src", "href", "action", "srcset", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket", text)
    links = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert links <= {"http://www.w3.org/2000/svg"}  # a name, which is never fetched
    policy = next(a["content"] for _, a in tags.tags if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(tags.scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy and f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy


def test_names_are_text_wherever_they_go(tmp_path):
    names = (EVIL, "a & b </script><img src=x>", "\u2028'\"")
    source = gaussians().replace(classes=names)
    there = gaussians(30, 1, shift=(9.0, 0.0)).replace(classes=names, columns=(EVIL, "y"))
    callbacks = [ad.Recorder(), ad.Metric(EVIL, lambda rho: 1.0)]
    result = short_flow(source, ad.OTDD(there.replace(columns=None)), callbacks=callbacks)
    texts = {"title": EVIL, "names": (EVIL, "t"), "config": EVIL, "command": f"run '{EVIL}'"}
    text, story, tags = page_of(result, tmp_path, target=there, **texts)
    assert EVIL not in text
    assert [tag for tag, _ in tags.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in tags.tags]
    assert EVIL in tags.text and story["classes"] == list(names)


def test_points_and_curves_are_those_of_the_flow(result, target, tmp_path):
    _, story, _ = page_of(result, tmp_path)
    half, centre = story["half"], np.array(story["centre"])
    points = numbers(story["points"], "<i2").reshape(5, 30, 2) / 32767 * half + centre
    recorded = np.stack([frame.dataset.x.numpy() for frame in result.trajectory])
    assert np.abs(points - recorded).max() < half / 30_000
    there = numbers(story["target"]["points"], "<i2").reshape(-1, 2) / 32767 * half + centre
    assert np.abs(there - target.x.numpy()).max() < half / 30_000
    assert story["steps"] == [0, 1, 2, 3, 4] and story["values"] == pytest.approx(result.values)
    names = [int(story["classes"][c]) for c in numbers(story["codes"], "<u2")]
    assert names == result.dataset.labels
    objective, spread = story["charts"]
    assert [line["name"] for line in objective["series"]] == ["objective", *result.terms]
    assert objective["series"][0]["y"] == pytest.approx(result.values)
    assert objective["series"][2]["y"] == pytest.approx(result.terms["0.1 Potential"])
    expected = [value for _, value in result.metrics["spread"]]
    assert spread["series"][0]["y"] == pytest.approx(expected)


def test_samples_of_an_embedding_are_shown_as_images(tmp_path):
    noise = torch.rand(2, 12, 8, 8, generator=torch.Generator().manual_seed(0))
    a, b = (ad.LabeledDataset(x, [0, 1, 2] * 4) for x in noise)
    source, target = (data.replace(x=data.x[:, ::3]) for data in (a, b))
    # half of the particles at samples of the target, to the number
    last = source.replace(x=torch.where(torch.arange(12)[:, None] < 6, source.x, target.x))
    story = Story([Frame(0, 1.0, source), Frame(1, 0.5, last)], target=target)
    _, plain, tags = page_of(story, tmp_path)
    assert plain["grid"] is None and "each is shown as" not in tags.text
    pool = torch.cat([source.x, target.x])

    def nearest_image(data):
        rows = torch.cdist(data.x, pool).argmin(dim=1)
        return ad.LabeledDataset(torch.cat([a.samples, b.samples])[rows])

    _, shown, tags = page_of(story, tmp_path, pictures=nearest_image)
    assert "each is shown as" in tags.text
    sprite, rows = shown["grid"]["sprite"], shown["grid"]["rows"]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["uri"].split(",")[1]))))
    h, w = sprite["height"], sprite["width"]
    low, high = float(min(a.x.min(), b.x.min())), float(max(a.x.max(), b.x.max()))
    mixed = a.replace(x=torch.where(torch.arange(12)[:, None] < 6, a.x, b.x))
    for frame, images in enumerate((a, mixed)):
        for row, i in enumerate(rows):
            cell = sheet[row * h : (row + 1) * h, frame * w : (frame + 1) * w, 0] / 255
            assert np.abs(cell * (high - low) + low - images.samples[i].numpy()).mean() < 0.12


@pytest.mark.slow
def test_the_largest_page_stays_small(tmp_path):
    """2000 images of noise, which nothing compresses, over 60 frames, with labels that change, to 2000 more."""
    noise = torch.rand(2000, 28, 28, generator=torch.Generator().manual_seed(0))
    start = ad.LabeledDataset(noise, [k % 10 for k in range(2000)])
    states = [start.replace(x=start.x.roll(k, dims=1), y=(start.y + k) % 10) for k in range(60)]
    frames = [Frame(k, 60.0 - k, state) for k, state in enumerate(states)]
    story = Story(frames, ad.LabeledDataset(1 - noise), cost=ad.GroundCost(label=ad.NoLabels()))
    assert write_report(story, tmp_path / "report.html").stat().st_size < 3_000_000


def test_a_run_directory_tells_the_same_as_its_result(target, tmp_path):
    run = tmp_path / "run"
    metric = ad.Metric("spread", lambda rho: rho.x.std(), directory=run)
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    callbacks = [ad.Recorder(every=2, directory=run), metric, Curves(run)]
    result = short_flow(gaussians(), objective, 5, callbacks=callbacks)
    (run / "config.toml").write_text("n_steps = 5\n")
    live, stored = Story.of_result(result), Story.of_run(run)
    assert stored.metrics == live.metrics and stored.config == "n_steps = 5\n"
    assert list(stored.objective) == list(live.objective) and stored.n_steps == 5
    assert {name: list(curve) for name, curve in stored.terms.items()} == live.terms
    _, story, tags = page_of(run, tmp_path, target=target)
    assert story["steps"] == [0, 2, 4, 5] and story["target"]["n"] == 40
    assert "n_steps = 5" in tags.text
    (run / "metrics.jsonl").unlink()  # what the library alone records
    assert page_of(run, tmp_path)[1]["charts"][0]["series"][0]["x"] == [0, 2, 4, 5]


def test_shades_cover_the_given_range_and_clip_the_rest():
    shades = Shades.of((1, 3), torch.tensor([[-1.0, 0.0, 1.0]]))
    assert shades.pixels(torch.tensor([[-1.0, 0.0, 5.0]]), 64).tolist() == [[[0, 128, 255]]]
    assert Shades.of((7,), torch.zeros(1, 7)) is None


def test_the_page_says_what_was_run(result, tmp_path):
    options = {"names": ("here", "there"), "command": "make it", "config": "steps = 4"}
    _, _, tags = page_of(result, tmp_path, **options)
    for words in ("here → there", "30 → 40", "completed", "Euler(step_size=0.2)", "make it"):
        assert words in tags.text
    assert f"{result.values[0]:.4g} → {result.values[-1]:.4g}" in tags.text
    assert "OTDD + 0.1 Potential" in tags.text and "Terms of the objective" in tags.text
    distances = ad.otdd(result.source, result.target).class_distances.values
    assert "Class distances before the flow" in tags.text
    assert f"{distances.max():.3g}" in tags.text


@pytest.mark.parametrize(
    ("dim", "words"),
    [(1, "Horizontal: feature"), (2, "feature 2"), (3, "The three features"), (9, "PC 1, ")],
)
def test_the_page_says_how_samples_become_points(dim, words, tmp_path):
    x = torch.randn(20, dim, generator=torch.Generator().manual_seed(0))
    result = short_flow(ad.LabeledDataset(x, [0, 1] * 10), ad.Potential(ad.norm()), 2)
    _, story, tags = page_of(result, tmp_path)
    assert words in tags.text and story["dim"] == (3 if dim == 3 else 2)
    assert story["target"] is None and "Class distances" not in tags.text


def test_labels_that_change_are_followed_and_values_that_are_not_finite_are_gaps(tmp_path):
    data, values = gaussians(30), [1.0, float("inf"), 0.5]
    frames = [Frame(k, values[k], data.replace(y=(data.y + k) % 3)) for k in range(3)]
    _, story, _ = page_of(Story(frames), tmp_path)
    assert story["values"] == [1.0, None, 0.5]
    codes = numbers(story["codes"], "<u2").reshape(3, 30)
    named = [[story["classes"][c] for c in row] for row in codes]
    assert named == [[str(label) for label in frame.dataset.labels] for frame in frames]


def test_samples_without_labels_are_shown(tmp_path):
    source = ad.LabeledDataset(gaussians(20).x, ["a", None] * 10)
    cost = ad.GroundCost(label=ad.NoLabels())
    _, story, tags = page_of(short_flow(source, ad.OTDD(gaussians(20, 1), cost=cost), 2), tmp_path)
    assert (numbers(story["codes"], "<u2") == 65535).sum() == 10
    assert story["target"]["n"] == 20 and "no label" in tags.text


def test_large_runs_are_thinned_and_the_page_says_so(tmp_path):
    generator = torch.Generator().manual_seed(0)
    start = ad.LabeledDataset(torch.rand(3000, 2, generator=generator), [0, 1, 2, 3] * 750)
    frames = [Frame(k, 100.0 - k, start.replace(x=start.x + k)) for k in range(101)]
    text, story, tags = page_of(Story(frames), tmp_path)
    assert len(text.encode()) < 3_000_000 and story["n"] == 2000
    assert len(story["steps"]) == 60 and story["steps"][-1] == 100
    rows = numbers(story["origin"], "<u4")
    assert len(set(rows.tolist())) == 2000 and set(np.bincount(rows % 4) > 400) == {True}
    assert "2,000 of 3,000" in tags.text and "60 of 101" in tags.text


def test_many_classes_have_marks_but_no_tables(tmp_path):
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    data = ad.LabeledDataset(x, [f"class {k % 40}" for k in range(120)])
    _, story, tags = page_of(short_flow(data, ad.OTDD(data.replace(x=x + 5)), 1), tmp_path)
    marks = story["marks"]
    assert len(set(zip(marks["light"], marks["shapes"], strict=True))) == 40
    assert "Class distances" not in tags.text and "more than 30 classes" in tags.text


def test_what_cannot_be_shown_is_refused(result, tmp_path):
    for wrong, options, message in (
        (3, {}, "FlowResult"),
        (None, {}, "FlowResult"),
        (gaussians(), {}, "FlowResult"),
        (result, {"target": 3}, "target"),
    ):
        with pytest.raises(ad.InputError, match=message):
            write_report(wrong, tmp_path / "report.html", **options)
    with pytest.raises(ad.InputError, match="Recorder"):
        Story([])
    assert list(tmp_path.iterdir()) == []
