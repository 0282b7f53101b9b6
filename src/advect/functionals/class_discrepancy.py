"""A dataset as a measure over its classes, compared by a kernel between class laws (after Bonet,
Vauthier and Korba 2025, "Flowing Datasets with Wasserstein over Wasserstein Gradient Flows").

A dataset is P = Σ_c w_c δ_(α_c): its classes are the points, with their shares of the mass, and each
point is a law of features. Names of classes are not looked at. With a kernel K of the sliced distance
SW₂ between laws,

    F(P) = ½ MMD²_K(P, Q) = ½ Σ w_c w_c' K(α_c, α_c') − Σ w_c v_j K(α_c, β_j) + ½ Σ v_j v_j' K(β_j, β_j')

Each class is drawn to the classes of the target and driven away from those of its own dataset, until
each has one of its own. SW₂ is a Euclidean distance of quantile vectors (``class_quantiles``), so
that all of these are kernels, and F ≥ 0: one product, one sort, one small matrix of distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known, check_positive
from advect._util.linalg import root
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.functionals.base import Functional, State
from advect.functionals.class_quantiles import Groups, class_squares, drawn_directions

# From SW₂² and a width h to h k(SW₂ / h): each is of degree one in lengths, as the first is.
KERNELS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "riesz": lambda squares, width: -root(squares),
    "gaussian": lambda squares, width: width * torch.exp(-squares / (2 * width**2)),
    "laplace": lambda squares, width: width * torch.exp(-root(squares) / width),
    "imq": lambda squares, width: width / (1 + squares / width**2).sqrt(),
}
_BLOCKS = 20  # of directions, left out in turn for the error of a value
_BASES = 5  # from so many on, blocks are of whole bases, which are independent of one another
_WHO = "a discrepancy of classes"


@dataclass(frozen=True, eq=False)
class ClassDiscrepancy:
    """½ MMD² between two datasets as measures over classes, with the noise of its directions.

    Attributes:
        energy: ½ MMD², in the units of the features.
        standard_error: of the energy, by leaving out a part of the directions in turn; from five
            times as many directions as features on, else too large: orthogonal directions say
            more than independent ones.
        n_projections: how many directions.
        bandwidth: the width of the kernel; nan where it has none.
        class_distances: SW₂ between the classes of the two datasets; nan for classes without mass.

    Example:
        >>> import torch, advect as ad
        >>> data = ad.datasets.gaussians(90, generator=torch.Generator().manual_seed(0))
        >>> moved = data.replace(x=data.x + torch.tensor([3.0, 4.0]))
        >>> found = ad.class_mmd(data, moved)
        >>> round(found.class_distances[0, 0], 3)             # a class moves by 5
        5.0
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
    """The discrepancy between two labeled datasets as measures over their classes; of any sizes,
    weights and numbers of classes.

    Zero where the classes are the same laws with the same shares, whatever their names. For how far
    samples have to go, ``ad.otdd``.

    Args:
        source, target: datasets in one feature space, each sample with a label.
        n_projections: random directions.
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
    check_kind(
        "source must be a LabeledDataset",
        source,
        LabeledDataset,
        "Wrap arrays as ad.LabeledDataset.",
    )
    generator = generator or torch.Generator().manual_seed(0)
    theta = drawn_directions(source.dim, n_projections, generator)
    groups = Groups.of(source, _WHO), Groups.of(target, _WHO)
    blocks = _blocks(theta)
    with torch.no_grad():
        parts = [
            [
                block.shape[1] * part
                for part in class_squares(source, target, groups, block, n_levels)
            ]
            for block in blocks
        ]
        sums = [torch.stack(each).sum(dim=0) for each in zip(*parts, strict=True)]
        whole = [each / n_projections for each in sums]
        width = functional.width(whole)
        energy = functional.energy(whole, groups, width)
        without = [
            functional.energy(
                [
                    (s - p) / (n_projections - block.shape[1])
                    for s, p in zip(sums, part, strict=True)
                ],
                groups,
                width,
            )
            for block, part in zip(blocks, parts, strict=True)
            if len(blocks) > 1
        ]
    error = (
        float(torch.stack(without).std(correction=0)) * math.sqrt(len(without) - 1)
        if without
        else math.nan
    )
    table = torch.full((len(source.classes), len(target.classes)), math.nan, dtype=torch.float64)
    table[torch.tensor(groups[0].codes)[:, None], torch.tensor(groups[1].codes)] = root(
        whole[1]
    ).cpu()
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
    """½ MMD² to a target dataset, both as measures over their classes; see the module's formula.

    For moving labeled data where classes should move as wholes, and where the two datasets have other
    classes: names are not looked at, and numbers may differ. A step costs O((n + m) log(n + m)) for
    each direction. A sample keeps its class; which class of the target that has become is
    ``ad.ClassMatching.between(result.dataset, target)``. Laws that datasets carry are not looked at:
    joint dynamics leave them where they are.

    A velocity is a mean of unit vectors, whatever the distance: about 1 far away, and 1/k for a class
    that is near its own of k classes. So ``step_size`` is a length in the units of the features, and a
    step that does not shrink ends in a walk of its size around the target: ``Momentum`` with a
    ``Decay`` that begins at about a twentieth of the distance between the datasets (SW₂ between
    classes: ``ad.class_mmd(a, b).class_distances``) does well, of images with ten classes at twice
    the distance. Other directions are drawn at each step; a flow does not control its steps.

    Args:
        target: the dataset to move toward, each sample with a label.
        n_projections: directions of a call; as many as features are a whole basis, with the least
            noise for the time.
        kernel: of s = SW₂: ``riesz`` −s, which needs no width and sees classes however far they are;
            ``gaussian`` h exp(−s²/2h²); ``laplace`` h exp(−s/h); ``imq`` h/√(1 + s²/h²).
        bandwidth: h, in the units of the features; by default the median distance between classes,
            those of the dataset that a flow starts from and of the target, kept for the whole flow.
        n_levels: parts into which a class is cut along a direction; samples of a part move together.
        seed: of the directions; evaluation number t of a flow uses the same ones whenever it is run,
            and a single call those of the first.

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
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        target.require_labels(_WHO)
        check_known("kernel", kernel, KERNELS)
        self.target, self.kernel = target, kernel
        self.bandwidth = None if bandwidth is None else check_positive("bandwidth", bandwidth)
        self.n_projections = check_count("n_projections", n_projections)
        self.n_levels, self.seed = (
            check_count("n_levels", n_levels),
            check_count("seed", seed, least=0),
        )

    @property
    def stochastic(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        own = {
            "kernel": self.kernel,
            "n_projections": self.n_projections,
            "n_levels": self.n_levels,
        }
        return own if self.bandwidth is None else own | {"bandwidth": self.bandwidth}

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
