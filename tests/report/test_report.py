"""A report is one whole file that fetches nothing, says what was run, shows what was recorded, and
takes names as text.
"""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from page_tags import Tags

import advect as ad
from advect.datasets.trajectory import Frame
from advect.report import Story, scene, write_report
from advect.report.class_tables import heat, partners
from advect.report.encoding import Box, Shades, fitting_sprite, pack_sprite

EVIL = "<script>alert(1)</script>"


def gaussians(n: int = 30, seed: int = 0, **options) -> ad.LabeledDataset:
    return ad.datasets.gaussians(n, generator=torch.Generator().manual_seed(seed), **options)


def short_flow(
    source: ad.LabeledDataset, functional: ad.Functional, n_steps: int = 4, **options
) -> ad.FlowResult:
    options = {"integrator": ad.Euler(0.2), "callbacks": [ad.Recorder()], **options}
    return ad.flow(source, functional, n_steps=n_steps, **options)


@pytest.fixture(scope="module")
def target() -> ad.LabeledDataset:
    return gaussians(40, 1, shift=(9.0, 0.0))


@pytest.fixture(scope="module")
def result(target) -> ad.FlowResult:
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    return short_flow(gaussians(), objective, callbacks=[ad.Recorder(), metric])


def page_of(result, folder: Path, **options) -> tuple[str, dict, Tags]:
    text = write_report(result, folder / "report.html", **options).read_text(encoding="utf-8")
    tags = Tags(text)
    data = json.loads(tags.scripts[0])
    (scene,) = data["scenes"]
    assert data["steps"] == scene["steps"]
    return text, {**data, **scene}, tags


