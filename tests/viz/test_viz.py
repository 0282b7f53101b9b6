"""Figures show what they are given: points, ellipses, curves, images, tables, couplings, maps,
films; and refuse the rest.
"""

from __future__ import annotations

import builtins
import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform

import advect as ad

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Ellipse, Rectangle
from PIL import Image

from advect import viz
from advect.viz.couplings import drawn_pairs
from advect.viz.pairwise_map import complete_part, plane_map
from advect.viz.theme import DARK, LIGHT, class_marks, short

DOCS = Path(__file__).parents[2] / "docs"


def gaussians(seed: int = 0, **options) -> ad.LabeledDataset:
    return ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(seed), **options)


def clouds(axes) -> list[PathCollection]:
    return [artist for artist in axes.collections if isinstance(artist, PathCollection)]


def segments(axes) -> list[np.ndarray]:
    return [
        line
        for artist in axes.collections
        if isinstance(artist, LineCollection)
        for line in artist.get_segments()
    ]


def ellipses(axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


def hatched(axes) -> set[tuple[int, int]]:
    """(row, column) of hatched cells."""
    patches = [
        patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch()
    ]
    return {(round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)) for patch in patches}


def texts(labels) -> list[str]:
    return [label.get_text() for label in labels]


@pytest.fixture(scope="module")
def result() -> ad.FlowResult:
    source, target = gaussians(), gaussians(1, shift=(9.0, 0.0))
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    return ad.flow(source, objective, n_steps=6, callbacks=[ad.Recorder(every=2), metric])


@pytest.fixture(scope="module")
def images() -> ad.LabeledDataset:
    return ad.datasets.load("digits", n=24)


# Particles


def test_a_panel_holds_every_sample_of_frame_and_target():
    frame, target = gaussians(), gaussians(1, classes=2)
    (axes,) = viz.particles([frame], target).axes
    drawn = [np.asarray(cloud.get_offsets()) for cloud in clouds(axes)]
    expected = [part.x.numpy() for data in (target, frame) for _, part in data.by_class()]
    assert len(drawn) == len(expected)
    assert all(np.allclose(a, b) for a, b in zip(drawn, expected, strict=True))


def test_colours_follow_class_names_and_unknown_target_classes_are_grey():
    frame = gaussians().replace(classes=("a", "b", "c"))
    target = gaussians(1).replace(classes=("z", "b", "a"))
    (axes,) = viz.particles([frame], target).axes
    hollow, filled = clouds(axes)[:3], clouds(axes)[3:]
    assert [to_hex(c.get_facecolor()[0]).upper() for c in filled] == list(viz.PALETTE[:3])
    edges = [to_hex(c.get_edgecolor()[0]).upper() for c in hollow]
    assert edges[1:] == [viz.PALETTE[1], viz.PALETTE[0]]
    assert edges[0] not in viz.PALETTE
    assert all(len(c.get_facecolor()) == 0 for c in hollow)


def test_a_class_keeps_its_colour_when_others_die():
    frame = gaussians()
    later = frame.replace(y=torch.where(frame.y == 0, 1, frame.y))
    first, second = viz.particles([frame, later]).axes
    colours = [[to_hex(c.get_facecolor()[0]) for c in clouds(axes)] for axes in (first, second)]
    assert colours[1] == colours[0][1:]


def test_samples_without_a_label_are_drawn_and_named():
    x = gaussians().x
    data = ad.LabeledDataset(x, ["a"] * 20 + [None] * 10)
    figure = viz.particles([data])
    assert sum(len(cloud.get_offsets()) for cloud in clouds(figure.axes[0])) == 30
    assert texts(figure.legends[0].get_texts()) == ["a", "no label"]
    assert len(ellipses(figure.axes[0])) == 1  # of the class, from the samples that have it
    figure = viz.particles([ad.LabeledDataset(x)])
    assert texts(figure.legends[0].get_texts()) == ["no label"]


def test_a_class_without_weight_is_drawn_all_the_same():
    data = ad.LabeledDataset(
        [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], ["a", "a", "b"], weights=[1.0, 1.0, 0.0]
    )
    assert [
        len(cloud.get_offsets()) for cloud in clouds(viz.particles([data], ellipses=False).axes[0])
    ] == [2, 1]


def test_ellipses_are_two_deviations_of_the_class_law():
    law = ad.Gaussians(
        torch.tensor([[1.0, 2.0]]), ad.Full(torch.tensor([[[9.0, 0.0], [0.0, 1.0]]]))
    )
    data = ad.LabeledDataset([[0.0, 0.0], [1.0, 1.0]], ["a", "a"], law=law)
    (ellipse,) = ellipses(viz.particles([data]).axes[0])
    assert ellipse.get_center() == pytest.approx((1.0, 2.0))
    assert ellipse.get_width() == pytest.approx(
        4.0
    )  # 2σ on both sides along the direction of least variance
    assert ellipse.get_height() == pytest.approx(12.0)
    assert ellipse.get_angle() % 180 == pytest.approx(90)


def test_an_ellipse_leans_as_its_class_does():
    along = torch.linspace(-1, 1, 40)
    data = ad.LabeledDataset(torch.stack([along, along / 2], dim=1), [0] * 40)
    (ellipse,) = ellipses(viz.particles([data]).axes[0])
    long = ellipse.get_angle() + (90 if ellipse.get_height() > ellipse.get_width() else 0)
    assert np.tan(np.radians(long)) == pytest.approx(0.5, abs=1e-3)


