"""Two labeled datasets on lines: W₂² along each, and the part of it that means have.

On a line W₂² is the squared difference of means and W₂² of what is centred. Along uniform directions the first
part has a known expectation, |Δμ|²/d, and most of the noise: random values of it are a control variate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util.linalg import mass_centre
from advect.data.dataset import LabeledDataset
from advect.data.laws import class_shares
from advect.errors import InputError
from advect.functionals.projections import Frame, LabelLines, Lines, along

ENTRIES = 2_000_000  # numbers in an array of a group of projections
FOLDS = 5  # in which the weight of the control variate is found by the other ones
FEWEST = 50  # lines for which it is used: fewer say little about that weight


@dataclass(frozen=True, eq=False)
class Pair:
    """Two datasets in one frame.

    Attributes:
        labels: how label laws are described; None for features alone.
        label_weight: what they count for.
    """

    a: LabeledDataset
    b: LabeledDataset
    labels: LabelLines | None
    label_weight: float
    frame: Frame

    @cached_property
    def points(self) -> tuple[Tensor, Tensor]:
        """Features around the centre."""
        return self.a.x - self.frame.centre, self.b.x - self.frame.centre

    @cached_property
    def shares(self) -> list[tuple[Tensor, Tensor] | None]:
        return [
            class_shares(data.y, data.weights, len(data.classes))
            if self.labels is not None and data.law is None
            else None
            for data in (self.a, self.b)
        ]

    def squares(self, lines: Lines) -> Tensor:
        """W₂² along each line, (p,) float64; a group of lines at a time, recomputed when
        differentiated.
        """
        group = max(1, ENTRIES // (len(self.a) + len(self.b)))

        def found(start: int) -> Tensor:
            some = lines.some(start, start + group, self.points[0])
            x, y = (
                self._image(data, part, some, share)
                for data, part, share in zip(
                    (self.a, self.b), self.points, self.shares, strict=True
                )
            )
            return wasserstein_1d(x, y, self.a.weights, self.b.weights)

        starts = range(0, len(lines), group)
        differentiated = torch.is_grad_enabled() and _moves(self.a, self.b)
        return torch.cat([_later(found, at) if differentiated else found(at) for at in starts])

    def _image(
        self,
        data: LabeledDataset,
        points: Tensor,
        lines: Lines,
        share: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """The number of each sample on each line, (p, n)."""
        features = (points @ lines.theta).T  # (p, n)
        if self.labels is None:
            return features * lines.psi[0][:, None]
        unit = self.frame.unit
        if data.law is not None:
            laws = along(data, lines.theta, self.frame.centre)
            numbers = self.labels.of_law(lines, *laws, unit)
        else:
            assert share is not None
            images = features.detach() if data.fixed_laws else features
            weights, scales = (part.to(lines.theta) for part in share)
            k = len(data.classes)
            numbers = self.labels.of_samples(lines, images, data.y, (weights, scales), k, unit)
        numbers = math.sqrt(self.label_weight) * numbers
        return lines.psi[0][:, None] * features + numbers[:, data.law_rows]

    @cached_property
    def apart(self) -> tuple[Tensor, Tensor]:
        """Differences of the mean features and of the mean of label laws, (d,) float64."""
        features, laws = [], []
        for data, points in zip((self.a, self.b), self.points, strict=True):
            mass = data.weights.to(points.dtype)
            features.append((mass @ points).double())
            if data.law is None:
                laws.append(features[-1].detach() if data.fixed_laws else features[-1])
            else:
                shares = mass.new_zeros(len(data.law.means)).index_add(0, data.law_rows, mass)
                laws.append((shares @ (data.law.means - self.frame.centre).to(mass)).double())
        return features[0] - features[1], laws[0] - laws[1]

    def of_means(self, lines: Lines, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The squared difference of linear means along each line, (p,), and its expectation for
        lines that are uniform in all directions, or in those that are orthogonal to the
        orthonormal columns of ``without``, (d, r).
        """
        features, laws = self.apart
        theta, psi = lines.theta.to(features), lines.psi.to(features)
        found, dim = psi[0] * (features @ theta), len(features)
        if self.labels is not None:
            slope = math.sqrt(self.label_weight) * self.labels.slope(lines).to(features)
            found = found + slope * (laws @ theta)
        if without is not None:
            basis, dim = without.to(features), dim - without.shape[1]
            features, laws = (
                features - basis @ (basis.T @ features),
                laws - basis @ (basis.T @ laws),
            )
        expected = features.square().sum()
        if self.labels is not None:
            expected = expected + self.label_weight * self.labels.straight * laws.square().sum()
        return found.square(), expected / (len(lines.psi) * dim)