def numbers(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


# The file


def test_the_file_is_self_contained(result, tmp_path):
    text, _, tags = page_of(result, tmp_path)
    for _, attributes in tags.tags:
        for name in ("src", "href", "action", "srcset", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket", text)
    links = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert links <= {"http://www.w3.org/2000/svg"}  # a name, which is never fetched


def test_the_policy_allows_the_player_and_nothing_else(result, tmp_path):
    import hashlib

    _, _, tags = page_of(result, tmp_path)
    policy = next(
        a["content"]
        for tag, a in tags.tags
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(tags.scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy


def test_it_says_what_was_run(result, target, tmp_path):
    _, _, tags = page_of(
        result, tmp_path, names=("here", "there"), command="make it", config="steps = 4\n[a]"
    )
    for words in (
        "here → there",
        "30 → 40",
        "completed",
        "4 steps made",
        "Euler(step_size=0.2)",
        "FeatureDriven(",
        "spread",
    ):
        assert words in tags.text
    assert (
        "OTDD + 0.1 Potential" in tags.text
        and f"torch {torch.__version__.split('+')[0]}" in tags.text
    )
    assert "make it" in tags.text and "steps = 4 [a]" in tags.text
    assert f"{result.values[0]:.4g} → {result.values[-1]:.4g}" in tags.text


def test_names_are_text_wherever_they_go(tmp_path):
    names = (EVIL, "a & b </script><img src=x>", "\u2028'\"")
    source = gaussians().replace(classes=names)
    there = gaussians(30, 1, shift=(9.0, 0.0)).replace(classes=names, columns=(EVIL, "y"))
    result = short_flow(
        source,
        ad.OTDD(there.replace(columns=None)),
        callbacks=[ad.Recorder(), ad.Metric(EVIL, lambda rho: 1.0)],
    )
    text, story, tags = page_of(
        result,
        tmp_path,
        target=there,
        title=EVIL,
        names=(EVIL, "t"),
        config=EVIL,
        command=f"run '{EVIL}'",
    )
    assert EVIL not in text
    assert [tag for tag, _ in tags.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in tags.tags]
    assert EVIL in tags.text and story["classes"] == list(names)


def test_notes_are_said_and_escaped(tmp_path):
    source, target = (gaussians(30, seed).replace(columns=("x", EVIL)) for seed in (0, 1))
    scale = torch.tensor([1.0, 1000.0])
    source, target = source.replace(x=source.x * scale), target.replace(x=target.x * scale)
    result = short_flow(source, ad.OTDD(target))
    text, _, tags = page_of(result, tmp_path)
    assert EVIL not in text and "Worth knowing" in text
    for note in result.diagnosis:
        assert str(note) in tags.text
    plain, _, _ = page_of(short_flow(gaussians(), ad.Potential(ad.norm())), tmp_path)
    assert "Worth knowing" not in plain


def test_written_whole_or_not_at_all(result, tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert result.report(path, title="first") == path
    before = path.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        result.report(path, title="second")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize("name", ["", "report.pdf", "report", "file/report.html"])
def test_bad_places_are_refused(result, tmp_path, name):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ad.InputError):
        write_report(result, tmp_path / name)


def test_no_frames_is_a_clear_error(tmp_path):
    with pytest.raises(ad.InputError, match="needs recorded frames.*Recorder"):
        write_report(Story([]), tmp_path / "never.html")
    assert not (tmp_path / "never.html").exists()


def test_without_a_recorder_the_ends_are_shown(target, tmp_path):
    result = ad.flow(gaussians(), ad.OTDD(target), n_steps=1)
    assert result.report(tmp_path / "ends.html").stat().st_size > 10_000


@pytest.mark.parametrize("wrong", [3, None, gaussians()])
def test_what_is_no_flow_is_refused(wrong, tmp_path):
    with pytest.raises(ad.InputError, match="FlowResult, a run directory or a Story"):
        write_report(wrong, tmp_path / "report.html")


def test_targets_must_be_datasets(result, tmp_path):
    with pytest.raises(ad.InputError, match="target must be a LabeledDataset"):
        write_report(result, tmp_path / "report.html", target=np.zeros((3, 2)))


# What is shown


def test_points_are_those_of_the_frames_and_the_target(result, target, tmp_path):
    _, story, _ = page_of(result, tmp_path)
    half, centre = story["half"], np.array(story["centre"])
    points = numbers(story["points"], "<i2").reshape(5, 30, 2) / 32767 * half + centre
    recorded = np.stack([frame.dataset.x.numpy() for frame in result.trajectory])
    assert np.abs(points - recorded).max() < half / 30_000
    there = numbers(story["target"]["points"], "<i2").reshape(-1, 2) / 32767 * half + centre
    assert np.abs(there - target.x.numpy()).max() < half / 30_000
    assert story["steps"] == [0, 1, 2, 3, 4] and story["values"] == pytest.approx(result.values)
    assert [
        result.dataset.classes.index(int(story["classes"][c]))
        for c in numbers(story["codes"], "<u2")
    ] == result.dataset.y.tolist()


def test_curves_are_those_of_the_flow(result, tmp_path):
    _, story, _ = page_of(result, tmp_path)
    objective, spread = story["charts"]
    assert [line["name"] for line in objective["series"]] == ["objective", *result.terms]
    assert objective["series"][0]["y"] == pytest.approx(result.values)
    assert objective["series"][2]["y"] == pytest.approx(result.terms["0.1 Potential"])
    assert spread["series"][0]["y"] == pytest.approx(
        [value for _, value in result.metrics["spread"]]
    )


def test_partners_are_the_largest_entries_of_the_plan(result, target, tmp_path):
    _, story, _ = page_of(result, tmp_path)
    costs = ad.GroundCost().between(result.dataset, target).matrix()
    plan = (
        ad.Sinkhorn(tol=1e-3).solve(costs, result.dataset.weights, target.weights).plan()
    )  # as the flow itself solves
    shares = (plan / plan.sum(1, keepdim=True)).double().numpy()
    found = numbers(story["partners"]["positions"], "<u2").reshape(30, 3)
    assert np.array_equal(found[:, 0], shares.argmax(axis=1))
    given = numbers(story["partners"]["shares"], "<u2").reshape(30, 3) / 10_000
    assert np.abs(given - np.take_along_axis(shares, found.astype(int), axis=1)).max() < 1e-3


def test_partners_of_a_permutation_is_the_permutation():
    data = gaussians(20)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    found = partners(data, data.subset(order), ad.GroundCost(), ad.ExactOT())
    assert order[found.positions[:, 0]].tolist() == list(range(20))
    assert np.allclose(found.shares[:, 0], 1)


def test_class_tables_are_those_of_the_distance(result, target, tmp_path):
    _, _, tags = page_of(result, tmp_path)
    tables = [
        ad.otdd(data, target).class_distances.values for data in (result.source, result.dataset)
    ]
    digits = 2 - math.floor(
        math.log10(max(table.max() for table in tables))
    )  # three that count, of the largest
    for table in tables:
        for row in table:
            assert " ".join(f"{value:.{digits}f}" for value in row) in tags.text
    assert "Which class went where" in tags.text


def test_many_dimensions_are_projected_and_the_page_says_so(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 12, generator=generator) * torch.linspace(5, 0.1, 12)
    source = ad.LabeledDataset(x, ["a", "b"] * 20)
    there = ad.LabeledDataset(x + 3, ["a", "b"] * 20)
    result = short_flow(source, ad.OTDD(there), 2)
    _, story, tags = page_of(result, tmp_path)
    points = numbers(story["points"], "<i2").reshape(3, 40, 2) / 32767 * story["half"]
    both = torch.cat([source.x, result.dataset.x, there.x]).double()
    _, sizes, axes = torch.linalg.svd(both - both.mean(0), full_matrices=False)
    expected = torch.linalg.vector_norm(
        (source.x.double() @ axes[:2].T)[:1] - source.x.double() @ axes[:2].T, dim=1
    )
    assert np.allclose(
        np.linalg.norm(points[0, :1] - points[0], axis=1), expected, atol=2e-3 * story["half"]
    )
    share = float(sizes[:2].square().sum() / sizes.square().sum())
    assert (
        f"principal components of the first and last frame and the target, which hold {share:.0%}"
        in tags.text
    )


@pytest.mark.parametrize(
    ("dim", "words"), [(1, "One feature"), (2, "The two features"), (3, "The three features")]
)
def test_few_dimensions_are_drawn_as_they_are(dim, words, tmp_path):
    x = torch.randn(20, dim, generator=torch.Generator().manual_seed(0))
    result = short_flow(ad.LabeledDataset(x, [0, 1] * 10), ad.Potential(ad.norm()), 2)
    _, story, tags = page_of(result, tmp_path)
    assert words in tags.text and story["dim"] == max(2, dim)
    axis = (
        numbers(story["points"], "<i2").reshape(3, 20, -1)[0, :, 0] / 32767 * story["half"]
        + story["centre"][0]
    )
    assert np.allclose(axis, x[:, 0], atol=story["half"] / 30_000)
    assert story["target"] is None and "Class distances" not in tags.text


def decoded(sprite: dict) -> np.ndarray:
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["uri"].split(",")[1]))))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3), (3, 8, 8), (8, 6, 4)])
def test_images_of_the_grid_are_those_of_the_samples(shape, tmp_path):
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(12, 3, 2, 2, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (8, 8), mode="bilinear")
    images = {2: smooth[:, 0], 3: smooth if shape[0] == 3 else smooth.movedim(1, 3)}[len(shape)]
    if shape == (8, 6, 4):
        images = torch.cat([images[:, :, :6], torch.ones(12, 8, 6, 1)], dim=3)
    source = ad.LabeledDataset(images, [0, 1, 2] * 4)
    result = short_flow(source, 0.5 * ad.Potential(lambda x, y: x.square().sum(1)), 1)
    _, story, _ = page_of(result, tmp_path)
    grid, sprite = story["grid"], story["grid"]["sprite"]
    assert source.y[grid["rows"]].tolist() == sorted(source.y.tolist())
    sheet, h, w = decoded(sprite), sprite["height"], sprite["width"]
    colours = (
        images if len(shape) == 2 else images.movedim(1, 3) if shape[0] == 3 else images[..., :3]
    )
    low, high = float(images.min()), float(images.max())
    for row, i in enumerate(grid["rows"]):
        cell = sheet[row * h : (row + 1) * h, :w] / 255 * (high - low) + low
        expected = colours[i].numpy()
        expected = expected if expected.ndim == 3 else np.repeat(expected[..., None], 3, axis=2)
        assert np.abs(cell - expected).mean() < 0.08
    assert set(story["thumbs"]) == {"start", "end"}


