"""k Gaussian label laws N(μ_y, S_y), one for each class or for each sample, and their estimates from
weighted samples, in float64 for any dtype of the samples (paper, section 2.3).

Which laws move, and how, is left to the dynamics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from advect._util import InputError, check_finite
from advect.data.laws.covariance import Covariance, Diagonal, Factored

_NEGLIGIBLE = 1e-18  # share of the mass of a class
_IN_PLACE = 2**19  # numbers of samples from which on classes are centred one by one


@dataclass(frozen=True, eq=False)
class Gaussians:
    """k Gaussian laws: ``means`` (k, d) and a covariance object (``Full``, ``Factored``
    or ``Diagonal``).

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws import Full
        >>> laws = ad.Gaussians(torch.zeros(2, 3), Full(torch.eye(3).repeat(2, 1, 1)))
        >>> len(laws), laws.dim, laws.covariances().shape
        (2, 3, torch.Size([2, 3, 3]))
    """

    means: Tensor
    covariance: Covariance
    dim: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (
            self.means.ndim != 2
            or len(self.means) != self.covariance.count
            or self.means.shape[1] != self.covariance.dim
        ):
            raise InputError(
                "means must have shape (k, d), matching the covariances",
                f"means {tuple(self.means.shape)}, {len(self.covariance)} covariances of dimension "
                f"{self.covariance.dim}",
                "Give one mean and one covariance for each law.",
            )
        check_finite("means", self.means, "Laws need finite moments.")
        object.__setattr__(self, "dim", self.means.shape[1])

    def __len__(self) -> int:
        return len(self.means)

    def covariances(self) -> Tensor:
        """The covariances as dense (k, d, d) matrices."""
        return self.covariance.dense()

    def diagonal(self) -> Gaussians:
        """The same laws with everything off the diagonal dropped."""
        return Gaussians(self.means, Diagonal(self.covariance.scales()))

    def tensors(self) -> dict[str, Tensor]:
        """All their numbers: ``means``, and the tensors of the covariance under its names."""
        return {"means": self.means, **self.covariance.tensors()}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Gaussians:
        """The same laws with other numbers in place of some, under the names of ``tensors``."""
        rest = {name: value for name, value in tensors.items() if name != "means"}
        return Gaussians(tensors.get("means", self.means), self.covariance.with_tensors(rest))

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is wanted in any of their numbers."""
        return any(value.requires_grad for value in self.tensors().values())

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Gaussians:
        """The laws on another device or in another floating dtype."""
        return Gaussians(
            self.means.to(device=device, dtype=dtype), self.covariance.to(device, dtype)
        )

    def take(self, rows: Tensor) -> Gaussians:
        """The laws at these positions."""
        return Gaussians(self.means[rows], self.covariance.take(rows))

    def distinct(self) -> tuple[Gaussians, Tensor]:
        """The distinct laws in order of appearance, and the position of each law among them."""
        seen: dict[bytes, int] = {}
        first, places = [], []
        for k, values in enumerate(zip(self.means.detach(), self.covariance.parts(), strict=True)):
            key = b"|".join(value.detach().cpu().numpy().tobytes() for value in values)
            if key not in seen:
                seen[key] = len(first)
                first.append(k)
            places.append(seen[key])
        device = self.means.device
        return self.take(torch.tensor(first, device=device)), torch.tensor(places, device=device)

    def joined(self, groups: Tensor, mass: Tensor, n_groups: int) -> Gaussians:
        """Mean and covariance of the mixture of the laws of each group, by mass:

            μ = Σ p_i μ_i ,   S = Σ p_i (S_i + (μ_i − μ)(μ_i − μ)ᵀ)        p = mass within the group

        In a group without mass all laws have the same weight. A group without laws is a point at the origin.
        """
        shares = group_shares(groups, mass.double(), n_groups)
        means = self.means.double()
        middles = means.new_zeros(n_groups, self.dim).index_add(0, groups, shares[:, None] * means)
        covariance = self.covariance.joined(groups, shares, means - middles[groups], n_groups)
        return Gaussians(middles, covariance).to(dtype=self.means.dtype)