def controlled(values: Tensor, control: Tensor, expected: Tensor) -> Tensor:
    """Values minus what a control variate explains of their noise: as many numbers, with the same
    expectation and less spread, (p,).

    v_l − β_l (c_l − E c), where β_l is found by regression of v on c on the draws of other folds
    than that of l: so β_l and c_l are independent, and nothing is biased, nor are gradients, which
    take β as it is. It is held within 0 and 1, where a value that is at least its control stays
    positive. Fewer than fifty values are given back as they are.

    Example:
        >>> drawn = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> better = controlled(3 + drawn.square(), drawn.square(), torch.tensor(1.0))
        >>> round(better.mean().item(), 12), bool(better.std() < 1e-9)
        (4.0, True)
    """
    if len(values) < FEWEST:
        return values
    with torch.no_grad():
        fold = torch.arange(len(values), device=values.device) % FOLDS
        kept = (fold != torch.arange(FOLDS, device=values.device)[:, None]).to(values)
        kept = kept / kept.sum(dim=1, keepdim=True)
        # in units of its own: squares of what is small or large would vanish or be infinite
        size = control.abs().max()
        unit = torch.where(size > 0, size, 1)
        c, v = control / unit, values / unit
        c = c - (kept @ c)[:, None]
        v = v - (kept @ v)[:, None]
        spread = (kept * c.square()).sum(dim=1)
        slope = (kept * c * v).sum(dim=1) / torch.where(spread > 0, spread, 1)
        weight = slope.clamp(0, 1)[fold]
    return values - weight * (control - expected)


def check_pair(a: LabeledDataset, b: LabeledDataset, label_weight: float) -> None:
    """They are in one space, and have labels where these count."""
    if a.dim != b.dim:
        raise InputError(
            "both datasets must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Use ad.harmonize first.",
        )
    for data in (a, b):
        if label_weight and data.law is None:
            data.require_classes("a sliced distance with labels")
            data.require_labels("a sliced distance with labels")
        if label_weight:
            data.require_hard("a sliced distance with labels")


def middle(a: LabeledDataset, b: LabeledDataset) -> Tensor:
    """Between the means of two datasets, in the wider dtype of the two, as all that follows."""
    return (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2


def spread(centre: Tensor, *datasets: LabeledDataset) -> float:
    """The root mean square of single features around a centre; 1 where nothing differs."""
    squares = [
        float(data.weights @ (data.x.detach() - centre).double().square().mean(dim=1))
        for data in datasets
    ]
    return math.sqrt(sum(squares) / len(squares)) or 1.0


def _later(function: Callable[[int], Tensor], start: int) -> Tensor:
    """The function now, its insides again when a gradient is asked for."""
    return cast(Tensor, checkpoint(function, start, use_reentrant=False, preserve_rng_state=False))


def _moves(*datasets: LabeledDataset) -> bool:
    return any(
        data.x.requires_grad or (data.law is not None and data.law.requires_grad)
        for data in datasets
    )


def wasserstein_1d(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """W₂² between rows of x (p, n) with weights a (n,) and rows of y (p, m) with weights b (m,), by
    sorting; (p,) float64.

    Differentiable in x and y: the plan of sorted points does not change with small moves.

    Example:
        >>> import torch
        >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
        >>> wasserstein_1d(torch.tensor([[0.0, 1.0]]), torch.tensor([[4.0, 3.0]]), half, half).tolist()
        [9.0]
    """
    # Points without mass go: rounding of sums of mass would give them some, and they may be
    # anywhere.
    x, a = (x, a) if bool((a > 0).all()) else (x[:, a > 0], a[a > 0])
    y, b = (y, b) if bool((b > 0).all()) else (y[:, b > 0], b[b > 0])
    x, x_order = x.sort(dim=1)
    y, y_order = y.sort(dim=1)
    n, m = x.shape[1], y.shape[1]
    even = (
        n == m
        and bool((a - 1 / n).abs().max() < 1e-12 / n)
        and bool((b - 1 / m).abs().max() < 1e-12 / m)
    )
    if even:
        return (x - y).double().square().mean(dim=1)
    below_x, below_y = (
        a[x_order].cumsum(dim=1),
        b[y_order].cumsum(dim=1),
    )  # (p, n), (p, m): mass up to each point
    levels = torch.cat([below_x, below_y], dim=1).clamp_max(1.0).sort(dim=1)[0]
    masses = levels.diff(dim=1, prepend=levels.new_zeros(len(levels), 1))
    middles = levels - masses / 2
    at_x = torch.searchsorted(below_x, middles).clamp_max(n - 1)
    at_y = torch.searchsorted(below_y, middles).clamp_max(m - 1)
    return (masses * (x.gather(1, at_x) - y.gather(1, at_y)).double().square()).sum(dim=1)