def test_samples_of_an_embedding_are_shown_as_the_nearest_images(tmp_path):
    draws = torch.Generator().manual_seed(0)
    a, b = (
        ad.LabeledDataset(torch.rand(12, 8, 8, generator=draws), [0, 1, 2] * 4) for _ in range(2)
    )
    space = ad.FeatureSpace.fit(a, b, encoder=lambda images: images.flatten(1)[:, ::3])
    source, target = space.apply(a), space.apply(b, side="target")
    # half of the particles at samples of the target, to the number
    last = source.replace(x=torch.where(torch.arange(12)[:, None] < 6, source.x, target.x))
    story = Story([Frame(0, 1.0, source), Frame(1, 0.5, last)], target=target, source=source)
    _, plain, tags = page_of(story, tmp_path)
    assert plain["grid"] is None and "real samples" not in tags.text
    _, shown, tags = page_of(story, tmp_path, pictures=space.pictures(a, b))
    assert "each is shown as the nearest of 24 real samples" in tags.text
    sprite, rows = shown["grid"]["sprite"], shown["grid"]["rows"]
    sheet, h, w = decoded(sprite), sprite["height"], sprite["width"]
    low, high = float(min(a.x.min(), b.x.min())), float(max(a.x.max(), b.x.max()))
    mixed = a.replace(x=torch.where(torch.arange(12)[:, None] < 6, a.x, b.x))
    for frame, images in enumerate((a, mixed)):
        for row, i in enumerate(rows):
            cell = sheet[row * h : (row + 1) * h, frame * w : (frame + 1) * w, 0] / 255
            expected = images.samples[i].numpy()
            assert np.abs(cell * (high - low) + low - expected).mean() < 0.12
    with pytest.raises(ad.errors.InputError, match="space.pictures"):
        write_report(story, tmp_path / "wrong.html", pictures=a)


