"""The sliced dataset distance: transport of random one-dimensional images, where sorting solves it
(after Nguyen et al. 2025).

Along a direction θ a sample has the features θ·x, and its label the Gaussian law N(θ·μ_y, θ·S_y θ),
whose W₂ is Euclidean in mean and deviation. So a labeled sample becomes the point

    p(x, y; θ) = (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½)        w = label_weight

and a second direction ψ makes it a number. The energy is  ½ · 3d · E_(θ, ψ) W₂²(ψ·p # A, ψ·p # B).
The factor 3d undoes what a projection takes away on average (d for features alone), so that the
value is in the units of the OTDD. It is at most the exact one with Gaussian labels, and equal to it
when B is A moved by a vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from advect._util.checks import check_count, check_kind, check_non_negative
from advect._util.linalg import mass_centre, root
from advect.data.dataset import LabeledDataset
from advect.data.laws import class_shares
from advect.errors import InputError
from advect.functionals.base import Functional, State

_ENTRIES = 2_000_000  # numbers in an array of a group of projections


@dataclass(frozen=True)
class SlicedDistance:
    """A sliced distance with the noise of its directions.

    Attributes:
        energy: ½ · 3d · the mean over projections of W₂².
        standard_error: of the energy, from the spread over projections.
        n_projections: how many.

    Example:
        >>> import torch, advect as ad
        >>> data = ad.datasets.gaussians(100, generator=torch.Generator().manual_seed(0))
        >>> moved = data.replace(x=data.x + torch.tensor([3.0, 4.0]))
        >>> distance = ad.sliced_otdd(data, moved, n_projections=2000, generator=torch.Generator().manual_seed(1))
        >>> abs(distance.value - 50**0.5) < 3 * distance.standard_error     # features and labels move by 5
        True
    """

    energy: float
    standard_error: float
    n_projections: int

    @property
    def value(self) -> float:
        """√(2 energy), in the units of the features."""
        return math.sqrt(2 * self.energy)

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
    """The sliced distance between two labeled datasets, of any sizes and weights: O(n log n) for
    each projection.

    In expectation it is a lower bound of ``otdd(source, target, solver=ExactOT())`` with the same
    label weight.

    Args:
        source, target: datasets in one feature space.
        n_projections: random directions; the error falls with their square root.
        label_weight: 0 compares features alone.
        generator: source of randomness of the directions.

    Example:
        >>> import torch, advect as ad
        >>> a, b = ad.LabeledDataset([[0.0], [1.0]], ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
        >>> ad.sliced_otdd(a, b, label_weight=0).value     # one dimension: exact
        2.0
    """
    with torch.no_grad():
        squares = _squares(
            source,
            target,
            _Directions(source.dim, n_projections, label_weight, generator),
            label_weight,
        )
    energies = squares / 2
    spread = float(energies.std()) / math.sqrt(len(energies)) if len(energies) > 1 else math.nan
    return SlicedDistance(float(energies.mean()), spread, len(energies))


class SlicedOTDD(Functional):
    """The sliced energy to a target dataset, with gradients by sorting.

    Its velocity is a mean of one-dimensional transports: cheap for any n, noisy for few
    projections; other directions are drawn at each step of a flow.

    Args:
        target: the dataset to move toward.
        n_projections: directions of a call.
        label_weight: 0 compares features alone.
        seed: of the directions; evaluation number t of a flow uses the same ones whenever it is
            run, and a single call those of the first.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(5.0, 0.0), generator=generator)
        >>> result = ad.flow(source, ad.SlicedOTDD(target), integrator=ad.Euler(0.3), n_steps=30)
        >>> ad.otdd(result.dataset, target).value < 0.2 * ad.otdd(source, target).value
        True
    """

    target: LabeledDataset

    def __init__(
        self,
        target: LabeledDataset,
        n_projections: int = 200,
        *,
        label_weight: float = 1.0,
        seed: int = 0,
    ) -> None:
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        self.target, self.n_projections = target, check_count("n_projections", n_projections)
        self.label_weight, self.seed = (
            check_non_negative("label_weight", label_weight),
            check_count("seed", seed, least=0),
        )

    @property
    def stochastic(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return {"n_projections": self.n_projections, "label_weight": self.label_weight}

    def begin(self, rho: LabeledDataset) -> State:
        return {"calls": torch.tensor(0)}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The energy as a float64 number, differentiable in features and laws."""
        calls = int(state.get("calls", 0))
        generator = torch.Generator().manual_seed(self.seed + 7919 * calls)
        directions = _Directions(rho.dim, self.n_projections, self.label_weight, generator)
        energy = _squares(rho, self.target, directions, self.label_weight).mean() / 2
        return {self.name: energy}, {"calls": torch.tensor(calls + 1)}


