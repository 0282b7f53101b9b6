"""Sliced dataset distances: transport along random lines, where sorting solves it.

Along a direction θ a labeled sample (x, y) becomes a point, and a second direction ψ of as many
components makes the point a number. With w = label_weight:

- ``"gaussian"``: (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½). On a line, W₂ between Gaussians is Euclidean in
  mean and deviation. The energy ½ · 3d · E W₂² is in the units of the OTDD, is at most the exact
  OTDD with Gaussian labels, and equals it if one dataset is the other one translated.
- ``"moments"``: (θ·x, √w m_1, …, √w m_k) with m_i = E_y[(θ·X)^λ_i] / λ_i! and zero-truncated Poisson
  orders λ_i of rate i, drawn with each direction. This is the s-OTDD of Nguyen et al. 2025
  ("Lightspeed Geometric Dataset Distance via Sliced Optimal Transport"), as published: √E W₂²
  of the features as they are, which depends on their origin and scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util.checks import check_count, check_known, check_non_negative
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import law_rows, require_classes, require_hard
from advect.data.laws import class_shares
from advect.data.laws.linalg import mass_centre, root
from advect.errors import InputError
from advect.functionals.base import Functional, State
from advect.transport.transport import check_dataset

ENTRIES = 2_000_000  # numbers in an array of a group of projections
FOLDS = 5  # cross-fitting of the weight of the control variate
MIN_CONTROLLED = 50  # lines; fewer say little about that weight


@dataclass(frozen=True)
class SlicedDistance:
    """A sliced distance with its sampling error.

    Attributes:
        energy: half the squared distance, in units of squared features.
        standard_error: of the energy, from the spread over directions.
        n_projections: number of lines.
        projection: the description of a label along a line, "gaussian" or "moments".
    """

    energy: float
    standard_error: float
    n_projections: int
    projection: str = "gaussian"

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
    projection: str = "gaussian",
    n_moments: int = 5,
    generator: torch.Generator | None = None,
) -> SlicedDistance:
    """The sliced distance between two labeled datasets, in O(n log n) for each projection.

    Use it to rank many or large datasets. With ``projection="gaussian"`` it is, in expectation, a
    lower bound of ``otdd(source, target, solver=ExactOT())`` with the same label weight. The
    noise that comes from the difference of means is removed by a control variate.

    Args:
        source, target: datasets in one feature space, of any sizes and weights.
        n_projections: number of lines; the error falls with their square root.
        label_weight: 0 compares features alone.
        projection: ``"gaussian"``, mean and deviation of each class along a line, or ``"moments"``,
            the s-OTDD of Nguyen et al. 2025. Standardize features before ``"moments"``.
        n_moments: number of moments, of zero-truncated Poisson orders with rates 1, 2, ….
        generator: source of randomness of the directions.

    Example:
        >>> import torch, advect as ad
        >>> a, b = ad.LabeledDataset([[0.0], [1.0]], ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
        >>> ad.sliced_otdd(a, b, label_weight=0).value     # exact in one dimension
        2.0
        >>> ad.sliced_otdd(a, b, projection="moments", generator=torch.Generator().manual_seed(0)).value > 2
        True
    """
    lines = _Lines(n_projections, label_weight, projection, n_moments)
    with torch.no_grad():
        values = lines.energies(source, target, generator, control=True)
    energy = float(values.mean())
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    if not math.isfinite(energy):
        sizes = [float(data.x.abs().max()) for data in (source, target)]
        raise InputError(
            "a sliced distance must be finite",
            f"{energy}, of features up to {sizes[0]:.3g} and {sizes[1]:.3g}",
            'Standardize the features: ad.harmonize(source, target, scale="standardize").',
        )
    return SlicedDistance(max(energy, 0.0), error, len(values), projection)


class SlicedOTDD(Functional):
    """The sliced energy to a target dataset, with gradients by sorting.

    Its velocity is a mean of one-dimensional transports: cheap for any n, noisy for few
    projections. New directions are drawn at each step of a flow.

    Args:
        target: the dataset to move toward.
        n_projections: number of directions of each evaluation.
        label_weight: 0 compares features alone.
        projection: ``"gaussian"`` or ``"moments"``, as in ``sliced_otdd``.
        n_moments: number of moments.
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
        projection: str = "gaussian",
        n_moments: int = 5,
        seed: int = 0,
    ) -> None:
        check_dataset("target", target)
        self.lines = _Lines(n_projections, label_weight, projection, n_moments)
        self.target, self.n_projections, self.label_weight = target, n_projections, label_weight
        self.seed = check_count("seed", seed, least=0)

    @property
    def options(self) -> dict[str, Any]:
        options = {"n_projections": self.n_projections, "label_weight": self.label_weight}
        moments = {"projection": "moments", "n_moments": self.lines.n_moments}
        return options | moments if self.lines.projection == "moments" else options

    def begin(self, rho: LabeledDataset) -> State:
        return {"calls": torch.tensor(0)}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The energy as a float64 number, differentiable in features and laws."""
        calls = int(state.get("calls", 0))
        generator = torch.Generator().manual_seed(self.seed + 7919 * calls)
        energy = self.lines.energies(rho, self.target, generator).mean()
        return {self.name: energy}, {"calls": torch.tensor(calls + 1)}


@dataclass(frozen=True)
class _Lines:
    """The checked options of a sliced distance."""

    n_projections: int
    label_weight: float
    projection: str
    n_moments: int

    def __post_init__(self) -> None:
        check_count("n_projections", self.n_projections)
        check_non_negative("label_weight", self.label_weight)
        check_count("n_moments", self.n_moments)
        check_known("projection", self.projection, ("gaussian", "moments"))

    def energies(
        self,
        a: LabeledDataset,
        b: LabeledDataset,
        generator: torch.Generator | None,
        *,
        control: bool = False,
    ) -> Tensor:
        """Half the scaled W₂² along each line, (p,) float64."""
        self._check(a, b)
        moments, labels = self.projection == "moments", self.label_weight > 0
        n_labels = (self.n_moments if moments else 2) if labels else 0
        theta, psi = (
            torch.randn(size, self.n_projections, generator=generator, dtype=torch.float64)
            for size in (a.dim, 1 + n_labels)
        )
        theta, psi = (part / torch.linalg.vector_norm(part, dim=0) for part in (theta, psi))
        orders = self._orders(generator) if moments and labels else None
        # The published form takes features as they are; otherwise a common centre saves digits.
        centre = (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2
        centre = torch.zeros_like(centre) if moments else centre
        group = max(1, ENTRIES // (len(a) + len(b)))

        def squares(start: int) -> Tensor:
            some = slice(start, start + group)
            here = theta[:, some].to(centre), psi[:, some].to(centre)
            rows = None if orders is None else orders[:, some].to(centre.device)
            x, y = (self._image(data, centre, *here, rows) for data in (a, b))
            return wasserstein_1d(x, y, a.weights, b.weights)

        starts = range(0, self.n_projections, group)
        # Groups are recomputed in the backward pass, so that memory does not grow with them.
        moves = torch.is_grad_enabled() and any(
            d.x.requires_grad or (d.law is not None and d.law.requires_grad) for d in (a, b)
        )
        values = torch.cat([recomputed(squares, s) if moves else squares(s) for s in starts])
        if moments:
            return values / 2
        scale = float(len(psi) * a.dim)
        if not control:
            return scale * values / 2
        of_means, expected = self._control(a, b, centre, theta, psi)
        return controlled(scale * values, scale * of_means, scale * expected) / 2

    def _check(self, a: LabeledDataset, b: LabeledDataset) -> None:
        if a.dim != b.dim:
            raise InputError(
                "both datasets must live in one feature space",
                f"dimensions {a.dim} and {b.dim}",
                "Use ad.harmonize first.",
            )
        who = "a sliced distance with labels"
        for data in (a, b) if self.label_weight else ():
            if data.law is None:
                require_classes(data, who)
                require_labels(data, who)
            require_hard(data, who)

    def _orders(self, generator: torch.Generator | None) -> Tensor:
        """Zero-truncated Poisson orders of rates 1, …, k, (k, p), by inverse transform."""
        k = self.n_moments
        rates = torch.arange(1, k + 1, dtype=torch.float64)
        last = int(k + 12 * math.sqrt(k) + 20)
        counts = torch.arange(1, last + 1, dtype=torch.float64)
        logs = counts * rates[:, None].log() - torch.lgamma(counts + 1)
        below = (logs - torch.expm1(rates).log()[:, None]).exp().cumsum(dim=1)
        uniform = torch.rand(k, self.n_projections, generator=generator, dtype=torch.float64)
        return 1 + torch.searchsorted(below, uniform, right=True).clamp_max(last - 1)

    def _image(
        self,
        data: LabeledDataset,
        centre: Tensor,
        theta: Tensor,
        psi: Tensor,
        orders: Tensor | None,
    ) -> Tensor:
        """The number of each sample on each line, (p, n)."""
        features = ((data.x - centre) @ theta).T
        if not self.label_weight:
            return features * psi[0][:, None]
        if data.law is not None:
            means = theta.T @ (data.law.means - centre).to(theta).T
            variances = data.law.covariance.along(theta)
            if orders is None:
                numbers = psi[1][:, None] * means + psi[2][:, None] * root(variances)
            else:
                numbers = _gaussian_moments(_coefficients(psi, orders), means, variances)
        else:
            k, y = len(data.classes), data.y
            images = features.detach() if data.fixed_laws else features
            weights, scales = (
                part.to(theta) for part in class_shares(y, data.weights, len(data.classes))
            )
            zeros = images.new_zeros(len(images), k)
            if orders is None:
                means = zeros.index_add(1, y, weights * images)
                spread = (images - means[:, y]) * scales
                deviations = root(zeros.index_add(1, y, spread.square()))
                numbers = psi[1][:, None] * means + psi[2][:, None] * deviations
            else:
                # Powers of points that are far away and have no mass would be infinite.
                z = torch.where(weights > 0, images, 0)
                powers = _polynomial(_coefficients(psi, orders), z)
                numbers = zeros.index_add(1, y, weights * powers)
        return (
            psi[0][:, None] * features + math.sqrt(self.label_weight) * numbers[:, law_rows(data)]
        )

    def _control(
        self, a: LabeledDataset, b: LabeledDataset, centre: Tensor, theta: Tensor, psi: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The squared difference of means along each line, (p,), and its expectation.

        On a line W₂² is the squared difference of means plus W₂² of the centred parts. The first
        part has most of the noise, and its expectation is known.
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
        found, expected = psi[0] * (gap @ theta), gap.square().sum()
        if self.label_weight:
            law_gap = laws[0] - laws[1]
            found = found + math.sqrt(self.label_weight) * psi[1] * (law_gap @ theta)
            expected = expected + self.label_weight * law_gap.square().sum()
        return found.square(), expected / (len(psi) * len(gap))


def _coefficients(psi: Tensor, orders: Tensor) -> Tensor:
    """The component of ψ for each order, from 0 on, (J + 1, p)."""
    found = psi.new_zeros(int(orders.max()) + 1, psi.shape[1])
    return found.scatter_add(0, orders, psi[1:])


def _polynomial(coefficients: Tensor, z: Tensor) -> Tensor:
    """Σ_j c_j z^j / j! by Horner's rule: z (c_1 + z/2 (c_2 + z/3 (c_3 + …)))."""
    total = torch.zeros_like(z)
    for order in range(len(coefficients) - 1, 0, -1):
        total = (total + coefficients[order][:, None]) * (z / order)
    return total