def test_a_law_for_each_sample_is_drawn_as_one_ellipse_for_each_class():
    joint = ad.JointVariableLabels().start(gaussians())
    assert len(ellipses(viz.particles([joint]).axes[0])) == 3
    assert len(ellipses(viz.particles([joint], ellipses=False).axes[0])) == 0


def test_target_ellipses_are_dashed():
    patches = ellipses(viz.particles([gaussians()], gaussians(1)).axes[0])
    assert [
        patch.get_linestyle() != "-" and patch.get_linestyle() != "solid" for patch in patches
    ] == [True] * 3 + [False] * 3


@pytest.mark.slow
def test_trails_end_at_the_frame(result):
    first, *_, last = viz.particles(result, trails=result).axes
    assert segments(first) == []
    assert {len(line) for line in segments(last)} == {len(result.trajectory)}
    assert np.allclose(
        sorted(line[0, 0] for line in segments(last)), sorted(result.source.x[:, 0].tolist())
    )
    assert np.allclose(
        sorted(line[-1, 0] for line in segments(last)), sorted(result.dataset.x[:, 0].tolist())
    )


def test_panels_of_a_row_share_limits_and_rows_have_names(result):
    rows = {
        "near": list(result.trajectory),
        "far": [d.dataset.replace(x=10 * d.dataset.x) for d in result.trajectory],
    }
    axes = np.reshape(viz.particle_grid(rows).axes, (2, -1))
    assert len({panel.get_xlim() for panel in axes[0]}) == 1
    assert axes[0, 0].get_xlim() != axes[1, 0].get_xlim()
    assert [panel.get_ylabel() for panel in axes[:, 0]] == ["near", "far"]


@pytest.mark.slow
def test_columns_take_frames_evenly(result):
    def steps(**options):
        return [axes.get_title() for axes in viz.particles(result, **options).axes]

    assert steps() == ["step 0", "step 2", "step 4", "step 6"]
    assert steps(columns=2) == ["step 0", "step 6"]
    assert steps(columns=1) == ["step 6"]
    long = ad.flow(gaussians(), ad.Potential(ad.norm()), n_steps=20, callbacks=[ad.Recorder()])
    assert [axes.get_title() for axes in viz.particles(long).axes] == [
        f"step {i}" for i in (0, 4, 8, 12, 16, 20)
    ]
    assert (
        len(viz.particles([frame.dataset for frame in long.trajectory]).axes) == 21
    )  # a list is what was asked for


@pytest.mark.slow
def test_space_is_drawn_in_three_dimensions():
    roll = ad.datasets.swiss_roll(40, generator=torch.Generator().manual_seed(0))
    figure = viz.particles([roll, roll], roll, titles=["one", "two"], trails=[roll, roll])
    assert [axes.name for axes in figure.axes] == ["3d", "3d"]
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    figure.draw_without_rendering()
    filled = clouds(figure.axes[0])[4:]
    heights = np.concatenate([np.asarray(cloud._offsets3d[2]) for cloud in filled])
    assert np.allclose(sorted(heights), sorted(roll.x[:, 2].tolist()))


def test_the_legend_names_classes_and_target():
    (legend,) = viz.particles([gaussians()], gaussians(1)).legends
    assert texts(legend.get_texts()) == ["class 0", "class 1", "class 2", "target"]


def test_paths_go_through_all_frames_in_the_colour_of_their_class(result):
    (axes,) = viz.paths(result, n=12).axes
    lines = segments(axes)
    assert len(lines) == 12
    frames = np.stack([frame.dataset.x.numpy() for frame in result.trajectory], axis=1)
    (collection,) = [artist for artist in axes.collections if isinstance(artist, LineCollection)]
    for line, colour in zip(lines, collection.get_edgecolor(), strict=True):
        (row,) = np.flatnonzero([np.allclose(line, each, atol=1e-5) for each in frames])
        assert to_hex(colour).upper() == viz.PALETTE[int(result.source.y[row])]
    assert np.allclose(viz.paths(result, n=12).axes[0].get_xlim(), axes.get_xlim())
    with pytest.raises(ad.InputError, match="the same samples"):
        viz.paths([gaussians(), gaussians().subset([0, 1])])


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([], {}, "a frame to draw"),
        (ad.Trajectory(), {}, "a frame to draw"),
        ([ad.LabeledDataset([[1.0]], [0])], {}, "2 or in 3 dimensions"),
        ([ad.LabeledDataset(torch.ones(2, 5), [0, 1])], {}, "viz.pca"),
        ([gaussians()], {"target": ad.datasets.swiss_roll(8)}, "2 or in 3 dimensions"),
        ([gaussians()], {"target": gaussians().x}, "target must be a LabeledDataset"),
        ([gaussians()], {"titles": ["a", "b"]}, "a title for each"),
        ([gaussians()], {"columns": 0}, "columns must be"),
        ([np.ones((3, 2))], {}, "LabeledDataset or a recorded Frame"),
        (gaussians(), {}, "a list, a trajectory"),
        ("run", {}, "a list, a trajectory"),
        ([gaussians()], {"trails": [gaussians(), gaussians().subset([0, 1])]}, "the same samples"),
    ],
)
def test_particles_refuse_what_cannot_be_drawn(frames, options, message):
    with pytest.raises(ad.InputError, match=message):
        viz.particles(frames, **options)


def test_a_trajectory_without_frames_says_how_to_record_them():
    for draw in (viz.particles, viz.paths, viz.class_counts, viz.pca):
        with pytest.raises(ad.InputError, match=r"ad\.Recorder"):
            draw(ad.Trajectory())