@pytest.mark.slow
def test_labels_that_change_are_followed_and_counted(tmp_path):
    source, there = gaussians(30), gaussians(40, 1, classes=4, shift=(6.0, 0.0))
    result = short_flow(source, ad.OTDD(there), 6, dynamics=ad.JointVariableLabels(every=2))
    last = result.dataset.replace(y=(result.dataset.y + 1) % 3)
    frames = [*result.trajectory][:-1]
    frames.append(
        type(frames[0])(6, result.values[-1], last)
    )  # whatever the clustering did, the last labels differ
    _, story, tags = page_of(Story(frames, target=there), tmp_path)
    assert story["moving"]
    codes = numbers(story["codes"], "<u2").reshape(7, 30)
    named = [[story["classes"][c] for c in row] for row in codes]
    assert named == [[str(label) for label in frame.dataset.labels] for frame in frames]
    chart = story["charts"][-1]
    assert chart["title"] == "Samples of each class"
    assert np.array([line["y"] for line in chart["series"]]).sum(axis=0).tolist() == [30] * 7
    assert "Class distances after" in tags.text


def test_samples_without_labels_are_shown_and_said(tmp_path):
    source = ad.LabeledDataset(gaussians(20).x, ["a", None] * 10)
    there = gaussians(20, 1)
    result = short_flow(source, ad.OTDD(there, cost=ad.GroundCost(label=ad.NoLabels())), 2)
    _, story, tags = page_of(result, tmp_path)
    assert (numbers(story["codes"], "<u2") == 65535).sum() == 10
    assert story["partners"] is not None and "some samples have no label" in tags.text


def test_large_runs_are_thinned_and_the_page_says_so(tmp_path):
    generator = torch.Generator().manual_seed(0)
    start = ad.LabeledDataset(torch.rand(3000, 2, generator=generator), [0, 1, 2, 3] * 750)
    frames = [Frame(k, 100.0 - k, start.replace(x=start.x + k)) for k in range(101)]
    text, story, tags = page_of(Story(frames), tmp_path)
    assert len(text.encode()) < 3_000_000
    assert (story["n"], len(story["steps"]), story["steps"][0], story["steps"][-1]) == (
        2000,
        60,
        0,
        100,
    )
    rows = numbers(story["origin"], "<u4")
    assert len(set(rows.tolist())) == 2000
    axis = (
        numbers(story["points"], "<i2").reshape(60, 2000, 2)[0] / 32767 * story["half"]
        + story["centre"]
    )
    assert np.allclose(axis, start.x[rows.astype(int)], atol=story["half"] / 30_000)
    assert set(np.bincount(rows % 4) > 400) == {True}  # no class is lost
    text = tags.text
    assert (
        "2,000 of 3,000 samples were drawn" in text
        and "Of 101 recorded frames, 60 are shown" in text
    )


@pytest.mark.slow
def test_the_largest_page_stays_small(tmp_path):
    """2000 images of noise, which nothing compresses, over 60 frames, with labels that change, to
    2000 more.
    """
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(2000, 28, 28, generator=generator)
    start = ad.LabeledDataset(noise, [k % 10 for k in range(2000)])
    frames = [
        Frame(k, 60.0 - k, start.replace(x=start.x.roll(k, dims=1), y=(start.y + k) % 10))
        for k in range(60)
    ]
    story = Story(
        frames,
        ad.LabeledDataset(1 - noise),
        cost=ad.GroundCost(label=ad.NoLabels()),
        solver=ad.Sinkhorn(tol=0.1),
    )
    assert write_report(story, tmp_path / "report.html").stat().st_size < 3_000_000