def _gaussian_moments(coefficients: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Σ_j c_j E[X^j] / j! of Gaussians, by the recursion j M_j = m M_(j−1) + v M_(j−2)."""
    before, moment = torch.zeros_like(means), torch.ones_like(means)
    total = torch.zeros_like(means)
    for order in range(1, len(coefficients)):
        before, moment = moment, (means * moment + variances * before) / order
        total = total + coefficients[order][:, None] * moment
    return total


def controlled(values: Tensor, control: Tensor, expected: Tensor) -> Tensor:
    """Values minus a control variate: v_l − β_l (c_l − E c), (p,).

    β_l is found by regression on the other folds, so that β_l and c_l are independent and nothing
    is biased. It is clamped to [0, 1].
    """
    if len(values) < MIN_CONTROLLED:
        return values
    fold = torch.arange(len(values), device=values.device) % FOLDS
    others = (fold != torch.arange(FOLDS, device=values.device)[:, None]).to(values)
    others = others / others.sum(dim=1, keepdim=True)
    # in units of the control: squares of small or large numbers would vanish or overflow
    size = control.abs().max()
    unit = torch.where(size > 0, size, 1)
    c, v = control / unit, values / unit
    c, v = c - (others @ c)[:, None], v - (others @ v)[:, None]
    spread = (others * c.square()).sum(dim=1)
    slope = (others * c * v).sum(dim=1) / torch.where(spread > 0, spread, 1)
    return values - slope.clamp(0, 1)[fold] * (control - expected)


def recomputed(function: Callable[[int], Any], start: int) -> Any:
    """The function now, its insides again when a gradient is asked for."""
    return checkpoint(function, start, use_reentrant=False, preserve_rng_state=False)


def wasserstein_1d(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """W₂² between rows of x (p, n) with weights a and rows of y (p, m) with weights b, by sorting;
    (p,) float64, differentiable in x and y.
    """
    # Points without mass are dropped: rounding would give them some.
    x, a = (x, a) if bool((a > 0).all()) else (x[:, a > 0], a[a > 0])
    y, b = (y, b) if bool((b > 0).all()) else (y[:, b > 0], b[b > 0])
    (x, x_order), (y, y_order) = x.sort(dim=1), y.sort(dim=1)
    n, m = x.shape[1], y.shape[1]
    uniform = [bool((w - 1 / len(w)).abs().max() < 1e-12 / len(w)) for w in (a, b)]
    if n == m and all(uniform):
        return (x - y).double().square().mean(dim=1)
    # Merge the levels of both distribution functions: between two of them the plan is constant.
    below_x, below_y = a[x_order].cumsum(dim=1), b[y_order].cumsum(dim=1)
    levels = torch.cat([below_x, below_y], dim=1).clamp_max(1.0).sort(dim=1)[0]
    masses = levels.diff(dim=1, prepend=levels.new_zeros(len(levels), 1))
    middles = levels - masses / 2
    at_x = torch.searchsorted(below_x, middles).clamp_max(n - 1)
    at_y = torch.searchsorted(below_y, middles).clamp_max(m - 1)
    return (masses * (x.gather(1, at_x) - y.gather(1, at_y)).double().square()).sum(dim=1)