def test_a_result_without_a_recorder_shows_its_ends():
    bare = ad.flow(gaussians(), ad.Potential(ad.norm()), n_steps=1)
    for draw in (viz.particles, viz.paths, viz.class_counts, viz.pca):
        assert draw(bare).axes


# The look


def lab(colour: str, *, deuteranope: bool) -> np.ndarray:
    """CIE L*a*b* of a colour, as it is or as an eye without green cones sees it (Machado and others
    2009, severity 1).
    """
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if deuteranope:
        seen = [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
        linear = (np.array(seen) @ linear).clip(0, 1)
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ linear
    )
    ratio = xyz / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_simulation_confuses_what_it_should():
    red, green = "#C05020", "#788020"
    apart = [
        np.linalg.norm(lab(red, deuteranope=blind) - lab(green, deuteranope=blind))
        for blind in (False, True)
    ]
    assert apart[0] > 2.5 * apart[1]
    assert np.allclose(lab("#FFFFFF", deuteranope=True), [100, 0, 0], atol=0.1)


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("deuteranope", [False, True])
def test_class_colours_are_told_apart_from_each_other_and_from_the_ground(look, deuteranope):
    seen = {colour: lab(colour, deuteranope=deuteranope) for colour in (*look.palette, look.ground)}
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 15, (
            a,
            b,
        )  # 2.3 is a just noticeable difference of large areas
    ground = seen[look.ground][0]
    assert all(
        abs(seen[colour][0] - ground) > 22 for colour in look.palette
    )  # readable in grey print too


def test_many_classes_differ_in_colour_or_marker():
    marks = class_marks(range(60))
    assert len({(mark.colour, mark.marker) for mark in marks.values()}) == 60
    assert len({(mark.colour, mark.hatch) for mark in marks.values()}) == 60
    assert len(class_marks(range(300))) == 300


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 12, 30, 90])
def test_legends_stay_inside_the_figure_and_off_the_panels(classes):
    data = ad.datasets.gaussians(2 * classes, classes, generator=torch.Generator().manual_seed(0))
    data = data.replace(classes=tuple(f"the class of number {name}" for name in data.classes))
    figure = viz.particles([data, data], titles=["one", "two"])
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    (legend,) = figure.legends
    box, page = legend.get_window_extent(renderer), figure.bbox
    assert (
        page.x0 <= box.x0
        and box.x1 <= page.x1 + 1
        and page.y0 <= box.y0 + 1
        and box.y1 <= page.y1 + 1
    )
    assert not any(box.overlaps(axes.get_tightbbox(renderer)) for axes in figure.axes)
    assert all(axes.get_window_extent(renderer).width > 1.5 * figure.dpi for axes in figure.axes)
    assert len(legend.get_texts()) == min(classes, 60)


@pytest.mark.slow
def test_dark_figures_have_a_dark_ground_and_light_ink_and_light_ones_are_untouched(
    result, tmp_path
):
    with viz.style(dark=True):
        dark = viz.curves(result)
    light = viz.curves(result)
    assert to_hex(dark.get_facecolor()).upper() == DARK.ground
    assert to_hex(dark.axes[0].xaxis.label.get_color()).upper() == DARK.ink
    assert to_hex(light.get_facecolor()).upper() == LIGHT.ground
    corner = [
        Image.open(viz.save(figure, tmp_path / "a.png")).convert("RGBA").getpixel((0, 0))
        for figure in (dark, light)
    ]
    assert corner == [(*(round(255 * c) for c in to_rgb(DARK.ground)), 255), (255, 255, 255, 255)]


def test_the_style_ends_with_its_block_even_after_an_error():
    with pytest.raises(RuntimeError), viz.style(dark=True):
        raise RuntimeError
    assert to_hex(viz.particles([gaussians()]).get_facecolor()).upper() == LIGHT.ground


def test_names_are_shortened_in_their_middle_and_never_formulas():
    assert short("a" * 10 + "b" * 10, 10) == "aaaaaa…bbb"
    assert len(short("x" * 99)) == 18
    assert short(("a", 1)) == "('a', 1)"
    figure = viz.class_table(ad.ClassTable(np.eye(2), ("$\\frac{", "a\nb"), ("$x$", "")))
    figure.draw_without_rendering()  # a formula would fail here
    assert texts(figure.axes[0].get_yticklabels()) == [r"\$\frac{", "a b"]


# Curves and counts


def test_curves_show_the_objective_its_terms_and_metrics(result):
    figure = viz.curves(result)
    main, metric = figure.axes
    assert [line.get_label() for line in main.lines] == ["objective", *result.terms]
    assert texts(figure.legends[0].get_texts()) == ["objective", *result.terms]
    assert np.allclose(main.lines[0].get_ydata(), result.values)
    for line, values in zip(main.lines[1:], result.terms.values(), strict=True):
        assert np.allclose(line.get_ydata(), values)
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in main.lines}) == 3
    assert main.get_yscale() == "log"
    assert metric.get_ylabel() == "spread"
    assert np.allclose(np.column_stack(metric.lines[0].get_data()), result.metrics["spread"])


def test_curves_of_a_trajectory_are_at_its_frames(result):
    (axes,) = viz.curves(result.trajectory).axes
    assert axes.lines[0].get_xdata().tolist() == [0, 2, 4, 6]
    assert np.allclose(axes.lines[0].get_ydata(), np.array(result.values)[[0, 2, 4, 6]])


def test_curves_below_zero_are_linear():
    result = ad.flow(gaussians(), ad.Interaction(ad.spreading()), n_steps=2)
    (axes,) = viz.curves(result).axes
    assert axes.get_yscale() == "linear"
    with pytest.raises(ad.InputError, match="FlowResult"):
        viz.curves(result.values)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ad.InputError, match="a frame to draw"):
        viz.curves(ad.Trajectory())


