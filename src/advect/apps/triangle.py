"""Barycenters of three datasets over a triangle of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.apps.barycenter import Barycenter, barycenter
from advect.apps.pages import write_page
from advect.data.dataset import LabeledDataset


@dataclass(frozen=True, eq=False)
class Triangle:
    """Barycenters of three datasets, of ``ad.triangle``.

    Attributes:
        datasets: the corners.
        nodes: a ``Barycenter`` for each node, from the corner of the first dataset to the side of the
            others, row by row.
        n: steps along a side; there are (n + 1)(n + 2)/2 nodes.

    Example:
        >>> import advect as ad
        >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
        >>> found = ad.triangle(*sets, n=2)
        >>> len(found.nodes), found.nodes[1].weights.tolist(), found.converged
        (6, [0.5, 0.5, 0.0], True)
    """

    datasets: tuple[LabeledDataset, ...]
    nodes: tuple[Barycenter, ...]
    n: int

    def __repr__(self) -> str:
        return f"Triangle(n={self.n}, {len(self.nodes)} nodes, converged={self.converged})"

    @property
    def converged(self) -> bool:
        """Whether all nodes have."""
        return all(node.converged for node in self.nodes)

    @property
    def weights(self) -> list[list[float]]:
        """Of the nodes."""
        return [node.weights.tolist() for node in self.nodes]

    def followed(self, each: int = 4) -> list[list[int]]:
        """Some samples of the node in the middle, the heaviest of each class in turn, and in every
        other node the sample that is nearest to where their plans take them: rows for each node.
        """
        middle = min(self.nodes, key=lambda node: float((node.weights - 1 / 3).abs().sum()))
        chosen = _in_turn(middle.dataset, min(check_count("each", each), len(middle.dataset)))
        ends = [_ends(middle, s, chosen) for s in range(3)]
        rows = []
        for node in self.nodes:
            parts = zip(node.weights.tolist(), ends, strict=True)
            wanted = torch.stack([weight * end for weight, end in parts]).sum(dim=0)
            rows.append(torch.cdist(wanted, node.dataset.x.double()).argmin(dim=1).tolist())
        return rows

    def figure(self, **options: Any) -> Any:
        """The triangle as a picture: images in small sheets, points in panels; ``names`` of the
        corners and other options as of ``viz.between.triangle_figure``.
        """
        from advect.data.spaces.images import layout
        from advect.viz.between import triangle_figure

        if layout(self.datasets[0].sample_shape) is not None:
            options = {"rows": self.followed(), **options}
        soft = [node.probabilities for node in self.nodes]
        return triangle_figure([node.dataset for node in self.nodes], self.weights, soft, **options)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: the picture and the values of all nodes; see
        ``advect.report.write_triangle_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.triangle(*sets, n=2).report(f"{folder}/triangle.html").name
            'triangle.html'
        """
        return write_page("write_triangle_report", self, path, options)


def triangle(
    a: LabeledDataset,
    b: LabeledDataset,
    c: LabeledDataset,
    *,
    n: int = 4,
    progress: Progress = None,
    **options: Any,
) -> Triangle:
    """Barycenters of three datasets over a triangle of weights, for a figure and a page.

    Sides are paths between two datasets, corners the datasets themselves.

    Args:
        a, b, c: datasets in one feature space.
        n: steps along a side.
        progress: None shows it on stderr when it takes long, False is silent, a function is called
            with (done, total) nodes.
        options: those of ``ad.barycenter``: cost, solver, size, max_iterations, tolerance, …

    Example:
        >>> import advect as ad
        >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
        >>> round(ad.triangle(*sets, n=3).nodes[4].dataset.x[:, 0].mean().item())
        4
    """
    n = check_count("n", n)
    places = [((n - row) / n, (row - q) / n, q / n) for row in range(n + 1) for q in range(row + 1)]
    nodes = []
    with track(len(places), "triangle", progress) as advance:
        for weights in places:
            nodes.append(barycenter((a, b, c), weights, progress=False, **options))
            advance(1)
    return Triangle((a, b, c), tuple(nodes), n)


def _in_turn(data: LabeledDataset, k: int) -> Tensor:
    """The heaviest samples of each class in turn."""
    order = torch.argsort(data.weights, descending=True, stable=True).tolist()
    codes, seen = data.y.tolist(), dict.fromkeys([*range(-1, len(data.classes))], 0)
    turns: list[tuple[int, int, int]] = []
    for row in order:
        turns.append((seen[codes[row]], codes[row], row))
        seen[codes[row]] += 1
    return torch.tensor([row for *_, row in sorted(turns)[:k]])


def _ends(node: Barycenter, s: int, rows: Tensor) -> Tensor:
    """Where samples of a node go in a dataset; the nearest sample where they have no plan."""
    data, plan = node.datasets[s].x.double(), node.plans[s]
    if plan is None:
        near = torch.cdist(node.dataset.x[rows].double(), data).argmin(dim=1)
        return data[near]
    mass = plan @ torch.ones(len(data), 1, dtype=torch.float64, device=data.device)
    return ((plan @ data) / mass)[rows]
