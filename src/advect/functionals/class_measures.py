"""A dataset as a measure over its classes, compared by a kernel between class laws (after Bonet,
Vauthier and Korba 2025, "Flowing Datasets with Wasserstein over Wasserstein Gradient Flows").

A dataset is P = Σ_c w_c δ_(α_c): its points are classes, with their proportions, and each point is a
law of features. Names of classes do not matter. With a kernel K of the sliced distance SW₂,

    F(P) = ½ MMD²_K(P, Q) = ½ Σ w_c w_c' K(α_c, α_c') − Σ w_c v_j K(α_c, β_j) + ½ Σ v_j v_j' K(β_j, β_j')

Along a direction θ a class is a law on a line, described by the means q of its centred quantile function over
L equal parts of (0, 1). With P directions in d dimensions, SW₂ is a Euclidean distance:

    SW₂²(α, β) = d E_θ W₂²(θ·α, θ·β) ≈ ‖mean(α) − mean(β)‖² + d / (P L) ‖q(α) − q(β)‖²

The factor d puts SW₂ in the units of the features. The difference of means needs no directions:
only shapes are noisy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_known, check_positive
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import require_classes, require_hard
from advect.data.laws.linalg import mass_centre, root, squared_gaps
from advect.errors import InputError
from advect.functionals.base import Functional, State
from advect.functionals.sliced import recomputed
from advect.transport.transport import check_dataset

# From SW₂² and a width h to h k(SW₂ / h): each is of degree one in lengths, as the first is.
KERNELS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "riesz": lambda squares, width: -root(squares),
    "gaussian": lambda squares, width: width * torch.exp(-squares / (2 * width**2)),
}
_ENTRIES = 2_000_000  # numbers in an array of a group of directions
_Squares = tuple[Tensor, Tensor, Tensor]
_BLOCKS = 20  # of directions, for the jackknife
_BASES = 5  # from this number of bases on, blocks are whole bases, which are independent
_WHO = "a discrepancy of classes"


@dataclass(frozen=True, eq=False)
class ClassDiscrepancy:
    """½ MMD² between two datasets as measures over classes, with its sampling error.

    Attributes:
        energy: ½ MMD², in the units of the features.
        standard_error: of the energy, by a jackknife over directions.
        n_projections: number of directions.
        bandwidth: the width of the kernel, or nan.
        class_distances: SW₂ between the classes of the two datasets; nan for classes without mass.
    """

    energy: float
    standard_error: float
    n_projections: int
    bandwidth: float
    class_distances: ClassTable

    @property
    def value(self) -> float:
        """MMD, √(2 energy)."""
        return math.sqrt(2 * self.energy)

    def __float__(self) -> float:
        return self.value


def class_mmd(
    source: LabeledDataset,
    target: LabeledDataset,
    n_projections: int = 500,
    *,
    kernel: str = "riesz",
    bandwidth: float | None = None,
    n_levels: int = 100,
    generator: torch.Generator | None = None,
) -> ClassDiscrepancy:
    """The discrepancy between two labeled datasets as measures over their classes.

    It is zero if the classes are the same laws with the same proportions, whatever their names. Use
    ``ad.otdd`` for the distance between samples.

    Args:
        source, target: datasets in one feature space, each sample with a label.
        n_projections: number of random directions.
        kernel, bandwidth, n_levels: as in ``ClassMMD``.
        generator: source of randomness of the directions; by default one with seed 0.

    Example:
        >>> import advect as ad
        >>> a, b = ad.LabeledDataset([[0.0], [1.0]], ["u", "u"]), ad.LabeledDataset([[2.0], [3.0]], ["v", "v"])
        >>> ad.class_mmd(a, b).energy                    # one class each: their distance
        2.0
    """
    functional = ClassMMD(
        target, n_projections, kernel=kernel, bandwidth=bandwidth, n_levels=n_levels
    )
    check_dataset("source", source)
    generator = generator or torch.Generator().manual_seed(0)
    theta = drawn_directions(source.dim, n_projections, generator)
    groups = Groups.of(source, _WHO), Groups.of(target, _WHO)
    blocks = _blocks(theta)
    sizes = torch.tensor([float(block.shape[1]) for block in blocks], dtype=torch.float64)
    with torch.no_grad():
        squares = [class_squares(source, target, groups, block, n_levels) for block in blocks]
        # Σ over the directions of each block, of SW₂² between source classes, across, between target classes
        parts = [
            torch.stack(each) * sizes.to(each[0])[:, None, None]
            for each in zip(*squares, strict=True)
        ]
        whole = [each.sum(dim=0) / n_projections for each in parts]
        width = functional.width(whole)
        energy = functional.energy(whole, groups, width)
        error = math.nan
        if len(blocks) > 1:  # the jackknife: the energy without each block in turn
            left = [
                (each.sum(dim=0) - each) / (n_projections - sizes.to(each))[:, None, None]
                for each in parts
            ]
            without = [
                functional.energy(list(each), groups, width) for each in zip(*left, strict=True)
            ]
            error = float(torch.stack(without).std(correction=0)) * math.sqrt(len(without) - 1)
    table = torch.full((len(source.classes), len(target.classes)), math.nan, dtype=torch.float64)
    rows, columns = (torch.tensor(own.codes) for own in groups)
    table[rows[:, None], columns] = root(whole[1]).cpu()
    return ClassDiscrepancy(
        max(0.0, float(energy)),
        error,
        n_projections,
        math.nan if kernel == "riesz" else width,
        ClassTable(table.numpy(), source.classes, target.classes),
    )


def _blocks(theta: Tensor) -> tuple[Tensor, ...]:
    """Directions in parts, none of which shares a basis with another where that can be."""
    dim, n = theta.shape
    bases = -(-n // dim)
    if bases < _BASES:
        return theta.chunk(min(_BLOCKS, n), dim=1)
    return theta.split(dim * -(-bases // _BLOCKS), dim=1)


class ClassMMD(Functional):
    """½ MMD² to a target dataset, both as measures over their classes.

    Use it to move classes as wholes, also if the two datasets have different classes. A step costs
    O((n + m) log(n + m)) for each direction. A sample keeps its class;
    ``ad.ClassMatching.between(result.dataset, target)`` tells which class of the target it has
    become. Label laws that datasets carry are not used.

    With the Riesz kernel a velocity is a mean of unit vectors, so ``step_size`` is a length in the
    units of the features. ``Momentum`` with a ``Decay`` from about a twentieth of the distance
    between classes works well. New directions are drawn at each step.

    Args:
        target: the dataset to move toward, each sample with a label.
        n_projections: number of directions; as many as features form a whole basis.
        kernel: of s = SW₂: ``riesz`` −s, which has no width and sees classes at any distance, or
            ``gaussian`` h exp(−s²/2h²).
        bandwidth: h, in the units of the features; by default the median distance between classes
            at the start of a flow.
        n_levels: number of parts into which a class is cut along a direction.
        seed: seed of the directions. Evaluation t of a flow always uses the same ones.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(5.0, 0.0), generator=generator)
        >>> steps = ad.Momentum(ad.Decay(0.3, 20))
        >>> result = ad.flow(source, ad.ClassMMD(target, 20), integrator=steps, n_steps=80)
        >>> ad.otdd(result.dataset, target).value < 0.1 * ad.otdd(source, target).value
        True
    """

    target: LabeledDataset
    stochastic = True

    def __init__(
        self,
        target: LabeledDataset,
        n_projections: int = 200,
        *,
        kernel: str = "riesz",
        bandwidth: float | None = None,
        n_levels: int = 100,
        seed: int = 0,
    ) -> None:
        check_dataset("target", target)
        require_labels(target, _WHO)
        check_known("kernel", kernel, KERNELS)
        self.target, self.kernel = target, kernel
        self.bandwidth = None if bandwidth is None else check_positive("bandwidth", bandwidth)
        self.n_projections = check_count("n_projections", n_projections)
        self.n_levels = check_count("n_levels", n_levels)
        self.seed = check_count("seed", seed, least=0)

    @property
    def options(self) -> dict[str, Any]:
        names = ("kernel", "n_projections", "n_levels", "bandwidth")
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value is not None}

    def begin(self, rho: LabeledDataset) -> State:
        state = {"calls": torch.tensor(0)}
        if self.kernel == "riesz" or self.bandwidth is not None:
            return state
        with torch.no_grad():
            width = self.width(self._squares(rho, 0)[0])
        return state | {"bandwidth": torch.tensor(width, dtype=torch.float64)}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """The energy as a float64 number, differentiable in features."""
        state = state or self.begin(rho)
        calls = int(state["calls"])
        squares, groups = self._squares(rho, calls)
        width = float(state.get("bandwidth", self.bandwidth or 1.0))
        return {self.name: self.energy(squares, groups, width)}, state | {
            "calls": torch.tensor(calls + 1)
        }

    def energy(self, squares: list[Tensor], groups: tuple[Groups, Groups], width: float) -> Tensor:
        """½ MMD² from SW₂² between the classes of ρ, of ρ and the target, of the target."""
        kernel = KERNELS[self.kernel]
        w, v = (own.shares for own in groups)
        sums = [
            (one[:, None] * other * kernel(part, width)).sum()
            for (one, other), part in zip(((w, w), (w, v), (v, v)), squares, strict=True)
        ]
        return (sums[0] + sums[2]) / 2 - sums[1]

    def width(self, squares: list[Tensor]) -> float:
        """The width that was given, or the median distance between two classes that differ."""
        if self.bandwidth is not None:
            return self.bandwidth
        aa, ab, bb = squares
        above = [part[torch.ones_like(part).triu(1) > 0] for part in (aa, bb)]
        distances = root(torch.cat([ab.flatten(), *above]))
        distances = distances[distances > 0]
        return float(distances.median()) if len(distances) else 1.0

    def _squares(
        self, rho: LabeledDataset, calls: int
    ) -> tuple[list[Tensor], tuple[Groups, Groups]]:
        generator = torch.Generator().manual_seed(self.seed + 7919 * calls)
        theta = drawn_directions(rho.dim, self.n_projections, generator, rho.x.dtype)
        groups = Groups.of(rho, _WHO), Groups.of(self.target, _WHO)
        return list(class_squares(rho, self.target, groups, theta, self.n_levels)), groups


@dataclass(frozen=True, eq=False)
class Groups:
    """The classes of a dataset that have mass.

    Attributes:
        codes: which they are.  shares: their masses, (k,), summing to one.
        rows: the samples of each.  masses: what each of them has of the mass of its class.
    """

    codes: list[int]
    shares: Tensor
    rows: list[Tensor]
    masses: list[Tensor]

    @classmethod
    def of(cls, data: LabeledDataset, who: str) -> Groups:
        """Those of a dataset whose samples all have a label."""
        require_classes(data, who)
        require_labels(data, who)
        require_hard(data, who)
        order = data.y.argsort(stable=True)
        order = order[data.weights[order] > 0]  # what has no mass may be anywhere
        counts = torch.bincount(data.y[order], minlength=len(data.classes)).tolist()
        rows = [part for part in order.split(counts) if len(part)]
        masses = [data.weights[part] for part in rows]
        shares = torch.stack([part.sum() for part in masses])
        return cls(
            [code for code, count in enumerate(counts) if count],
            shares / shares.sum(),
            rows,
            [part / part.sum() for part in masses],
        )

    def quantiles(self, features: Tensor, n_levels: int) -> Tensor:
        """The shapes of the classes, (k, p · L) float64, from features along directions (p, n)."""
        vectors = []
        for rows, masses in zip(self.rows, self.masses, strict=True):
            found = quantile_means(features[:, rows], masses, n_levels)
            vectors.append((found - found.mean(dim=1, keepdim=True)).flatten())
        return torch.stack(vectors)

    def means(self, points: Tensor) -> Tensor:
        """The means of the classes, (k, d)."""
        rows, masses = torch.cat(self.rows), torch.cat(self.masses)
        each = torch.cat([part.new_full((len(part),), k) for k, part in enumerate(self.rows)])
        weighted = masses.to(points)[:, None] * points[rows]
        return points.new_zeros(len(self.rows), points.shape[1]).index_add(0, each, weighted)


def drawn_directions(
    dim: int,
    n: int,
    generator: torch.Generator | None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Directions of length 1, (d, n), uniformly distributed, and orthogonal to one another as far
    as there is room: means over them have less noise.
    """
    bases = -(-check_count("n_projections", n) // dim)
    drawn = torch.randn(bases, dim, min(dim, n), generator=generator).to(dtype)
    basis, triangle = torch.linalg.qr(drawn)
    basis = basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
    return basis.mT.flatten(0, 1)[:n].T.contiguous()


def class_squares(
    a: LabeledDataset, b: LabeledDataset, groups: tuple[Groups, Groups], theta: Tensor, levels: int
) -> _Squares:
    """SW₂² along these directions between the classes of a and of a, of a and b, of b and b;
    float64, differentiable in the features.
    """
    if a.dim != b.dim:
        raise InputError(
            "both datasets must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Use ad.harmonize first.",
        )
    # In the wider dtype of the two, as all that follows.
    centre = (mass_centre(a.x, a.weights) + mass_centre(b.x, b.weights)) / 2
    points = (a.x - centre, b.x - centre)

    def squares(start: int) -> _Squares:
        along = theta[:, start : start + size].to(centre)
        first, second = (
            own.quantiles((part @ along).T, levels)
            for own, part in zip(groups, points, strict=True)
        )
        return _gaps(first, second)

    numbers = max(len(a) + len(b), levels * sum(len(own.codes) for own in groups))
    size = max(1, _ENTRIES // numbers)
    starts = range(0, theta.shape[1], size)
    again = len(starts) > 1 and torch.is_grad_enabled() and (a.x.requires_grad or b.x.requires_grad)
    found = [recomputed(squares, start) if again else squares(start) for start in starts]
    scale = a.dim / (theta.shape[1] * levels)
    between_means = _gaps(*(own.means(part) for own, part in zip(groups, points, strict=True)))
    aa, ab, bb = (
        apart + scale * torch.stack(parts).sum(dim=0)
        for apart, parts in zip(between_means, zip(*found, strict=True), strict=True)
    )
    return aa, ab, bb


def _gaps(a: Tensor, b: Tensor) -> _Squares:
    """Squared distances of rows, in three calls: where a and b are equal, all three are the same to
    the last bit.
    """
    return squared_gaps(a, a), squared_gaps(a, b), squared_gaps(b, b)


def quantile_means(values: Tensor, masses: Tensor, n_levels: int) -> Tensor:
    """Means of quantile functions over ``n_levels`` equal parts of (0, 1); differentiable in the
    values.
    """
    n = values.shape[1]
    values, order = values.sort(dim=1)
    even = bool((masses - 1 / n).abs().max() < 1e-12 / n)
    if even and n % n_levels == 0:
        return values.double().unflatten(1, (n_levels, n // n_levels)).mean(dim=2)
    if even and n_levels % n == 0:
        return values.double().repeat_interleave(n_levels // n, dim=1)
    levels = torch.arange(1, n_levels, dtype=torch.float64, device=values.device) / n_levels
    sorted_masses = (masses if even else masses[order]).expand(len(values), n)
    below = sorted_masses.cumsum(dim=1)  # mass up to each point
    at = torch.searchsorted(below.contiguous(), levels.expand(len(values), -1).contiguous())
    at = at.clamp_max(n - 1)
    values = values.double()
    centre = (sorted_masses * values).sum(dim=1, keepdim=True)
    values = values - centre  # sums of what is far away lose digits
    sums = (sorted_masses * values).cumsum(dim=1)  # ∫ of the quantile function up to each point
    inside = sums.gather(1, at) - (below.gather(1, at) - levels) * values.gather(1, at)
    edges = torch.cat([torch.zeros_like(centre), inside, sums[:, -1:]], dim=1)
    return n_levels * edges.diff(dim=1) + centre