def test_class_counts_are_bands_of_the_right_height():
    data = gaussians()
    merged = data.replace(y=torch.where(data.y == 0, 2, data.y))
    born = data.replace(y=torch.where(data.y == 1, 3, data.y), classes=(0, 1, 2, 3))
    figure = viz.class_counts([data, merged, born])
    axes = figure.axes[0]
    bands = {artist.get_label(): artist.get_paths()[0] for artist in axes.collections}
    assert list(bands) == ["class 0", "class 1", "class 2", "class 3"]

    def heights(at):
        return [
            sum(band.contains_point((at, samples + 0.5)) for samples in range(30))
            for band in bands.values()
        ]

    assert heights(0.25) == [10, 10, 10, 0]
    assert heights(1.0) == [0, 10, 20, 0]
    assert heights(1.75) == [10, 0, 10, 10]
    assert texts(figure.legends[0].get_texts()) == [
        "class 3",
        "class 2",
        "class 1",
        "class 0",
    ]  # as they are stacked
    assert len(viz.class_counts([data]).axes[0].collections) == 3
    with pytest.raises(ad.InputError, match="labels"):
        viz.class_counts([ad.LabeledDataset(data.x)])


# Images


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3), (4, 6, 1)])
def test_images_sit_in_their_cells(shape):
    x = torch.rand(12, *shape, generator=torch.Generator().manual_seed(0))
    first = ad.LabeledDataset(x, ["a", "b", "c"] * 4)
    frames = [first, first.replace(x=first.x / 2)]
    (axes,) = viz.image_grid(frames, rows=6).axes
    mosaic = np.asarray(axes.images[0].get_array())
    assert mosaic.shape[:2] == (6 * 5 - 1, 2 * 7 - 1)
    assert texts(axes.get_yticklabels()) == ["a", "a", "b", "b", "c", "c"]
    left, right = mosaic[:4, :6], mosaic[:4, 7:13]
    assert np.allclose(right, left / 2)
    assert any(
        np.allclose(left, image.squeeze(-1) if shape[2:] == (1,) else image)
        for image in x[first.y == 0].numpy()
    )


