"""Sliced dataset distances: transport along random lines, where sorting solves it.

A direction θ makes a labeled sample (x, y) the point (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½) with w = label_weight:
on a line, W₂ between Gaussians is Euclidean in mean and deviation. A second direction ψ of three components
makes the point a number. The energy ½ · 3d · E W₂² is in the units of the OTDD, is at most the exact OTDD
with Gaussian labels, and equals it if one dataset is the other one translated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util import check_count, check_non_negative, refuse_if
from advect.data import LabeledDataset, law_rows, require_classes, require_hard, require_labels
from advect.data.laws import class_shares, mass_centre, root
from advect.functionals.base import Functional, State
from advect.transport.transport import check_dataset

ENTRIES = 2_000_000  # numbers in an array of a group of projections


@dataclass(frozen=True)
class SlicedDistance:
    """A sliced distance with its sampling error.

    Attributes:
        energy: half the squared distance, in units of squared features.
        standard_error: of the energy, from the spread over directions.
        n_projections: number of lines.
    """

    energy: float
    standard_error: float
    n_projections: int

    @property
    def value(self) -> float:
        """√(2 energy), in the units of the features."""
        return math.sqrt(2 * max(self.energy, 0.0))

    def __float__(self) -> float:
        return self.value


def sliced_otdd(
    source: LabeledDataset,
    target: LabeledDataset,
    n_projections: int = 500,
    *,
    label_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> SlicedDistance:
    """The sliced distance between two labeled datasets, in O(n log n) for each projection.

    Use it to rank many or large datasets. It is, in expectation, a lower bound of
    ``otdd(source, target, solver=ExactOT())`` with the same label weight. The noise that comes from the
    difference of means is removed by a control variate.

    Args:
        source, target: datasets in one feature space, of any sizes and weights.
        n_projections: number of lines; the error falls with their square root.
        label_weight: 0 compares features alone.
        generator: source of randomness of the directions.

    Example:
        >>> import torch, advect as ad
        >>> a, b = ad.LabeledDataset([[0.0], [1.0]], ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
        >>> ad.sliced_otdd(a, b, label_weight=0).value     # exact in one dimension
        2.0
    """
    slices = _Slices(n_projections, label_weight)
    with torch.no_grad():
        values = slices.energies(source, target, generator, reduce_noise=True)
    energy = float(values.mean())
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    sizes = [float(data.x.abs().max()) for data in (source, target)]
    refuse_if(
        not math.isfinite(energy),
        "a sliced distance must be finite",
        f"{energy}, of features up to {sizes[0]:.3g} and {sizes[1]:.3g}",
        'Standardize the features: ad.harmonize(source, target, scale="pooled").',
    )
    return SlicedDistance(max(energy, 0.0), error, len(values))


class SlicedOTDD(Functional):
    """The sliced energy to a target dataset, with gradients by sorting.

    Its velocity is a mean of one-dimensional transports: cheap for any n, noisy for few
    projections. New directions are drawn at each step of a flow.

    Args:
        target: the dataset to move toward.
        n_projections: number of directions of each evaluation.
        label_weight: 0 compares features alone.
        seed: seed of the directions. Evaluation t of a flow always uses the same ones.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(5.0, 0.0), generator=generator)
        >>> result = ad.flow(source, ad.SlicedOTDD(target), integrator=ad.Euler(0.5), n_steps=10)
        >>> ad.otdd(result.dataset, target).value < 0.2 * ad.otdd(source, target).value
        True
    """

    target: LabeledDataset
    stochastic = True

    def __init__(
        self,
        target: LabeledDataset,
        n_projections: int = 200,
        *,
        label_weight: float = 1.0,
        seed: int = 0,
    ) -> None:
        check_dataset("target", target)
        self._slices = _Slices(n_projections, label_weight)
        self.target, self.n_projections, self.label_weight = target, n_projections, label_weight
        self.seed = check_count("seed", seed, least=0)

    @property
    def options(self) -> dict[str, Any]:
        return {"n_projections": self.n_projections, "label_weight": self.label_weight}

    def begin(self, rho: LabeledDataset) -> State:
        return {"calls": torch.tensor(0)}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The energy as a float64 number, differentiable in features and laws."""
        calls = int(state.get("calls", 0))
        generator = torch.Generator().manual_seed(self.seed + 7919 * calls)
        energy = self._slices.energies(rho, self.target, generator).mean()
        return {self.name: energy}, {"calls": torch.tensor(calls + 1)}


