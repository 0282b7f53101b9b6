"""A feature cost of fewer dimensions: squared distances of linear images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from advect._util.checks import check_count
from advect.cost.features import FeatureCost
from advect.data.dataset import LabeledDataset
from advect.data.laws.linalg import mass_centre, principal_axes
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class SketchError:
    """What a sketch leaves out.

    Attributes:
        kept: share of the squared spread of both datasets that the sketch keeps.
        bound: how much a transport value without entropy, with the ½ inside, may grow without the
            sketch: 0 ≤ OT − OT_sketch ≤ bound, for features alone; label laws add at most
            label_weight times the same, up to the n/(n − 1) of their covariances.
    """

    kept: float
    bound: float


@dataclass(frozen=True, eq=False)
class Sketch(FeatureCost):
    """‖Bᵀ(x − x')‖² with a d × dim matrix B: a cost, and label laws, of fewer dimensions.

    B holds the principal directions of both datasets together, fitted by ``otdd`` and ``OTDD`` when
    they first see them.

    Gradients hold a fitted B fixed: they are those of the distance under this B, not of one that
    fits B anew to features that moved. A flow fits it once, at its first step.

    Args:
        dim: number of dimensions.
        basis: B, from ``fit``.

    Example:
        >>> import advect as ad
        >>> source, target = ad.harmonize(ad.datasets.load("digits", n=200), ad.datasets.load("mnist", n=200))
        >>> sketch = ad.Sketch(50).fit(source, target)
        >>> sketch.embed(source).shape, sketch.error(source, target).kept > 0.8
        (torch.Size([200, 50]), True)
        >>> exact, fast = ad.otdd(source, target), ad.otdd(source, target, cost=ad.GroundCost(feature=sketch))
        >>> 0.9 < fast.value / exact.value < 1
        True
    """

    dim: int
    basis: Tensor | None = field(default=None, repr=False)
    linear, roundings = True, 8.0

    def __post_init__(self) -> None:
        check_count("dim", self.dim)
        if self.basis is not None:
            # as it is when a checkpoint is read: products with other strides differ in their last
            # digits
            object.__setattr__(self, "basis", self.basis.contiguous())

    def fit(self, *datasets: LabeledDataset) -> Sketch:
        """The sketch with its basis for these datasets (one or two, of one dimension d)."""
        x = datasets[0].x
        if len({data.dim for data in datasets}) > 1:
            raise InputError(
                "a sketch needs one feature space",
                [data.dim for data in datasets],
                "Use ad.harmonize first.",
            )
        if self.dim > x.shape[1]:
            raise InputError(
                f"a sketch of {x.shape[1]} features cannot have more dimensions",
                self.dim,
                "Lower dim.",
            )
        few = x.new_zeros(self.dim, x.shape[1])  # so many axes, also of fewer samples
        axes = principal_axes(itertools.chain(_centred_rows(datasets), [few]))[1]
        return replace(self, basis=axes[: self.dim].mT.to(x))

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> Sketch:
        return self.fit(source, target) if self.basis is None else self

    def state(self) -> dict[str, Tensor]:
        return {} if self.basis is None else {"sketch": self.basis}

    def with_state(self, state: dict[str, Tensor]) -> Sketch:
        return replace(self, basis=state["sketch"]) if "sketch" in state else self

    def embed(self, data: LabeledDataset) -> Tensor:
        """x B, (n, dim)."""
        if self.basis is None:
            raise InputError(
                "a sketch must be fitted first", self, "Call sketch.fit(source, target)."
            )
        if self.basis.shape[0] != data.dim:
            raise InputError(
                f"a sketch of {self.basis.shape[0]} features",
                f"{data.dim} features",
                "Fit it to these datasets.",
            )
        return data.x @ self.basis.to(data.x)

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        """The sketched dataset with its laws: a sketch is linear, N(μ, S) becomes N(Bᵀμ, BᵀSB)."""
        law = data.law
        if law is not None and self.basis is not None:
            law = law.carried(self.basis.to(law.means))
        return data._replace(x=points, sample_shape=tuple(points.shape[1:]), law=law)

    def error(self, source: LabeledDataset, target: LabeledDataset) -> SketchError:
        """What the sketch leaves out between two datasets, around their common centre."""
        basis = self.fit(source, target).basis if self.basis is None else self.basis
        assert basis is not None
        basis = basis.double()
        whole = inside = residual = 0.0
        for rows in _centred_rows((source, target)):
            image = rows @ basis
            whole += float(rows.square().sum())
            inside += float(image.square().sum())
            residual += float((rows - image @ basis.T).square().sum())
        return SketchError(inside / whole if whole else 1.0, residual)


def _centred_rows(datasets: tuple[LabeledDataset, ...]) -> Iterator[Tensor]:
    """Blocks of the rows √w_i (x_i − c) of all datasets around their common centre, in float64."""
    centre = torch.stack([mass_centre(data.x, data.weights) for data in datasets]).mean(dim=0)
    for data in datasets:
        for x, weights in zip(data.x.detach().split(4096), data.weights.split(4096), strict=True):
            yield weights.sqrt()[:, None] * (x - centre).double()