def test_channels_may_come_first():
    x = torch.rand(3, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    drawn = [
        viz.image_grid([ad.LabeledDataset(each, [0] * 3)], rows=3).axes[0]
        for each in (x, x.movedim(1, 3))
    ]
    first, last = (np.asarray(axes.images[0].get_array()) for axes in drawn)
    assert np.array_equal(first, last)


def test_image_columns_are_steps_and_the_seed_fixes_the_samples():
    images = ad.LabeledDataset(
        torch.rand(8, 3, 3, generator=torch.Generator().manual_seed(0)), [0, 1] * 4
    )
    result = ad.flow(images, ad.Potential(ad.norm()), n_steps=4, callbacks=[ad.Recorder(every=2)])
    pictures = [viz.image_grid(result, rows=4, seed=seed).axes[0] for seed in (0, 0, 5)]
    assert texts(pictures[0].get_xticklabels()) == ["0", "2", "4"]
    arrays = [np.asarray(np.ma.filled(axes.images[0].get_array(), -1.0)) for axes in pictures]
    assert np.array_equal(arrays[0], arrays[1])
    assert not np.array_equal(arrays[0], arrays[2])
    assert len(viz.image_grid(result, rows=100).axes[0].get_yticks()) == 8  # as many as there are
    assert texts(viz.image_grid(result, columns=2).axes[0].get_xticklabels()) == ["0", "4"]
    assert texts(viz.image_grid(result, titles=["a", "b", "c"]).axes[0].get_xticklabels()) == [
        "a",
        "b",
        "c",
    ]
    with pytest.raises(ad.InputError, match="a caption for each"):
        viz.image_grid(result, titles=["a"])


def test_images_refuse_points_and_other_samples():
    image = ad.LabeledDataset(torch.rand(4, 3, 3), [0] * 4)
    for frames, message in (
        ([], "a frame to draw"),
        ([gaussians()], "H, W"),
        ([ad.LabeledDataset(torch.rand(4, 3, 3, 2), [0] * 4)], "H, W"),
        ([image, image.subset([0, 1])], "the same samples"),
    ):
        with pytest.raises(ad.InputError, match=message):
            viz.image_grid(frames)


# Tables


def test_a_table_shows_names_numbers_and_gaps():
    table = ad.ClassTable(
        np.array([[0.5, np.nan], [2.0, 1e-4], [3.0, 4.0]]), ("cat", "dog", "owl"), (0, 1)
    )
    figure = viz.class_table(table, title="W₂")
    (axes,) = figure.axes
    assert texts(axes.texts) == ["0.5", "2", "0.0001", "3", "4"]
    assert hatched(axes) == {(0, 1)}
    assert texts(axes.get_yticklabels()) == ["cat", "dog", "owl"]
    assert texts(axes.get_xticklabels()) == ["0", "1"]
    assert figure.get_suptitle() == "W₂"
    with pytest.raises(ad.InputError, match="ClassTable"):
        viz.class_table(np.eye(2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ad.InputError, match="rows and columns"):
        viz.class_table(ad.ClassTable(np.zeros((0, 2)), (), (0, 1)))


def test_numbers_contrast_with_their_cells():
    def luminance(colour) -> float:
        return float(((lab(colour, deuteranope=False)[0] + 16) / 116) ** 3)

    for dark in (False, True):
        with viz.style(dark=dark):
            (axes,) = viz.class_table(
                ad.ClassTable(np.arange(49.0).reshape(7, 7), tuple(range(7)), tuple(range(7)))
            ).axes
        image = axes.images[0]
        for text in axes.texts:
            column, row = (round(place) for place in text.get_position())
            pair = (
                luminance(to_hex(image.cmap(image.norm(7.0 * row + column)))),
                luminance(text.get_color()),
            )
            assert (max(pair) + 0.05) / (
                min(pair) + 0.05
            ) > 4.4  # what readable text on the web must have is 4.5


def test_a_distance_and_a_matching_are_tables():
    a, b = gaussians(), gaussians(1).replace(classes=("x", "y", "z"))
    distance = ad.otdd(a, b)
    (axes,) = viz.class_table(distance).axes
    assert np.allclose(np.asarray(axes.images[0].get_array()), distance.class_distances.values)
    matching = ad.ClassMatching.between(a, b)
    (axes,) = viz.class_table(matching).axes
    assert np.allclose(np.asarray(axes.images[0].get_array()), matching.soft.values)
    framed = {(round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)) for patch in axes.patches}
    assert framed == {
        (a.classes.index(name), b.classes.index(match)) for name, match in matching.hard.items()
    }


@pytest.mark.slow
def test_large_tables_have_a_bar_instead_of_numbers_and_all_names_fit():
    names = tuple(f"the class that has number {k}" for k in range(26))
    figure = viz.class_table(ad.ClassTable(np.arange(26.0 * 26).reshape(26, 26), names, names))
    assert len(figure.axes) == 2
    assert len(figure.axes[0].texts) == 0
    assert len(set(texts(figure.axes[0].get_yticklabels()))) == 26  # their ends differ
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    for labels in (figure.axes[0].get_yticklabels(), figure.axes[0].get_xticklabels()):
        boxes = [label.get_window_extent(renderer) for label in labels]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
        assert all(
            box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            for box in boxes
        )


# Couplings


def test_lines_join_coupled_pairs():
    source, target = gaussians(), gaussians(1, shift=(9.0, 0.0))
    distance = ad.otdd(source, target, solver=ad.ExactOT())
    (axes,) = viz.coupling(distance).axes
    lines = {tuple(np.round(line.ravel(), 4)) for line in segments(axes)}
    i, j = distance.plan().numpy().nonzero()
    expected = np.hstack([source.x[i].numpy(), target.x[j].numpy()]).astype(float)
    assert lines == {tuple(np.round(row, 4)) for row in expected}
    assert axes.get_title() == "30 pairs, all of the mass"


def test_many_pairs_are_drawn_as_likely_as_their_mass():
    plan = np.array([[0.5, 0.0, 0.1], [0.0, 0.3, 0.1]])
    firsts = [tuple(int(place[0]) for place in drawn_pairs(plan, 1, seed)) for seed in range(4000)]
    for place, mass in np.ndenumerate(plan):
        assert firsts.count(place) / 4000 == pytest.approx(
            mass, abs=5 * np.sqrt(mass * (1 - mass) / 4000)
        )
    assert len(set(zip(*drawn_pairs(plan, 10, 0), strict=True))) == 4  # those with mass, each once
    smooth = ad.otdd(gaussians(), gaussians(1))
    (axes,) = viz.coupling(smooth, lines=50).axes
    assert len(segments(axes)) == 50
    assert axes.get_title() == "50 pairs, drawn by their mass"


def test_a_coupling_is_seen_through_a_view(images):
    other = images.replace(x=images.x.flip(1))
    view = viz.pca([images], other)
    distance = ad.otdd(images, other, solver=ad.ExactOT())
    (axes,) = viz.coupling(distance, view=view).axes
    starts = np.sort([line[0, 0] for line in segments(axes)])
    assert np.allclose(starts, np.sort(view.frames[0].x[:, 0].numpy()))
    with pytest.raises(ad.InputError, match="2 or in 3 dimensions"):
        viz.coupling(distance)
    with pytest.raises(ad.InputError, match="one frame and a target"):
        viz.coupling(distance, view=viz.pca([images]))
    with pytest.raises(ad.InputError, match="must hold the"):
        viz.coupling(distance, view=viz.pca([images.subset(range(9))], other))
    for draw in (viz.coupling, viz.coupling_matrix):
        with pytest.raises(ad.InputError, match="Distance"):
            draw(np.eye(3))


def test_the_matrix_is_sorted_by_class_and_keeps_the_mass():
    source, target = gaussians(), gaussians(1, classes=2)
    distance = ad.otdd(source, target)
    axes = viz.coupling_matrix(distance).axes[0]
    drawn = np.asarray(axes.collections[0].get_array()).reshape(30, 30)
    rows, columns = (np.argsort(data.y.numpy(), kind="stable") for data in (source, target))
    assert np.allclose(drawn, distance.plan().numpy()[rows][:, columns])
    assert [float(line.get_ydata()[0]) for line in axes.lines[:2]] == [10, 20]  # between classes
    assert [float(line.get_xdata()[0]) for line in axes.lines[2:]] == [15]
    assert texts(axes.get_xticklabels()) == ["0", "1"]


def test_large_matrices_are_added_up_within_classes():
    generator = torch.Generator().manual_seed(0)
    data = ad.datasets.gaussians(500, 3, generator=generator)
    distance = ad.otdd(data, data, solver=ad.ExactOT())
    mesh = viz.coupling_matrix(distance).axes[0].collections[0]
    drawn, edges = np.asarray(mesh.get_array()), mesh.get_coordinates()[0, :, 0]
    assert drawn.size < 200**2
    assert drawn.sum() == pytest.approx(1)
    assert {167.0, 334.0} <= set(edges.tolist())  # no bin holds two classes


# Views


def test_pca_is_one_linear_map_for_frames_and_target(images):
    moved, target = images.replace(x=images.x / 2), images.replace(x=1 - images.x)
    view = viz.pca([images, moved], target)
    assert view.target is not None
    together = torch.cat([images.x, moved.x, target.x]).double()
    centred = together - together.mean(dim=0)
    values = torch.linalg.svdvals(centred)[:2]
    seen = torch.cat([*(frame.x for frame in view.frames), view.target.x])
    assert torch.allclose(
        seen.square().sum(dim=0).sqrt(), values, rtol=1e-5
    )  # the largest variances, of all of them
    gram = seen @ seen.T
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    assert torch.allclose(gram, (u[:, :2] * s[:2] ** 2) @ u[:, :2].T, atol=1e-4)
    share = float(values[0] ** 2 / centred.square().sum())
    assert view.axes[0] == f"PC 1, {100 * share:.0f} % of the variance"


@pytest.mark.slow
def test_views_keep_steps_labels_and_samples():
    data = ad.LabeledDataset(
        torch.rand(80, 6, generator=torch.Generator().manual_seed(0)), [0, 1] * 40
    )
    result = ad.flow(data, ad.Potential(ad.norm()), n_steps=4, callbacks=[ad.Recorder(every=2)])
    for view, n in ((viz.pca(result, dim=3), 80), (viz.tsne(result, samples=20), 20)):
        assert [frame.index for frame in view.frames] == [0, 2, 4]
        assert {len(frame.dataset) for frame in view.frames} == {n}
    kept = viz.tsne(result, samples=20, columns=2)
    assert len(kept.frames) == 2
    assert torch.equal(kept.frames[0].dataset.y, kept.frames[1].dataset.y)


@pytest.mark.slow
def test_tsne_keeps_clusters_together():
    generator = torch.Generator().manual_seed(0)
    centres = 20 * torch.eye(3, 10)
    x = centres.repeat(20, 1) + torch.randn(60, 10, generator=generator)
    data = ad.LabeledDataset(x, [0, 1, 2] * 20)
    view = viz.tsne([data], data, perplexity=10)
    points, codes = view.frames[0].x.numpy(), data.y.numpy()
    apart = squareform(pdist(points)) + np.diag([np.inf] * 60)
    assert (codes[apart.argmin(axis=1)] == codes).all()
    assert view.target is not None
    assert np.linalg.norm(view.target.x.numpy() - points, axis=1).max() < 0.3 * np.ptp(
        points
    )  # the same points, seen alike


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([ad.LabeledDataset([[1.0], [2.0]], [0, 0])], {}, "at least 2"),
        ([gaussians()], {"dim": 3}, "at least 3"),
        ([gaussians()], {"dim": 4}, "2 or 3 dimensions"),
        ([gaussians()], {"target": ad.datasets.swiss_roll(8)}, "one dimension"),
        ([], {}, "a frame to draw"),
    ],
)
def test_views_refuse_what_cannot_be_projected(frames, options, message):
    for draw in (viz.pca, viz.tsne):
        with pytest.raises(ad.InputError, match=message):
            draw(frames, **options)