@dataclass(frozen=True)
class _Slices:
    """The checked options of a sliced distance."""

    n_projections: int
    label_weight: float

    def __post_init__(self) -> None:
        check_count("n_projections", self.n_projections)
        check_non_negative("label_weight", self.label_weight)

    def energies(
        self,
        a: LabeledDataset,
        b: LabeledDataset,
        generator: torch.Generator | None,
        *,
        reduce_noise: bool = False,
    ) -> Tensor:
        """½ · 3d · W₂² along each line, (p,) float64, minus a control variate if there is one."""
        refuse_if(
            a.dim != b.dim,
            "both datasets must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Use ad.harmonize first.",
        )
        for data in (a, b) if self.label_weight else ():
            check_label_laws(data, "a sliced distance with labels")
        n_parts = 3 if self.label_weight > 0 else 1  # numbers that describe a sample on a line
        theta, psi = (
            torch.randn(size, self.n_projections, generator=generator, dtype=torch.float64)
            for size in (a.dim, n_parts)
        )
        theta, psi = (part / torch.linalg.vector_norm(part, dim=0) for part in (theta, psi))
        # Only differences count, so a common centre saves digits.
        centre = (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2
        group_size = max(1, ENTRIES // (len(a) + len(b)))

        def squares(start: int) -> Tensor:
            group = slice(start, start + group_size)
            directions = theta[:, group].to(centre), psi[:, group].to(centre)
            x, y = (on_lines(data, centre, *directions, self.label_weight) for data in (a, b))
            return wasserstein_1d(x, y, a.weights, b.weights)

        # Groups are computed again in a backward pass, so that memory does not grow with them.
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        starts = range(0, self.n_projections, group_size)
        values = torch.cat([checkpoint(squares, start, **options) for start in starts])
        scale = float(n_parts * a.dim)
        if not reduce_noise:
            return scale * values / 2
        control, expected = self._control(a, b, centre, theta, psi)
        return scale * (values - control + expected) / 2

    def _control(
        self, a: LabeledDataset, b: LabeledDataset, centre: Tensor, theta: Tensor, psi: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The squared difference of means along each line, (p,), and its expectation.

        On a line W₂² is the squared difference of means plus W₂² of the centred parts. The first
        part has most of the noise, and its expectation takes its place.
        """
        features, laws = [], []
        for data in (a, b):
            points = data.x - centre
            mass = data.weights.to(points.dtype)
            features.append((mass @ points).double())
            if data.law is None:
                laws.append(features[-1])
            elif self.label_weight:
                shares = mass.new_zeros(len(data.law.means)).index_add(0, law_rows(data), mass)
                laws.append((shares @ (data.law.means - centre).to(mass)).double())
        gap = features[0] - features[1]
        theta, psi = theta.to(gap), psi.to(gap)
        along, expected = psi[0] * (gap @ theta), gap.square().sum()
        if self.label_weight:
            law_gap = laws[0] - laws[1]
            along = along + math.sqrt(self.label_weight) * psi[1] * (law_gap @ theta)
            expected = expected + self.label_weight * law_gap.square().sum()
        return along.square(), expected / (len(psi) * len(gap))


def check_label_laws(data: LabeledDataset, who: str) -> None:
    """An error unless every sample has one label, or a law of its own."""
    for require in (require_classes, require_labels) if data.law is None else ():
        require(data, who)
    require_hard(data, who)


def on_lines(
    data: LabeledDataset, centre: Tensor, theta: Tensor, psi: Tensor, label_weight: float
) -> Tensor:
    """The number of each sample on each line, (p, n), for directions (d, p) and (3, p)."""
    features = ((data.x - centre) @ theta).T
    if not label_weight:
        return features * psi[0][:, None]
    if data.law is not None:
        means = theta.T @ (data.law.means - centre).to(theta).T
        deviations = root(data.law.covariance.along(theta))
    else:
        # Moments of each class along the lines, (p, k), from the projected samples.
        images = features.detach() if data.fixed_laws else features
        weights, scales = (
            part.to(theta) for part in class_shares(data.y, data.weights, len(data.classes))
        )
        zeros = images.new_zeros(len(images), len(data.classes))
        means = zeros.index_add(1, data.y, weights * images)
        spread = (images - means[:, data.y]) * scales
        deviations = root(zeros.index_add(1, data.y, spread.square()))
    labels = psi[1][:, None] * means + psi[2][:, None] * deviations
    return psi[0][:, None] * features + math.sqrt(label_weight) * labels[:, law_rows(data)]


def wasserstein_1d(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """W₂² between rows of x (p, n) with weights a and rows of y (p, m) with weights b, by sorting;
    (p,) float64, differentiable in x and y.
    """
    import ot

    # Points without mass are dropped: rounding would give them some.
    x, a, y, b = x[:, a > 0], a[a > 0], y[:, b > 0], b[b > 0]
    uniform = [bool((w - 1 / len(w)).abs().max() < 1e-12 / len(w)) for w in (a, b)]
    if len(a) == len(b) and all(uniform):
        return (x.sort(dim=1)[0] - y.sort(dim=1)[0]).double().square().mean(dim=1)
    return torch.as_tensor(ot.wasserstein_1d(x.double().T, y.double().T, a, b, p=2))
