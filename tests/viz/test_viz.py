"""Figures show what they are given: points, ellipses, curves, images, tables, couplings, maps, films; and refuse the
rest."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flow_cases import gaussians
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from PIL import Image, ImageSequence
from scipy.spatial.distance import pdist, squareform

import advect as ad
from advect import viz
from advect.data.class_table import ClassTable
from advect.data.laws import Full
from advect.viz.theme import LIGHT, PALETTE, SMALL, short


def clouds(axes) -> list[PathCollection]:
    return [artist for artist in axes.collections if isinstance(artist, PathCollection)]


def segments(axes) -> list[np.ndarray]:
    groups = [artist for artist in axes.collections if isinstance(artist, LineCollection)]
    return [line for group in groups for line in group.get_segments()]


def ellipses(axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


def hatched(axes) -> set[tuple[int, int]]:
    """(row, column) of hatched cells."""
    hatches = [patch for patch in axes.patches if patch.get_hatch()]
    return {(round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)) for patch in hatches}


def texts(labels) -> list[str]:
    return [label.get_text() for label in labels]


@pytest.fixture(scope="module")
def result():
    source, target = gaussians(), gaussians(seed=1, shift=(9.0, 0.0))
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    return ad.flow(source, objective, n_steps=6, callbacks=[ad.Recorder(every=2), metric])


@pytest.fixture(scope="module")
def images() -> ad.LabeledDataset:
    return ad.datasets.load("digits", n=24)


def test_a_panel_holds_every_sample_of_frame_and_target():
    frame, target = gaussians(), gaussians(seed=1, classes=2)
    (axes,) = viz.particles([frame], target).axes
    drawn = [np.asarray(cloud.get_offsets()) for cloud in clouds(axes)]
    expected = [data.of_class(name).x for data in (target, frame) for name in data.classes]
    assert all(np.allclose(a, b) for a, b in zip(drawn, expected, strict=True))


def test_colours_follow_class_names_and_unknown_target_classes_are_grey():
    frame = gaussians().replace(classes=("a", "b", "c"))
    (axes,) = viz.particles([frame], gaussians(seed=1).replace(classes=("z", "b", "a"))).axes
    hollow, filled = clouds(axes)[:3], clouds(axes)[3:]
    assert [to_hex(c.get_facecolor()[0]).upper() for c in filled] == list(PALETTE[:3])
    edges = [to_hex(c.get_edgecolor()[0]).upper() for c in hollow]
    assert edges[1:] == [PALETTE[1], PALETTE[0]]
    assert edges[0] not in PALETTE
    assert all(len(c.get_facecolor()) == 0 for c in hollow)


def test_samples_without_a_label_are_drawn_and_named():
    figure = viz.particles([ad.LabeledDataset(gaussians().x, ["a"] * 20 + [None] * 10)])
    assert sum(len(cloud.get_offsets()) for cloud in clouds(figure.axes[0])) == 30
    assert texts(figure.legends[0].get_texts()) == ["a", "no label"]
    assert len(ellipses(figure.axes[0])) == 1  # of the class, from the samples that have it


def test_ellipses_are_two_deviations_of_the_class_law():
    law = ad.Gaussians(torch.tensor([[1.0, 2.0]]), Full(torch.tensor([[[9.0, 0.0], [0.0, 1.0]]])))
    data = ad.LabeledDataset([[0.0, 0.0], [1.0, 1.0]], ["a", "a"], law=law)
    (ellipse,) = ellipses(viz.particles([data]).axes[0])
    assert ellipse.get_center() == pytest.approx((1.0, 2.0))
    sides = ellipse.get_width(), ellipse.get_height()
    assert sides == pytest.approx((4.0, 12.0))  # 2σ on both sides, least variance first
    assert ellipse.get_angle() % 180 == pytest.approx(90)


def test_panels_of_a_row_share_limits_and_rows_have_names(result):
    far = [frame.dataset.replace(x=10 * frame.dataset.x) for frame in result.trajectory]
    axes = np.reshape(viz.particles({"near": list(result.trajectory), "far": far}).axes, (2, -1))
    assert len({panel.get_xlim() for panel in axes[0]}) == 1
    assert axes[0, 0].get_xlim() != axes[1, 0].get_xlim()
    assert [panel.get_ylabel() for panel in axes[:, 0]] == ["near", "far"]


def test_names_are_shortened_in_their_middle_and_never_formulas():
    assert short("a" * 10 + "b" * 10, 10) == "aaaaaa…bbb"
    assert len(short("x" * 99)) == 18
    assert short(("a", 1)) == "('a', 1)"
    figure = viz.class_table(ClassTable(np.eye(2), ("$\\frac{", "a\nb"), ("$x$", "")))
    figure.draw_without_rendering()  # a formula would fail here
    assert texts(figure.axes[0].get_yticklabels()) == [r"\$\frac{", "a b"]


def test_curves_show_the_objective_its_terms_and_metrics_of_several_flows(result):
    figure = viz.curves(result)
    main, metric = figure.axes
    assert [line.get_label() for line in main.lines] == ["objective", *result.terms]
    assert texts(figure.legends[0].get_texts()) == ["objective", *result.terms]
    assert np.allclose(main.lines[0].get_ydata(), result.values)
    for line, values in zip(main.lines[1:], result.terms.values(), strict=True):
        assert np.allclose(line.get_ydata(), values)
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in main.lines}) == 3
    assert main.get_yscale() == "log"
    ticks = [*main.yaxis.get_major_ticks(), *main.yaxis.get_minor_ticks()]
    looks = {(tick.label1.get_size(), to_hex(tick.label1.get_color())) for tick in ticks}
    assert looks == {(SMALL, to_hex(LIGHT.ink))} and main.yaxis.get_minor_ticks()
    assert metric.get_ylabel() == "spread"
    assert np.allclose(np.column_stack(metric.lines[0].get_data()), result.metrics["spread"])
    objective, metric = viz.curves({"one": result, "two": result}).axes
    assert [line.get_label() for line in objective.lines] == ["one", "two"]
    assert len(metric.lines) == 2


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3), (4, 6, 1)])
def test_images_sit_in_their_cells(shape):
    x = torch.rand(12, *shape, generator=torch.Generator().manual_seed(0))
    first = ad.LabeledDataset(x, ["a", "b", "c"] * 4)
    (axes,) = viz.image_grid([first, first.replace(x=first.x / 2)], rows=6).axes
    mosaic = np.asarray(axes.images[0].get_array())
    assert mosaic.shape[:2] == (6 * 5 - 1, 2 * 7 - 1)
    assert texts(axes.get_yticklabels()) == ["a", "a", "b", "b", "c", "c"]
    left, right = mosaic[:4, :6, :3], mosaic[:4, 7:13, :3]
    assert np.allclose(right, left / 2) and not mosaic[4, :, 3].any()  # gaps are transparent
    images = x[first.y == 0].numpy().reshape(4, 4, 6, -1)
    assert any(np.allclose(left, image) for image in images)


def test_image_columns_are_steps():
    images = ad.LabeledDataset(torch.rand(8, 3, 3), [0, 1] * 4)
    result = ad.flow(images, ad.Potential(ad.norm()), n_steps=4, callbacks=[ad.Recorder(every=2)])
    for options, names in (
        ({}, ["0", "2", "4"]),
        ({"columns": 2}, ["0", "4"]),
        ({"titles": list("abc")}, list("abc")),
    ):
        assert texts(viz.image_grid(result, **options).axes[0].get_xticklabels()) == names
    assert len(viz.image_grid(result, rows=100).axes[0].get_yticks()) == 8


def test_a_table_shows_names_numbers_and_gaps():
    values = np.array([[0.5, np.nan], [2.0, 1e-4], [3.0, 4.0]])
    figure = viz.class_table(ClassTable(values, ("cat", "dog", "owl"), (0, 1)), title="W₂")
    (axes,) = figure.axes
    assert texts(axes.texts) == ["0.5", "2", "0", "3", "4"]
    assert hatched(axes) == {(0, 1)}
    assert texts(axes.get_yticklabels()) == ["cat", "dog", "owl"]
    assert texts(axes.get_xticklabels()) == ["0", "1"]
    assert figure.get_suptitle() == "W₂"


def test_a_distance_and_a_matching_are_tables():
    a, b = gaussians(), gaussians(seed=1).replace(classes=("x", "y", "z"))
    distance = ad.otdd(a, b)
    (axes,) = viz.class_table(distance).axes
    assert np.allclose(np.asarray(axes.images[0].get_array()), distance.class_distances.values)
    matching = ad.ClassMatching.between(a, b)
    (axes,) = viz.class_table(matching).axes
    assert np.allclose(np.asarray(axes.images[0].get_array()), matching.soft.values)


def test_near_datasets_are_next_to_each_other():
    places = np.random.default_rng(0).normal(size=(9, 2))
    groups = np.random.default_rng(2).permutation([0] * 5 + [1] * 4)
    distances = squareform(pdist(places + 20 * groups[:, None]))
    names = [f"{g} {k}" for k, g in enumerate(groups)]
    (heat,) = viz.pairwise(SimpleNamespace(values=distances, names=names)).axes
    order = [name[0] for name in texts(heat.get_yticklabels())]
    assert order in (sorted(order), sorted(order, reverse=True))


def test_a_heat_map_shows_the_distances_and_hatches_failed_pairs():
    distances = squareform(pdist(np.random.default_rng(0).normal(size=(6, 2))))
    distances[[1, 4, 1, 2], [4, 1, 2, 1]] = np.nan
    (heat,) = viz.pairwise(SimpleNamespace(values=distances, names="abcdef")).axes
    names = texts(heat.get_yticklabels())
    order, shown = ["abcdef".index(name) for name in names], heat.images[0].get_array()
    there = np.ma.filled(np.ma.asarray(shown), np.nan)
    assert np.allclose(there, distances[np.ix_(order, order)], equal_nan=True)
    assert hatched(heat) == {(names.index(a), names.index(b)) for a, b in ("be", "eb", "bc", "cb")}
    assert len(heat.texts) == 36 - 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("deep/er/a.pdf", b"%PDF"), ("a.svg", b"<?xml")]
)
def test_saving_makes_folders_and_leaves_nothing_beside(tmp_path, name, magic):
    path = viz.save(viz.particles([gaussians()]), tmp_path / name)
    assert path.read_bytes().startswith(magic)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_drawing_needs_no_pyplot_and_importing_no_matplotlib():
    heavy = "{'matplotlib', 'sklearn', 'PIL'}"
    code = (
        f"import sys, torch, advect as ad; from advect import viz; assert not {heavy} & "
        "set(sys.modules);"
        "viz.particles([ad.datasets.moons(10)]); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_samples_of_many_dimensions_are_projected_alike(images):
    first, second = viz.particles([images, images.replace(x=images.x / 2)], images).axes
    drawn = [[cloud.get_offsets() for cloud in clouds(axes)[-10:]] for axes in (first, second)]
    one, two = map(np.concatenate, drawn)
    assert np.allclose(pdist(two), pdist(one) / 2)  # one linear map for both
    assert "variance" in first.get_xlabel() and not ellipses(first)
    (axes,) = viz.particles([ad.LabeledDataset([[1.0], [2.0]], [0, 1])]).axes
    assert [float(c.get_offsets()[0, 0]) for c in clouds(axes)] == [1.0, 2.0]


def test_continuous_targets_are_drawn_against_a_feature():
    x = torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    data = ad.LabeledDataset(x, targets=x.sum(1), columns=("u", "v"))
    (axes,) = viz.particles([data], feature="v").axes
    assert np.allclose(clouds(axes)[0].get_offsets(), np.column_stack([x[:, 1], x.sum(1)]))
    assert axes.get_xlabel() == "v"


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_film_has_a_picture_for_each_frame(result, images, tmp_path, suffix):
    path = viz.animation(
        result, tmp_path / "new" / f"flow.{suffix}", target=gaussians(seed=1), fps=5
    )
    with Image.open(path) as film:
        assert film.n_frames == len(result.trajectory)
        pictures = [np.asarray(film.convert("RGB")) for _ in ImageSequence.Iterator(film)]
    assert film.info["duration"] == 200 and list(path.parent.iterdir()) == [path]
    assert not np.array_equal(pictures[0], pictures[-1])
    frames = [images, images.replace(x=1 - images.x)]
    with Image.open(viz.animation(frames, tmp_path / f"images.{suffix}")) as film:
        before, after = (film.convert("RGB") for _ in ImageSequence.Iterator(film))
    assert np.mean(before) != pytest.approx(np.mean(after), rel=0.05)


def test_trails_end_at_the_frame(result):
    first, last = viz.particles(result, columns=2, trails=True).axes
    assert segments(first) == [] and {len(line) for line in segments(last)} == {4}
    starts = sorted(line[0, 0] for line in segments(last))
    assert np.allclose(starts, sorted(result.source.x[:, 0].tolist()))


ONE = [gaussians()]
PICTURES = ad.LabeledDataset(torch.zeros(4, 3, 3))
REFUSED = [
    (viz.particles, ([],), {}, "frame"),
    (viz.particles, (ONE,), {"target": ad.datasets.swiss_roll(8)}, "dimension"),
    (viz.particles, (ONE,), {"target": gaussians().x}, "target"),
    (viz.particles, (ONE,), {"titles": ["a", "b"]}, "titles"),
    (viz.particles, (ONE,), {"columns": 0}, "columns"),
    (viz.particles, ([np.ones((3, 2))],), {}, "LabeledDataset"),
    (viz.particles, (gaussians(),), {}, "list"),
    (viz.particles, ([*ONE, gaussians().subset([0, 1])],), {"trails": True}, "same samples"),
    (viz.particles, ({"a": ONE, "b": ONE * 2},), {}, "same number"),
    (viz.curves, ([1.0, 2.0],), {}, "FlowResult"),
    (viz.class_table, (np.eye(2),), {}, "ClassTable"),
    (viz.class_table, (ClassTable(np.zeros((0, 2)), (), (0, 1)),), {}, "rows and columns"),
    (viz.image_grid, (ONE,), {}, "images"),
    (viz.animation, ([], "a.gif"), {}, "frame"),
    (viz.animation, (ONE, "a.avi"), {}, "gif"),
    (viz.animation, (ONE, "a.gif"), {"fps": 0}, "fps"),
    (viz.animation, (ONE, "a.gif"), {"target": 3}, "target"),
    (viz.image_grid, ([PICTURES, PICTURES.subset([0, 1])],), {}, "same samples"),
    (viz.pairwise, (np.zeros((2, 2)),), {}, "names"),
]


@pytest.mark.parametrize(("draw", "arguments", "options", "message"), REFUSED)
def test_what_cannot_be_drawn_is_refused(draw, arguments, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ad.InputError, match=message):
        draw(*arguments, **options)
    assert list(tmp_path.iterdir()) == []