class _Directions:
    """θ (d, p) on the sphere, and ψ (q, p) on that of the described points; ``scale`` is what
    projecting takes away.
    """

    def __init__(
        self, dim: int, n: int, label_weight: float, generator: torch.Generator | None
    ) -> None:
        check_count("n_projections", n)
        parts = 3 if label_weight else 1
        drawn = (
            torch.randn(size, n, generator=generator, dtype=torch.float64) for size in (dim, parts)
        )
        self.theta, self.psi = (part / torch.linalg.vector_norm(part, dim=0) for part in drawn)
        self.scale, self.n = float(parts * dim), n


def _squares(
    a: LabeledDataset, b: LabeledDataset, directions: _Directions, label_weight: float
) -> Tensor:
    """Scaled W₂² for each projection, (p,) float64; a group of projections at a time, recomputed
    when differentiated.
    """
    check_non_negative("label_weight", label_weight)
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
    group = max(1, _ENTRIES // (len(a) + len(b)))
    # In the wider dtype of the two, as all that follows.
    centre = (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2
    points = (a.x - centre, b.x - centre)  # once for all groups
    shares = [
        class_shares(data.y, data.weights, len(data.classes))
        if label_weight and data.law is None
        else None
        for data in (a, b)
    ]
    differentiated = torch.is_grad_enabled() and _moves(a, b)

    def energies(start: int) -> Tensor:
        theta, psi = (
            part[:, start : start + group].to(centre) for part in (directions.theta, directions.psi)
        )
        x, y = (
            _image(data, part, theta, psi, label_weight, share, centre)
            for data, part, share in zip((a, b), points, shares, strict=True)
        )
        return wasserstein_1d(x, y, a.weights, b.weights)

    starts = range(0, directions.n, group)
    if not differentiated:
        return directions.scale * torch.cat([energies(start) for start in starts])
    return directions.scale * torch.cat([_later(energies, start) for start in starts])


def _later(function: Callable[[int], Tensor], start: int) -> Tensor:
    """The function now, its insides again when a gradient is asked for."""
    return cast(Tensor, checkpoint(function, start, use_reentrant=False, preserve_rng_state=False))


def _moves(*datasets: LabeledDataset) -> bool:
    return any(
        data.x.requires_grad or (data.law is not None and data.law.requires_grad)
        for data in datasets
    )


def _image(
    data: LabeledDataset,
    points: Tensor,
    theta: Tensor,
    psi: Tensor,
    label_weight: float,
    share: tuple[Tensor, Tensor] | None,
    centre: Tensor,
) -> Tensor:
    """ψ·p(x, y; θ) for each projection and sample, (p, n); ``points`` are the features around the
    centre.
    """
    features = (points @ theta).T  # (p, n)
    if not label_weight:
        return features * psi[0][:, None]
    means, deviations = _projected_laws(data, features, theta, share, centre)  # (p, k)
    labels = math.sqrt(label_weight) * (psi[1][:, None] * means + psi[2][:, None] * deviations)
    return psi[0][:, None] * features + labels[:, data.law_rows]


def _projected_laws(
    data: LabeledDataset,
    features: Tensor,
    theta: Tensor,
    share: tuple[Tensor, Tensor] | None,
    centre: Tensor,
) -> tuple[Tensor, Tensor]:
    """Means and deviations of the label laws along directions, (p, k)."""
    if data.law is not None:
        means = theta.T @ (data.law.means - centre).to(theta).T
        return means, root(data.law.covariance.along(theta))
    assert share is not None
    weights, scales = (part.to(theta) for part in share)
    images = features.detach() if data.fixed_laws else features
    zeros = images.new_zeros(len(images), len(data.classes))
    means = zeros.index_add(1, data.y, weights * images)
    spread = (images - means[:, data.y]) * scales
    return means, root(zeros.index_add(1, data.y, spread.square()))


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
