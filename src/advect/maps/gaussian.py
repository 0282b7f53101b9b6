"""The linear optimal map between Gaussian class laws (Gelbrich 1990; Delon and Desolneux 2020).

    T_y(x) = μ'_y + A_y (x − μ_y) ,   A = S^(−½) (S^½ S' S^½)^½ S^(−½)

For laws of any rank: with S = V diag(σ²) Vᵀ on its range, a factor M of S' = MᵀM, and R the polar
factor of M V diag(σ), the barycentric map of the optimal plan is

    x  ↦  μ' + Mᵀ R diag(1/σ) Vᵀ (x − μ)

which is A where that exists. It reaches S' up to directions orthogonal to the range of S."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.checks import check_count, check_non_negative, check_weights
from advect._util.threads import side_by_side
from advect.data.dataset import LabeledDataset
from advect.data.labels import estimated_laws
from advect.data.laws import Covariance, Gaussians
from advect.data.laws.linalg import squared_distances
from advect.data.laws.wasserstein import polar_factor
from advect.maps.base import Map
from advect.spaces.inputs import require

_TENSORS = ("means", "ends", "rest", "masses", "axes", "images", "deviations")
_MIN_DEVIATION = 1e-6  # relative to the largest: smaller ones are outside the range
_ROUNDING = 1e-13  # relative rounding error of a product in float64


@dataclass(eq=False)
class GaussianMap(Map, kind="gaussian"):
    """x ↦ μ'_y + A_y (x − μ_y): the linear optimal map between the Gaussian laws of each class.

    Use it for few target samples: only means and covariances are carried, which ``between`` takes
    from anywhere. It is also the smoothest map of a flow that moves classes as wholes.

    A sample without a label is carried to Σ_y p(y | x) T_y(x), with ``posterior``. The part of x − μ_y
    outside the range of S_y is multiplied with √(tr S'_y/tr S_y). New samples of a class with few
    samples have large parts there.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> linear = ad.maps.GaussianMap().fit(start, 3 * start + torch.tensor([5.0, 0.0]))
        >>> linear.transform(torch.tensor([[1.0, 1.0]])).round(decimals=3).tolist()
        [[8.0, 3.0]]
    """

    @classmethod
    def between(
        cls,
        source: Gaussians,
        target: Gaussians,
        classes: Sequence[Hashable],
        masses: Tensor | None = None,
    ) -> Self:
        """The map between two sets of laws, row i of ``source`` to row i of ``target``.

        Args:
            source, target: k laws each; use ``laws.take(rows)`` for matched classes.
            classes: k class names.
            masses: masses of the classes, for samples without a label; uniform by default.

        Example:
            >>> import torch, advect as ad
            >>> generator = torch.Generator().manual_seed(0)
            >>> source = ad.datasets.gaussians(300, generator=generator)
            >>> laws = ad.datasets.gaussians(90, shift=(9.0, 0.0), generator=generator).laws()
            >>> linear = ad.maps.GaussianMap.between(source.laws(), laws, source.classes)
            >>> bool(ad.bures(linear.transform(source).laws(), laws).diagonal().max() < 1e-4)
            True
        """
        names = tuple(classes)
        sizes, dims = (len(source), len(target), len(names)), (source.dim, target.dim)
        require(
            {*sizes} == {len(set(names))} and dims[0] == dims[1],
            "each class needs a law at the start, a law at the end and a name",
            f"{sizes[0]} and {sizes[1]} laws of dimensions {dims} for {len(set(names))} names",
            "Take matched laws with laws.take(rows).",
        )
        masses = torch.as_tensor([1.0] * len(names) if masses is None else masses).double()
        linear = cls()
        linear._solve(source, target, check_weights("masses", masses, len(names)))
        linear.classes_, linear.sample_shape_ = names, (source.dim,)
        return linear

    def posterior(self, x: Any) -> Any:
        """p(y | x) ∝ m_y N(x; μ_y, S_y + s² I), a row for each sample and a column for each class.

        m are the class masses at the start, and s² is the mean variance of a feature.
        """
        return self._posterior_of(x, lambda rows: self._posterior(rows.to(self._means)))

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        end = end.replace(y=start.y, classes=start.classes)  # classes at the start
        if not bool(start.labeled.any()):
            one_class = {"y": torch.zeros_like(start.y), "classes": ("all",)}
            start, end = start.replace(**one_class), end.replace(**one_class)
        else:
            self.classes_ = start.classes
            start, end = start.subset(start.labeled), end.subset(start.labeled)
        first, last = estimated_laws(start), estimated_laws(end)
        self._solve(first, last, start.class_mass)

    def _solve(self, source: Gaussians, target: Gaussians, masses: Tensor) -> None:
        """Axes V, deviations σ and images Rᵀ M of each class, stacked."""
        first, last = source.covariance, target.covariance
        pairs = list(zip(first.compressed.parts(), last.compressed.parts(), strict=True))
        least = _min_deviation(first)
        parts = side_by_side(lambda pair: _linear(*pair, least), pairs, rows=source.dim)
        self._sizes = [len(deviations) for _, deviations, _ in parts]
        self._axes, self._deviations, self._images = map(torch.cat, zip(*parts, strict=True))
        self._means, self._ends = source.means.double(), target.means.double()
        before, after = first.traces().double(), last.traces().double()
        scale = (after / torch.where(before > 0, before, 1)).sqrt()
        self._rest = torch.where(before > 0, scale, 1.0).to(self._means)
        self._masses = masses.to(self._means)
        self._noise = float(before.mean()) / source.dim

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        points, codes = x.to(self._means), codes.to(self._means.device)
        if not self.classes_:
            return self._carry(points, 0)
        weights = one_hot(codes.clamp_min(0), len(self.classes_)).to(points)
        unknown = codes < 0
        if bool(unknown.any()):
            weights[unknown] = self._posterior(points[unknown])
        moved = torch.zeros_like(points)
        for code in range(len(self.classes_)):
            rows = weights[:, code].nonzero()[:, 0]
            moved[rows] += weights[rows, code, None] * self._carry(points[rows], code)
        return moved

    def _carry(self, x: Tensor, code: int) -> Tensor:
        centred = x - self._means[code]
        axes, deviations, images = self._parts(code)
        inside = centred @ axes.mT
        rest = self._rest[code] * (centred - inside @ axes)
        return self._ends[code] + (inside / deviations) @ images + rest

    def _parts(self, code: int) -> tuple[Tensor, Tensor, Tensor]:
        first = sum(self._sizes[:code])
        rows = slice(first, first + self._sizes[code])
        return self._axes[rows], self._deviations[rows], self._images[rows]

    def _posterior(self, x: Tensor) -> Tensor:
        """(n, k); S + s² I has the axes of S, and s² outside its range."""
        noise = self._noise
        if noise == 0:  # classes are points: noise that is small relative to their distances
            noise = 1e-9 * float(squared_distances(self._means, self._means).max()) or 1.0
        scores = []
        for code, mass in enumerate(self._masses):
            centred = x - self._means[code]
            axes, deviations, _ = self._parts(code)
            inside, variances = centred @ axes.mT, deviations.square() + noise
            far = (centred - inside @ axes).square().sum(dim=1) / noise
            near = (inside.square() / variances).sum(dim=1)
            scores.append(mass.log() - (far + near + (variances / noise).log().sum()) / 2)
        return torch.stack(scores, dim=1).softmax(dim=1)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        facts = {"sizes": self._sizes, "noise": self._noise}
        return {name: getattr(self, f"_{name}") for name in _TENSORS}, facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self._sizes = [check_count("rows", size, least=0) for size in facts["sizes"]]
        self._noise = check_non_negative("noise", facts["noise"])
        k, d, rows = len(self.classes_) or 1, math.prod(self.sample_shape_ or ()), sum(self._sizes)
        shapes = ((k, d), (k, d), (k,), (k,), (rows, d), (rows, d), (rows,))
        for name, shape in zip(_TENSORS, shapes, strict=True):
            value = tensors[name]
            if value.shape != shape or value.dtype != torch.float64:
                raise ValueError(f"{name} has shape {tuple(value.shape)} instead of {shape}")
            setattr(self, f"_{name}", value)
        if len(self._sizes) != k or not bool((self._deviations > 0).all()):
            raise ValueError("laws and axes do not fit")


def _min_deviation(covariance: Covariance) -> float:
    """Relative to the largest one: matrices have deviations to the root of rounding only."""
    dtypes = [value.dtype for value in covariance.tensors().values() if value.is_floating_point()]
    rounding = 0.0 if covariance.has_factors else max(torch.finfo(dtype).eps for dtype in dtypes)
    return max(_MIN_DEVIATION, 4 * math.sqrt(rounding))


def _linear(factor: Tensor, other: Tensor, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """Vᵀ (r, d), σ (r,) and Rᵀ M (r, d) for factors of S and S'."""
    _, deviations, axes = torch.linalg.svd(factor.detach(), full_matrices=False)
    in_range = deviations > least * (deviations.max() if len(deviations) else 0.0)
    deviations, axes, other = deviations[in_range], axes[in_range], other.detach()
    product = other @ (axes.mT * deviations)
    norms = torch.linalg.vector_norm(other) * torch.linalg.vector_norm(deviations)
    return axes, deviations, polar_factor(product, _ROUNDING * float(norms)).mT @ other