def test_many_classes_have_marks_of_their_own_and_no_unreadable_table(tmp_path):
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    data = ad.LabeledDataset(x, [f"class {k % 40}" for k in range(120)])
    result = short_flow(data, ad.OTDD(data.replace(x=x + 5)), 1)
    _, story, tags = page_of(result, tmp_path)
    marks = story["marks"]
    assert len(set(zip(marks["light"], marks["shapes"], strict=True))) == 40
    assert (
        "tables of 40 × 40 classes are left out" in tags.text and "class 7 → class 7" in tags.text
    )


def test_frames_of_different_flows_are_refused(tmp_path):
    frames = [Frame(k, 1.0, gaussians(10 + k)) for k in range(3)]
    with pytest.raises(ad.InputError, match="frames must hold the same samples"):
        write_report(Story(frames), tmp_path / "report.html")


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("diverged", "smaller step_size"),
        ("stalled", "smaller step_size"),
        ("interrupted", "interrupted after"),
    ],
)
def test_the_page_says_how_the_flow_ended(status, word, target, tmp_path):
    def stop(step):
        if step.index == 2:
            raise KeyboardInterrupt

    def breaks(x, y):
        return (
            torch.where(x.sum() > x.detach().sum() - 1, 1.0, 1.0)
            * x.square().sum(1)
            * (1.0 if status == "interrupted" else 1e30)
        )

    result = short_flow(
        gaussians().to(dtype=torch.float64),
        ad.Potential(breaks),
        12,
        callbacks=[ad.Recorder(), stop] if status == "interrupted" else [ad.Recorder()],
        control=ad.FixedSteps() if status == "diverged" else None,
    )
    assert result.status == status
    _, _, tags = page_of(result, tmp_path)
    assert word in tags.text and status in tags.text


def test_infinite_values_are_gaps(tmp_path):
    frames = [Frame(k, value, gaussians()) for k, value in enumerate([1.0, float("inf"), 0.5])]
    _, story, _ = page_of(Story(frames), tmp_path, metrics={"score": [(0, float("nan")), (2, 1.0)]})
    assert story["values"] == [1.0, None, 0.5]
    assert story["charts"][1]["series"][0]["y"] == [None, 1.0]


# Stories


def test_a_run_directory_tells_the_same_as_its_result(target, tmp_path):
    run = tmp_path / "run"
    metric = ad.Metric("spread", lambda rho: rho.x.std(), directory=run)
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    callbacks = [ad.Recorder(every=2, directory=run), metric, ad.Checkpoint(run)]
    result = short_flow(gaussians(), objective, 5, callbacks=callbacks)
    (run / "config.toml").write_text("steps = 5\n")
    live, kept = Story.of_result(result), Story.of_run(run)
    assert kept.metrics == live.metrics and kept.config == "steps = 5\n"
    assert (
        list(kept.objective) == list(live.objective)[:-1]
    )  # a checkpoint knows what came before its step
    assert {name: list(curve) for name, curve in kept.terms.items()} == {
        name: list(c)[:-1] for name, c in live.terms.items()
    }
    assert kept.n_steps == 5
    _, story, tags = page_of(run, tmp_path, target=target)
    assert (
        story["steps"] == [0, 2, 4, 5] and story["target"]["n"] == 40 and "steps = 5" in tags.text
    )


def test_a_log_of_the_flow_goes_before_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    result = short_flow(
        gaussians(),
        ad.Potential(ad.norm()),
        3,
        callbacks=[ad.Recorder(directory=run), ad.Checkpoint(run)],
    )
    lines = [
        {"name": "flow", "index": k, "value": v, "terms": {"Potential": v}, "seconds": 0.5 * k}
        for k, v in enumerate(result.values)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    story = Story.of_run(run)
    assert list(story.objective) == list(enumerate(result.values)) and story.seconds == 1.5
    assert not story.metrics and not story.terms


def test_the_target_is_found_in_sums_and_multiples(target):
    data = gaussians(6)
    for functional in (
        ad.OTDD(target),
        2.0 * ad.OTDD(target),
        ad.Potential(ad.norm()) + 0.5 * ad.OTDD(target),
        ad.SlicedOTDD(target),
        ad.Potential(ad.norm()) - 0.5 * ad.SlicedOTDD(target),
    ):
        assert ad.flow(data, functional, n_steps=0).target is target
    assert ad.flow(data, ad.Potential(ad.norm()), n_steps=0).target is None


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [False, True], ids=["sliced", "on ranks"])
def test_every_flow_to_a_dataset_shows_its_target(ranks, target, tmp_path):
    """Once a search for an ``OTDD`` missed those of other kinds."""
    if ranks:
        with ad.distributed.group() as group:
            energy = ad.OTDD(target, group=group)
            options = {"group": group, "n_steps": 2, "callbacks": [ad.Recorder()]}
            result = ad.distributed.flow(gaussians(), energy, **options)
    else:
        result = short_flow(gaussians(), ad.SlicedOTDD(target, 20))
    _, story, tags = page_of(result, tmp_path)
    assert story["target"]["n"] == 40 and "Class distances" in tags.text
    assert ("Sinkhorn" if ranks else "n_projections") in tags.text