def test_tsne_refuses_a_perplexity_of_too_many_neighbours():
    with pytest.raises(ad.InputError, match="perplexity"):
        viz.tsne([gaussians()], perplexity=30)


# Pairs


def planar(k: int, seed: int = 0) -> np.ndarray:
    return squareform(pdist(np.random.default_rng(seed).normal(size=(k, 2))))


def test_the_map_of_planar_distances_reproduces_them():
    distances = planar(9)
    figure = viz.pairwise(distances, list("abcdefghi"))
    heat, _, plane = figure.axes
    drawn = np.asarray(clouds(plane)[0].get_offsets())
    assert np.allclose(squareform(pdist(drawn)), distances, atol=1e-6)
    assert plane.get_title() == "map, stress 0.00"
    names = texts(heat.get_yticklabels())
    order = [list("abcdefghi").index(name) for name in names]
    assert np.allclose(np.asarray(heat.images[0].get_array()), distances[np.ix_(order, order)])


def test_the_map_of_other_distances_is_no_worse_than_classical_scaling_or_neighbours():
    random = np.random.default_rng(0)
    distances = squareform(pdist(random.normal(size=(12, 6)), "cityblock"))
    points, stress = plane_map(distances)

    def error(x):
        return np.sqrt(((squareform(pdist(x)) - distances) ** 2).sum() / (distances**2).sum())

    assert stress == pytest.approx(error(points))
    centred = np.eye(12) - 1 / 12
    values, vectors = np.linalg.eigh(-0.5 * centred @ distances**2 @ centred)
    assert stress < error(vectors[:, -2:] * np.sqrt(values[-2:]))
    for _ in range(20):
        assert stress <= error(points + 0.01 * random.normal(size=points.shape)) + 1e-9


