"""Figures show what they are given: panels, points, ellipses, curves, images, tables; and refuse what cannot be drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import advect as ad

pytest.importorskip("matplotlib")
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse

from advect import viz


def gaussians(seed: int = 0, **options) -> ad.LabeledDataset:
    return ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(seed), **options)


def clouds(axes) -> list[PathCollection]:
    return [artist for artist in axes.collections if isinstance(artist, PathCollection)]


def ellipses(axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


@pytest.fixture(scope="module")
def result() -> ad.FlowResult:
    source, target = gaussians(), gaussians(1, shift=(9.0, 0.0))
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    objective = ad.OTDD(target) + 0.1 * ad.Potential(ad.norm())
    return ad.flow(source, objective, n_steps=6, callbacks=[ad.Recorder(every=2), metric])


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


def test_ellipses_are_two_deviations_of_the_class_law():
    law = ad.Gaussians(torch.tensor([[1.0, 2.0]]), ad.Full(torch.tensor([[[9.0, 0.0], [0.0, 1.0]]])))
    data = ad.LabeledDataset([[0.0, 0.0], [1.0, 1.0]], ["a", "a"], law=law)
    (ellipse,) = ellipses(viz.particles([data]).axes[0])
    assert ellipse.get_center() == pytest.approx((1.0, 2.0))
    assert ellipse.get_width() == pytest.approx(4.0)  # 2σ on both sides along the direction of least variance
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
    assert [patch.get_linestyle() != "-" and patch.get_linestyle() != "solid" for patch in patches] == [True] * 3 + [False] * 3


def test_trails_end_at_the_frame(result):
    first, *_, last = viz.particles(result.trajectory, trails=result.trajectory).axes
    assert len(first.lines) == 0
    assert {len(line.get_xdata()) for line in last.lines} == {len(result.trajectory)}
    starts = sorted(line.get_xdata()[0] for line in last.lines)
    assert np.allclose(starts, sorted(result.source.x[:, 0].tolist()))


def test_panels_of_a_row_share_limits_and_rows_have_names(result):
    rows = {"near": list(result.trajectory), "far": [d.dataset.replace(x=10 * d.dataset.x) for d in result.trajectory]}
    axes = np.reshape(viz.particle_grid(rows).axes, (2, -1))
    assert len({panel.get_xlim() for panel in axes[0]}) == 1
    assert axes[0, 0].get_xlim() != axes[1, 0].get_xlim()
    assert [panel.get_ylabel() for panel in axes[:, 0]] == ["near", "far"]


def test_space_is_drawn_in_three_dimensions(result):
    roll = ad.datasets.swiss_roll(40, generator=torch.Generator().manual_seed(0))
    figure = viz.particles([roll, roll], roll, titles=["one", "two"])
    assert [axes.name for axes in figure.axes] == ["3d", "3d"]
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]


def test_the_legend_names_classes_and_target():
    (legend,) = viz.particles([gaussians()], gaussians(1)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["class 0", "class 1", "class 2", "target"]


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([], {}, "same number of frames"),
        ([ad.LabeledDataset([[1.0]], [0])], {}, "2 or in 3 dimensions"),
        ([ad.LabeledDataset(torch.ones(2, 5), [0, 1])], {}, "2 or in 3 dimensions"),
        ([gaussians()], {"target": ad.datasets.swiss_roll(8)}, "2 or in 3 dimensions"),
        ([gaussians()], {"titles": ["a", "b"]}, "a title for each"),
        ([np.ones((3, 2))], {}, "LabeledDataset or a recorded Frame"),
        (gaussians(), {}, "a list or a trajectory"),
        ([gaussians()], {"trails": [gaussians(), gaussians().subset([0, 1])]}, "the same samples"),
    ],
)
def test_particles_refuse_what_cannot_be_drawn(frames, options, message):
    with pytest.raises(ad.InputError, match=message):
        viz.particles(frames, **options)


# Curves, images, tables


def test_curves_show_the_objective_its_terms_and_metrics(result):
    main, metric = viz.curves(result).axes
    assert [line.get_label() for line in main.lines] == ["objective", *result.terms]
    assert np.allclose(main.lines[0].get_ydata(), result.values)
    assert main.get_yscale() == "log"
    assert metric.get_ylabel() == "spread"
    assert np.allclose(np.column_stack(metric.lines[0].get_data()), result.metrics["spread"])


def test_curves_below_zero_are_linear():
    result = ad.flow(gaussians(), ad.Interaction(ad.spreading()), n_steps=2)
    (axes,) = viz.curves(result).axes
    assert axes.get_yscale() == "linear"
    with pytest.raises(ad.InputError, match="FlowResult"):
        viz.curves(result.values)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
def test_images_sit_in_their_cells(shape):
    x = torch.rand(12, *shape, generator=torch.Generator().manual_seed(0))
    first = ad.LabeledDataset(x, ["a", "b", "c"] * 4)
    frames = [first, first.replace(x=first.x / 2)]
    (axes,) = viz.image_grid(frames, rows=6).axes
    mosaic = np.asarray(axes.images[0].get_array())
    assert mosaic.shape[:2] == (6 * 5 - 1, 2 * 7 - 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "a", "b", "b", "c", "c"]
    left, right = mosaic[:4, :6], mosaic[:4, 7:13]
    assert np.allclose(right, left / 2)
    assert any(np.allclose(left, image) for image in x[first.y == 0].numpy())


def test_image_columns_are_steps_and_the_seed_fixes_the_samples():
    images = ad.LabeledDataset(torch.rand(8, 3, 3, generator=torch.Generator().manual_seed(0)), [0, 1] * 4)
    result = ad.flow(images, ad.Potential(ad.norm()), n_steps=4, callbacks=[ad.Recorder(every=2)])
    pictures = [viz.image_grid(result.trajectory, rows=4, seed=seed).axes[0] for seed in (0, 0, 5)]
    assert [label.get_text() for label in pictures[0].get_xticklabels()] == ["0", "2", "4"]
    arrays = [np.asarray(axes.images[0].get_array()) for axes in pictures]
    assert np.array_equal(arrays[0], arrays[1])
    assert not np.array_equal(arrays[0], arrays[2])
    assert len(viz.image_grid(result.trajectory, rows=100).axes[0].get_yticks()) == 8  # as many as there are


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


def test_a_table_shows_names_numbers_and_gaps():
    table = ad.ClassTable(np.array([[0.5, np.nan], [2.0, 1e-4], [3.0, 4.0]]), ("cat", "dog", "owl"), (0, 1))
    (axes,) = viz.class_table(table, title="W₂").axes
    assert [text.get_text() for text in axes.texts] == ["0.5", "–", "2", "0.0001", "3", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "owl"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]
    assert axes.get_title() == "W₂"
    with pytest.raises(ad.InputError, match="ClassTable"):
        viz.class_table(np.eye(2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ad.InputError, match="rows and columns"):
        viz.class_table(ad.ClassTable(np.zeros((0, 2)), (), (0, 1)))


# Saving, and what drawing leaves untouched


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("deep/er/a.pdf", b"%PDF"), ("a.svg", b"<?xml")])
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


def test_drawing_needs_no_pyplot_and_importing_no_matplotlib():
    code = (
        "import sys, torch, advect as ad; from advect import viz; assert 'matplotlib' not in sys.modules;"
        "viz.particles([ad.datasets.moons(10)]); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