@pytest.mark.parametrize(
    "objective",
    [
        lambda target: ad.OTDD(target, solver=ad.Sinkhorn(epsilon=0.5)),
        lambda target: ad.SlicedOTDD(target, 30, label_weight=0.5),
    ],
)
def test_code_in_outline_runs(objective, target):
    result = ad.flow(
        gaussians(),
        objective(target),
        dynamics=ad.JointFixedLabels(),
        integrator=ad.Adam(0.1),
        n_steps=2,
        callbacks=[ad.Recorder()],
    )
    names = {"source": gaussians(), "target": target}
    exec(Story.of_result(result).code, names)
    assert names["result"].values == result.values


# Parts


def test_a_box_keeps_one_scale_for_all_axes():
    cloud = np.array([[0.0, 0.0, 5.0], [10.0, 2.0, 5.0]])
    box = Box.around([cloud])
    assert box.half == 5 and box.extent.tolist() == [1.0, 0.2, 0.0]
    assert box.quantised(cloud).tolist() == [[-32767, -6553, 0], [32767, 6553, 0]]


def test_sprites_fit_their_budget():
    noise = np.random.default_rng(0).integers(0, 256, (100, 40, 30), dtype=np.uint8)
    whole, small = pack_sprite(noise, 10, 80), fitting_sprite(noise, 10, 20_000)
    assert len(whole["uri"]) > 20_000 >= len(small["uri"])
    assert small["height"] > small["width"]  # and keep their proportions


def test_shades_cover_the_given_range_and_clip_the_rest():
    shades = Shades.of((1, 3), torch.tensor([[-1.0, 0.0, 1.0]]))
    assert shades.pixels(torch.tensor([[-1.0, 0.0, 5.0]]), 64).tolist() == [[[0, 128, 255]]]
    assert Shades.of((7,), torch.zeros(1, 7)) is None


def test_heat_marks_the_best_of_each_row():
    table = ad.ClassTable(np.array([[3.0, 1.0], [np.nan, 2.0]]), ("a", "b"), ("c", "d"))
    rows = heat(table)["rows"]
    assert [[cell["best"] for cell in row["cells"]] for row in rows] == [
        [False, True],
        [False, True],
    ]
    assert [[cell["text"] for cell in row["cells"]] for row in rows] == [
        ["3.00", "1.00"],
        ["–", "2.00"],
    ]
    shares = heat(ad.ClassTable(np.array([[0.3, 0.1]]), ("a",), ("c", "d")), share=True)["rows"][0][
        "cells"
    ]
    assert [(cell["text"], cell["best"]) for cell in shares] == [("75%", True), ("25%", False)]


# Notebooks


def test_notebook_tables_are_escaped(target):
    data = gaussians().replace(classes=(EVIL, "b", "c"))
    result = ad.flow(data, ad.OTDD(target), n_steps=1)
    distance = ad.otdd(data, target)
    for thing in (data, result, distance):
        text = thing._repr_html_()
        assert text.startswith("<table>") and EVIL not in text
    assert "&lt;script&gt;" in data._repr_html_() and "&lt;script&gt;" in distance._repr_html_()
    assert f"{distance.value:.6g}" in distance._repr_html_()
    assert "completed: 1 steps made" in result._repr_html_()
    bare = ad.otdd(data, target, cost=ad.GroundCost(label=ad.NoLabels()))
    assert bare._repr_html_().count("<table>") == 1


def test_gathering_is_repeatable(result):
    assert (
        scene.gather(Story.of_result(result)).player == scene.gather(Story.of_result(result)).player
    )