@pytest.mark.slow
def test_the_tree_brings_groups_together():
    places = np.random.default_rng(0).normal(size=(9, 2))
    places[5:, 0] += 20
    shuffled = np.random.default_rng(2).permutation(9)
    groups = ["near" if place < 5 else "far" for place in shuffled]
    distances = squareform(pdist(places[shuffled]))
    figure = viz.pairwise(distances, [f"{group} {k}" for k, group in enumerate(groups)])
    heat, tree, _ = figure.axes
    order = [name.split()[0] for name in texts(heat.get_yticklabels())]
    assert len(list(itertools.groupby(order))) == 2
    assert texts(heat.get_xticklabels()) == texts(heat.get_yticklabels())
    branches = segments(tree)
    assert len(branches) == 8  # one join for each but the last
    between = np.array([[a != b for a in groups] for b in groups])
    assert max(line[:, 1].max() for line in branches) == pytest.approx(
        distances[between].mean()
    )  # average linkage
    assert {float(x) for line in branches for x, y in line if y == 0} == set(map(float, range(9)))


def test_failed_pairs_are_hatched_and_left_out():
    distances = planar(6)
    distances[1, 4] = distances[4, 1] = np.nan
    distances[1, 2] = distances[2, 1] = np.nan
    figure = viz.pairwise(distances, list("abcdef"))
    heat, tree, plane = figure.axes
    names = texts(heat.get_yticklabels())
    assert names[-1] == "b"
    assert hatched(heat) == {(names.index(a), names.index(b)) for a, b in ("be", "eb", "bc", "cb")}
    assert len(heat.texts) == 36 - 4
    assert len(segments(tree)) == 4
    assert len(clouds(plane)[0].get_offsets()) == 5
    assert sorted(texts(plane.texts)) == list("acdef")


def test_complete_parts_are_complete_and_cannot_grow():
    random = np.random.default_rng(0)
    for _ in range(20):
        distances = planar(8, seed=int(random.integers(1000)))
        for i, j in random.integers(8, size=(4, 2)):
            if i != j:
                distances[i, j] = distances[j, i] = np.nan
        kept = complete_part(distances)
        assert not np.isnan(distances[np.ix_(kept, kept)]).any()
        assert all(np.isnan(distances[i, kept]).any() for i in set(range(8)) - set(kept))


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3, 40])
def test_pairs_of_any_number_are_drawn_with_names_that_do_not_overlap(k):
    names = [f"dataset of number {position}" for position in range(k)]
    figure = viz.pairwise(planar(k), names)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    if k >= 3:
        plane = (
            figure.axes[-1]
            if k <= 15
            else next(axes for axes in figure.axes if axes.get_title().startswith("map"))
        )
        boxes = [text.get_window_extent(renderer) for text in plane.texts]
        assert len(boxes) >= min(k, 20)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        frame = plane.get_window_extent(renderer)
        assert all(
            frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            for box in boxes
        )


def test_nothing_but_failed_pairs_is_still_a_table():
    failed = np.full((3, 3), np.nan)
    heat, tree = viz.pairwise(failed, list("abc")).axes
    assert len(hatched(heat)) == 6
    assert segments(tree) == []


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (np.zeros((2, 3)), "ab", "(k, k)"),
        (np.zeros(4), list("abcd"), "(k, k)"),
        (np.zeros((1, 1)), ["a"], "(k, k)"),
        (np.zeros((2, 2)), ["a"], "a name for each"),
        (np.zeros((2, 2)), "ab", "a name for each"),
        ([[0, 1], [2, 0]], ["a", "b"], "symmetric"),
        ([[0, np.nan], [2, 0]], ["a", "b"], "symmetric"),
        ([[0, -1], [-1, 0]], ["a", "b"], "not negative"),
        ([[0, np.inf], [np.inf, 0]], ["a", "b"], "finite"),
        ([[1, 2], [2, 1]], ["a", "b"], "0 from a thing to itself"),
        ([["x", "y"], ["z", "w"]], ["a", "b"], "numbers"),
    ],
)
def test_pairs_refuse_what_is_no_distance(values, names, message):
    with pytest.raises(ad.InputError, match=re.escape(message)):
        viz.pairwise(values, names)


# Films


def lengths(path: Path) -> list[int]:
    """Milliseconds of each picture of a GIF."""
    with Image.open(path) as film:
        found = []
        for position in range(film.n_frames):
            film.seek(position)
            found.append(film.info["duration"])
    return found


@pytest.mark.slow
def test_a_gif_has_a_picture_for_each_frame_and_lasts_as_long_as_asked(result, tmp_path):
    path = viz.animation(
        result, tmp_path / "new" / "flow.gif", fps=12, hold=0.5, target=gaussians(1), dpi=60
    )
    found = lengths(path)
    assert len(found) == len(result.trajectory)
    assert sum(found) == pytest.approx(1000 * len(found) / 12 + 500, abs=10)
    assert found[-1] > 500 > found[0]
    with Image.open(path) as film:
        assert film.info["loop"] == 0  # for ever
        assert film.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_pictures_of_a_film_differ_where_particles_move_and_nowhere_else(result, tmp_path):
    path = viz.animation(result, tmp_path / "flow.gif", trails=0, ellipses=False, dpi=60, hold=0)
    with Image.open(path) as film:
        pictures = []
        for position in range(film.n_frames):
            film.seek(position)
            pictures.append(np.asarray(film.convert("RGB"), dtype=int))
    changed = np.abs(np.diff(pictures, axis=0)).max(axis=(0, 3)) > 40
    rows = np.flatnonzero(changed.any(axis=1))
    assert changed.any()
    assert rows.max() < 0.9 * len(changed)  # the legend stays