def estimate_gaussians(x: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> Gaussians:
    """Mean and factored covariance of each class y ∈ {0, …, k−1} of a weighted sample (x, y), in
    float64; differentiable in x.
    """
    labels, order = torch.sort(y, stable=True)
    sizes = tuple(torch.bincount(y, minlength=n_classes).tolist())
    share, freedom, heaviest = weigh(y, weights, n_classes)
    share = share[order]
    # Relative to a sample of the class, differences of nearby samples are exact, and those of equal samples
    # are zero. The heaviest sample is used, because the mean may be nearer to it than the rounding of
    # features.
    present = heaviest < len(y)  # a class without samples is at the origin
    near = share.new_zeros(n_classes, x.shape[1])
    near[present] = x.detach()[heaviest[present]].double()
    rest = torch.zeros_like(near)  # the mean of the class minus this sample
    points = x.index_select(0, order).double()
    if points.requires_grad or points.numel() < _IN_PLACE:
        points = points.sub_(near.index_select(0, labels))
        rest = rest.index_add(0, labels, share[:, None] * points)
        points = points.sub_(rest.index_select(0, labels))
    else:
        # class by class, in place: fresh memory takes longer than the arithmetic
        parts = zip(points.split(sizes), share.split(sizes), near, rest, strict=True)
        for block, masses, about, mean in parts:
            block -= about
            torch.mv(block.mT, masses, out=mean)
            block -= mean
    # The rows of a factor are √(p / (1 − Σ p²)) (x − μ). Roots are taken first, since products of very
    # unequal weights underflow.
    scale = share.sqrt() * torch.where(freedom > 0, freedom, math.inf).rsqrt()[labels]
    return Gaussians(near + rest, Factored(points.mul_(scale[:, None]), sizes))


def class_rows(probabilities: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every sample once for each class of positive probability: its row, the class, and w_i p_ic."""
    mass = weights[:, None] * probabilities
    kept = (mass > _NEGLIGIBLE * mass.sum(dim=0)) | ((mass == 0) & (probabilities > 0))
    rows, codes = kept.nonzero(as_tuple=True)
    return rows, codes, mass[rows, codes]


def estimate_soft(x: Tensor, probabilities: Tensor, weights: Tensor) -> Gaussians:
    """Mean and factored covariance of each class from soft labels, in float64; differentiable in x.

        μ_c = Σ s_i x_i ,   S_c = φ_c Σ s_i (x_i − μ_c)(x_i − μ_c)ᵀ / (1 − Σ s_i²)        s_i ∝ w_i p_ic

    The factor φ_c = 1 − Π (1 − p_ic / max p_c), over all but the most probable sample, is 1 as soon
    as two samples are equally probable. It makes the estimate continuous where a class has one sample.
    """
    rows, codes, mass = class_rows(probabilities, weights)
    laws = estimate_gaussians(x[rows], codes, mass, probabilities.shape[1])
    likely = torch.where(weights[:, None] > 0, probabilities, 0)
    most, top = likely.max(dim=0)
    relative = likely / torch.where(most > 0, most, 1)
    relative[top, torch.arange(len(top), device=top.device)] = 0
    spread = (-torch.expm1(torch.log1p(-relative).sum(dim=0))).sqrt()  # √φ
    own = laws.covariance.each_row(spread)[:, None] * laws.covariance.tensors()["rows"]
    return Gaussians(laws.means, laws.covariance.with_tensors({"rows": own}))


def class_shares(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Weights within each class, p, and √(p / (1 − Σ p²)), which makes factor rows; float64."""
    share, freedom, _ = weigh(y, weights, n_classes)
    return share, share.sqrt() * torch.where(freedom > 0, freedom, math.inf).rsqrt()[y]


def weigh(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights within each class, p; of each class 1 − Σ p², and which row is its heaviest (the
    first; n if it has none).
    """
    share, n = group_shares(y, weights.double(), n_classes), len(y)
    top = share.new_zeros(n_classes).scatter_reduce_(0, y, share, "amax")
    rows = torch.arange(n, device=y.device)
    heaviest = y.new_full((n_classes,), n)
    heaviest.scatter_reduce_(0, y, torch.where(share == top[y], rows, n), "amin")
    # 1 − Σ p² without the difference of two numbers near 1: p_top (1 − p_top) + Σ p (1 − p)
    others = torch.where(rows == heaviest[y], 0, share)
    light = share.new_zeros(n_classes).index_add_(0, y, others)
    freedom = (top * light).index_add_(0, y, others * (1 - others))
    return share, freedom, heaviest


def group_shares(groups: Tensor, mass: Tensor, n_groups: int) -> Tensor:
    """The weight of each row within its group; equal weights in a group without mass."""
    whole = mass.new_zeros(n_groups).index_add_(0, groups, mass)
    if not bool((whole > 0).all()):
        mass = torch.where(whole[groups] > 0, mass, 1)
        whole = torch.where(whole > 0, whole, torch.bincount(groups, minlength=n_groups).to(mass))
    return mass / whole[groups]


def mass_centre(x: Tensor, mass: Tensor) -> Tensor:
    """The mean of the points by their mass, without a graph."""
    return (mass / mass.sum()).to(x.dtype) @ x.detach()


def centred(
    x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Both clouds about a common centre (that of the masses, if given), against cancellation."""
    if masses is None:
        centre = (x.detach().mean(dim=0) + y.detach().mean(dim=0)) / 2
    else:
        centre = (mass_centre(x, masses[0]) + mass_centre(y, masses[1])) / 2
    moved = x - centre
    return moved, moved if y is x else y - centre


def squared_distances(x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """‖x_i − y_j‖² (n, m) by one product about a common centre; never negative."""
    x, y = centred(x, y, masses)
    products = torch.addmm(x.square().sum(dim=1)[:, None], x, y.T, alpha=-2)  # (n, m)
    return products.add_(y.square().sum(dim=1)).relu_()