@pytest.mark.slow
def test_films_of_images_and_of_many_dimensions(images, tmp_path):
    flowed = ad.flow(images, ad.Potential(ad.norm()), n_steps=3, callbacks=[ad.Recorder()])
    calls = []
    path = viz.animation(
        flowed,
        tmp_path / "a.gif",
        rows=6,
        dpi=50,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert len(lengths(path)) == 4
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    path = viz.animation(
        flowed.trajectory, tmp_path / "b.gif", kind="particles", target=images, dpi=50
    )
    assert len(lengths(path)) == 4
    roll = ad.datasets.swiss_roll(20, generator=torch.Generator().manual_seed(0))
    path = viz.animation([roll, roll.replace(x=roll.x / 2)], tmp_path / "c.gif", dpi=50)
    assert len(lengths(path)) == 2


@pytest.mark.slow
def test_a_film_may_have_frames_of_different_sizes(tmp_path):
    path = viz.animation([gaussians(), gaussians().subset(range(9))], tmp_path / "a.gif", dpi=50)
    assert len(lengths(path)) == 2


@pytest.mark.slow
def test_a_dark_film_is_dark(result, tmp_path):
    with viz.style(dark=True):
        path = viz.animation(result, tmp_path / "a.gif", dpi=50)
    with Image.open(path) as film:
        assert to_hex(np.array(film.convert("RGB").getpixel((0, 0))) / 255).upper() == DARK.ground


def test_an_mp4_has_the_frames_and_the_rate(result, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = viz.animation(result, tmp_path / "flow.mp4", fps=8, hold=0.5, dpi=60)
    count, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert count == len(result.trajectory) + 4
    assert seconds == pytest.approx(count / 8, abs=0.05)
    assert list(tmp_path.iterdir()) == [path]


def test_mp4_without_the_extra_names_it(result, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("imageio_ffmpeg"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ad.InputError, match=re.escape("advect[video]")):
        viz.animation(result, tmp_path / "flow.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("frames", "name", "options", "message"),
    [
        ([], "a.gif", {}, "a frame to draw"),
        ([gaussians()], "a.avi", {}, "a .gif or an .mp4"),
        ([gaussians()], "a", {}, "a .gif or an .mp4"),
        ([gaussians()], "a.gif", {"fps": 0}, "fps"),
        ([gaussians()], "a.gif", {"fps": 100}, "at most 50"),
        ([gaussians()], "a.gif", {"kind": "images"}, "H, W"),
        ([gaussians()], "a.gif", {"kind": "picture"}, "unknown kind"),
        ([ad.LabeledDataset([[1.0]], [0])], "a.gif", {}, "2 or in 3 dimensions"),
        ([gaussians()], "a.gif", {"progress": "yes"}, "progress"),
    ],
)
def test_films_refuse_and_leave_nothing(frames, name, options, message, tmp_path):
    with pytest.raises(ad.InputError, match=message):
        viz.animation(frames, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_film_that_breaks_off_keeps_the_old_file(result, tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"old")

    def fail(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        viz.animation(result, path, dpi=50, progress=fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


# Saving, and what drawing leaves untouched


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("deep/er/a.pdf", b"%PDF"), ("a.svg", b"<?xml")]
)
def test_saving_makes_folders_and_leaves_nothing_beside(tmp_path: Path, name, magic):
    path = viz.save(viz.particles([gaussians()]), tmp_path / name)
    assert path.read_bytes().startswith(magic)
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch):
    figure, path = viz.particles([gaussians()]), tmp_path / "a.png"
    path.write_bytes(b"old")

    def fail(*args, **options):
        raise RuntimeError("no ink")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(RuntimeError, match="no ink"):
        viz.save(figure, path)
    assert path.read_bytes() == b"old"
    with pytest.raises(ad.InputError, match="suffix"):
        viz.save(figure, tmp_path / "a.picture")
    with pytest.raises(ad.InputError, match="only figures"):
        viz.save(gaussians(), tmp_path / "b.png")  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_drawing_needs_no_pyplot_and_importing_no_matplotlib():
    heavy = "{'matplotlib', 'sklearn', 'PIL', 'imageio_ffmpeg'}"
    code = (
        f"import sys, torch, advect as ad; from advect import viz; assert not {heavy} & "
        "set(sys.modules);"
        "viz.particles([ad.datasets.moons(10)]); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_drawing_reads_and_changes_no_setting(result):
    import matplotlib

    with matplotlib.rc_context(
        {"axes.facecolor": "red", "text.color": "red", "figure.facecolor": "red"}
    ):
        before = dict(matplotlib.rcParams)
        figure = viz.pairwise(planar(4), list("abcd"))
        assert dict(matplotlib.rcParams) == before
    assert to_hex(figure.get_facecolor()).upper() == LIGHT.ground
    assert {to_hex(axes.get_facecolor()).upper() for axes in figure.axes} == {LIGHT.ground}


def test_every_function_has_a_runnable_example():
    assert all(">>>" in getattr(viz, name).__doc__ for name in viz.__all__ if name != "PALETTE")


def test_the_guide_shows_each_picture_that_it_makes():
    text = (DOCS / "figures.md").read_text()
    shown, made = re.findall(r"\]\(img/(fig-.*?)\)", text), re.findall(r'"(fig-.*?)"', text)
    assert sorted(shown) == sorted(made)
    assert all((DOCS / "img" / name).stat().st_size < 300_000 for name in shown)
    functions = set(viz.__all__) - {"PALETTE", "View"}
    assert all(f"viz.{name}" in text for name in functions)


@pytest.mark.slow
def test_the_gallery_draws_every_kind(tmp_path):
    script = DOCS.parent / "experiments" / "gallery.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(map(str, tmp_path.iterdir()))
    text = script.read_text()
    assert all(f"viz.{name}" in text for name in viz.__all__ if name != "PALETTE")
